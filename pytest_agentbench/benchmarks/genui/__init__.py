"""genui: the agent answers with an interactive HTML micro-app, or rightly does not.

A positive task wants a call of the tool ``render_micro_app`` whose HTML works in a browser and
sends a payload through ``window.hermes.sendAction``; a negative control wants a plain answer.
The README's section "How genui is graded" is the specification.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from pytest_agentbench import schemas
from pytest_agentbench.apppage import AppJob, AppReport, BadStep
from pytest_agentbench.benchmark import Benchmark, Cells, Judging, Tools
from pytest_agentbench.benchmarks.genui.checks import (
    TOOL,
    ask_rubrics,
    page_checks,
    rubric_checks,
    text_response,
    tool_trigger,
    trial_details,
    trial_files,
    unasked_rubrics,
    unreached,
)
from pytest_agentbench.benchmarks.genui.rows import Spec, parse_row
from pytest_agentbench.datasets import Row
from pytest_agentbench.errors import RowError
from pytest_agentbench.microapp import run_app
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
from pytest_agentbench.text import one_line
from pytest_agentbench.transcripts import ToolCall, Transcript, assistant, tool_call, user

__all__ = ["TOOL", "GenUI", "Spec", "app_html"]

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
        root = files("pytest_agentbench.benchmarks").joinpath("data", self.name)
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
        return Task(ref, cells.text("user_prompt"), parse_row(cells), self.time_limit_s)

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

    def wrong(self, task: Task, place: Callable[[], Path]) -> Transcript | None:
        given = _wrong_answers().get(task.ref.id)
        if given is None or given["prompt"] != task.prompt:  # another dataset's task
            return None
        if not task.spec.expected_trigger:
            return Transcript.from_answer(task.prompt, given["answer"])
        call = tool_call(TOOL, {"html": given["answer"]})
        return Transcript((user(task.prompt), assistant(call)))

    # -- grading --------------------------------------------------------------------------------

    def app(self, transcript: Transcript) -> str | None:
        calls = transcript.tool_calls(TOOL)
        return app_html(calls[-1]) if calls else None

    def grade(self, attempt: Attempt, tools: Tools) -> Grade | Judging:
        spec: Spec = attempt.task.spec
        transcript: Transcript = attempt.transcript
        calls = transcript.tool_calls(TOOL)
        html = self.app(transcript)
        checks = [tool_trigger(spec, calls, transcript)]
        report: AppReport | None = None
        if spec.expected_trigger:
            if html is None:
                why = "no html in the last call" if calls else f"no {TOOL} call"
                checks += unreached(spec, why, calls)
            else:
                report = self._render(attempt.task, html, tools)
                checks += page_checks(spec, report)
        if spec.text_strings:
            checks.append(text_response(spec, transcript))
        details: dict[str, Any] = {
            "expected_tool_trigger": spec.expected_trigger,
            "triggered": bool(calls),
        }
        evidence: dict[str, bytes] = {}
        if html is not None:
            evidence["app.html"] = html.encode("utf-8", "surrogatepass")
        if report is not None:
            details |= trial_details(spec, report)
            evidence |= trial_files(report)
        reached = checks[0].passed is True and (report is None or report.loaded)
        if tools.judge is None or not reached or not spec.rubrics:
            checks += unasked_rubrics(spec, judge=tools.judge is not None)
            return _graded(checks, details, evidence)
        asked = ask_rubrics(attempt, tools.judge, report, html)

        def finish() -> Grade:
            judged = list(rubric_checks(asked))
            lines = (vote.line() for question in asked.values() for vote in question.votes())
            files = {**evidence, "judge.jsonl": b"".join(lines)}
            troubles = [str(trouble) for _, trouble in judged if trouble is not None]
            every = [*checks, *(check for check, _ in judged)]
            return _graded(every, details, files, troubles[0] if troubles else None)

        return Judging(tuple(asked.values()), finish)

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
                return not all(check.passed for check in page_checks(spec, report))
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


@cache
def _wrong_answers() -> Mapping[str, Mapping[str, str]]:
    """Answers that the rubrics of the bundled tasks do not let pass, by task."""
    root = files("pytest_agentbench.benchmarks").joinpath("data", "genui")
    found = json.loads(root.joinpath("wrong.json").read_text(encoding="utf-8"))
    tasks = json.loads(root.joinpath("tasks.json").read_text(encoding="utf-8"))
    prompts = {row["task_id"]: row["user_prompt"] for row in tasks}
    return {name: {"prompt": prompts[name], "answer": answer} for name, answer in found.items()}


def _graded(
    checks: Sequence[Check],
    details: Mapping[str, Any],
    evidence: Mapping[str, bytes],
    error: str | None = None,
) -> Grade:
    """The share of scored checks that hold; no score where the judge came to no verdict."""
    scored = [check for check in checks if check.passed is not None]
    score = sum(check.passed is True for check in scored) / len(scored)
    return Grade(tuple(checks), None if error else score, details, evidence, error=error)


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
