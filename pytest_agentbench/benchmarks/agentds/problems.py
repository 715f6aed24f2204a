"""What is found wrong in a submission, and how rows are named in messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pytest_agentbench.benchmarks.agentds.ids import told
from pytest_agentbench.text import one_line

__all__ = ["MISSING", "NAME", "NAMED", "Problem", "Submission", "named"]

NAME = "submission.csv"
#: So many offending ids are named.
NAMED = 5
#: Texts, in lower case, that stand for no value.
MISSING = frozenset(["", "na", "n/a", "nan", "none", "null", "<na>", "nat", "#n/a"])


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong: a kind (``row_count``, ``unknown_ids``, …) and a message."""

    kind: str
    message: str


@dataclass(slots=True)
class Submission:
    """What was read.

    ``values`` are in the order of the test set: numbers, codes of classes, or tuples of items;
    ``None`` when there are ``problems``.  ``warnings`` are oddities that do not invalidate.
    """

    values: Any = None
    rows: int = 0
    #: Blank lines before the header.
    lead: int = 0
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def wrong(self, kind: str, message: str) -> None:
        """Note a problem."""
        self.problems.append(Problem(kind, message))


def named(columns: Sequence[pa.Array], rows: Any) -> str:
    """The first ids of *rows*, and how many more, for messages."""
    shown = ", ".join(repr(told(columns, int(row))) for row in rows[:NAMED])
    more = f" and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
    return one_line(shown, 300) + more
