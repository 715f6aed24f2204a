"""The run directory: ``run.json``, ``trials.jsonl``, and a directory per trial.

Written by the controller alone, one line per trial, flushed as it is known.  Nothing is ever
overwritten: a directory that holds a run already is refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.model import TrialRecord

__all__ = ["RunLog", "read_records", "trial_directory", "versions"]


def trial_directory(out: Path, agent: str, benchmark: str, task: str, trial: int) -> Path:
    """Where a trial's evidence goes; every part is a slug already."""
    return out / agent / benchmark / task / str(trial)


class RunLog:
    """Appends records to a run directory, which is created when the first one comes."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self._file: IO[str] | None = None

    def check(self) -> None:
        """Refuse a directory that holds a run already.

        Raises
        ------
        ConfigError
            Naming ``--bench-out``.
        """
        if (self.out / "trials.jsonl").exists() or (self.out / "run.json").exists():
            raise ConfigError(
                f"--bench-out: {str(self.out)!r} holds a run already; name another directory"
            )
        if self.out.exists() and not self.out.is_dir():
            raise ConfigError(f"--bench-out: {str(self.out)!r} is not a directory")

    def start(self, header: Mapping[str, Any]) -> None:
        """Create the directory, with ``run.json`` and a ``.gitignore`` of its own."""
        try:
            if not self.out.exists():  # else it may be the user's own directory
                self.out.mkdir(parents=True, exist_ok=True)
                (self.out / ".gitignore").write_text("*\n", encoding="ascii")
            write_json(self.out / "run.json", header)
            # "x": of two runs that start in one directory, the second one stops here
            self._file = (self.out / "trials.jsonl").open("x", encoding="ascii")
        except FileExistsError:
            raise ConfigError(
                f"--bench-out: {str(self.out)!r} is in use by another run; name another directory"
            ) from None
        except OSError as error:
            raise ConfigError(f"--bench-out: cannot write to {str(self.out)!r}: {error}") from error

    def append(self, text: str) -> None:
        """Add a record's text as one line and flush it."""
        if self._file is not None:
            self._file.write(text + "\n")
            self._file.flush()

    def close(self, header: Mapping[str, Any], summary: Mapping[str, Any]) -> None:
        """Complete ``run.json`` and write ``summary.json``."""
        if self._file is not None:
            self._file.close()
            self._file = None
            write_json(self.out / "run.json", header)
            write_json(self.out / "summary.json", summary)


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write *data* so that a reader sees the old file or the new one, never half of it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(data, indent=1) + "\n", encoding="ascii")
    partial.replace(path)


def read_records(path: Path) -> list[TrialRecord]:
    """The records of a ``trials.jsonl``, or of a run directory; a torn last line is left out."""
    if path.is_dir():
        path /= "trials.jsonl"
    records = []
    for line in path.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            records.append(TrialRecord.from_json(json.loads(line)))
    return records


def versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    found = {"python": platform.python_version(), "platform": sys.platform}
    for name in (
        "pytest",
        "pytest-agentbench",
        "pytest-xdist",
        "playwright",
        "jsonschema",
        "scikit-learn",
        "scipy",
    ):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
