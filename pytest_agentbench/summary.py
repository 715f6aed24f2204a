"""Records to numbers: pass@k, pass^k, mean scores, coverage and bounds.

Each number is computed per task first and then averaged over tasks.  A trial that could not be
scored (error, skip, not run) leaves no denominator silently: coverage is told with every number,
and when it is not complete, the number as it would be if all unscored trials failed, and passed.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_agentbench.model import TrialRecord, plain
from pytest_agentbench.scoring import (
    Interval,
    bootstrap_mean,
    mean,
    pass_at_k,
    pass_hat_k,
    projected_pass_at_k,
    projected_pass_hat_k,
    wilson,
)

_SPREAD = ("mean_score", "std_score", "min_score", "max_score")

__all__ = ["Expected", "Metric", "SuiteSummary", "TaskStat", "summarize"]


@dataclass(frozen=True, slots=True)
class Expected:
    """A selected trial, whether or not it was run."""

    suite: str
    benchmark: str
    task_id: str
    agent: str
    trial: int
    groups: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Metric:
    """A number with what is needed to believe it.

    ``interval`` is the 95 % interval over tasks (bootstrap; Wilson's where all tasks agree);
    ``bounds`` are the values if all unscored trials failed and if all passed (equal to ``value``
    at full coverage); ``tasks`` of ``of`` tasks have a value.  ``projected`` marks closed forms
    for k beyond the trials.
    """

    name: str
    value: float
    interval: Interval
    bounds: Interval
    tasks: int
    of: int
    projected: bool = False

    @property
    def covered(self) -> bool:
        """Whether every task has a value."""
        return self.tasks == self.of


@dataclass(slots=True)
class TaskStat:
    """Counts of one task: trials selected, scored and passed, and the scores."""

    task_id: str
    groups: dict[str, str]
    wanted: int = 0
    scored: int = 0
    passed: int = 0
    scores: list[float] = field(default_factory=list)

    def add(self, record: TrialRecord) -> None:
        """Count a record."""
        if record.scored:
            self.scored += 1
            self.passed += record.passed
            if record.score is not None:
                self.scores.append(record.score)
            elif not record.passed and not _scoreless(record):
                self.scores.append(0.0)

    @property
    def spread(self) -> tuple[float, float, float, float]:
        """Mean, sample standard deviation (0 for one trial), least and greatest score; NaN
        without a scored trial."""
        if not self.scores:
            return (math.nan,) * 4
        deviation = statistics.stdev(self.scores) if len(self.scores) > 1 else 0.0
        return mean(self.scores), deviation, min(self.scores), max(self.scores)

    @property
    def missing(self) -> int:
        """Trials that were selected and not scored."""
        return max(0, self.wanted - self.scored)


def _scoreless(record: TrialRecord) -> bool:
    """Whether the grader gives no scores here (an error in euros is none), so that a failure is no
    0 either."""
    own = record.details.get(record.benchmark)
    return isinstance(own, Mapping) and bool(own.get("no_score"))


@dataclass(frozen=True, slots=True)
class SuiteSummary:
    """All numbers of one suite (a benchmark, or a user's test function) and one agent."""

    suite: str
    benchmark: str
    agent: str
    trials: int
    counts: Mapping[str, int]
    ks: tuple[int, ...]
    metrics: tuple[Metric, ...]
    extras: Mapping[str, float]
    groups: Mapping[str, Mapping[str, tuple[Metric, ...]]]
    tasks: tuple[TaskStat, ...]
    failed_checks: tuple[tuple[str, str, str], ...]
    agent_s: float
    grade_s: float
    usage: Mapping[str, float]
    #: The metric that comes first; the benchmark's own tables.
    headline: str = ""
    report: Mapping[str, Any] = field(default_factory=dict)

    @property
    def selected(self) -> int:
        """Trials selected."""
        return sum(self.counts.values())

    @property
    def scored(self) -> int:
        """Trials scored: passed or failed."""
        return self.counts["pass"] + self.counts["fail"]

    def metric(self, name: str) -> Metric:
        """The metric called *name*, such as ``pass@1`` (``KeyError`` when there is none)."""
        for metric in self.metrics:
            if metric.name == name:
                return metric
        raise KeyError(name)

    def to_json(self) -> dict[str, Any]:
        """Plain values; undefined numbers are ``null``."""
        result: dict[str, Any] = plain(
            {
                "suite": self.suite,
                "benchmark": self.benchmark,
                "agent": self.agent,
                "trials_per_task": self.trials,
                "tasks": len(self.tasks),
                "selected": self.selected,
                "scored": self.scored,
                "counts": self.counts,
                "metrics": {metric.name: _metric_json(metric) for metric in self.metrics},
                **self.extras,
                "groups": {
                    column: {
                        value: {metric.name: _metric_json(metric) for metric in metrics}
                        for value, metrics in values.items()
                    }
                    for column, values in self.groups.items()
                },
                "per_task": [
                    {
                        "task_id": stat.task_id,
                        "wanted": stat.wanted,
                        "scored": stat.scored,
                        "passed": stat.passed,
                        **dict(zip(_SPREAD, stat.spread, strict=True)),
                    }
                    for stat in self.tasks
                ],
                "agent_s": round(self.agent_s, 3),
                "grade_s": round(self.grade_s, 3),
                "usage": self.usage,
                **({self.benchmark: self.report} if self.report else {}),
            }
        )
        return result


def summarize(
    expected: Iterable[Expected],
    records: Mapping[Expected, TrialRecord],
    *,
    ks: Callable[[int], tuple[int, ...]],
    extras: Callable[[str, Sequence[TrialRecord]], Mapping[str, float]],
    reports: Callable[[SuiteSummary, Sequence[TrialRecord]], Mapping[str, Any]] = lambda *_: {},
    headline: Callable[[str], str] = lambda name: "",
    seed: int = 0,
) -> list[SuiteSummary]:
    """Summaries by suite and agent, in the order in which *expected* names them.

    Parameters
    ----------
    expected
        Every selected trial.
    records
        The result of each trial that has one.
    ks
        The k to report for a number of trials per task.
    extras
        A benchmark's own numbers: name and scored records to numbers.
    reports
        A benchmark's own tables: the summary so far and all records.
    headline
        The metric that comes first, by the benchmark's name.
    """
    suites: dict[tuple[str, str, str], list[Expected]] = {}
    for trial in expected:
        suites.setdefault((trial.suite, trial.benchmark, trial.agent), []).append(trial)
    found = []
    for key, trials in suites.items():
        summary, done = _suite(*key, trials, records, ks, extras, seed)
        found.append(
            replace(summary, headline=headline(key[1]), report=dict(reports(summary, done)))
        )
    return found


def _suite(
    suite: str,
    benchmark: str,
    agent: str,
    trials: Sequence[Expected],
    records: Mapping[Expected, TrialRecord],
    ks_of: Callable[[int], tuple[int, ...]],
    extras: Callable[[str, Sequence[TrialRecord]], Mapping[str, float]],
    seed: int,
) -> tuple[SuiteSummary, list[TrialRecord]]:
    stats: dict[str, TaskStat] = {}
    counts = dict.fromkeys(("pass", "fail", "error", "skip", "not run"), 0)
    done: list[TrialRecord] = []
    failed: dict[tuple[str, str], str] = {}
    for trial in trials:
        stat = stats.setdefault(trial.task_id, TaskStat(trial.task_id, dict(trial.groups)))
        stat.wanted += 1
        record = records.get(trial)
        if record is None:
            counts["not run"] += 1
            continue
        counts[record.verdict] += 1
        stat.add(record)
        done.append(record)
        for check in record.checks if record.verdict == "fail" else ():
            if check.passed is False:
                failed.setdefault((record.task_id, check.name), check.message)
    tasks = tuple(stats.values())
    wanted = max((stat.wanted for stat in tasks), default=0)
    ks = ks_of(wanted)
    table = _Table(tasks, ks, wanted)
    groups: dict[str, dict[str, list[int]]] = {}
    for row, stat in enumerate(tasks):
        for column, value in stat.groups.items():
            groups.setdefault(column, {}).setdefault(value, []).append(row)
    usage: Counter[str] = Counter()
    for record in done:
        for name in record.usage.__slots__:
            amount = getattr(record.usage, name)
            if amount is not None:
                usage[name] += amount
    summary = SuiteSummary(
        suite=suite,
        benchmark=benchmark,
        agent=agent,
        trials=wanted,
        counts=counts,
        ks=ks,
        metrics=table.metrics(range(len(tasks)), seed),
        extras=extras(benchmark, [record for record in done if record.scored]),
        groups={
            column: {value: table.metrics(rows, None) for value, rows in values.items()}
            for column, values in groups.items()
        },
        tasks=tasks,
        failed_checks=tuple((task, name, text) for (task, name), text in failed.items()),
        agent_s=math.fsum(record.agent_s for record in done),
        grade_s=math.fsum(record.grade_s for record in done),
        usage=dict(usage),
    )
    return summary, done


class _Table:
    """Each metric's values per task, computed once and averaged over any selection of tasks.

    A value comes with what it would be if the unscored trials failed, and if they passed.
    """

    def __init__(self, tasks: Sequence[TaskStat], ks: Sequence[int], wanted: int) -> None:
        self.projected: dict[str, bool] = {}
        self._columns: dict[str, list[tuple[float, float, float]]] = {}
        for k in ks:
            projected = k > wanted
            at = projected_pass_at_k if projected else pass_at_k
            hat = projected_pass_hat_k if projected else pass_hat_k
            self._add(f"pass@{k}", projected, [_pass_values(stat, at, k) for stat in tasks])
            if k > 1:
                self._add(f"pass^{k}", projected, [_pass_values(stat, hat, k) for stat in tasks])
        self._add("mean_score", False, [_score_values(stat) for stat in tasks])

    def _add(self, name: str, projected: bool, values: list[tuple[float, float, float]]) -> None:
        self.projected[name] = projected
        self._columns[name] = values

    def metrics(self, rows: Sequence[int], seed: int | None) -> tuple[Metric, ...]:
        """The metrics over the tasks numbered *rows*; without a *seed* no intervals."""
        return tuple(
            _metric(name, [values[row] for row in rows], seed, self.projected[name])
            for name, values in self._columns.items()
        )


def _pass_values(
    stat: TaskStat, formula: Callable[[int, int, int], float], k: int
) -> tuple[float, float, float]:
    n, c, unscored = stat.scored, stat.passed, stat.missing
    value = formula(n, c, k)
    if not unscored:
        return value, value, value
    return value, formula(n + unscored, c, k), formula(n + unscored, c + unscored, k)


def _score_values(stat: TaskStat) -> tuple[float, float, float]:
    total, n = math.fsum(stat.scores), len(stat.scores)
    unscored = max(0, stat.wanted - n)
    value = total / n if n else math.nan
    if not unscored:
        return value, value, value
    return value, total / (n + unscored), (total + unscored) / (n + unscored)


def _metric(
    name: str, values: Sequence[tuple[float, float, float]], seed: int | None, projected: bool
) -> Metric:
    nowhere = Interval(math.nan, math.nan)
    known = [value for value, _, _ in values]
    return Metric(
        name=name,
        value=mean(known),
        interval=nowhere if seed is None else _interval(known, seed),
        bounds=Interval(mean([low for _, low, _ in values]), mean([high for _, _, high in values])),
        tasks=sum(not math.isnan(value) for value in known),
        of=len(values),
        projected=projected,
    )


def _interval(values: Sequence[float], seed: int) -> Interval:
    """The bootstrap interval over tasks, or Wilson's where all tasks agree on 0 or on 1.

    There every resample is the same, and an interval of no width would claim too much.
    """
    known = [value for value in values if not math.isnan(value)]
    if len(known) > 1 and set(known) in ({0.0}, {1.0}):
        return wilson(int(sum(known)), len(known))
    return bootstrap_mean(known, seed=seed)


def _metric_json(metric: Metric) -> dict[str, Any]:
    return {
        "value": metric.value,
        "interval": list(metric.interval),
        "bounds": list(metric.bounds),
        "tasks": metric.tasks,
        "of": metric.of,
        "projected": metric.projected,
    }
