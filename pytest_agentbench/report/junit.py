"""Numbers of a run as properties of the JUnit test suite."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from pytest_agentbench.summary import SuiteSummary

__all__ = ["suite_properties"]


def suite_properties(summaries: Iterable[SuiteSummary]) -> Iterator[tuple[str, str]]:
    """Name and text of each property.

    With one suite the names are bare (``pass@5``); with several, each is preceded by the suite and
    the agent (``genui/noop/pass@5``).  Undefined numbers are ``nan``.
    """
    found = list(summaries)
    for summary in found:
        prefix = f"{summary.suite}/{summary.agent}/" if len(found) > 1 else ""
        yield f"{prefix}benchmark", summary.benchmark
        yield f"{prefix}agent", summary.agent
        yield f"{prefix}tasks", str(len(summary.tasks))
        yield f"{prefix}trials", str(summary.selected)
        yield f"{prefix}scored", str(summary.scored)
        for verdict, count in summary.counts.items():
            yield f"{prefix}{verdict.replace(' ', '_')}", str(count)
        for metric in summary.metrics:
            yield f"{prefix}{metric.name}", _number(metric.value)
        for name, value in summary.extras.items():
            yield f"{prefix}{name}", _number(value)


def _number(value: float) -> str:
    return "nan" if math.isnan(value) else f"{value:.6g}"
