"""A user's own tests over the tasks of a benchmark, the fixtures, the agent and the hooks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests_support import pinch_row

from pytest_agentbench.text import slug

from .conftest import Run

Bench = Callable[..., Run]
Rows = Callable[..., str]


@pytest.mark.usefixtures("obedient")
@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_the_marker_makes_one_item_per_task_and_trial(
    bench: Bench, rows: Rows, pytester: pytest.Pytester, workers: str
) -> None:
    pytester.makepyfile(
        test_mine="""
        import pytest

        @pytest.mark.bench("genui", trials=2)
        def test_mine(bench, bench_task, bench_workspace):
            assert bench_task.id.startswith("t")
            assert bench_workspace.is_dir()
            trial = bench.run()
            assert trial.passed
        """
    )
    run = bench(rows("hello", "bye"), "test_mine.py", workers, "--junitxml=r.xml")
    assert run.outcomes == {"passed": 2, "failed": 2}
    assert run.verdicts == {"t1/1": "pass", "t1/2": "pass", "t2/1": "fail", "t2/2": "fail"}
    suite = run.summary["suites"][0]
    assert (suite["suite"], suite["agent"], suite["selected"]) == (
        "test_mine.py::test_mine",
        "obey",
        4,
    )
    assert run.metric("pass^2") == 0.5
    assert "test_mine.py::test_mine · agent obey · 2 tasks x 2 trials" in run.text
    assert 'name="pass^2" value="0.5"' in (run.out.parent / "r.xml").read_text()


@pytest.mark.usefixtures("obedient")
def test_a_test_may_ask_for_more_than_the_benchmark(
    bench: Bench, rows: Rows, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(
        test_mine="""
        import pytest

        @pytest.mark.bench("genui")
        def test_mine(bench):
            trial = bench.run()
            assert trial.duration_s < 0, "too slow"
        """
    )
    run = bench(rows("hello"), "test_mine.py")
    assert run.outcomes == {"failed": 1}
    assert run.records[0].verdict == "fail"
    assert "the test's own check" in run.records[0].reason and "too slow" in run.records[0].reason
    assert run.metric("pass@1") == 0.0


@pytest.mark.usefixtures("obedient")
def test_trouble_of_the_harness_is_an_error_in_own_tests_too(
    bench: Bench, rows: Rows, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(
        test_mine="""
        import pytest

        @pytest.mark.bench("genui")
        def test_mine(bench):
            bench.run()
        """
    )
    run = bench(rows({"expected_tool_trigger": "perhaps"}), "test_mine.py")
    assert run.outcomes == {"errors": 1}
    assert run.records[0].verdict == "error"


@pytest.mark.usefixtures("obedient")
def test_two_tests_and_the_benchmark_keep_apart(
    bench: Bench, rows: Rows, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(
        test_mine="""
        import pytest

        @pytest.mark.bench("genui")
        class TestBoth:
            def test_one(self, bench):
                bench.check()

            @pytest.mark.parametrize("factor", [1, 2])
            def test_two(self, bench, factor):
                bench.check()
        """
    )
    run = bench("--bench=genui", rows("bye"), "test_mine.py")
    assert run.outcomes == {"failed": 4}
    directories = [record.details["directory"] for record in run.records]
    assert len(set(directories)) == 4
    suites = {suite["suite"]: suite["selected"] for suite in run.summary["suites"]}
    assert suites == {
        "genui": 1,
        "test_mine.py::TestBoth::test_one": 1,
        "test_mine.py::TestBoth::test_two[1]": 1,
        "test_mine.py::TestBoth::test_two[2]": 1,
    }
    assert all(
        json.loads(Path(d, "record.json").read_text())["task_id"] == "t1" for d in directories
    )


@pytest.mark.usefixtures("obedient")
def test_markers_and_keywords_select_own_tests(
    bench: Bench, rows: Rows, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(
        test_mine="""
        import pytest

        @pytest.mark.bench("genui", trials=2)
        def test_mine(bench):
            bench.check()
        """
    )
    data = rows("hello", {"user_prompt": "hello", "suite_type": "capability"})
    run = bench(data, "test_mine.py", "-m", "capability and genui", "-k", "trial2")
    assert run.verdicts == {"t2/2": "pass"}
    pasted = bench(data, "test_mine.py::test_mine[genui-t1-trial1]", out="pasted")
    assert pasted.verdicts == {"t1/1": "pass"}


@pytest.mark.parametrize(
    ("mark", "argument", "message"),
    [
        ('"genui", trials=0', "bench", "with K a whole number from 1"),
        ('"genui", trials="2"', "bench", "with K a whole number from 1"),
        ('"genui", k=2', "bench", "expected @pytest.mark.bench(NAME, trials=K)"),
        ("", "bench", "expected @pytest.mark.bench(NAME, trials=K)"),
        ('"genie"', "bench", "Did you mean 'genui'?"),
        ('"genui"', "", "needs the fixture 'bench'"),
    ],
)
def test_a_wrong_marker_is_told(
    bench: Bench, rows: Rows, pytester: pytest.Pytester, mark: str, argument: str, message: str
) -> None:
    pytester.makepyfile(
        test_mine=f"""
        import pytest

        @pytest.mark.bench({mark})
        def test_mine({argument}):
            pass
        """
    )
    run = bench(rows("hello"), "test_mine.py")
    assert run.ret != 0
    assert message in run.text


def test_the_fixture_without_the_marker_is_told(bench: Bench, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_mine(bench): pass")
    run = bench()
    assert run.outcomes == {"errors": 1}
    assert "needs @pytest.mark.bench(NAME) on the test" in run.text


@pytest.mark.parametrize(
    "fixture",
    [
        "return lambda task, workspace: 'hello'",
        "async def agent(task, workspace):\n        return 'hello'\n    return agent",
        "from pytest_agentbench import Transcript\n"
        "    return lambda task, workspace: Transcript.from_answer(task.prompt, 'hello')",
        "return 'reference'",
        "class Agent:\n"
        "        def __call__(self, task, workspace):\n"
        "            (workspace / 'note.txt').write_text('x')\n"
        "            return 'hello'\n"
        "    return Agent()",
    ],
)
def test_the_agent_is_a_fixture(
    bench: Bench, rows: Rows, pytester: pytest.Pytester, fixture: str
) -> None:
    pytester.makeconftest(
        f"""
import pytest

@pytest.fixture(scope="session")
def bench_agent():
    {fixture}
"""
    )
    run = bench("--bench=genui", rows("Greet."))
    assert run.outcomes == {"passed": 1}


@pytest.mark.usefixtures("obedient")
def test_an_agent_option_comes_before_the_fixture(bench: Bench, rows: Rows) -> None:
    run = bench("--bench=genui", rows("hello"), "--bench-agent=noop")
    assert run.verdicts == {"t1/1": "fail"}
    assert run.records[0].agent == "noop"


def test_what_an_agent_must_not_return_is_its_failure(
    bench: Bench, rows: Rows, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def bench_agent():
            answers = {"t1": 5, "t2": None, "t3": b"hello", "t4": ["hello"]}
            return lambda task, workspace: answers[task.id]
        """
    )
    run = bench("--bench=genui", rows(*["hello"] * 4))
    assert run.outcomes == {"failed": 4}
    for record in run.records:
        assert "an agent returns a Transcript, a str, or a list of events" in record.reason, record


HOOKS = """
import json, pytest
from pathlib import Path

def pytest_agentbench_agent(config, spec):
    if spec == "mine":
        return lambda task, workspace: "hello"

def pytest_agentbench_trial_finished(config, record):
    with open("finished.txt", "a") as log:
        log.write(f"{record.task_id} {record.trial} {record.verdict}\\n")

def pytest_agentbench_summary(config, summary):
    assert not hasattr(config, "workerinput")
    numbers = {s.suite: s.metric("pass@1").value for s in summary}
    Path("summary.txt").write_text(json.dumps(numbers))
"""


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_hooks_are_called_once_in_the_controller(
    bench: Bench, rows: Rows, pytester: pytest.Pytester, workers: str
) -> None:
    pytester.makeconftest(HOOKS)
    run = bench("--bench=genui", rows("a", "b"), "--bench-agent=mine", "--bench-trials=2", workers)
    assert run.outcomes == {"passed": 4}
    finished = (pytester.path / "finished.txt").read_text().splitlines()
    assert sorted(finished) == ["t1 1 pass", "t1 2 pass", "t2 1 pass", "t2 2 pass"]
    assert json.loads((pytester.path / "summary.txt").read_text()) == {"genui": 1.0}


def test_a_benchmark_from_a_hook(bench: Bench, pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        from pytest_agentbench import Benchmark, Check, Grade, Task

        class Echo(Benchmark):
            name = "echo"

            def bundled(self):
                return [{"task_id": "a", "word": "x"}, {"task_id": "b", "word": "y"}]

            def task(self, ref, row):
                return Task(ref, row.cells["word"], spec=row.cells["word"])

            def grade(self, attempt, tools):
                if attempt.task.spec == "y":
                    raise RuntimeError("the grader is at fault")
                right = attempt.transcript.final_text() == attempt.task.spec
                return Grade((Check("echo", "code", right, float(right)),), float(right))

        def pytest_agentbench_benchmarks(config):
            return [Echo]

        def pytest_agentbench_agent(config, spec):
            if spec == "parrot":
                return lambda task, workspace: task.prompt
        """
    )
    run = bench("--bench=echo", "--bench-agent=parrot")
    assert run.outcomes == {"passed": 1, "errors": 1}
    assert "the grader is at fault" in run.records[1].reason
    refused = bench("--bench=echo", out="refused")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    assert "echo has no reference solutions for bundled; name an agent" in refused.errors


def test_the_page_of_an_app(bench: Bench, pytester: pytest.Pytester) -> None:
    """``bench_page`` shows the app in pytest-playwright's browser, or in the one that was found."""
    pytester.makepyfile(
        test_mine="""
        import pytest

        @pytest.mark.bench("genui")
        def test_mine(bench_page):
            assert bench_page.locator("button").count() > 0
            bench_page.evaluate("hermes.sendAction({a: 1})")
            assert bench_page.evaluate("__agentbench_payloads") == [{"a": 1}]
            assert bench_page.evaluate(
                "fetch('https://example.com').then(() => 'reached', () => 'blocked')"
            ) == "blocked"
        """
    )
    run = bench(
        "--bench-data=bundled", "test_mine.py", "-k", "learn_reg_01 or plain_reg_01",
        "-p", "pytest_playwright.pytest_playwright", fresh=True,
    )  # fmt: skip
    assert run.outcomes == {"passed": 1, "skipped": 1, "deselected": 18}
    assert {r.task_id: r.verdict for r in run.records} == {
        "learn_reg_01": "pass",
        "plain_reg_01": "pass",
    }


@pytest.mark.usefixtures("obedient")
def test_the_evidence_of_own_tests_is_apart(
    bench: Bench, rows: Rows, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(
        test_mine="""
        import pytest

        @pytest.mark.bench("genui")
        def test_mine(bench):
            bench.check()
        """
    )
    run = bench(rows("bye"), "test_mine.py")
    assert (
        run.out / "tests" / slug("test_mine.py::test_mine") / "obey/genui/t1/1/record.json"
    ).exists()


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_own_tests_say_what_the_sandbox_is_worth(
    bench: Bench, pytester: pytest.Pytester, workers: str
) -> None:
    (pytester.path / "rows.jsonl").write_text(json.dumps(pinch_row("task_own")) + "\n")
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.bench("pinchbench")
        def test_mine(bench):
            assert bench.run().passed
        """
    )
    options = ("--bench-data=rows.jsonl", "--bench-agent=noop", workers)

    auto = bench(*options, fresh=True)
    off = bench(*options, "--bench-sandbox=off", fresh=True, out="off")

    assert auto.outcomes == off.outcomes == {"passed": 1}
    isolation = json.loads((auto.out / "run.json").read_text())["isolation"]
    assert "limits" in isolation["held"]
    off.result.stdout.fnmatch_lines(["sandbox degraded: nothing holds*"])
