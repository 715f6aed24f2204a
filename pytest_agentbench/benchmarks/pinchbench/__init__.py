"""pinchbench: real work in a workspace, graded by code, by a judge, or by both.

147 published tasks.  Scores are those of upstream's runner 2.0.0, key by key; what differs is that
graders run in a sandbox, and that a grader or a judge without a result is an error and not a 0.
The README's section "How pinchbench is graded" is the specification.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.agents import read_transcript
from pytest_agentbench.agents.replay import overlay
from pytest_agentbench.assets import AssetError, SeedFile, seed_files, unpack, write_files
from pytest_agentbench.benchmark import Benchmark, Cells, Tools
from pytest_agentbench.benchmarks.pinchbench.judging import (
    read_answer,
    score_of,
    summarize_transcript,
    workspace_text,
    write_prompt,
)
from pytest_agentbench.benchmarks.pinchbench.layout import (
    BROKEN,
    COLUMNS,
    DEFAULT_TIMEOUT_S,
    criteria,
    materialize,
    read_layout,
)
from pytest_agentbench.benchmarks.pinchbench.prerequisites import lacking
from pytest_agentbench.benchmarks.pinchbench.scores import (
    category_scores,
    combine,
    efficiency,
    spread,
    usage_totals,
)
from pytest_agentbench.datasets import Dataset, Row
from pytest_agentbench.errors import HarnessError
from pytest_agentbench.judge import LIMIT_S as JUDGE_LIMIT_S
from pytest_agentbench.judge import JudgeRequest, ask_scores, recorded
from pytest_agentbench.model import (
    AgentTask,
    Attempt,
    Check,
    Grade,
    Session,
    Task,
    TaskRef,
    TrialRecord,
)
from pytest_agentbench.sandbox import GraderResult, WorkspaceTooLarge
from pytest_agentbench.text import clean, one_line, score_text
from pytest_agentbench.transcripts import Transcript

if TYPE_CHECKING:
    from pytest_agentbench.summary import SuiteSummary

__all__ = ["PinchBench", "Spec", "grader_code", "materialize"]

MAX_WEIGHT = 1e6
AUTOMATED, HYBRID, JUDGED = "automated", "hybrid", "llm_judge"
_FENCE = re.compile(r"```python(.*?)```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Spec:
    """The grading part of a row, and what its workspace holds."""

    grading_type: str
    category: str
    expected_behavior: str
    code: str
    rubric: str
    weights: Mapping[str, float]
    sessions: tuple[Session, ...]
    prerequisites: tuple[str, ...]
    files: tuple[SeedFile, ...]


class PinchBench(Benchmark):
    """The pinchbench benchmark (147 published tasks: ``NEAR-AI/pinchbench``)."""

    name = "pinchbench"
    published = "NEAR-AI/pinchbench"
    columns = COLUMNS
    group_columns = ("category", "grading_type")
    sandboxed = True
    headline = "mean_score"

    # -- rows -----------------------------------------------------------------------------------

    def bundled(self) -> Iterable[Mapping[str, Any]]:
        with as_file(_data()) as directory:
            return list(read_layout(directory) or ())

    def layout(self, path: Path) -> Iterable[Mapping[str, Any]] | None:
        return read_layout(path)

    def solvable(self, dataset: Dataset) -> bool:
        return dataset.source == "bundled"

    def tags(self, row: Row) -> Sequence[str]:
        kind = row.cells.get("grading_type")
        tags = [*super().tags(row), *(["judge"] if kind in (HYBRID, JUDGED) else [])]
        sessions = row.cells.get("sessions")
        if isinstance(sessions, str) and sessions.strip() not in ("", "[]", "null"):
            tags.append("multi_session")
        return tags

    def task(self, ref: TaskRef, row: Row) -> Task:
        cells = Cells(self.name, ref, row)
        if row.cells.get(BROKEN):
            raise cells.error("task_md", str(row.cells[BROKEN]))
        kind = cells.text("grading_type", empty=True) or AUTOMATED
        if kind not in (AUTOMATED, HYBRID, JUDGED):
            known = f"{AUTOMATED}, {HYBRID} or {JUDGED}"
            raise cells.error("grading_type", f"expected {known}, found {one_line(repr(kind), 60)}")
        sessions = tuple(_sessions(cells))
        prompt = cells.text("prompt", empty=bool(sessions))
        rubric = cells.text("llm_judge_rubric", empty=True).strip()
        if not rubric:
            items = criteria(cells.text("grading_criteria", empty=True))
            rubric = "\n".join(f"- {item}" for item in items)
        spec = Spec(
            grading_type=kind,
            category=cells.text("category", empty=True),
            expected_behavior=cells.text("expected_behavior", empty=True),
            code=grader_code(cells.text("automated_checks", empty=True)),
            rubric=rubric,
            weights=_weights(cells) if kind == HYBRID else {},
            sessions=sessions,
            prerequisites=tuple(_texts(cells, "prerequisites")),
            files=tuple(_files(cells)),
        )
        limit = cells.number("timeout_seconds", DEFAULT_TIMEOUT_S)
        return Task(ref, prompt, spec, limit)

    def agent_task(self, task: Task, trial: int, seed: int) -> AgentTask:
        spec: Spec = task.spec
        return AgentTask(
            benchmark=self.name,
            id=task.ref.id,
            prompt=task.prompt,
            sessions=spec.sessions or (Session(task.prompt),),
            tools=(),
            time_limit_s=task.time_limit_s,
            trial=trial,
            seed=seed,
        )

    def needs_judge(self, task: Task) -> bool:
        return bool(task.spec.grading_type == JUDGED)

    def absent(self, task: Task) -> Sequence[str]:
        return [reason for reason in map(lacking, task.spec.prerequisites) if reason]

    def prepare(self, task: Task, workspace: Path) -> None:
        write_files(workspace, task.spec.files)

    def reference(self, task: Task, place: Callable[[], Path]) -> Transcript:
        place_in = _data() / "recorded" / "right" / self.name / task.ref.slug / "1"
        with as_file(place_in) as solution:
            if (solution / "workspace").is_dir():
                overlay(solution / "workspace", place())
            return read_transcript(solution, task.prompt, None)

    # -- grading --------------------------------------------------------------------------------

    def grade(self, attempt: Attempt, tools: Tools) -> Grade:
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

    # -- numbers --------------------------------------------------------------------------------

    def headlines(self, records: Sequence[TrialRecord]) -> Mapping[str, float]:
        """Score per 1,000 tokens and per dollar, over scored trials (NaN without usage)."""
        found = efficiency(_runs(records), _means(records))
        return {
            name: math.nan if found[name] is None else found[name]
            for name in ("score_per_1k_tokens", "score_per_dollar")
        }

    def report(self, summary: SuiteSummary, records: Sequence[TrialRecord]) -> Mapping[str, Any]:
        """Upstream's tables, over the tasks that have a score."""
        means = _means(records)
        scores: dict[str, list[float]] = {}
        for record in records:
            if record.scored and record.score is not None:
                scores.setdefault(record.task_id, []).append(record.score)
        tasks = [
            (stat.task_id, stat.groups.get("category", ""))
            for stat in summary.tasks
            if stat.task_id in means
        ]
        order = [stat.groups.get("category", "") for stat in summary.tasks]
        total = math.fsum(means.values())
        wanted = Counter(name.upper() or "UNCATEGORIZED" for name in order)
        return {
            "covers": ["category", "usage"],
            "score": total,
            "max_score": float(len(means)),
            "pct": round(100 * total / len(means), 1) if means else None,
            "grading": {task: spread(values) for task, values in scores.items()},
            "category_scores": category_scores(tasks, means, order),
            "category_tasks": dict(wanted),
            "efficiency": efficiency(_runs(records), means),
        }

    def report_lines(self, report: Mapping[str, Any]) -> Iterator[str]:
        if not report.get("max_score"):
            return
        yield (
            f"  score {report['score']:.2f} of {report['max_score']:.0f} ({report['pct']:.1f} %)"
        )
        for name, wanted in report["category_tasks"].items():
            scores = report["category_scores"].get(name)
            if scores is None:
                told = f"{'–':>7} of 0        –  "
            else:
                told = (
                    f"{scores['score']:>7.2f} of {scores['task_count']:<4}{scores['pct']:>6.1f} %"
                )
            count = 0 if scores is None else scores["task_count"]
            more = f"  {count} of {wanted} tasks scored" if count < wanted else ""
            yield f"    {one_line(name, 24):<24} {told}{more}".rstrip()
        spent = report["efficiency"]
        if spent["total_tokens"]:
            cost = f", ${spent['total_cost_usd']:,.4g}" if spent["total_cost_usd"] else ""
            yield (
                f"  scored runs: {spent['total_tokens']:,} tokens ({spent['tokens_per_task']:,g} "
                f"each), {spent['total_requests']:,} requests{cost}"
            )


def _data() -> Any:
    return files("pytest_agentbench.benchmarks").joinpath("data", "pinchbench")


def _means(records: Iterable[TrialRecord]) -> dict[str, float]:
    scores: dict[str, list[float]] = {}
    for record in records:
        if record.scored and record.score is not None:
            scores.setdefault(record.task_id, []).append(record.score)
    return {task: math.fsum(values) / len(values) for task, values in scores.items()}


def _runs(
    records: Iterable[TrialRecord],
) -> Iterator[tuple[str, Mapping[str, Any], float | None]]:
    for record in records:
        if record.scored and record.score is not None:
            yield record.task_id, record.details.get("usage", {}), record.agent_s


# -- cells ----------------------------------------------------------------------------------------


def grader_code(text: str) -> str:
    """The grader in a cell: its first fence ``python``, else all of it if it defines ``grade``."""
    found = _FENCE.search(text)
    if found is not None:
        return found[1].strip()
    whole = text.removeprefix("\ufeff")
    try:
        body = ast.parse(whole).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return whole if any(map(_defines_grade, body)) else ""


def _defines_grade(node: ast.AST) -> bool:
    """Whether *node* binds the name ``grade`` outside of functions and classes."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name == "grade"
    if isinstance(node, ast.alias):
        return (node.asname or node.name) == "grade"
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id == "grade"
    return any(map(_defines_grade, ast.iter_child_nodes(node)))


def _texts(cells: Cells, column: str) -> Iterator[str]:
    for number, item in enumerate(cells.json(column, list) or (), 1):
        if not isinstance(item, str):
            raise cells.error(column, f"entry {number}: expected a text")
        yield item


def _sessions(cells: Cells) -> Iterator[Session]:
    for number, item in enumerate(cells.json("sessions", list) or (), 1):
        if isinstance(item, str):
            yield Session(item)
            continue
        prompt = item.get("prompt", item.get("message")) if isinstance(item, dict) else None
        if not isinstance(prompt, str):
            reason = f"entry {number}: expected a text, or an object with a prompt"
            raise cells.error("sessions", reason)
        yield Session(prompt, bool(item.get("new_session", False)), str(item.get("id", "")))


def _weights(cells: Cells) -> Mapping[str, float]:
    weights = cells.json("grading_weights", dict) or {}
    for name in ("automated", "llm_judge"):
        value = weights.get(name, 0.5)
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not abs(number) < MAX_WEIGHT:
            reason = f"{name}: expected a number, found {one_line(repr(value), 60)}"
            raise cells.error("grading_weights", reason)
    return weights


def _files(cells: Cells) -> list[SeedFile]:
    column = "assets_tar"
    try:
        packed = cells.text(column, empty=True)
        assets = unpack(packed) if packed.strip() else {}
        column = "workspace_files"
        return seed_files(cells.json(column, list) or (), assets)
    except AssetError as error:
        raise cells.error(column, str(error)) from None


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
