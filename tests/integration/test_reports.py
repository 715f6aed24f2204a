"""What a run says and writes: terminal, JUnit XML, run directory."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from .conftest import Run

Bench = Callable[..., Run]
Rows = Callable[..., str]

pytestmark = pytest.mark.usefixtures("obedient")


def junit(path: Path) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Properties of the suite and of each test case."""
    suite = ElementTree.parse(path).getroot()[0]

    def properties(node: ElementTree.Element) -> dict[str, str]:
        return {p.get("name", ""): p.get("value", "") for p in node.findall("properties/property")}

    cases = {
        f"{c.get('classname')}::{c.get('name')}": properties(c) for c in suite.iter("testcase")
    }
    return properties(suite), cases


def test_junit_is_the_same_with_and_without_workers(bench: Bench, rows: Rows) -> None:
    data = rows("odd trials 1", "hello", "bye", {"mock_tool_context": "{"})
    found = []
    for workers in ("-n0", "-n2"):
        name = f"r{workers}.xml"
        options = ("--bench-trials=5", "--bench-k=1,2,5", f"--junitxml={name}")
        run = bench("--bench=genui", data, workers, *options, out=f"run{workers}")
        found.append(junit(run.out.parent / name))
    (suite, cases), (other_suite, other_cases) = found
    assert suite == other_suite
    assert cases == other_cases
    assert len(cases) == 20
    assert suite["agent"] == "obey" and suite["scored"] == "15" and suite["error"] == "5"
    assert float(suite["pass@2"]) == pytest.approx((0.9 + 1 + 0) / 3, rel=1e-5)
    assert float(suite["pass^5"]) == pytest.approx(1 / 3, rel=1e-5)
    one = cases["genui::t3[trial2]"]
    assert one["agentbench.verdict"] == "fail"
    assert one["agentbench.failed_checks"] == "must_contain_strings_in_text_response"
    assert one["agentbench.trial"] == "2" and one["agentbench.score"] == "0.5"


def test_several_suites_have_prefixes_in_junit(bench: Bench, rows: Rows) -> None:
    agents = ("--bench-agent=noop", "--bench-agent=reference")
    run = bench("--bench=genui", rows("hello"), *agents, "--junitxml=r.xml")
    suite, _ = junit(run.out.parent / "r.xml")
    assert (suite["genui/noop/pass@1"], suite["genui/reference/pass@1"]) == ("0", "1")


def test_the_terminal_fits_80_columns(
    bench: Bench, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    data = rows(*["bye", "hello"] * 3, {"task_id": "x" * 300, "user_prompt": "bye " * 99})
    run = bench("--bench=genui", data, "--bench-trials=3", "-v", "--color=no")
    section = run.text.partition("= agentbench =")[2].partition("short test summary")[0]
    assert "run directory" in section
    assert max(len(line) for line in section.splitlines()) <= 80
    header = [line for line in run.text.splitlines() if line.startswith("agentbench:")]
    assert len(header) == 3 and max(map(len, header)) <= 80


def test_quiet_verbose_and_no_summary(bench: Bench, rows: Rows) -> None:
    data = rows("hello", "bye")
    quiet = bench("--bench=genui", data, "-q", out="a")
    assert "genui · obey: pass@1 0.500, mean_score 0.750 (2 of 2 scored)" in quiet.text
    assert "= agentbench =" not in quiet.text
    verbose = bench("--bench=genui", data, "-v", out="b")
    verbose.result.stdout.fnmatch_lines(
        [
            "  task  passed wanted   mean    std    min    max",
            "  t1     1/1      1  1.000  0.000  1.000  1.000",
        ]
    )
    silent = bench("--bench=genui", data, "--no-summary", out="c")
    assert "pass@1" not in silent.text
    assert len(silent.records) == 2
    plain = bench("--bench=genui", data, "-p", "no:terminal", out="d")
    assert plain.text.strip() == ""
    assert plain.verdicts == {"t1/1": "pass", "t2/1": "fail"}
    assert plain.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize("plugin", ["no:terminal", "no:junitxml", "no:cacheprovider", "no:pdb"])
@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_without_one_of_pytests_own_plugins(
    bench: Bench, rows: Rows, plugin: str, workers: str
) -> None:
    run = bench("--bench=genui", rows("hello", "bye"), "-p", plugin, workers)
    assert run.verdicts == {"t1/1": "pass", "t2/1": "fail"}


def test_the_run_directory(bench: Bench, rows: Rows) -> None:
    run = bench("--bench=genui", rows("bye", "hello"), "--bench-seed=7", "--bench-trials=2")
    about = json.loads((run.out / "run.json").read_text())
    assert about["complete"] is True
    assert about["options"]["seed"] == 7 and about["judge"] == "off"
    dataset = about["datasets"]["genui"]
    assert dataset["rows"] == 2 and len(dataset["fingerprint"]) == 64
    assert [r.row_sha256 for r in run.records[::2]] == dataset["row_sha256"]
    trial = run.out / "obey/genui/t1/2"
    assert {path.name for path in trial.iterdir()} >= {
        "task.json",
        "transcript.jsonl",
        "response.txt",
        "record.json",
    }
    assert (trial / "response.txt").read_text() == "bye"
    lines = (run.out / "trials.jsonl").read_text().splitlines()
    assert (trial / "record.json").read_text() == lines[1]
    task = json.loads((trial / "task.json").read_text())
    assert task["trial"] == 2 and task["seed"] == 7


def test_artifacts_none_leaves_only_the_log(bench: Bench, rows: Rows) -> None:
    run = bench("--bench=genui", rows("bye"), "--bench-artifacts=none")
    assert {p.name for p in run.out.iterdir()} == {
        ".gitignore",
        "run.json",
        "trials.jsonl",
        "summary.json",
    }


def test_a_run_directory_is_used_once(bench: Bench, rows: Rows) -> None:
    data = rows("hello")
    assert bench("--bench=genui", data).ret == 0
    before = (Path("run") / "trials.jsonl").read_text()
    again = bench("--bench=genui", data)
    assert again.ret == pytest.ExitCode.USAGE_ERROR
    assert "--bench-out" in again.errors and "holds a run already" in again.errors
    assert (Path("run") / "trials.jsonl").read_text() == before


def test_the_default_run_directory_is_hidden_and_ignored(bench: Bench, rows: Rows) -> None:
    bench("--bench=genui", rows("hello"), out=None)
    (run,) = Path(".agentbench").iterdir()
    assert (run / "trials.jsonl").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_run_directory_that_cannot_be_written(bench: Bench, rows: Rows) -> None:
    Path("locked").mkdir(mode=0o500)
    run = bench("--bench=genui", rows("hello"), out="locked/run")
    assert run.ret == pytest.ExitCode.USAGE_ERROR


def test_evidence_that_cannot_be_written_changes_no_verdict(bench: Bench, rows: Rows) -> None:
    out = Path("run")
    out.mkdir()
    (out / "obey").write_text("in the way of the directory")
    run = bench("--bench=genui", rows("hello", "bye"))
    assert run.verdicts == {"t1/1": "pass", "t2/1": "fail"}
    assert "evidence: could not be written" in run.text


def test_records_that_cannot_be_written_turn_the_run_red(
    bench: Bench, rows: Rows, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(
        full_disk="""
        import pytest
        from pytest_agentbench.runlog import RunLog

        @pytest.fixture(autouse=True, scope="session")
        def full_disk():
            patch = pytest.MonkeyPatch()
            def append(self, text):
                raise OSError(28, "No space left on device")
            patch.setattr(RunLog, "append", append)
            yield
            patch.undo()
        """
    )
    run = bench("--bench=genui", rows("hello", "hello"), "-p", "full_disk")
    assert run.outcomes == {"passed": 2}
    assert run.ret == pytest.ExitCode.TESTS_FAILED
    assert "ERROR: records are missing in trials.jsonl: [Errno 28]" in run.text


def test_a_plugin_that_runs_tests_again(
    bench: Bench, rows: Rows, pytester: pytest.Pytester
) -> None:
    pytest.importorskip("pytest_rerunfailures")
    run = bench("--bench=genui", rows("bye", "hello"), "-p", "pytest_rerunfailures", "--reruns=2")
    assert run.verdicts == {"t1/1": "fail", "t2/1": "pass"}
    assert "2 trials were run again by another plugin; first results count" in run.text
