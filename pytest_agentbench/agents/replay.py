"""``replay:DIR``: grade again what an earlier run recorded."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pytest_agentbench.agents import Agent, Call, read_transcript
from pytest_agentbench.errors import ConfigError, SkipTrial
from pytest_agentbench.model import AgentRun
from pytest_agentbench.text import slug
from pytest_agentbench.workspace import read_regular, snapshot

__all__ = ["ReplayAgent", "overlay"]

#: Files in a trial's directory of which at least one must be there.
RECORDED = ("transcript.jsonl", "response.txt", "app.html", "workspace")


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
                    if (trial / "workspace").is_dir():
                        overlay(trial / "workspace", call.workspace)
                    return AgentRun(read_transcript(trial, call.task.prompt, None))
        raise SkipTrial(
            f"trial {call.task.trial} of {call.task.id!r} was not recorded in {self.directory}"
        )


def overlay(recorded: Path, workspace: Path) -> None:
    """Lay the recorded regular files over the seeded workspace; links are left out."""
    for name, state in snapshot(recorded):
        if state.kind != "file":
            continue
        target = workspace / name
        if target.is_symlink() or (target.exists() and not target.is_file()):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        data = read_regular(recorded / name, state.size)
        if data is not None:
            target.write_bytes(data)
            mode = stat.S_IMODE((recorded / name).stat().st_mode)
            target.chmod(mode | stat.S_IRUSR | stat.S_IWUSR)
