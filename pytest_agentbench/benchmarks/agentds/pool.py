"""The pool of participants: who reached which value of the metric, and how an entrant compares.

A pool is a CSV or parquet file with a row per participant and challenge: ``challenge``,
``participant``, ``metric_value`` (empty: no valid submission), ``submissions`` (how many were made)
and ``submitted_at`` (ISO 8601, the time of the last one).  The column ``version`` is that of the
format, 1.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_agentbench.benchmarks.agentds.labels import read_table
from pytest_agentbench.errors import HarnessError
from pytest_agentbench.scoring import Interval, quantile_moves, quantiles
from pytest_agentbench.text import file_name, one_line

__all__ = ["VERSION", "Entry", "Pool", "Standing", "read_pool"]

VERSION = 1
COLUMNS = ("challenge", "participant", "metric_value")


@dataclass(frozen=True, slots=True)
class Entry:
    """A participant's result at a challenge; ``value`` is NaN without a valid submission."""

    value: float
    submissions: float = math.nan
    submitted_at: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a value stands among others.

    ``rank`` is that of the tie rule; ``n`` is the number of participants with a valid submission,
    the entrant included; ``moves`` are the least and the greatest quantile if one other participant
    were added or removed.
    """

    quantile: float
    rank: float
    n: int
    moves: Interval


@dataclass(frozen=True, slots=True)
class Pool:
    """Entries by challenge and participant, and what file they came from."""

    entries: Mapping[str, Mapping[str, Entry]] = field(default_factory=dict)
    source: str = ""
    sha256: str = ""

    def __bool__(self) -> bool:
        return bool(self.entries)

    @property
    def participants(self) -> list[str]:
        """All names, in the order in which the file has them."""
        return list(dict.fromkeys(name for table in self.entries.values() for name in table))

    def standing(
        self, challenge: str, name: str, value: float, *, higher: bool, ties: str
    ) -> Standing:
        """Where participant *name* stands with *value*: a new entrant is inserted (n + 1), a
        participant of the pool is ranked again (n unchanged)."""
        table = self.entries.get(challenge, {})
        values = [entry.value for other, entry in table.items() if other != name]
        values = [other for other in values if not math.isnan(other)] + [value]
        better = sum(other > value if higher else other < value for other in values)
        equal = values.count(value)
        own = len(values) - 1
        return Standing(
            quantile=float(quantiles(values, higher=higher, ties=ties)[own]),
            rank=better + {"min": 1, "average": (1 + equal) / 2, "max": equal}[ties],
            n=len(values),
            moves=Interval(*quantile_moves(values, own, higher=higher, ties=ties)),
        )


def read_pool(path: Path) -> Pool:
    """Read a pool file.

    Raises
    ------
    HarnessError
        It cannot be read, or a row is wrong; the message names the row.
    """
    try:
        data = path.read_bytes()
        table = read_table(path)
    except (OSError, ValueError) as error:
        raise _broken(path, str(error)) from None
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        found = one_line(", ".join(map(str, table.columns)))
        raise _broken(path, f"lacks the column {', '.join(missing)} (found: {found})")
    entries: dict[str, dict[str, Entry]] = {}
    for number, row in enumerate(_rows(table), 2):
        where = f"row {number}"
        version = row.get("version", "").strip()
        if version and version not in (str(VERSION), f"{VERSION}.0"):
            raise _broken(path, f"{where}: version {version!r} is unknown; expected {VERSION}")
        challenge, name = row["challenge"].strip(), row["participant"].strip()
        if not challenge or not name:
            raise _broken(path, f"{where}: challenge and participant must not be empty")
        if name in entries.setdefault(challenge, {}):
            raise _broken(path, f"{where}: {name!r} stands twice for {challenge}")
        value = _number(path, where, "metric_value", row)
        submissions = _number(path, where, "submissions", row)
        at = row.get("submitted_at", "").strip()
        try:
            at = _utc(at)
        except (ValueError, OverflowError):
            raise _broken(path, f"{where}, submitted_at: {at!r} is no ISO 8601 time") from None
        entries[challenge][name] = Entry(value, submissions, at)
    return Pool(entries, str(path), hashlib.sha256(data).hexdigest())


def _rows(table: Any) -> Iterator[Mapping[str, str]]:
    names = [str(name) for name in table.columns]
    for row in table.itertuples(index=False, name=None):
        yield dict(zip(names, row, strict=True))


def _number(path: Path, where: str, column: str, row: Mapping[str, str]) -> float:
    text = row.get(column, "").strip()
    if text.lower() in ("", "nan", "none", "<na>"):
        return math.nan
    try:
        number = float(text)
    except ValueError:
        number = math.inf
    if math.isinf(number):
        raise _broken(path, f"{where}, {column}: {text!r} is not a finite number")
    return number


def _utc(text: str) -> str:
    """*text* as a time that can be compared as text; empty if there is none."""
    if not text or text.lower() in ("nan", "nat", "none"):
        return ""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return time.astimezone(UTC).isoformat(timespec="milliseconds")


def _broken(path: Path, reason: str) -> HarnessError:
    return HarnessError(f"agentds: the pool {file_name(str(path))}: {reason}")
