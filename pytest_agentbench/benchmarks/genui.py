"""genui: the agent answers with an interactive HTML micro-app, or rightly does not.

A positive task wants a call of the tool ``render_micro_app`` whose HTML works in a browser and
sends a payload through ``window.hermes.sendAction``; a negative control wants a plain answer.
The README's section "How genui is graded" is the specification.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from pytest_agentbench import schemas
from pytest_agentbench.apppage import MAX_POPUPS, AppJob, AppReport, BadStep, Step
from pytest_agentbench.benchmark import Benchmark, Cells, Tools
from pytest_agentbench.datasets import Row
from pytest_agentbench.errors import RowError
from pytest_agentbench.judge import LIMIT_S as JUDGE_LIMIT_S
from pytest_agentbench.judge import JudgeRequest, ask
from pytest_agentbench.judge import recorded as answer_line
from pytest_agentbench.microapp import ACTIONS, run_app
from pytest_agentbench.model import (
    AgentTask,
    Attempt,
    Check,
    Grade,
    Session,
    Task,
    TaskRef,
    Tool,
    TrialRecord,
)
from pytest_agentbench.text import did_you_mean, one_line
from pytest_agentbench.transcripts import ToolCall, Transcript, assistant, tool_call, user

__all__ = ["GenUI", "Spec", "app_html"]

TOOL = "render_micro_app"
ASSERTIONS = (
    "zero_js_errors",
    "must_contain_strings",
    "required_selectors",
    "min_interactive_elements",
    "must_contain_strings_in_text_response",
)
#: Columns with JSON in them.
_JSON_COLUMNS = (
    "acceptable_ui_archetypes",
    "mock_tool_context",
    "outcome_dom_assertions",
    "outcome_interaction_steps",
    "expected_callback_schema",
    "model_grader_rubrics",
)

RENDER_TOOL = Tool(
    name=TOOL,
    description=(
        "Show the user an interactive micro-app. Pass one self-contained HTML document (inline "
        "CSS and JavaScript, no network). It reports back by calling "
        "window.hermes.sendAction({action: ..., ...}) with a JSON object."
    ),
    parameters={
        "type": "object",
        "properties": {"html": {"type": "string"}, "title": {"type": "string"}},
        "required": ["html"],
    },
)


@dataclass(frozen=True, slots=True)
class Spec:
    """The grading part of a row."""

    expected_trigger: bool
    zero_js_errors: bool
    strings: tuple[str, ...]
    selectors: tuple[str, ...]
    min_interactive: int | None
    text_strings: tuple[str, ...]
    steps: tuple[Step, ...]
    schema: Any
    rubrics: tuple[tuple[str, str], ...]
    tools: tuple[Tool, ...]
    reference: str


class GenUI(Benchmark):
    """The genui benchmark (20 published tasks: ``Agenticaa/genui_benchmark``)."""

    name = "genui"
    published = "Agenticaa/genui_benchmark"
    columns = (
        "task_id",
        "suite_type",
        "category",
        "prompt_explicitness",
        "acceptable_ui_archetypes",
        "user_prompt",
        "mock_tool_context",
        "expected_tool_trigger",
        "outcome_dom_assertions",
        "outcome_interaction_steps",
        "expected_callback_schema",
        "model_grader_rubrics",
        "reference_solution",
    )
    group_columns = ("suite_type", "category", "prompt_explicitness")
    has_reference = True
    browses = True
    time_limit_s = 600.0

    # -- rows -----------------------------------------------------------------------------------

    def bundled(self) -> Iterator[Mapping[str, Any]]:
        root = files(__package__).joinpath("data", self.name)
        for row in json.loads(root.joinpath("tasks.json").read_text(encoding="utf-8")):
            suffix = "html" if row["expected_tool_trigger"] else "md"
            reference = root.joinpath("references", f"{row['task_id']}.{suffix}")
            cells = {
                name: json.dumps(value, ensure_ascii=False) if name in _JSON_COLUMNS else value
                for name, value in row.items()
            }
            yield {**cells, "reference_solution": reference.read_text(encoding="utf-8").strip()}

    def task(self, ref: TaskRef, row: Row) -> Task:
        cells = Cells(self.name, ref, row)
        for column in self.group_columns:
            cells.text(column)
        cells.json("acceptable_ui_archetypes", list)
        assertions = _assertions(cells)
        schema = cells.json("expected_callback_schema", dict, bool)
        if schema is not None:
            try:
                schemas.check_schema(schema)
            except schemas.SchemaError as error:
                reason = f"is not a usable JSON Schema: {error}"
                raise cells.error("expected_callback_schema", reason) from None
        spec = Spec(
            expected_trigger=cells.flag("expected_tool_trigger"),
            zero_js_errors=assertions["zero_js_errors"],
            strings=assertions["must_contain_strings"],
            selectors=assertions["required_selectors"],
            min_interactive=assertions["min_interactive_elements"],
            text_strings=assertions["must_contain_strings_in_text_response"],
            steps=tuple(_steps(cells)),
            schema=schema,
            rubrics=tuple(_rubrics(cells)),
            tools=tuple(_tools(cells)),
            reference=cells.text("reference_solution", empty=True),
        )
        return Task(ref, cells.text("user_prompt"), spec, self.time_limit_s)

    def agent_task(self, task: Task, trial: int, seed: int) -> AgentTask:
        return AgentTask(
            benchmark=self.name,
            id=task.ref.id,
            prompt=task.prompt,
            sessions=(Session(task.prompt),),
            tools=(RENDER_TOOL, *task.spec.tools),
            time_limit_s=task.time_limit_s,
            trial=trial,
            seed=seed,
        )

    def reference(self, task: Task, place: Callable[[], Path]) -> Transcript:
        spec: Spec = task.spec
        if not spec.reference.strip():
            raise RowError(self.name, task.ref.id, "reference_solution", "there is none")
        if not spec.expected_trigger:
            return Transcript.from_answer(task.prompt, spec.reference)
        call = tool_call(TOOL, {"html": spec.reference})
        return Transcript((user(task.prompt), assistant(call)))

    # -- grading --------------------------------------------------------------------------------

    def app(self, transcript: Transcript) -> str | None:
        calls = transcript.tool_calls(TOOL)
        return app_html(calls[-1]) if calls else None

    def grade(self, attempt: Attempt, tools: Tools) -> Grade:
        spec: Spec = attempt.task.spec
        transcript: Transcript = attempt.transcript
        calls = transcript.tool_calls(TOOL)
        html = self.app(transcript)
        checks = [_tool_trigger(spec, calls, transcript)]
        report: AppReport | None = None
        if spec.expected_trigger:
            if html is None:
                why = "no html in the last call" if calls else f"no {TOOL} call"
                checks += _unreached(spec, why, calls)
            else:
                report = self._render(attempt.task, html, tools)
                checks += _page_checks(spec, report)
        if spec.text_strings:
            checks.append(_text_response(spec, transcript))
        answers: list[bytes] = []
        reached = checks[0].passed is True
        checks += _rubric_checks(attempt, tools, report, html, answers, reached=reached)
        scored = [check for check in checks if check.passed is not None]
        details: dict[str, Any] = {
            "expected_tool_trigger": spec.expected_trigger,
            "triggered": bool(calls),
        }
        evidence: dict[str, bytes] = {}
        if answers:
            evidence["judge.jsonl"] = b"".join(answers)
        if html is not None:
            evidence["app.html"] = html.encode("utf-8", "surrogatepass")
        if report is not None:
            details |= _details(spec, report)
            evidence |= _evidence(report)
        score = sum(check.passed is True for check in scored) / len(scored)
        return Grade(tuple(checks), score, details, evidence)

    def _render(self, task: Task, html: str, tools: Tools) -> AppReport:
        spec: Spec = task.spec
        job = AppJob(
            html=html,
            strings=spec.strings,
            selectors=spec.selectors,
            min_count=spec.min_interactive or 0,
            steps=spec.steps,
            validate=None if spec.schema is None else partial(schemas.problems_of, spec.schema),
            scale=tools.timeout_scale,
        )

        def wanted(report: AppReport) -> bool:
            if tools.evidence == "failed" and tools.judge is None:
                return not all(check.passed for check in _page_checks(spec, report))
            return tools.evidence != "none" or tools.judge is not None

        where = (self.name, task.ref.id)
        try:
            return run_app(tools.browser(), job, evidence=wanted)
        except BadStep as error:
            column = (
                "outcome_dom_assertions"
                if any(selector in str(error) for selector in spec.selectors)
                else "outcome_interaction_steps"
            )
            raise RowError(*where, column, one_line(str(error))) from None
        except schemas.SchemaError as error:
            raise RowError(*where, "expected_callback_schema", str(error)) from None

    def headlines(self, records: Sequence[TrialRecord]) -> Mapping[str, float]:
        """Trigger precision and recall over scored trials (NaN without a denominator)."""
        pairs = [
            (record.details["triggered"], record.details["expected_tool_trigger"])
            for record in records
            if "triggered" in record.details
        ]
        hits = sum(called and wanted for called, wanted in pairs)
        called = sum(called for called, _ in pairs)
        wanted = sum(wanted for _, wanted in pairs)
        return {
            "trigger_precision": hits / called if called else math.nan,
            "trigger_recall": hits / wanted if wanted else math.nan,
        }


def app_html(call: ToolCall) -> str | None:
    """The app of a render call: its ``html``, else the only text that starts with ``<``."""
    html = call.arguments.get("html")
    if isinstance(html, str) and html.strip():
        return html
    found = [
        value
        for value in call.arguments.values()
        if isinstance(value, str) and value.lstrip().startswith("<")
    ]
    return found[0] if len(found) == 1 else None


# -- parsing a row ------------------------------------------------------------------------------


def _assertions(cells: Cells) -> dict[str, Any]:
    column = "outcome_dom_assertions"
    given = cells.json(column, dict) or {}
    for name in given:
        if name not in ASSERTIONS:
            raise cells.error(
                column, f"unknown assertion {name!r}.{did_you_mean(name, ASSERTIONS)}"
            )
    zero = given.get("zero_js_errors", False)
    if not isinstance(zero, bool):
        raise cells.error(column, "zero_js_errors is not true or false")
    least = given.get("min_interactive_elements")
    if least is not None and (isinstance(least, bool) or not isinstance(least, int) or least < 0):
        raise cells.error(column, "min_interactive_elements is not a whole number from 0")
    result: dict[str, Any] = {"zero_js_errors": zero, "min_interactive_elements": least}
    for name in ASSERTIONS:
        if name not in result:
            texts = given.get(name, [])
            if not isinstance(texts, list) or not all(isinstance(t, str) and t for t in texts):
                raise cells.error(column, f"{name} is not a list of texts")
            result[name] = tuple(texts)
    for selector in result["required_selectors"]:
        _check_selector(cells, column, selector)
    return result


def _steps(cells: Cells) -> Iterator[Step]:
    column = "outcome_interaction_steps"
    for number, step in enumerate(cells.json(column, list) or [], 1):
        if not isinstance(step, dict):
            raise cells.error(column, f"step {number} is not an object")
        action = step.get("action")
        if not isinstance(action, str) or action not in ACTIONS:
            hint = did_you_mean(str(action), ACTIONS)
            known = ", ".join(ACTIONS)
            raise cells.error(column, f"step {number}: unknown action {action!r} ({known}).{hint}")
        selector = step.get("selector")
        if not isinstance(selector, str) or not selector.strip():
            raise cells.error(column, f"step {number} ({action}) has no selector")
        _check_selector(cells, column, selector)
        value = step.get("value", step.get("key"))
        if ACTIONS[action] and (value is None or isinstance(value, bool | list | dict)):
            raise cells.error(column, f"step {number} ({action}) has no value")
        if action == "set_range" and not _is_number(value):
            raise cells.error(column, f"step {number}: the value {value!r} is not a number")
        yield Step(action, selector, "" if value is None else str(value))


def _is_number(value: Any) -> bool:
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError):
        return False


def _rubrics(cells: Cells) -> Iterator[tuple[str, str]]:
    column = "model_grader_rubrics"
    seen = set()
    for number, rubric in enumerate(cells.json(column, list) or [], 1):
        criteria = rubric.get("criteria") if isinstance(rubric, dict) else None
        if not isinstance(criteria, str) or not criteria.strip():
            raise cells.error(column, f"rubric {number} has no criteria")
        name = str(rubric.get("id") or f"rubric_{number}")
        if name in seen:
            raise cells.error(column, f"the rubric id {name!r} stands twice")
        seen.add(name)
        yield name, criteria


def _tools(cells: Cells) -> Iterator[Tool]:
    column = "mock_tool_context"
    calls: dict[str, list[Mapping[str, Any]]] = {}
    for number, call in enumerate(cells.json(column, list) or [], 1):
        if not isinstance(call, dict) or not isinstance(call.get("tool"), str):
            raise cells.error(column, f"call {number} names no tool")
        calls.setdefault(call["tool"], []).append(
            {"args": call.get("args", {}), "output": call.get("output", "")}
        )
    for name, recorded in calls.items():
        yield Tool(name=name, calls=tuple(recorded))


_IDENT = r"-?[A-Za-z_\u0080-\U0010ffff][\w\u0080-\U0010ffff-]*"
_COMPOUND = (
    rf"(?:\*|{_IDENT})?(?:[#.]{_IDENT}"
    rf"|\[\s*{_IDENT}\s*(?:[~|^$*]?=\s*(?:\"[^\"\\\n]*\"|'[^'\\\n]*'|{_IDENT})\s*[is]?\s*)?\]"
    r"|:(?:first-child|last-child|only-child|first-of-type|last-of-type|checked|disabled|enabled"
    r"|empty|nth-(?:last-)?(?:child|of-type)\((?:\d+|odd|even)\)))*"
)
_PLAIN_CSS = re.compile(
    rf"\s*(?=\S){_COMPOUND}(?:\s*[>+~,]\s*(?=[^\s>+~,]){_COMPOUND}|\s+(?=[^\s>+~,]){_COMPOUND})*\s*"
)


def _check_selector(cells: Cells, column: str, selector: str) -> None:
    """Refuse what is plainly no CSS selector; doubtful ones are left to the browser to decide."""
    if _PLAIN_CSS.fullmatch(selector):
        return
    import tinycss2

    tokens = tinycss2.parse_component_value_list(selector)
    kinds = {token.type for token in tokens}
    foreign = re.match(r"\s*(//|\.\.|(text|xpath|css|id|role|data-testid)\s*=)", selector)
    bad = kinds & {"error", "{} block", "at-keyword"} or foreign or not selector.strip()
    if bad or re.search(r":(has-text|text|contains|visible|text-is|nth-match)\b", selector):
        raise cells.error(column, f"{selector!r} is not a CSS selector")


# -- checks -------------------------------------------------------------------------------------


def _tool_trigger(spec: Spec, calls: Sequence[ToolCall], transcript: Transcript) -> Check:
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


def _unreached(spec: Spec, why: str, calls: Sequence[ToolCall]) -> list[Check]:
    return [
        _page_check(name, why if calls and name == "zero_js_errors" else f"not reached: {why}")
        for name in _applicable(spec)
    ]


def _page_checks(spec: Spec, report: AppReport) -> list[Check]:
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


def _text_response(spec: Spec, transcript: Transcript) -> Check:
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


def _rubric_checks(
    attempt: Attempt,
    tools: Tools,
    report: AppReport | None,
    html: str | None,
    answers: list[bytes],
    *,
    reached: bool,
) -> Iterator[Check]:
    """A check per rubric; what the judge answers is added to *answers*."""
    for name, criteria in attempt.task.spec.rubrics:
        if tools.judge is None:
            yield Check(name, "judge", None, None, "judge off")
        elif not reached or (report is not None and not report.loaded):
            yield Check(name, "judge", False, 0.0, "not reached: an earlier check failed")
        else:
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
            verdict = ask(tools.judge, request, timeout=JUDGE_LIMIT_S * tools.timeout_scale)
            answers.append(answer_line(request, asdict(verdict)))
            yield Check(name, "judge", verdict.passed, float(verdict.passed), verdict.reason)


# -- evidence -----------------------------------------------------------------------------------


def _details(spec: Spec, report: AppReport) -> dict[str, Any]:
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


def _evidence(report: AppReport) -> dict[str, bytes]:
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
