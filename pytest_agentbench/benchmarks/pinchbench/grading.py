"""How a trial of PinchBench is graded: by the row's code, by a judge, or by both."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_agentbench.benchmark import Judging, Tools
from pytest_agentbench.benchmarks.pinchbench.judging import (
    JudgeScore,
    read_answer,
    score_of,
    summarize_transcript,
    workspace_text,
    write_prompt,
)
from pytest_agentbench.benchmarks.pinchbench.rows import AUTOMATED, JUDGED, Spec
from pytest_agentbench.benchmarks.pinchbench.scores import combine, usage_totals
from pytest_agentbench.errors import HarnessError
from pytest_agentbench.judge import JudgeRequest
from pytest_agentbench.model import Attempt, Check, Grade
from pytest_agentbench.panel import median
from pytest_agentbench.sandbox import GraderResult, WorkspaceTooLarge
from pytest_agentbench.text import clean, one_line, score_text

__all__ = ["grade", "read_score"]


def grade(attempt: Attempt, tools: Tools) -> Grade | Judging:
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
    if not attempt.transcript.events:
        answer = {"score": 0.0, "scores": {}, "notes": "Skipped: there is no transcript"}
        details["llm_judge"] = {**answer, "skipped": True}
        reason = "the judge was not asked: there is no transcript"
        return _combined(spec, checks, automated, 0.0, details, reason)
    question = tools.judge.ask(_request(attempt, tools.judge_caps))

    def finish() -> Grade:
        votes = question.votes()
        evidence = {"judge.jsonl": b"".join(vote.line() for vote in votes)}
        try:
            judged: JudgeScore = median(votes, lambda score: float(score.total)).value
        except HarnessError as error:
            return Grade(tuple(checks), None, details, evidence, error=str(error))
        total = judged.total or 0.0
        details["llm_judge"] = {
            "score": total,
            "scores": dict(judged.scores),
            "notes": judged.notes,
            "votes": [None if vote.value is None else vote.value.total for vote in votes],
        }
        criteria = [_judge_check(name, value) for name, value in judged.scores.items()]
        reason = f"the judge gave {score_text(total)}"
        every = [*checks, *criteria]
        return _combined(spec, every, automated, total, details, reason, evidence)

    return Judging((question,), finish)


def _combined(
    spec: Spec,
    checks: Sequence[Check],
    automated: float,
    judged: float,
    details: Mapping[str, Any],
    reason: str,
    evidence: Mapping[str, bytes] | None = None,
) -> Grade:
    """The grade of a task that a judge has a part in."""
    score = judged
    if spec.grading_type != JUDGED:
        score = combine(automated, judged, spec.weights)
        reason = f"score {score_text(score)}: automated {score_text(automated)}, {reason}"
    return Grade(tuple(checks), score, details, evidence or {}, reason=reason)


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


def _request(attempt: Attempt, caps: tuple[int, int] | None) -> JudgeRequest:
    spec: Spec = attempt.task.spec
    file_cap, total_cap = caps or (sys.maxsize, sys.maxsize)
    return JudgeRequest(
        rubric_id="llm_judge_rubric",
        criteria=spec.rubric,
        prompt=attempt.task.prompt,
        transcript=attempt.transcript,
        wants="scores",
        instructions=write_prompt(
            prompt=attempt.task.prompt,
            expected=spec.expected_behavior,
            summary=summarize_transcript(attempt.transcript.normalized()),
            files=workspace_text(attempt.workspace, attempt.changed, file_cap, total_cap),
            rubric=spec.rubric,
        ),
        benchmark=attempt.task.ref.benchmark,
        task_id=attempt.task.ref.id,
        agent=attempt.agent,
        trial=attempt.trial,
        read=read_score,
    )


def read_score(answer: str | Mapping[str, Any]) -> JudgeScore:
    """The score in a judge's answer.

    Raises
    ------
    HarnessError
        There is none that can be read, or it is not between 0 and 1.
    """
    parsed = read_answer(answer) if isinstance(answer, str) else dict(answer)
    found = score_of(parsed)
    if found.total is None:
        shown = one_line(
            answer if isinstance(answer, str) else json.dumps(parsed, default=str), 200
        )
        raise HarnessError(f"{found.notes} (it was: {shown!r})")
    if not 0.0 <= found.total <= 1.0:
        raise HarnessError(f"the judge gave the score {found.total}, not between 0 and 1")
    return found
