"""Four verdicts, four pytest outcomes, and they never mix."""

from __future__ import annotations

from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from .conftest import Run

pytestmark = pytest.mark.usefixtures("obedient")
Bench = Callable[..., Run]
Rows = Callable[..., str]

BROKEN = {
    "outcome_interaction_steps": '[{"action": "jump", "selector": "b"}]',
    "user_prompt": "hello",
}


@pytest.fixture
def mixed(rows: Rows) -> str:
    """One row for each outcome: pass, fail, the agent raises, the row is broken."""
    return rows("hello", "bye", "raise", BROKEN)


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_each_verdict_is_its_own_outcome(bench: Bench, mixed: str, workers: str) -> None:
    run = bench("--bench=genui", mixed, workers, "--junitxml=r.xml")
    assert run.ret == pytest.ExitCode.TESTS_FAILED
    assert run.outcomes == {"passed": 1, "failed": 2, "errors": 1}
    assert run.verdicts == {"t1/1": "pass", "t2/1": "fail", "t3/1": "fail", "t4/1": "error"}
    by_id = {record.task_id: record for record in run.records}
    assert "not found in the answer: 'hello' (answer: 'bye')" in by_id["t2"].reason
    assert "the agent's own mistake" in by_id["t3"].reason
    assert "row 4 (t4), column 'outcome_interaction_steps'" in by_id["t4"].reason
    assert by_id["t4"].score is None
    suite = ElementTree.parse(run.out.parent / "r.xml").getroot()[0]
    assert {k: suite.get(k) for k in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4", "failures": "2", "errors": "1", "skipped": "0"
    }  # fmt: skip


def test_an_error_leaves_no_denominator_silently(bench: Bench, mixed: str) -> None:
    run = bench("--bench=genui", mixed)
    suite = run.summary["suites"][0]
    assert suite["counts"] == {"pass": 1, "fail": 2, "error": 1, "skip": 0, "not run": 0}
    metric = suite["metrics"]["pass@1"]
    assert metric["value"] == pytest.approx(1 / 3)
    assert (metric["tasks"], metric["of"]) == (3, 4)
    assert metric["bounds"] == pytest.approx([1 / 4, 2 / 4])
    assert "3 of 4 tasks have a value; unscored fail 0.250, pass 0.500" in run.text
    assert "1 passed, 2 failed, 1 error, 0 skipped; scored 3 of 4" in run.text


def test_three_successes_of_five(bench: Bench, rows: Rows) -> None:
    run = bench(
        "--bench=genui", rows("odd trials 1", "odd trials 2"), "--bench-trials=5", "--bench-k=1,2,5"
    )
    assert run.outcomes == {"passed": 6, "failed": 4}
    assert run.metric("pass@1") == pytest.approx(0.6)
    assert run.metric("pass@2") == pytest.approx(0.9)
    assert run.metric("pass^2") == pytest.approx(0.3)
    assert run.metric("pass@5") == 1.0
    assert run.metric("pass^5") == 0.0


def test_pass_at_k_is_undefined_below_k_scored_trials(bench: Bench, rows: Rows) -> None:
    run = bench("--bench=genui", rows("hello", BROKEN), "--bench-trials=3", "--bench-k=3")
    assert run.outcomes == {"passed": 3, "errors": 3}
    assert run.metric("pass@3") == 1.0  # the mean over the one task that has a value
    assert "1 of 2 tasks have a value; unscored fail 0.500, pass 1.000" in run.text
    run = bench(
        "--bench=genui", rows(BROKEN, name="broken.jsonl"), "--bench-trials=2", out="second"
    )
    assert run.metric("pass@2") is None
    assert "pass@2      –" in run.text


def test_a_trial_skipped_by_the_agent(bench: Bench, rows: Rows, pytester: pytest.Pytester) -> None:
    (pytester.path / "recorded").mkdir()
    run = bench("--bench=genui", rows("hello", "hello"), "--bench-agent=replay:recorded", "-rs")
    assert run.outcomes == {"skipped": 2}
    assert run.ret == pytest.ExitCode.OK
    assert "was not recorded" in run.text
    assert run.summary["suites"][0]["counts"]["skip"] == 2
    assert run.metric("pass@1") is None


def test_a_failure_names_check_expectation_and_evidence(bench: Bench, rows: Rows) -> None:
    run = bench("--bench=genui", rows("bye"))
    run.result.stdout.fnmatch_lines(
        [
            "genui::t1 trial 1, agent obey: 1 of * checks failed",
            "*must_contain_strings_in_text_response*: not found in the answer: 'hello'*",
            "  evidence: *obey/genui/t1/1 (*transcript.jsonl*)",
            "FAILED genui::t1?trial1? - must_contain_strings_in_text_response: *",
        ]
    )
    assert "Traceback" not in run.text and "runner.py" not in run.text


def test_the_score_mark_decides(bench: Bench, rows: Rows) -> None:
    half = {
        "user_prompt": "hello",
        "outcome_dom_assertions": '{"must_contain_strings_in_text_response": ["hello", "bye"]}',
    }
    assert bench("--bench=genui", rows(half)).outcomes == {"failed": 1}
    run = bench("--bench=genui", rows(half), "--bench-pass-score=0.5", out="second")
    assert run.outcomes == {"passed": 1}
    assert run.records[0].score == 0.5


def test_a_hook_that_raises_is_an_error_and_the_others_run(
    bench: Bench, rows: Rows, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(
        broken_setup="""
        import pytest

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_setup(item):
            if "t2" in item.name:
                raise OSError("the disk is gone")
        """
    )
    run = bench("--bench=genui", rows("hello", "hello", "hello"), "-p", "broken_setup")
    assert run.outcomes == {"passed": 2, "errors": 1}
    assert run.verdicts["t2/1"] == "error"
    assert "the disk is gone" in next(r for r in run.records if r.task_id == "t2").reason


def test_a_worker_that_dies_is_one_error(
    bench: Bench, rows: Rows, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(
        """
        import os, pytest

        def agent(task, workspace):
            if task.prompt == "die":
                os._exit(9)
            return "hello"

        @pytest.fixture(scope="session")
        def bench_agent():
            return agent
        """
    )
    run = bench("--bench=genui", rows("hello", "die", "hello", "hello"), "-n2", "--junitxml=r.xml")
    assert run.verdicts == {"t1/1": "pass", "t2/1": "error", "t3/1": "pass", "t4/1": "pass"}
    assert "crashed" in next(r for r in run.records if r.task_id == "t2").reason
    assert run.metric("pass@1") == 1.0
    assert {record.agent for record in run.records} == {"agent"}
    assert len(run.summary["suites"]) == 1
    assert "3 of 4 tasks have a value; unscored fail 0.750, pass 1.000" in run.text
    suite = ElementTree.parse(run.out.parent / "r.xml").getroot()[0]
    assert (suite.get("failures"), suite.get("errors")) == ("0", "1")
