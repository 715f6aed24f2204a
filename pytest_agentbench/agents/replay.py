"""``replay:DIR``: grade again what an earlier run recorded."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from pathlib import Path

from pytest_agentbench.agents import Agent, Call, read_transcript
from pytest_agentbench.errors import ConfigError, HarnessError, SkipTrial
from pytest_agentbench.model import AgentRun
from pytest_agentbench.text import slug
from pytest_agentbench.workspace import GONE, read_regular, walk

__all__ = ["ReplayAgent", "overlay"]

#: Files in a trial's directory of which at least one must be there.
RECORDED = ("transcript.jsonl", "response.txt", "app.html", "workspace", GONE)
MAX_LIST = 8 * 1024 * 1024


class ReplayAgent(Agent):
    """Reads ``DIR/<benchmark>/<task_id>/<trial>/``: transcript, app and changed workspace files."""

    live = False

    def __init__(self, directory: Path) -> None:
        if not directory.expanduser().is_dir():
            raise ConfigError(f"--bench-agent: replay:{directory} is not a directory")
        self.directory = directory.expanduser().absolute()
        self.name = slug(self.directory.name) or "replay"

    def run(self, call: Call) -> AgentRun:
        place = self.directory / call.task.benchmark
        for name in dict.fromkeys((call.slug, call.task.id)):
            trial = place / name / str(call.task.trial)
            # the id is a dataset's: only a plain name may lead into the tree
            if name not in ("", ".", "..") and "/" not in name and "\0" not in name:
                if any(os.path.exists(trial / part) for part in RECORDED):  # noqa: PTH110
                    if (trial / GONE).exists():
                        remove(trial / GONE, call.workspace)
                    if (trial / "workspace").is_dir():
                        overlay(trial / "workspace", call.workspace)
                    return AgentRun(read_transcript(trial, call.task.prompt, None))
        raise SkipTrial(
            f"trial {call.task.trial} of {call.task.id!r} was not recorded in {self.directory}"
        )


def remove(listed: Path, workspace: Path) -> None:
    """Remove from the seeded workspace what the agent had removed from its own."""
    try:
        names = json.loads(read_regular(listed, MAX_LIST) or b"[]")
    except ValueError as error:
        raise HarnessError(f"{listed} is not JSON: {error}") from None
    # the deepest first: a directory is empty by then
    for name in sorted(filter(lambda n: isinstance(n, str), names), key=len, reverse=True):
        path = workspace / name
        if name.startswith("/") or ".." in name.split("/") or not _inside(path, workspace):
            continue
        with contextlib.suppress(OSError):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def _inside(path: Path, workspace: Path) -> bool:
    """Whether no directory on the way to *path* is a link."""
    between = path.relative_to(workspace).parents
    return not any((workspace / parent).is_symlink() for parent in between)


def overlay(recorded: Path, workspace: Path) -> None:
    """Lay the recorded files and directories over the seeded workspace; links are left out."""
    for name, info in walk(recorded):
        target = workspace / name
        if not _inside(target, workspace):
            continue
        if stat.S_ISDIR(info.st_mode):
            if not target.exists() and not target.is_symlink():
                target.mkdir(parents=True)
            continue
        if not stat.S_ISREG(info.st_mode) or target.is_symlink():
            continue
        if target.exists() and not target.is_file():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        data = read_regular(recorded / name, info.st_size)
        if data is None:  # without it another outcome would be graded than was recorded
            raise HarnessError(f"{recorded / name} cannot be read")
        target.write_bytes(data)
        target.chmod(stat.S_IMODE(info.st_mode) | stat.S_IRUSR | stat.S_IWUSR)
