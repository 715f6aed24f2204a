"""The benchmark's own numbers: a line per challenge, and quantiles from challenge to overall."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_agentbench.benchmarks.agentds.board import (
    Column,
    Result,
    leaderboard,
    overall_means,
    three,
)
from pytest_agentbench.benchmarks.agentds.pool import Pool
from pytest_agentbench.model import TrialRecord
from pytest_agentbench.summary import TaskStat
from pytest_agentbench.text import one_line

__all__ = ["board_of", "challenge_rows", "overall_quantile", "quantile_table", "report_lines"]

KEY = "agentds"


def overall_quantile(records: Sequence[TrialRecord]) -> float:
    """The mean over domains of their challenges' mean quantiles, of scored *records*."""
    scores: dict[tuple[str, str], list[float]] = {}
    for record in records:
        scores.setdefault((_domain(record), record.task_id), []).append(record.score or 0.0)
    if not scores:
        return math.nan
    means = [math.fsum(found) / len(found) for found in scores.values()]
    _, overall, _ = overall_means([means], [domain for domain, _ in scores], resamples=1)
    return float(overall[0])


def quantile_table(tasks: Sequence[TaskStat], seed: int) -> dict[str, Any]:
    """Quantiles of one agent by domain and overall, with interval, coverage and bounds.

    ``bounds`` are the overall score if all trials that could not be scored got 0, and 1.
    """
    domains = [stat.groups.get("domain", "") for stat in tasks]
    value, low, high = [], [], []
    for stat in tasks:
        total, n = math.fsum(stat.scores), len(stat.scores)
        value.append(total / n if n else math.nan)
        low.append(total / max(1, stat.wanted))
        high.append((total + stat.wanted - n) / max(1, stat.wanted))
    by_domain, overall, interval = overall_means([value], domains, seed=seed)
    _, bounds, _ = overall_means([low, high], domains, resamples=1)
    names = list(dict.fromkeys(domains))
    return {
        "value": float(overall[0]),
        "interval": interval[0].tolist(),
        "bounds": bounds.tolist(),
        "challenges": sum(not math.isnan(found) for found in value),
        "of": len(tasks),
        "domains": dict(zip(names, by_domain[0].tolist(), strict=True)),
    }


def challenge_rows(records: Sequence[TrialRecord]) -> dict[str, list[dict[str, Any]]]:
    """By challenge, and of each trial: its metric, and where it stands in the pool."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for record in sorted(records, key=lambda r: (r.task_id, r.trial)):
        rows.setdefault(record.task_id, []).append(
            {
                "trial": record.trial,
                "verdict": record.verdict,
                "reason": one_line(record.reason),
                **_own(record),
            }
        )
    return rows


def board_of(
    records: Mapping[str, Sequence[TrialRecord]], pool: Pool, *, ties: str, seed: int
) -> dict[str, Any]:
    """The leaderboard of *pool* and the agents that *records* are of."""
    columns: dict[str, Column] = {}
    agents: dict[str, dict[str, list[Result | None]]] = {}
    for agent, found in records.items():
        table = agents.setdefault(agent, {})
        for record in sorted(found, key=lambda r: (r.task_id, r.trial)):
            own = _own(record)
            if own or record.task_id not in columns:
                higher = bool(own.get("higher", True))
                columns[record.task_id] = Column(record.task_id, _domain(record), higher)
            value = own.get("metric_value")
            result = Result(math.nan if value is None else value, own.get("submitted_at", ""))
            table.setdefault(record.task_id, []).append(result if record.scored else None)
    ordered = [columns[key] for key in sorted(columns)]
    return leaderboard(ordered, pool, agents, ties=ties, seed=seed)


def report_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """The report for the terminal, at most 80 columns wide."""
    quantile = report.get("quantile")
    if quantile is not None:
        yield from _quantile_lines(quantile)
    if report["split"]:
        yield f"  labels: {report['labels']}; not the published test set"
    head = f"  {'challenge':<18} {'metric':<15} {'value':>9}"
    if quantile is not None:
        head += f" {'quantile':>8} {'rank':>9} one more/less"
    yield head
    for key, trials in report["challenges"].items():
        for trial in trials:
            yield _challenge_line(key, trial, len(trials) > 1)


def _quantile_lines(quantile: Mapping[str, Any]) -> Iterator[str]:
    line = f"  {'quantile':<11} {three(quantile['value'])}"
    if not math.isnan(quantile["interval"][0]):
        low, high = map(three, quantile["interval"])
        line += f"  95 % [{low}, {high}]"
    yield line + "  mean of the domains"
    low, high = quantile["bounds"]
    if not math.isclose(low, high):
        yield (
            f"{'':<14}{quantile['challenges']} of {quantile['of']} challenges have a value; "
            f"unscored 0 {three(low)}, 1 {three(high)}"
        )
    cells = [f"{one_line(name, 24)} {three(q)}" for name, q in quantile["domains"].items()]
    line = ""
    for cell in cells:
        if line and len(line) + len(cell) > 60:
            yield f"{'':<14}{line}"
            line = ""
        line += (" · " if line else "") + cell
    yield f"{'':<14}{line}"


def _challenge_line(key: str, trial: Mapping[str, Any], several: bool) -> str:
    name = f"{key} [{trial['trial']}]" if several else key
    line = f"  {one_line(name, 18):<18} "
    value = trial.get("metric_value")
    if value is None:
        return line + one_line(f"{trial['verdict']}: {trial['reason']}", 80 - len(line))
    line += f"{trial['metric']:<15} {value:>9.5g} "
    if "quantile" in trial:
        rank = f"{trial['rank']:g} of {trial['n']}"
        low, high = trial["quantile_moves"]
        line += f"{trial['quantile']:>8.3f} {rank:>9} {low:.3f} to {high:.3f}"
    return line.rstrip()


def _own(record: TrialRecord) -> Mapping[str, Any]:
    found = record.details.get(KEY, {})
    return found if isinstance(found, Mapping) else {}


def _domain(record: TrialRecord) -> str:
    groups = record.details.get("groups", {})
    return str(groups.get("domain", "")) if isinstance(groups, Mapping) else ""
