"""A judge of one's own decides the rubrics; its trouble is an error, never a failed rubric."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Run

Bench = Callable[..., Run]
Rows = Callable[..., str]

RUBRICS = '[{"id": "polite", "criteria": "The answer is polite."}]'
JUDGE = """
import sys, time
from pytest_agentbench.judge import JudgeVerdict

def judge(request):
    assert request.criteria == "The answer is polite."
    assert request.transcript.final_text()
    word = request.prompt
    if word == "hang":
        time.sleep(60)
    if word == "exit":
        sys.exit("gone")
    if word == "down":
        raise ConnectionError("no route to the judge")
    if word == "odd":
        return "PASS"
    return JudgeVerdict(word == "yes", "because " + word)
"""


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_rubrics_with_a_judge(
    bench: Bench, rows: Rows, pytester: pytest.Pytester, workers: str
) -> None:
    pytester.makepyfile(myjudge=JUDGE)
    words = ("yes", "no", "down", "odd", "exit", "hang")
    data = rows(*[{"user_prompt": word, "model_grader_rubrics": RUBRICS} for word in words])
    options = ("--bench-judge=py:myjudge:judge", "--bench-timeout-scale=0.02")
    run = bench("--bench=genui", data, "--bench-agent=reference", workers, *options)
    assert run.outcomes == {"passed": 1, "failed": 1, "errors": 4}
    by_prompt = {words[int(r.task_id[1:]) - 1]: r for r in run.records}
    assert by_prompt["no"].reason == "polite: because no"
    assert "no route to the judge" in by_prompt["down"].reason
    assert "is no JudgeVerdict: 'PASS'" in by_prompt["odd"].reason
    assert "SystemExit: gone" in by_prompt["exit"].reason
    assert "did not answer on rubric 'polite' in 2.4 s" in by_prompt["hang"].reason
    check = by_prompt["yes"].checks[-1]
    assert (check.name, check.tier, check.passed) == ("polite", "judge", True)
    assert "judge py:myjudge:judge" in run.text
    replay = (f"--bench-judge=replay:{run.out}", "-k", "t1 or t2")
    again = bench("--bench=genui", data, "--bench-agent=reference", *replay, out="again")
    assert again.verdicts == {"t1/1": "pass", "t2/1": "fail"}
    assert next(r for r in again.records if r.task_id == "t2").reason == "polite: because no"


def test_rubrics_without_a_judge_are_unscored(bench: Bench, rows: Rows) -> None:
    run = bench("--bench=genui", rows({"model_grader_rubrics": RUBRICS}), "--bench-agent=reference")
    assert run.outcomes == {"passed": 1}
    check = run.records[0].checks[-1]
    assert (check.name, check.passed, check.score, check.message) == (
        "polite", None, None, "judge off"
    )  # fmt: skip
    assert run.records[0].score == 1.0
