"""PinchBench's arithmetic: hybrids, categories, efficiency, usage.

The numbers are those of upstream's runner (version 2.0.0), so that they compare with its
leaderboard.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_agentbench.transcripts import is_amount

__all__ = ["category_name", "category_scores", "combine", "efficiency", "usage_totals"]


def combine(automated: float, judged: float, weights: Mapping[str, Any] | None) -> float:
    """The score of a hybrid: the weighted mean of its two parts.

    A weight that is missing is 0.5, and both are if they add up to nothing.  Texts are numbers.
    """
    given = weights or {}
    mine, theirs = float(given.get("automated", 0.5)), float(given.get("llm_judge", 0.5))
    if mine + theirs <= 0:
        mine = theirs = 0.5
    return (automated * mine + judged * theirs) / (mine + theirs)


def category_scores(
    tasks: Iterable[tuple[str, str]], means: Mapping[str, float], order: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """Scores by category in upper case: those in *order* first, then alphabetically.

    Parameters
    ----------
    tasks
        Task id and category.
    means
        Mean score by task id; a task that is not in it scores 0.
    """
    found: dict[str, list[float]] = {}
    for task, category in tasks:
        found.setdefault(category_name(category), []).append(means.get(task, 0.0))
    first = [name for name in dict.fromkeys(map(category_name, order)) if name in found]
    names = [*first, *sorted(found.keys() - set(first))]
    return {
        name: {
            "score": math.fsum(found[name]),
            "max_score": float(len(found[name])),
            "pct": round(100 * math.fsum(found[name]) / len(found[name]), 1),
            "task_count": len(found[name]),
        }
        for name in names
    }


def category_name(category: str) -> str:
    """A category as upstream's tables name it."""
    return category.upper() if category else "UNCATEGORIZED"


def efficiency(
    runs: Iterable[tuple[str, Mapping[str, Any], float | None]], means: Mapping[str, float]
) -> dict[str, Any]:
    """What the scores cost in tokens, money, requests and time.

    Parameters
    ----------
    runs
        Task id, usage as of :func:`usage_totals` and seconds of each run.
    means
        Mean score by task id.

    Returns
    -------
    dict
        Totals, means and ratios; a ratio without a divisor is ``None``.
    """
    tokens = spent = requests = sent = received = seconds = 0.0
    per_task: dict[str, dict[str, Any]] = {}
    reporting = 0
    for task, usage, time_s in runs:
        total, cost = _amount(usage, "total_tokens"), _amount(usage, "cost_usd")
        tokens, spent = tokens + total, spent + cost
        requests += _amount(usage, "request_count")
        sent, received = (
            sent + _amount(usage, "input_tokens"),
            received + _amount(usage, "output_tokens"),
        )
        seconds += time_s or 0.0
        reporting += total > 0
        entry = per_task.setdefault(task, {"total_tokens": 0, "cost_usd": 0.0})
        entry["total_tokens"] += int(total)
        entry["cost_usd"] += cost
    scored = math.fsum(means.values())
    return {
        "total_tokens": int(tokens),
        "total_input_tokens": int(sent),
        "total_output_tokens": int(received),
        "total_cost_usd": round(spent, 6),
        "total_requests": int(requests),
        "total_execution_time_seconds": round(seconds, 2),
        "tasks_with_usage_data": reporting,
        "tokens_per_task": round(tokens / reporting, 1) if reporting else 0,
        "cost_per_task_usd": round(spent / reporting, 6) if reporting else 0,
        "score_per_1k_tokens": round(scored / (tokens / 1000), 6) if tokens > 0 else None,
        "score_per_dollar": round(scored / spent, 4) if spent > 0 else None,
        "per_task": [
            {
                "task_id": task,
                "score": means.get(task, 0.0),
                "total_tokens": entry["total_tokens"],
                "cost_usd": round(entry["cost_usd"], 6),
                "tokens_per_score_point": (
                    round(entry["total_tokens"] / means[task], 1)
                    if means.get(task, 0.0) > 0
                    else None
                ),
            }
            for task, entry in per_task.items()
        ],
    }


def _amount(usage: Mapping[str, Any], name: str) -> float:
    value = usage.get(name)
    return float(value) if is_amount(value) else 0.0


def usage_totals(events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Usage summed over the assistant's messages; one without usage is a request all the same."""
    names = {
        "input_tokens": "input",
        "output_tokens": "output",
        "cache_read_tokens": "cacheRead",
        "cache_write_tokens": "cacheWrite",
        "total_tokens": "totalTokens",
    }
    totals: dict[str, Any] = dict.fromkeys(names, 0)
    cost, requests = 0.0, 0
    for event in events:
        message = event.get("message")
        if event.get("type") != "message" or not isinstance(message, Mapping):
            continue
        if message.get("role") != "assistant":
            continue
        requests += 1
        usage = message.get("usage")
        if isinstance(usage, Mapping):
            for ours, theirs in names.items():
                totals[ours] += int(_amount(usage, theirs))
            price = usage.get("cost")
            cost += _amount(price if isinstance(price, Mapping) else {"total": price}, "total")
    return {**totals, "cost_usd": cost, "request_count": requests}
