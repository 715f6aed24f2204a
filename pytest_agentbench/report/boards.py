"""Leaderboards: the agents of a suite in one table, and its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_agentbench.text import slug

__all__ = ["Board", "write_board"]


@dataclass(frozen=True, slots=True)
class Board:
    """A suite's leaderboard: ``table["rows"]`` has a mapping of plain values per participant."""

    suite: str
    benchmark: str
    table: Mapping[str, Any]


def write_board(board: Board, directory: Path) -> Sequence[Path]:
    """Write the rows as ``leaderboard-<suite>.csv`` and ``.parquet``, nested keys with dots.

    Raises
    ------
    OSError
        A file cannot be written.
    """
    import pandas as pd

    frame = pd.json_normalize([dict(row) for row in board.table["rows"]])
    paths = [directory / f"leaderboard-{slug(board.suite)}{s}" for s in (".csv", ".parquet")]
    frame.to_csv(paths[0], index=False, lineterminator="\n")
    frame.to_parquet(paths[1], index=False)
    return paths
