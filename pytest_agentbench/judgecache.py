"""Judges' answers kept on disk: grading again costs nothing and comes to the same.

An entry's key is the SHA-256 of everything that was asked, the vote and the trial included, so
votes and trials never share an entry.  A screenshot stands in it by whether there was one: two
pictures of the same page differ by a blinking cursor.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_agentbench.errors import ConfigError

__all__ = ["JudgeCache", "cache_key"]

_TABLE = "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, model TEXT, answer TEXT)"
#: Seconds to wait for another process's write.
_PATIENCE = 30.0


def cache_key(asked: Mapping[str, Any]) -> str:
    """The key of what was *asked* (plain values)."""
    text = json.dumps(asked, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


class JudgeCache:
    """A store of answers in the sqlite file *path*, which all processes of a run share.

    Raises
    ------
    ConfigError
        The file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            ignore = path.parent / ".gitignore"
            if path.parent.name == ".agentbench" and not ignore.exists():
                ignore.write_text("*\n", encoding="ascii")
            with self._open() as store:
                store.execute("PRAGMA journal_mode=WAL")
                store.execute(_TABLE)
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(f"--bench-judge-cache: cannot use {str(path)!r}: {error}") from None

    @property
    def empty(self) -> bool:
        """Whether nothing is kept."""
        with self._open() as store:
            return store.execute("SELECT 1 FROM answers LIMIT 1").fetchone() is None

    def get(self, key: str) -> str | None:
        """The answer that was kept under *key*, if any."""
        with self._open() as store:
            row = store.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def put(self, key: str, model: str, answer: str) -> None:
        """Keep *answer*; the first one stays."""
        with self._open() as store:
            store.execute("INSERT OR IGNORE INTO answers VALUES (?, ?, ?)", (key, model, answer))

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        # a connection for each use: they are cheap beside a model, and belong to one thread
        with self._lock:
            store = sqlite3.connect(self.path, timeout=_PATIENCE)
            try:
                with store:
                    yield store
            finally:
                store.close()
