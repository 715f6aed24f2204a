"""Run one trial: prepare, agent, grade, record.

The one place that tells fail from error: what the agent did wrong is a failed check or a problem
of its run; every exception is the harness's.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_agentbench.agents import Agent, Call
from pytest_agentbench.benchmark import Benchmark, Tools
from pytest_agentbench.browser import BrowserEngine
from pytest_agentbench.datasets import Row
from pytest_agentbench.errors import AgentBenchError, RowError, SkipTrial
from pytest_agentbench.judge import Judge, load_judge
from pytest_agentbench.model import (
    AgentRun,
    AgentTask,
    Attempt,
    Grade,
    Task,
    TaskRef,
    TrialRecord,
    Usage,
    Verdict,
)
from pytest_agentbench.sandbox import Sandbox
from pytest_agentbench.settings import Settings
from pytest_agentbench.text import clean, file_name, one_line, score_text
from pytest_agentbench.transcripts import Transcript
from pytest_agentbench.workspace import GONE, Diff, Workspace, keep

__all__ = ["Resources", "Trial", "failure_text"]

#: Evidence of passed trials, too: what grading again needs.
REPLAYED = ("app.html", "judge.jsonl")
#: More file names than this of a kind are counted in a record, and not listed.
MAX_NAMES = 200


class Resources:
    """What trials of one process share: the browser and the judge, made when first needed."""

    def __init__(self, settings: Settings, base: Path | None = None) -> None:
        self._settings = settings
        #: Where workspaces are made; ``None`` for the directory of temporary files.
        self.base = base
        #: Gives further arguments for starting the browser; asked when it is started.
        self.launch: Callable[[], Mapping[str, Any]] = dict
        self.sandbox = Sandbox(settings.sandbox, base)
        self._engine: BrowserEngine | None = None
        self._judge: list[Judge | None] = []

    def browser(self) -> BrowserEngine:
        """This process's browser engine."""
        if self._engine is None:
            libraries = {
                host: Path(file).read_text(encoding="utf-8", errors="replace")
                for host, file in self._settings.libraries
            }
            self._engine = BrowserEngine(libraries, self.launch())
        return self._engine

    @property
    def judge(self) -> Judge | None:
        """The judge, or ``None`` when it is off."""
        if not self._judge:
            self._judge.append(load_judge(self._settings.judge))
        return self._judge[0]

    def close(self) -> None:
        """End the browser and the grading server if there are."""
        self.sandbox.close()
        if self._engine is not None:
            self._engine.close()
            self._engine = None


class _NotRun(Exception):
    """The agent was not run, which is to count as a failure."""


@dataclass(slots=True)
class Trial:
    """One trial of one agent at one task, step by step.

    ``directory`` is where evidence goes, or ``None`` to keep none.
    """

    ref: TaskRef
    row: Row
    benchmark: Benchmark
    number: int
    settings: Settings
    resources: Resources
    directory: Path | None = None
    #: The record as text, once there is one.
    text: str = ""
    #: What the agent did, once it has run.
    transcript: Transcript | None = None
    _workspace: Workspace | None = None
    _diff: Diff | None = None
    _task: Task | None = None
    _agent_task: AgentTask | None = None
    _clock: dict[str, float] = field(default_factory=dict)
    _finished_at: str = ""

    @property
    def task(self) -> Task:
        """The parsed row (raises :class:`RowError` when it is broken)."""
        if self._task is None:
            if not self.ref.id:
                where = str(self.row.index + 1)
                raise RowError(
                    self.benchmark.name, where, self.benchmark.id_column, "expected an identifier"
                )
            self._task = self.benchmark.task(self.ref, self.row)
        return self._task

    @property
    def workspace(self) -> Workspace:
        """The prepared workspace, made when first asked for."""
        if self._workspace is None:
            task = self.task
            workspace = Workspace(self.resources.base)
            try:
                self.benchmark.prepare(task, workspace.path)
                workspace.seal()
            except BaseException:
                workspace.remove()
                raise
            self._workspace = workspace
        return self._workspace

    @property
    def agent_task(self) -> AgentTask:
        """What the agent sees."""
        if self._agent_task is None:
            seed = self.settings.seed
            task = self.benchmark.agent_task(self.task, self.number, seed)
            limit = task.time_limit_s * self.settings.timeout_scale
            self._agent_task = replace(task, time_limit_s=limit)
        return self._agent_task

    def run(self, agent: Agent) -> TrialRecord:
        """Run *agent* and grade it.  Never raises but for interrupts: every outcome is a record."""
        started, begin = datetime.now(UTC), time.perf_counter()
        run: AgentRun | None = None
        grade: Grade | None = None
        verdict: Verdict
        usage = Usage()
        stage = "the row"
        try:
            _ = self.task
            self._check_judge()
            stage = "what grading needs"
            self.benchmark.check_gradable(self.task)
            stage = "the task's prerequisites"
            self._check_absent(agent)
            stage = "preparing the workspace"
            self._prepare()
            stage = "the agent's adapter"
            run = self._timed("agent", lambda: self._run_agent(agent))
            self.transcript = run.transcript
            self._finished_at = datetime.now(UTC).isoformat(timespec="milliseconds")
            if self._workspace is not None:
                stage = "the workspace"
                self._workspace.settle()
                self._diff = self._workspace.diff()
            stage = "the transcript"
            usage = run.transcript.usage()
            stage = "the grader"
            grade = self._timed("grade", lambda: self._grade(run, agent))
            verdict, reason = self._decide(run, grade)
        except SkipTrial as skip:
            verdict, reason = "skip", str(skip)
        except _NotRun as absent:
            verdict, reason, grade = "fail", f"not run: {absent}", Grade((), 0.0)
        except AgentBenchError as error:
            verdict, reason = "error", str(error)
        except Exception as error:
            verdict, reason = "error", f"{stage}: {type(error).__name__}: {error}"
        record = TrialRecord(
            benchmark=self.benchmark.name,
            task_id=self.ref.id or self.ref.slug,
            trial=self.number,
            agent=agent.name,
            verdict=verdict,
            score=grade.score if grade is not None and verdict in ("pass", "fail") else None,
            checks=grade.checks if grade is not None else (),
            reason=clean(reason),
            tags=self.ref.tags,
            started_at=started.isoformat(timespec="milliseconds"),
            agent_s=round(self._clock.get("agent", 0.0), 4),
            grade_s=round(self._clock.get("grade", 0.0), 4),
            duration_s=round(time.perf_counter() - begin, 4),
            row_sha256=self.ref.row_sha256,
            usage=usage,
            details={
                "slug": self.ref.slug,
                "groups": dict(self.ref.groups),
                **self._changes(),
                **(grade.details if grade is not None else {}),
            },
        )
        record = self._keep(record, run, grade)
        self.text = self.text or record.to_text()
        return record

    def close(self) -> None:
        """Remove the workspace."""
        if self._workspace is not None:
            self._workspace.remove()
            self._workspace = None

    # -- steps ----------------------------------------------------------------------------------

    def _timed(self, name: str, step: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        try:
            return step()
        finally:
            self._clock[name] = time.perf_counter() - begin

    def _prepare(self) -> None:
        """Make the workspace if it has files: broken ones are told before the agent runs."""
        if type(self.benchmark).prepare is not Benchmark.prepare:
            _ = self.workspace

    def _check_judge(self) -> None:
        """Skip what only a judge could grade before the agent has its time."""
        if self.resources.judge is None and self.benchmark.needs_judge(self.task):
            raise SkipTrial("the judge is off, and nothing else grades this task")

    def _check_absent(self, agent: Agent) -> None:
        """Skip, or fail, a task that declares what this machine lacks."""
        if agent.live and self.settings.missing != "run":
            absent = "; ".join(self.benchmark.absent(self.task))
            if absent:
                reason = f"prerequisites are absent: {absent}"
                raise SkipTrial(reason) if self.settings.missing == "skip" else _NotRun(reason)

    def _run_agent(self, agent: Agent) -> AgentRun:
        task = self.task
        return agent.run(
            Call(
                task=self.agent_task,
                slug=self.ref.slug,
                time_limit_s=self.agent_task.time_limit_s,
                solution=lambda: self.benchmark.reference(task, self._place),
                place=lambda: self.workspace,
            )
        )

    def _place(self) -> Path:
        return self.workspace.path

    def _grade(self, run: AgentRun, agent: Agent) -> Grade:
        diff = self._diff or Diff()
        attempt = Attempt(
            task=self.task,
            trial=self.number,
            transcript=run.transcript,
            place=self._place,
            agent=agent.name,
            changed=(*diff.created, *diff.changed),
            finished_at=self._finished_at,
        )
        tools = Tools(
            browser=self.resources.browser,
            judge=self.resources.judge,
            sandbox=self.resources.sandbox,
            timeout_scale=self.settings.timeout_scale,
            evidence=self.settings.artifacts if self.directory is not None else "none",
            pass_score=self.settings.pass_score,
        )
        return self.benchmark.grade(attempt, tools)

    def _decide(self, run: AgentRun, grade: Grade) -> tuple[Verdict, str]:
        if grade.error is not None:
            return "error", grade.error
        if grade.skip is not None:
            return "skip", grade.skip
        if run.problem is not None:
            return "fail", run.problem
        if grade.score is None and grade.passed is None:
            return "error", "the grader gave no score"
        if grade.score is not None and not 0.0 <= grade.score <= 1.0:
            return "error", f"the grader's score is {grade.score}, not between 0 and 1"
        least = self.settings.pass_score
        least = self.benchmark.pass_score if least is None else least
        enough = grade.score is not None and grade.score >= least - 1e-12
        if enough if grade.passed is None else grade.passed:
            return "pass", ""
        if grade.reason:
            return "fail", grade.reason
        failed = [check for check in grade.checks if check.passed is False]
        told = [c for c in failed if not c.message.startswith("not reached")] or failed
        if not told and grade.passed is False:
            return "fail", "the grader says so"
        if not told:
            return "fail", f"score {score_text(grade.score or 0.0)} is below {least:g}"
        more = f" (+{len(failed) - 1} more)" if len(failed) > 1 else ""
        return "fail", f"{told[0].name}: {told[0].message}{more}"

    # -- evidence -------------------------------------------------------------------------------

    def _changes(self) -> dict[str, Any]:
        """Names of the files that the agent created, changed and deleted, for the record."""
        diff = self._diff
        if diff is None or not (diff.created or diff.changed or diff.deleted):
            return {}
        names = {"created": diff.created, "changed": diff.changed, "deleted": diff.deleted}
        found: dict[str, Any] = {
            kind: [file_name(name) for name in names[kind][:MAX_NAMES]] for kind in names
        }
        left_out = sum(max(0, len(names[kind]) - MAX_NAMES) for kind in names)
        return {"workspace": {**found, **({"more": left_out} if left_out else {})}}

    def _keep(self, record: TrialRecord, run: AgentRun | None, grade: Grade | None) -> TrialRecord:
        wanted = self.settings.artifacts
        if self.directory is None or wanted == "none":
            return record
        try:
            files: dict[str, bytes] = {}
            if run is not None:
                files["transcript.jsonl"] = run.transcript.to_jsonl().encode("ascii")
                answer = run.transcript.final_text()
                if answer:
                    files["response.txt"] = answer.encode("utf-8", "backslashreplace")
                if run.log:
                    files["agent.log"] = run.log.encode("utf-8", "backslashreplace")
            for name, data in (grade.files if grade is not None else {}).items():
                if wanted == "all" or not record.passed or name in REPLAYED:
                    files[name] = data
            if self._task is not None:
                files["task.json"] = json.dumps(self.agent_task.to_json()).encode("ascii")
            if self._workspace is not None and self._diff:
                left_out = keep(self._workspace.path, self._diff, self.directory / "workspace")
                gone = [*self._diff.deleted, *self._diff.removed]
                if gone:
                    files[GONE] = json.dumps(gone).encode("ascii")
                if left_out:
                    names = [file_name(name) for name in left_out[:MAX_NAMES]]
                    workspace = {**record.details.get("workspace", {}), "not_kept": names}
                    record = record.replace(details={**record.details, "workspace": workspace})
            details = {**record.details, "files": [*files], "directory": str(self.directory)}
            record = record.replace(details=details)
            self.text = record.to_text()
            files["record.json"] = self.text.encode("ascii")
            write_files(os.fspath(self.directory), files)
        except Exception as error:
            # the verdict is known all the same
            lost = f"could not be written to {self.directory}: {error}"
            record = record.replace(details={**record.details, "files": [], "evidence": lost})
            self.text = record.to_text()
        return record


def write_files(directory: str, files: Mapping[str, bytes]) -> None:
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
