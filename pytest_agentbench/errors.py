"""The error tree.

A wrong answer is an :class:`AssertionError` (:class:`GradeFailed`); everything that is the
harness's or the dataset's fault is an :class:`AgentBenchError`.  The two never share a base below
:class:`Exception`, so no ``except`` clause can mix them up.
"""

from __future__ import annotations

__all__ = [
    "AgentBenchError",
    "BrowserUnavailable",
    "BudgetSpent",
    "ConfigError",
    "DataError",
    "GradeFailed",
    "HarnessError",
    "RowError",
    "SkipTrial",
]


class GradeFailed(AssertionError):
    """The agent did not do it: a required check does not hold."""


class AgentBenchError(Exception):
    """Base of all faults that are not the agent's."""


class ConfigError(AgentBenchError):
    """An option has a value that cannot work.  The pytest layer turns it into a usage error."""


class DataError(ConfigError):
    """A dataset as a whole cannot be used: unreadable, empty of a column, duplicate ids."""


class HarnessError(AgentBenchError):
    """The harness could not tell whether the agent did it (verdict ``error``)."""


class BrowserUnavailable(HarnessError):
    """No Chromium could be started."""


class RowError(HarnessError):
    """One dataset row is broken.

    The message names the benchmark, the row, the column and the reason; the row becomes an error
    item, all others run.
    """

    def __init__(self, benchmark: str, row: str, column: str, reason: str) -> None:
        self.benchmark = benchmark
        self.row = row
        self.column = column
        self.reason = reason
        super().__init__(f"{benchmark}: row {row}, column {column!r}: {reason}")

    def __reduce__(self) -> tuple[type[RowError], tuple[str, str, str, str]]:
        return (type(self), (self.benchmark, self.row, self.column, self.reason))


class SkipTrial(AgentBenchError):
    """A declared prerequisite is absent (verdict ``skip``)."""


class BudgetSpent(SkipTrial):
    """There is no money left for the trial (verdict ``skip``; gates are inconclusive)."""
