"""Run one trial: prepare, agent, grade, record.

The one place that tells fail from error: what the agent did wrong is a failed check or a problem
of its run; every exception is the harness's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_agentbench.agents import Agent, Call
from pytest_agentbench.benchmark import Benchmark, Judging, Tools
from pytest_agentbench.datasets import Row
from pytest_agentbench.errors import AgentBenchError, BudgetSpent, RowError, SkipTrial
from pytest_agentbench.evidence import Evidence, changed_files
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
from pytest_agentbench.panel import judge_details
from pytest_agentbench.resources import Resources
from pytest_agentbench.settings import Settings
from pytest_agentbench.text import clean, score_text
from pytest_agentbench.transcripts import Transcript
from pytest_agentbench.workspace import Diff, Workspace

__all__ = ["Trial"]


class _NotRun(Exception):
    """The agent was not run, which is to count as a failure."""


@dataclass(slots=True)
class _Course:
    """How far a trial has come."""

    agent: Agent
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    begun: float = field(default_factory=time.perf_counter)
    stage: str = "the row"
    run: AgentRun | None = None
    judging: Judging | None = None
    grade: Grade | None = None
    verdict: Verdict = "error"
    reason: str = ""
    usage: Usage = field(default_factory=Usage)
    #: Whether it was not run for want of money.
    unpaid: bool = False
    #: Seconds that the trial itself took so far; of them the agent's and the grader's.
    seconds: float = 0.0
    clock: dict[str, float] = field(default_factory=dict)

    def timed(self, name: str, step: Callable[[], Any]) -> Any:
        """*step()*, with its time booked under *name*."""
        begin = time.perf_counter()
        try:
            return step()
        finally:
            self.clock[name] = self.clock.get(name, 0.0) + time.perf_counter() - begin


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
    _course: _Course | None = None
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
        self.begin(agent)
        return self.finish()

    def begin(self, agent: Agent) -> None:
        """Run *agent* and grade it as far as that goes without the judge, who is asked."""
        self._course = course = _Course(agent)
        self._guarded(course, self._begin)
        course.seconds = time.perf_counter() - course.begun

    @property
    def waiting(self) -> bool:
        """Whether :meth:`finish` would have to wait for the judge."""
        judging = None if self._course is None else self._course.judging
        return judging is not None and not all(question.done for question in judging.pending)

    def wait(self, seconds: float) -> None:
        """Wait for the judge, at most *seconds*."""
        if self._course is not None and self._course.judging is not None:
            for question in self._course.judging.pending:
                question.wait(seconds)

    def finish(self) -> TrialRecord:
        """The record, when the judge has answered."""
        course = self._course
        assert course is not None, "begin() comes first"
        resumed = time.perf_counter()
        if course.judging is not None:
            self._guarded(course, self._collect)
        seconds = course.seconds + time.perf_counter() - resumed
        grade, verdict = course.grade, course.verdict
        judged = course.judging.pending if course.judging is not None else ()
        record = TrialRecord(
            benchmark=self.benchmark.name,
            task_id=self.ref.id or self.ref.slug,
            trial=self.number,
            agent=course.agent.name,
            verdict=verdict,
            score=grade.score if grade is not None and verdict in ("pass", "fail") else None,
            checks=grade.checks if grade is not None else (),
            reason=clean(course.reason),
            tags=self.ref.tags,
            started_at=course.started.isoformat(timespec="milliseconds"),
            agent_s=round(course.clock.get("agent", 0.0), 4),
            grade_s=round(course.clock.get("grade", 0.0), 4),
            duration_s=round(seconds, 4),
            row_sha256=self.ref.row_sha256,
            usage=course.usage,
            details={
                "slug": self.ref.slug,
                "groups": dict(self.ref.groups),
                **changed_files(self._diff),
                **(grade.details if grade is not None else {}),
                **({"judge": judge_details(judged)} if judged else {}),
                **self._calibration(course.agent),
                **({"budget_spent": True} if course.unpaid else {}),
            },
        )
        if self.directory is not None and self.settings.artifacts != "none":
            evidence = Evidence(
                run=course.run,
                grade=grade,
                task=self.agent_task if self._task is not None else None,
                workspace=self._workspace,
                diff=self._diff,
            )
            every = self.settings.artifacts == "all"
            record, self.text = evidence.keep(record, self.directory, every=every)
        self.text = self.text or record.to_text()
        return record

    def _guarded(self, course: _Course, step: Callable[[_Course], None]) -> None:
        """Take *step*, and tell fail from error in what it raises."""
        try:
            step(course)
        except SkipTrial as skip:
            course.verdict, course.reason = "skip", str(skip)
            course.unpaid = isinstance(skip, BudgetSpent)
        except _NotRun as absent:
            course.verdict, course.reason = "fail", f"not run: {absent}"
            course.grade = Grade((), 0.0)
        except AgentBenchError as error:
            course.verdict, course.reason = "error", str(error)
        except Exception as error:
            told = f"{course.stage}: {type(error).__name__}: {error}"
            course.verdict, course.reason = "error", told

    def _begin(self, course: _Course) -> None:
        agent = course.agent
        _ = self.task
        self._check_budget()
        self._check_judge()
        course.stage = "what grading needs"
        self.benchmark.check_gradable(self.task)
        course.stage = "the task's prerequisites"
        self._check_absent(agent)
        course.stage = "preparing the workspace"
        self._prepare()
        course.stage = "the agent's adapter"
        course.run = run = course.timed("agent", lambda: self._run_agent(agent))
        self.transcript = run.transcript
        self._finished_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        if self._workspace is not None:
            course.stage = "the workspace"
            self._workspace.settle()
            self._diff = self._workspace.diff()
        course.stage = "the transcript"
        course.usage = run.transcript.usage()
        if agent.live and not agent.books:
            self.resources.budget.add(course.usage.cost_usd)
        course.stage = "the grader"
        found = course.timed("grade", lambda: self._grade(run, agent))
        if isinstance(found, Judging):
            course.judging = found
        else:
            self._decided(course, found)

    def _collect(self, course: _Course) -> None:
        judging = course.judging
        assert judging is not None
        self._decided(course, course.timed("grade", judging.finish))

    def _decided(self, course: _Course, grade: Grade) -> None:
        assert course.run is not None
        course.grade = grade
        course.verdict, course.reason = self._decide(course.run, grade)

    def _calibration(self, agent: Agent) -> dict[str, Any]:
        if agent.calibrates is None:
            return {}
        return {"calibration": "right" if agent.calibrates else "wrong"}

    def cancel(self) -> None:
        """Give up what the judge has not begun to answer."""
        if self._course is not None and self._course.judging is not None:
            for question in self._course.judging.pending:
                question.cancel()

    def close(self) -> None:
        """Remove the workspace."""
        if self._workspace is not None:
            self._workspace.remove()
            self._workspace = None

    # -- steps ----------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Make the workspace if it has files: broken ones are told before the agent runs."""
        if type(self.benchmark).prepare is not Benchmark.prepare:
            _ = self.workspace

    def _check_budget(self) -> None:
        """Begin nothing that there is no money for."""
        spent = self.resources.budget.reached
        if spent is not None:
            raise BudgetSpent(spent)

    def _check_judge(self) -> None:
        """Skip what only a judge could grade before the agent has its time."""
        if self.resources.panel is None and self.benchmark.needs_judge(self.task):
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
                wrong=lambda: self.benchmark.wrong(task, self._place),
                withheld=self.resources.withheld,
                sandbox=self.resources.sandbox,
                spend=self.resources.budget.add,
            )
        )

    def _place(self) -> Path:
        return self.workspace.path

    def _grade(self, run: AgentRun, agent: Agent) -> Grade | Judging:
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
            judge=self.resources.panel,
            sandbox=self.resources.sandbox,
            timeout_scale=self.settings.timeout_scale,
            evidence=self.settings.artifacts if self.directory is not None else "none",
            pass_score=self.settings.pass_score,
            judge_caps=self.settings.caps,
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
