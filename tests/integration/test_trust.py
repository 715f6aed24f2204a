"""What others' code does around a trial must neither end the run nor bend a number."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import HAS_XDIST, OBEDIENT, Run

Bench = Callable[..., Run]
Rows = Callable[..., str]


@pytest.mark.parametrize(
    "skip",
    [
        "def pytest_collection_modifyitems(items):\n"
        "    items[1].add_marker(pytest.mark.skip(reason='not today'))",
        "def pytest_collection_modifyitems(items):\n"
        "    items[1].add_marker(pytest.mark.skipif(True, reason='not today'))",
        "@pytest.fixture(autouse=True)\n"
        "def skipping(request):\n"
        "    if 't2' in request.node.name:\n"
        "        pytest.skip('not today')",
    ],
    ids=["skip", "skipif", "fixture"],
)
@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_a_trial_that_others_skip(
    bench: Bench, rows: Rows, pytester: pytest.Pytester, skip: str, workers: str
) -> None:
    pytester.makeconftest(OBEDIENT + skip)
    run = bench("--bench=genui", rows("hello", "hello", "hello"), workers, "-rs")
    assert run.outcomes == {"passed": 2, "skipped": 1}
    assert run.verdicts["t2/1"] == "skip"
    assert next(r for r in run.records if r.verdict == "skip").reason == "not today"
    assert "unscored fail 0.667, pass 1.000" in run.text


def test_other_parameters_stay_apart(bench: Bench, rows: Rows, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_mine="""
        import pytest

        @pytest.mark.bench("genui", trials=2)
        @pytest.mark.parametrize("n", [-1, 1])
        def test_n(bench, n):
            bench.run()
            assert n > 0

        @pytest.mark.parametrize("name", ["a-b", "a--b"])
        @pytest.mark.bench("genui")
        def test_name(bench, name):
            bench.run()
            assert name == "a-b"
        """
    )
    run = bench(rows("x"), "test_mine.py", "--bench-agent=reference")
    found = {s["suite"]: s["metrics"]["pass@1"]["value"] for s in run.summary["suites"]}
    assert found == {
        "test_mine.py::test_n[-1]": 0.0,
        "test_mine.py::test_n[1]": 1.0,
        "test_mine.py::test_name[a-b]": 1.0,
        "test_mine.py::test_name[a--b]": 0.0,
    }


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_own_tests_that_never_ran_stay_in_the_denominator(
    bench: Bench, rows: Rows, pytester: pytest.Pytester, workers: str
) -> None:
    pytester.makepyfile(
        test_mine="""
        import pytest

        @pytest.mark.bench("genui", trials=5)
        def test_mine(bench):
            bench.check()
        """
    )
    run = bench(rows("a", "b", "c", "d"), "test_mine.py", workers, "-x", "--bench-agent=noop")
    suite = run.summary["suites"][0]
    assert (suite["selected"], suite["trials_per_task"]) == (20, 5)
    assert suite["counts"]["not run"] >= 15
    assert run.summary["complete"] is False


def test_own_tests_that_fail_or_skip_in_their_own_way(
    bench: Bench, rows: Rows, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(
        test_mine="""
        import pytest

        @pytest.mark.bench("genui")
        @pytest.mark.xfail
        def test_expected(bench):
            bench.run()
            assert 0

        @pytest.mark.bench("genui")
        def test_before(bench):
            assert 0, "too early"

        @pytest.mark.bench("genui")
        def test_skipping(bench):
            pytest.skip("not today")

        @pytest.mark.bench("genui")
        def test_skipping_late(bench):
            assert bench.run().passed
            pytest.skip("not today")
        """
    )
    run = bench(rows("hello"), "test_mine.py", "--bench-agent=reference")
    counts = {s["suite"].rpartition("::")[2]: s["counts"] for s in run.summary["suites"]}
    assert counts["test_expected"]["fail"] == 1
    assert counts["test_before"]["fail"] == 1
    assert counts["test_skipping"]["skip"] == 1
    assert counts["test_skipping_late"]["skip"] == 1


def test_what_agents_wrote_is_never_run(
    bench: Bench, rows: Rows, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def bench_agent():
            def agent(task, workspace):
                (workspace / "conftest.py").write_text("raise SystemExit('it was imported')")
                (workspace / "test_planted.py").write_text("def test_planted(): pass")
                return "hello"
            return agent
        """
    )
    run = bench("--bench=genui", rows("x"), out="results")
    assert list(run.out.rglob("test_planted.py"))
    pytester.makepyfile(test_own="def test_own(): pass")
    result = pytester.runpytest_inprocess("-p", "pytest_agentbench.plugin")
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_text_that_cannot_be_sent(bench: Bench, rows: Rows, workers: str) -> None:
    data = rows({"task_id": "a\ud800b\x1b[31m", "user_prompt": "\ud800"}, "x")
    run = bench("--bench=genui", data, "--bench-agent=noop", workers)
    assert run.outcomes == {"failed": 2}
    assert "\x1b" not in run.text
    assert run.records[0].task_id == "a\ud800b\x1b[31m" or workers == "-n2"


def test_running_again_changes_no_file(bench: Bench, rows: Rows, pytester: pytest.Pytester) -> None:
    pytest.importorskip("pytest_rerunfailures")
    pytester.makeconftest(
        """
        import pytest
        from pathlib import Path

        @pytest.fixture(scope="session")
        def bench_agent():
            def flaky(task, workspace):
                before = Path("before")
                answer = "hello" if before.exists() else "bye"
                before.touch()
                return answer
            return flaky
        """
    )
    options = ("-p", "pytest_rerunfailures", "--reruns=1", "--junitxml=r.xml")
    run = bench("--bench=genui", rows("x"), *options)
    record = json.loads((run.out / "flaky/genui/t1/1/record.json").read_text())
    assert run.verdicts == {"t1/1": "fail"}
    assert record["verdict"] == "fail"
    xml = Path("r.xml").read_text()
    assert 'name="agentbench.verdict" value="fail"' in xml
    assert 'name="agentbench.verdict" value="pass"' not in xml


@pytest.mark.parametrize(
    "hook",
    [
        "def pytest_agentbench_summary(config, summary): raise KeyError('of mine')",
        "def pytest_agentbench_trial_finished(config, record): raise KeyError('of mine')",
    ],
)
def test_a_hook_that_raises_loses_nothing(
    bench: Bench, rows: Rows, pytester: pytest.Pytester, hook: str
) -> None:
    pytester.makeconftest(OBEDIENT + hook)
    run = bench("--bench=genui", rows("hello", "hello"), "--junitxml=r.xml")
    assert run.ret == pytest.ExitCode.TESTS_FAILED
    assert run.outcomes == {"passed": 2}
    assert "KeyError: 'of mine'" in run.text
    assert run.summary["complete"] is True
    assert 'name="pass@1" value="1"' in Path("r.xml").read_text()


def test_an_agent_fixture_that_cannot_be_made(
    bench: Bench, rows: Rows, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def bench_agent():
            raise OSError("no key")
        """
    )
    run = bench("--bench=genui", rows("x", "y"))
    assert run.outcomes == {"errors": 2}
    assert {r.agent for r in run.records} == {"bench_agent"}
    assert "calibration" not in run.text


GRADER = """
import pytest
from pytest_agentbench import Benchmark, Check, Grade, Task

class Odd(Benchmark):
    name = "odd"

    def bundled(self):
        return [{"task_id": name} for name in ("files", "escape", "array", "task", "prepare", "ok")]

    def task(self, ref, row):
        if ref.id == "task":
            raise KeyError("of the row")
        return Task(ref, "x", spec=None)

    def prepare(self, task, workspace):
        if task.ref.id == "prepare":
            raise OSError("no space")

    def grade(self, attempt, tools):
        import numpy
        name = attempt.task.ref.id
        files = {"files": {"sub/a.txt": b"x"}, "escape": {"../a.txt": b"x"}}.get(name, {})
        details = {"array": numpy.arange(3)} if name == "array" else {}
        check = Check("c\\ud800", "code", False, 0.0, "no")
        return Grade((check,), 0.0, details=details, files=files)

    def headlines(self, records):
        raise ZeroDivisionError

def pytest_agentbench_benchmarks(config):
    return [Odd]
"""


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_a_grader_of_somebody_elses(bench: Bench, pytester: pytest.Pytester, workers: str) -> None:
    pytester.makeconftest(GRADER)
    run = bench("--bench=odd", "--bench-agent=noop", workers)
    by_id = {r.task_id: r for r in run.records}
    assert run.outcomes == {"failed": 4, "errors": 2}
    assert by_id["task"].reason == "the row: KeyError: 'of the row'"
    assert by_id["prepare"].reason == "preparing the workspace: OSError: no space"
    assert (run.out / "noop/odd/files/1/sub/a.txt").read_bytes() == b"x"
    assert "would leave" in by_id["escape"].details["evidence"]
    assert by_id["array"].details["array"] == [0, 1, 2]
    assert "headlines of odd: ZeroDivisionError" in run.text


def test_a_directory_of_the_benchmarks_name(bench: Bench, rows: Rows) -> None:
    Path("genui").mkdir()
    run = bench("--bench=genui", rows("x", "y"), "genui::t2[trial1]", "--bench-agent=reference")
    assert run.verdicts == {"t2/1": "pass"}


def test_paths_of_the_ini_file_are_relative_to_it(
    bench: Bench, rows: Rows, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows("x")
    Path("pytest.ini").write_text("[pytest]\nbench_data = rows.jsonl\nbench_out = here\n")
    pytester.mkdir("sub")
    monkeypatch.chdir("sub")
    run = bench("--bench=genui", "--bench-agent=reference", out=None)
    assert run.outcomes == {"passed": 1}
    assert (pytester.path / "here" / "trials.jsonl").exists()


@pytest.mark.skipif(not HAS_XDIST, reason="pytest-xdist is not installed")
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_workers_end_when_the_controller_is_killed(pytester: pytest.Pytester, rows: Rows) -> None:
    mark = f"agentbench-sleeper-{os.getpid()}"
    agent = f"cmd:{sys.executable} -c 'import time; time.sleep(300)' {mark}"
    command = [
        *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n2", "--bench=genui"),
        *(rows("a", "b"), f"--bench-agent={agent}", "--bench-out=out"),
    ]
    left = pytester.mkdir("left")  # a killed run tidies nothing
    controller = subprocess.Popen(
        command,
        cwd=pytester.path,
        env={**os.environ, "TMPDIR": str(left)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def running() -> int:
        found = 0
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                found += mark.encode() in (entry / "cmdline").read_bytes()
        return found

    # the controller's own command line has the mark, too
    until(lambda: running() > 3)
    controller.kill()
    controller.wait()

    until(lambda: running() == 0, seconds=10)


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.1)
