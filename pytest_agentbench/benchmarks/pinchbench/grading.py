"""How a trial of PinchBench is graded: by the row's code, by a judge, or by both."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from pytest_agentbench.benchmark import Tools
from pytest_agentbench.benchmarks.pinchbench.judging import (
    read_answer,
    score_of,
    summarize_transcript,
    workspace_text,
    write_prompt,
)
from pytest_agentbench.benchmarks.pinchbench.rows import AUTOMATED, JUDGED, Spec
from pytest_agentbench.benchmarks.pinchbench.scores import combine, usage_totals
from pytest_agentbench.errors import HarnessError
from pytest_agentbench.judge import LIMIT_S as JUDGE_LIMIT_S
from pytest_agentbench.judge import JudgeRequest, ask_scores, recorded
from pytest_agentbench.model import Attempt, Check, Grade
from pytest_agentbench.sandbox import GraderResult, WorkspaceTooLarge
from pytest_agentbench.text import clean, one_line, score_text

__all__ = ["grade"]


def grade(attempt: Attempt, tools: Tools) -> Grade:
    """Grade one trial: the automated part, the judge, or both."""
    spec: Spec = attempt.task.spec
    details: dict[str, Any] = {
        "category": spec.category,
        "grading_type": spec.grading_type,
        "usage": usage_totals(attempt.transcript.events),
    }
    checks: list[Check] = []
    automated = 0.0
    if spec.grading_type != JUDGED:
        found = _automated(attempt, tools, details, checks)
        if isinstance(found, Grade):
            return found
        automated = found
    if tools.judge is None:
        skip = f"the judge is off (the automated part scored {score_text(automated)})"
        return Grade(tuple(checks), None, details, skip=skip)
    try:
        judged, judge_checks, answer = _judged(attempt, tools)
    except HarnessError as error:
        return Grade(tuple(checks), None, details, error=str(error))
    checks += judge_checks
    evidence = {"judge.jsonl": answer.pop("recorded")} if "recorded" in answer else {}
    details["llm_judge"] = answer
    reason = f"the judge gave {score_text(judged)}"
    if "skipped" in answer:
        reason = "the judge was not asked: there is no transcript"
    if spec.grading_type == JUDGED:
        return Grade(tuple(checks), judged, details, evidence, reason=reason)
    score = combine(automated, judged, spec.weights)
    parts = f"score {score_text(score)}: automated {score_text(automated)}, {reason}"
    return Grade(tuple(checks), score, details, evidence, reason=parts)


# -- the automated part ---------------------------------------------------------------------------


def _automated(
    attempt: Attempt, tools: Tools, details: dict[str, Any], checks: list[Check]
) -> Grade | float:
    """The automated score, for a judge's to be added; or the grade, where nothing is."""
    spec: Spec = attempt.task.spec
    result = GraderResult()
    if spec.code:
        try:
            result = tools.sandbox.grade(
                spec.code,
                attempt.transcript.normalized(),
                attempt.workspace,
                scale=max(1.0, tools.timeout_scale),
            )
        except WorkspaceTooLarge as error:
            return Grade((), 0.0, details, reason=str(error))
    checks += _criterion_checks(result)
    try:
        score, note = _automated_score(spec, result)
    except HarnessError as error:
        return Grade(tuple(checks), None, details, error=str(error))
    details["automated"] = {
        "score": score,
        "scores": {c.name: c.score for c in result.criteria},
        "notes": note or (result.raised or ""),
    }
    details["sandbox"] = {"layers": result.layers, "processes": result.processes}
    if result.raised is not None:
        # upstream books the whole task as 0, and does not ask the judge
        reason = f"grade() raised {one_line(result.raised, 300)}"
        return Grade(tuple(checks), 0.0, details, reason=reason)
    if spec.grading_type == AUTOMATED:
        return Grade(tuple(checks), score, details, reason=note or _odd_return(result))
    return score


def _automated_score(spec: Spec, result: GraderResult) -> tuple[float, str]:
    """The automated score and upstream's note on it.

    Raises
    ------
    HarnessError
        A criterion, or their mean, is no number from 0 to 1.
    """
    if not spec.code:
        return 0.0, "No automated grading code found"
    if result.missing:
        return 0.0, "Automated grading function missing"
    for criterion in result.criteria:
        if criterion.counts and not 0.0 <= criterion.score <= 1.0:
            raise HarnessError(
                f"grade() gave {one_line(criterion.name, 60)!r} the score {criterion.score}, "
                "not between 0 and 1"
            )
    if not 0.0 <= result.mean <= 1.0:
        raise HarnessError(f"grade() gave the score {result.mean}, not between 0 and 1")
    return result.mean, ""


def _odd_return(result: GraderResult) -> str:
    """Why a grader that raised nothing gave no points, if it is what it returned."""
    if result.returned != "dict":
        return f"grade() returned {one_line(result.returned, 60)}, not a dictionary"
    return "" if any(c.counts for c in result.criteria) else "grade() returned no numbers"


def _criterion_checks(result: GraderResult) -> Iterator[Check]:
    for criterion in result.criteria:
        if not math.isfinite(criterion.score):
            continue  # not in the mean, or it would have been an error
        full = criterion.score >= 1.0
        yield Check(
            clean(criterion.name),
            "code",
            full if criterion.counts else None,
            criterion.score,
            "" if full else f"scored {score_text(criterion.score)}",
        )


def _judge_check(name: str, value: float) -> Check:
    if not 0.0 <= value <= 1.0:
        return Check(clean(name), "judge", None, None, f"the judge said {value}")
    full = value >= 1.0
    message = "" if full else f"scored {score_text(value)}"
    return Check(clean(name), "judge", full, value, message)


# -- the judge ------------------------------------------------------------------------------------


def _judged(attempt: Attempt, tools: Tools) -> tuple[float, list[Check], dict[str, Any]]:
    """The judge's score, its criteria as checks, and what is kept of its answer.

    Raises
    ------
    HarnessError
        The judge gave no answer, or none that can be read, or a score outside 0 to 1.
    """
    spec: Spec = attempt.task.spec
    if not attempt.transcript.events:
        notes = "Skipped: there is no transcript"
        return 0.0, [], {"score": 0.0, "scores": {}, "notes": notes, "skipped": True}
    assert tools.judge is not None
    events = attempt.transcript.normalized()
    request = JudgeRequest(
        rubric_id="llm_judge_rubric",
        criteria=spec.rubric,
        prompt=attempt.task.prompt,
        transcript=attempt.transcript,
        wants="scores",
        instructions=write_prompt(
            prompt=attempt.task.prompt,
            expected=spec.expected_behavior,
            summary=summarize_transcript(events),
            files=workspace_text(attempt.workspace, attempt.changed),
            rubric=spec.rubric,
        ),
        benchmark=attempt.task.ref.benchmark,
        task_id=attempt.task.ref.id,
        agent=attempt.agent,
        trial=attempt.trial,
    )
    answer = ask_scores(tools.judge, request, JUDGE_LIMIT_S * tools.timeout_scale)
    parsed = read_answer(answer) if isinstance(answer, str) else dict(answer)
    found = score_of(parsed)
    if found.total is None:
        shown = one_line(
            answer if isinstance(answer, str) else json.dumps(parsed, default=str), 200
        )
        raise HarnessError(f"{found.notes} (it was: {shown!r})")
    if not 0.0 <= found.total <= 1.0:
        raise HarnessError(f"the judge gave the score {found.total}, not between 0 and 1")
    checks = [_judge_check(name, value) for name, value in found.scores.items()]
    kept = {"score": found.total, "scores": dict(found.scores), "notes": found.notes}
    return found.total, checks, {**kept, "recorded": recorded(request, answer)}
