"""The summary as lines of text, at most 80 columns wide."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pytest_agentbench.summary import Metric, SuiteSummary
from pytest_agentbench.text import WIDTH, count, one_line, shorten

__all__ = ["brief_line", "number", "summary_lines"]

_USAGE = ("input_tokens", "output_tokens", "cost_usd", "requests")


def number(value: float) -> str:
    """Three decimals, or a dash for what is undefined."""
    return "–" if math.isnan(value) else f"{value:.3f}"


def brief_line(summary: SuiteSummary) -> str:
    """One line with the headline numbers, for ``-q``."""
    metrics = _ordered(summary.metrics, summary.headline)
    values = ", ".join(
        f"{m.name} {number(m.value)}" + ("" if m.covered else f" ({m.tasks} of {m.of} tasks)")
        for m in metrics
    )
    return (
        f"{summary.suite} · {summary.agent}: {values} "
        f"({summary.scored} of {summary.selected} scored)"
    )


def _ordered(metrics: Sequence[Metric], headline: str) -> list[Metric]:
    return sorted(metrics, key=lambda metric: metric.name != headline)


def summary_lines(
    summary: SuiteSummary, *, verbose: bool, judge: str, own: Iterable[str] = ()
) -> Iterator[str]:
    """The section of one suite and agent; *own* are the benchmark's own lines."""
    yield shorten(
        f"{summary.suite} · agent {summary.agent} · {count(len(summary.tasks), 'task')} x "
        f"{count(summary.trials, 'trial')}"
        f" · judge {judge}",
        WIDTH,
    )
    counts = summary.counts
    told = [
        f"{counts['pass']} passed",
        f"{counts['fail']} failed",
        count(counts["error"], "error"),
        f"{counts['skip']} skipped",
    ]
    if counts["not run"]:
        told.append(f"{counts['not run']} not run")
    yield f"  {', '.join(told)}; scored {summary.scored} of {summary.selected}"
    for metric in _ordered(summary.metrics, summary.headline):
        yield from _metric_lines(metric)
    covered = summary.report.get("covers", ())
    extras = [
        f"{name.replace('_', ' ')} {number(value)}"
        for name, value in summary.extras.items()
        if name not in covered
    ]
    if extras:
        yield f"  {' · '.join(extras)}"
    if "usage" not in covered and any(map(summary.usage.get, _USAGE)):
        told = [name for name in _USAGE if summary.usage.get(name)]
        yield "  usage: " + ", ".join(
            f"{name.replace('_', ' ')} {summary.usage[name]:,.4g}"
            if isinstance(summary.usage[name], float)
            else f"{name.replace('_', ' ')} {summary.usage[name]:,}"
            for name in told
        )
    yield from own
    tables = {
        column: values
        for column, values in summary.groups.items()
        if len(values) > 1 and column not in covered
    }
    names = [name for column, values in tables.items() for name in (column, *values)]
    for column, values in tables.items():
        ordered = {value: _ordered(metrics, summary.headline) for value, metrics in values.items()}
        yield from _group_table(column, ordered, min(22, max(map(len, names))))
    if summary.agent == "reference":
        yield from _calibration(summary)
    if verbose:
        yield from _task_table(summary)


def _metric_lines(metric: Metric) -> Iterator[str]:
    line = f"  {metric.name:<11} {number(metric.value)}"
    if not math.isnan(metric.interval.low):
        line += f"  95 % [{number(metric.interval.low)}, {number(metric.interval.high)}]"
    if metric.projected:
        line += "  projected"
    yield line
    low, high = metric.bounds
    if not (metric.covered and math.isclose(low, metric.value) and math.isclose(high, low)):
        line = f"{'':<14}{metric.tasks} of {metric.of} tasks have a value"
        if not math.isnan(low):
            line += f"; unscored fail {number(low)}, pass {number(high)}"
        yield line


def _group_table(column: str, values: Mapping[str, Sequence[Metric]], width: int) -> Iterator[str]:
    names = [metric.name for metric in next(iter(values.values()))][:5]
    yield f"  {column:<{width}} tasks" + "".join(f"{name:>11}" for name in names)
    for value, metrics in values.items():
        cells = "".join(f"{number(metric.value):>11}" for metric in metrics[:5])
        yield f"  {shorten(value, width):<{width}} {metrics[0].of:>5}{cells}"


def _calibration(summary: SuiteSummary) -> Iterator[str]:
    good = sum(stat.scored > 0 and stat.passed == stat.scored for stat in summary.tasks)
    scored = sum(stat.scored > 0 for stat in summary.tasks)
    yield f"  calibration: {good} of {scored} references pass their own checks"
    width = max((len(task) for task, _, _ in summary.failed_checks), default=0)
    for task, check, message in summary.failed_checks:
        yield shorten(f"    {task:<{width}}  {check}: {one_line(message)}", WIDTH)


def _task_table(summary: SuiteSummary) -> Iterator[str]:
    width = min(33, max((len(stat.task_id) for stat in summary.tasks), default=4))
    yield f"  {'task':<{width}}  passed wanted   mean    std    min    max"
    for stat in summary.tasks:
        passed = f"{stat.passed}/{stat.scored}"
        counts = f"{passed:>7} {stat.wanted:>6}"
        scores = " ".join(f"{number(value):>6}" for value in stat.spread)
        yield f"  {one_line(stat.task_id, width):<{width}} {counts} {scores}"
