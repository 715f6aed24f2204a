"""The checks of a genui trial, what is told of it in the record, and what is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pytest_agentbench.apppage import MAX_POPUPS, AppReport
from pytest_agentbench.benchmarks.genui.rows import Spec
from pytest_agentbench.errors import HarnessError
from pytest_agentbench.judge import JudgeRequest
from pytest_agentbench.model import Attempt, Check
from pytest_agentbench.panel import Panel, Pending, majority
from pytest_agentbench.text import one_line
from pytest_agentbench.transcripts import ToolCall, Transcript

__all__ = [
    "TOOL",
    "ask_rubrics",
    "page_checks",
    "rubric_checks",
    "text_response",
    "tool_trigger",
    "trial_details",
    "trial_files",
    "unasked_rubrics",
    "unreached",
]

TOOL = "render_micro_app"


def tool_trigger(spec: Spec, calls: Sequence[ToolCall], transcript: Transcript) -> Check:
    passed = bool(calls) == spec.expected_trigger
    message = ""
    if not passed and spec.expected_trigger:
        answer = one_line(transcript.final_text(), 80)
        said = f"answered in text: {answer!r}" if answer else "no answer"
        message = f"expected a {TOOL} call, found none ({said})"
    elif not passed:
        message = f"expected no {TOOL} call, found {len(calls)}"
    return Check("tool_trigger", "transcript", passed, float(passed), message)


def _applicable(spec: Spec) -> list[str]:
    """The page's checks that a row asks for, in order."""
    asked = {
        "zero_js_errors": spec.zero_js_errors,
        "must_contain_strings": bool(spec.strings),
        "required_selectors": bool(spec.selectors),
        "min_interactive_elements": spec.min_interactive is not None,
        "interaction": bool(spec.steps),
        "callback": spec.schema is not None,
    }
    return [name for name, applies in asked.items() if applies]


def _page_check(name: str, problem: str) -> Check:
    tier = name if name == "callback" else "dom"
    return Check(name, tier, not problem, float(not problem), problem)  # type: ignore[arg-type]


def unreached(spec: Spec, why: str, calls: Sequence[ToolCall]) -> list[Check]:
    return [
        _page_check(name, why if calls and name == "zero_js_errors" else f"not reached: {why}")
        for name in _applicable(spec)
    ]


def page_checks(spec: Spec, report: AppReport) -> list[Check]:
    problems = {
        "zero_js_errors": _errors_problem(report),
        "must_contain_strings": _missing("not found", spec.strings, report.strings),
        "required_selectors": _missing("nothing matches", spec.selectors, report.selectors),
        "min_interactive_elements": _count_problem(spec, report),
        "interaction": _interaction_problem(report),
        "callback": _callback_problem(spec, report),
    }
    names = _applicable(spec)
    if report.fault is not None:
        # told where it happened; what could not be seen because of it was not reached
        place = "interaction" if report.loaded else "zero_js_errors"
        place = place if place in names else names[0] if names else ""
        for name in names:
            if name == place:
                problems[name] = report.fault
            elif problems[name] or not report.loaded:
                problems[name] = f"not reached: {report.fault}"
    return [_page_check(name, problems[name]) for name in names]


def _errors_problem(report: AppReport) -> str:
    if not report.errors:
        return ""
    more = f" (and {len(report.errors) - 1} more)" if len(report.errors) > 1 else ""
    return f"expected none, found {one_line(report.errors[0], 160)}{more}"


def _missing(verb: str, wanted: Sequence[str], seen: Sequence[bool]) -> str:
    missing = [repr(text) for text, there in zip(wanted, seen, strict=True) if not there]
    return f"{verb}: {', '.join(missing)}" if missing else ""


def _count_problem(spec: Spec, report: AppReport) -> str:
    if spec.min_interactive is None or report.count >= spec.min_interactive:
        return ""
    return f"expected at least {spec.min_interactive}, found {report.count}"


def _interaction_problem(report: AppReport) -> str:
    for number, step in enumerate(report.steps, 1):
        if not step.ok:
            return f"step {number} ({step.step}): {step.reason}"
    if report.popups > MAX_POPUPS:
        return f"expected at most {MAX_POPUPS} popups, found {report.popups}"
    return ""


def _callback_problem(spec: Spec, report: AppReport) -> str:
    if spec.schema is None or report.valid_payload:
        return ""
    counted = [payload for payload in report.payloads if payload.counts]
    if not counted:
        early = len(report.payloads)
        when = f"; {early} came while loading and do not count" if early else ""
        return f"expected a valid payload, none was sent after the interaction began{when}"
    last = counted[-1]
    why = "; ".join(last.problems or [])
    return f"expected a valid payload, found {len(counted)}, the last: {why}"


def text_response(spec: Spec, transcript: Transcript) -> Check:
    text = transcript.final_text()
    found = [wanted in text for wanted in spec.text_strings]
    problem = _missing("not found in the answer", spec.text_strings, found)
    return Check(
        "must_contain_strings_in_text_response",
        "transcript",
        not problem,
        float(not problem),
        f"{problem} (answer: {one_line(text, 80)!r})" if problem else "",
    )


def ask_rubrics(
    attempt: Attempt, judge: Panel, report: AppReport | None, html: str | None
) -> dict[str, Pending]:
    """Ask *judge* for a verdict on each rubric; by rubric."""
    asked = {}
    for name, criteria in attempt.task.spec.rubrics:
        request = JudgeRequest(
            rubric_id=name,
            criteria=criteria,
            prompt=attempt.task.prompt,
            transcript=attempt.transcript,
            page_text=report.text if report else "",
            page_source=html or "",
            screenshot=report.screenshot if report else None,
            benchmark=attempt.task.ref.benchmark,
            task_id=attempt.task.ref.id,
            agent=attempt.agent,
            trial=attempt.trial,
        )
        asked[name] = judge.ask(request)
    return asked


def rubric_checks(asked: Mapping[str, Pending]) -> Iterator[tuple[Check, HarnessError | None]]:
    """A check per rubric that the judge was asked about, and what kept it from a verdict."""
    for name, question in asked.items():
        try:
            verdict = majority(question.votes())
            passed = verdict.passed
            yield Check(name, "judge", passed, float(passed), verdict.reason), None
        except HarnessError as error:
            yield Check(name, "judge", None, None, str(error)), error


def unasked_rubrics(spec: Spec, *, judge: bool) -> list[Check]:
    """A check per rubric where nobody is asked: there is no judge, or nothing to be judged."""
    if not judge:
        return [Check(name, "judge", None, None, "judge off") for name, _ in spec.rubrics]
    why = "not reached: an earlier check failed"
    return [Check(name, "judge", False, 0.0, why) for name, _ in spec.rubrics]


def trial_details(spec: Spec, report: AppReport) -> dict[str, Any]:
    """What goes into the record: short, since it travels and is kept for every trial."""
    return {
        "interactive_elements": report.count,
        "min_interactive_elements": spec.min_interactive,
        "js_errors": [one_line(error) for error in report.errors[:5]],
        "blocked_requests": [f"{b['type']} {one_line(b['url'], 120)}" for b in report.blocked[:10]],
        "provided_libraries": [one_line(url, 120) for url in report.provided[:10]],
        "steps": [asdict(step) for step in report.steps],
        "extra_clicks": report.extra_clicks,
        "payloads": len(report.payloads),
        "dialogs": len(report.dialogs),
        "popups": report.popups,
        "crashes": report.crashes,
        "navigated_to": [one_line(url, 120) for url in report.left_for[:5]],
        "browser": report.browser,
    }


def trial_files(report: AppReport) -> dict[str, bytes]:
    """What is kept in the trial's directory."""
    story = {
        "errors": report.errors,
        "console": report.console,
        "blocked_requests": report.blocked,
        "payloads": [
            {**asdict(payload), "text": payload.text[: 1 << 20], "valid": payload.valid}
            for payload in report.payloads[:100]
        ],
        "steps": [asdict(step) for step in report.steps],
        "dialogs": report.dialogs,
        "navigated_to": report.left_for,
        "fault": report.fault,
    }
    found = {"page.json": json.dumps(story, indent=1).encode("ascii")}
    if report.screenshot is not None:
        found["screenshot.png"] = report.screenshot
    if report.html:
        found["page.html"] = report.html.encode("utf-8", "backslashreplace")
    return found
