"""pinchbench: real work in a workspace, graded by code, by a judge, or by both.

147 published tasks.  Scores are those of upstream's runner 2.0.0, key by key; what differs is that
graders run in a sandbox, and that a grader or a judge without a result is an error and not a 0.
The README's section "How pinchbench is graded" is the specification.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.agents import read_transcript
from pytest_agentbench.agents.replay import overlay
from pytest_agentbench.assets import write_files
from pytest_agentbench.benchmark import Benchmark, Judging, Tools
from pytest_agentbench.benchmarks.pinchbench.grading import grade
from pytest_agentbench.benchmarks.pinchbench.layout import COLUMNS, materialize, read_layout
from pytest_agentbench.benchmarks.pinchbench.prerequisites import lacking
from pytest_agentbench.benchmarks.pinchbench.rows import (
    HYBRID,
    JUDGED,
    Spec,
    grader_code,
    parse_row,
)
from pytest_agentbench.benchmarks.pinchbench.scores import (
    category_name,
    category_scores,
    efficiency,
)
from pytest_agentbench.datasets import Dataset, Row
from pytest_agentbench.model import AgentTask, Attempt, Grade, Session, Task, TaskRef, TrialRecord
from pytest_agentbench.text import one_line
from pytest_agentbench.transcripts import Transcript

if TYPE_CHECKING:
    from pytest_agentbench.summary import SuiteSummary

__all__ = ["PinchBench", "Spec", "grader_code", "materialize"]


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
        return parse_row(self.name, ref, row)

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

    def grade(self, attempt: Attempt, tools: Tools) -> Grade | Judging:
        return grade(attempt, tools)

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
        categories = [
            (stat.task_id, category_name(stat.groups.get("category", ""))) for stat in summary.tasks
        ]
        total = math.fsum(means.values())
        return {
            "covers": ["category", "usage"],
            "score": total,
            "max_score": float(len(means)),
            "pct": round(100 * total / len(means), 1) if means else None,
            "category_scores": category_scores(
                [(task, category) for task, category in categories if task in means],
                means,
                [category for _, category in categories],
            ),
            "category_tasks": dict(Counter(category for _, category in categories)),
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
    for record in _scored(records):
        scores.setdefault(record.task_id, []).append(record.score or 0.0)
    return {task: math.fsum(values) / len(values) for task, values in scores.items()}


def _runs(
    records: Iterable[TrialRecord],
) -> Iterator[tuple[str, Mapping[str, Any], float | None]]:
    for record in _scored(records):
        yield record.task_id, record.details.get("usage", {}), record.agent_s


def _scored(records: Iterable[TrialRecord]) -> Iterator[TrialRecord]:
    return (record for record in records if record.scored and record.score is not None)
