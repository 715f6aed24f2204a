"""Whole runs of genui in the browser: the bundled suite, and the published rows beside the project."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from .conftest import Run

Bench = Callable[..., Run]


def test_the_bundled_references_pass(bench: Bench) -> None:
    run = bench("--bench=genui", "--bench-data=bundled", "-n2", "--junitxml=r.xml")
    assert run.outcomes == {"passed": 20}
    assert "calibration: 20 of 20 references pass their own checks" in run.text
    assert "trigger precision 1.000 · trigger recall 1.000" in run.text
    names = {case.get("name") for case in ElementTree.parse("r.xml").iter("testcase")}
    assert len(names) == 20


def test_a_noop_fails_every_task(bench: Bench) -> None:
    run = bench("--bench=genui", "--bench-data=bundled", "--bench-agent=noop")
    assert run.outcomes == {"failed": 20}
    assert "0 passed, 20 failed, 0 errors" in run.text


def test_an_agent_that_sees_too_much_or_too_little_triggers(
    bench: Bench, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(
        """
        import pytest
        from pytest_agentbench import Transcript
        from pytest_agentbench.transcripts import assistant, tool_call, user

        @pytest.fixture(scope="session")
        def bench_agent():
            def eager(task, workspace):
                if task.id == "learn_reg_01":
                    return "I would rather not."
                call = tool_call("render_micro_app", {"html": "<p>x</p>"})
                return Transcript((user(task.prompt), assistant(call)))
            return eager
        """
    )
    run = bench(
        "--bench=genui",
        "--bench-data=bundled",
        "-k",
        "learn_reg or plain_reg",
        "--bench-timeout-scale=0.05",
    )
    # 4 + 4 tasks: apps are wanted for the first four, shown for three of them and four others
    suite = run.summary["suites"][0]
    assert suite["trigger_precision"] == pytest.approx(3 / 7)
    assert suite["trigger_recall"] == pytest.approx(3 / 4)


@pytest.mark.parametrize("workers", ["-n2"])
def test_the_published_references_have_their_known_verdicts(
    bench: Bench, shared_data: Path, workers: str
) -> None:
    data = shared_data / "genui" / "train-00000-of-00001.parquet"
    run = bench("--bench=genui", f"--bench-data={data}", workers)
    with (shared_data / "genui" / "reference-verdicts.csv").open() as file:
        wanted = {row["task_id"]: row["verdict"] for row in csv.DictReader(file)}
    assert {r.task_id: r.verdict for r in run.records} == wanted
    assert "calibration: 8 of 20 references pass their own checks" in run.text


def test_evidence_of_a_failure(bench: Bench, pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest
        from pytest_agentbench import Transcript
        from pytest_agentbench.transcripts import assistant, tool_call, user

        HTML = '''<button onclick="hermes.sendAction({wrong: 1})">x</button>
        <img src="https://example.com/x.png"><script>console.log("seen"); undefined_name</script>'''

        @pytest.fixture(scope="session")
        def bench_agent():
            def poor(task, workspace):
                call = tool_call("render_micro_app", {"html": HTML})
                return Transcript((user(task.prompt), assistant(call)))
            return poor
        """
    )
    run = bench(
        "--bench=genui", "--bench-data=bundled", "-k", "learn_reg_01", "--bench-timeout-scale=0.1"
    )
    record = run.records[0]
    place = Path(record.details["directory"])
    assert (place / "screenshot.png").read_bytes().startswith(b"\x89PNG")
    page = (place / "page.json").read_text()
    for seen in ("https://example.com/x.png", "undefined_name is not defined", "log: seen"):
        assert seen in page
    assert "<button" in (place / "page.html").read_text()
    assert (place / "app.html").read_text().startswith("<button")
    assert f"evidence: {place}" in run.text and "zero_js_errors" in run.text


def test_no_browser_is_one_clear_error(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    run = bench("--bench=genui", "--bench-data=bundled", "-k", "reg_01", fresh=True)
    assert run.outcomes == {"passed": 1, "errors": 3, "deselected": 16}
    errors = run.text.partition("= ERRORS =")[2].partition("= agentbench =")[0]
    assert errors.count("playwright install chromium") == 1
    assert errors.count("the first error says what to install") == 2


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_a_run_leaves_no_temporary_files(
    bench: Bench, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: str
) -> None:
    temporary = pytester.mkdir("temporary")
    monkeypatch.setenv("TMPDIR", str(temporary))
    pytester.makeconftest(
        """
        import os, pytest

        @pytest.fixture(scope="session")
        def bench_agent():
            def agent(task, workspace):
                (workspace / "left.txt").write_text("x")
                if "PYTEST_XDIST_WORKER" in os.environ and task.id == "plain_reg_02":
                    os._exit(1)
                return "x"
            return agent
        """
    )
    run = bench(
        "--bench=genui", "--bench-data=bundled", "-k", "plain or learn_reg_01", workers, fresh=True
    )
    assert len(run.records) == 5
    assert {path.name for path in temporary.iterdir()} <= {"pytest-of-root"}
