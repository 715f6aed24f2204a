"""What is kept of a trial, and what a failed one prints."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_agentbench.model import AgentRun, AgentTask, Grade, TrialRecord
from pytest_agentbench.text import clean, file_name, one_line
from pytest_agentbench.workspace import GONE, Diff, Workspace, keep

__all__ = ["Evidence", "changed_files", "failure_text"]

#: Evidence of passed trials, too: what grading again needs.
REPLAYED = ("app.html", "judge.jsonl")
#: More file names than this of a kind are counted in a record, and not listed.
MAX_NAMES = 200


def changed_files(diff: Diff | None) -> dict[str, Any]:
    """Names of the files that the agent created, changed and deleted, for the record."""
    if diff is None or not (diff.created or diff.changed or diff.deleted):
        return {}
    names = {"created": diff.created, "changed": diff.changed, "deleted": diff.deleted}
    found: dict[str, Any] = {
        kind: [file_name(name) for name in names[kind][:MAX_NAMES]] for kind in names
    }
    left_out = sum(max(0, len(names[kind]) - MAX_NAMES) for kind in names)
    return {"workspace": {**found, **({"more": left_out} if left_out else {})}}


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that there is of a trial, as far as it came."""

    run: AgentRun | None
    grade: Grade | None
    task: AgentTask | None
    workspace: Workspace | None
    diff: Diff | None

    def keep(self, record: TrialRecord, directory: Path, *, every: bool) -> tuple[TrialRecord, str]:
        """Write it into *directory*; the record that tells so, and its text.

        Of a passed trial only what grading again needs is kept, unless *every* is set.
        """
        try:
            files = self._files(record, every=every)
            if self.workspace is not None and self.diff:
                left_out = keep(self.workspace.path, self.diff, directory / "workspace")
                gone = [*self.diff.deleted, *self.diff.removed]
                if gone:
                    files[GONE] = json.dumps(gone).encode("ascii")
                if left_out:
                    names = [file_name(name) for name in left_out[:MAX_NAMES]]
                    workspace = {**record.details.get("workspace", {}), "not_kept": names}
                    record = record.replace(details={**record.details, "workspace": workspace})
            details = {**record.details, "files": [*files], "directory": str(directory)}
            record = record.replace(details=details)
            text = record.to_text()
            files["record.json"] = text.encode("ascii")
            _write_files(os.fspath(directory), files)
        except Exception as error:
            # the verdict is known all the same
            lost = f"could not be written to {directory}: {error}"
            record = record.replace(details={**record.details, "files": [], "evidence": lost})
            text = record.to_text()
        return record, text

    def _files(self, record: TrialRecord, *, every: bool) -> dict[str, bytes]:
        files: dict[str, bytes] = {}
        if self.run is not None:
            files["transcript.jsonl"] = self.run.transcript.to_jsonl().encode("ascii")
            answer = self.run.transcript.final_text()
            if answer:
                files["response.txt"] = answer.encode("utf-8", "backslashreplace")
            if self.run.log:
                files["agent.log"] = self.run.log.encode("utf-8", "backslashreplace")
        for name, data in (self.grade.files if self.grade is not None else {}).items():
            if every or not record.passed or name in REPLAYED:
                files[name] = data
        if self.task is not None:
            files["task.json"] = json.dumps(self.task.to_json()).encode("ascii")
        return files


def _write_files(directory: str, files: Mapping[str, bytes]) -> None:
    """Write *files* into *directory*, which is made if need be.

    With plain system calls: this is done for every trial, and is most of what a trial costs.
    """
    for path in (os.path.dirname(directory), directory):
        try:
            os.mkdir(path)
        except FileNotFoundError:
            os.makedirs(path, exist_ok=True)
        except FileExistsError:
            pass
    for name, data in files.items():
        if "/" in name:
            if ".." in name.split("/") or name.startswith("/"):
                raise ValueError(f"the evidence {name!r} would leave the trial's directory")
            os.makedirs(os.path.dirname(f"{directory}/{name}"), exist_ok=True)
        fd = os.open(f"{directory}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(fd, left) :]
        finally:
            os.close(fd)


def failure_text(record: TrialRecord) -> str:
    """What a failed trial prints: the checks that failed first, then where the evidence is."""
    failed = [check for check in record.checks if check.passed is False]
    scored = [check for check in record.checks if check.passed is not None]
    lines = [
        f"{record.benchmark}::{record.task_id} trial {record.trial}, agent {record.agent}: "
        + (f"{len(failed)} of {len(scored)} checks failed" if failed else record.reason)
    ]
    if failed and not record.reason.startswith(failed[0].name):
        lines.append(f"  {record.reason}")
    lines += [f"  {c.name} [{c.tier}]: {one_line(c.message, 400)}" for c in failed]
    if "evidence" in record.details:
        lines.append(f"  evidence: {record.details['evidence']}")
    elif record.details.get("directory"):
        shown = [
            n
            for n in ("screenshot.png", "page.json", "transcript.jsonl", "agent.log")
            if n in record.details.get("files", ())
        ]
        lines.append(f"  evidence: {record.details['directory']} ({', '.join(shown)})")
    return clean("\n".join(lines))  # ids and names are anybody's
