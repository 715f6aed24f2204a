"""The fixture ``bench``: one trial of an item, to be run and asserted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_agentbench.agents import Agent
from pytest_agentbench.errors import AgentBenchError, GradeFailed
from pytest_agentbench.evidence import failure_text
from pytest_agentbench.model import TrialRecord
from pytest_agentbench.plan import TrialId
from pytest_agentbench.session.own_tests import is_own, own_test
from pytest_agentbench.session.state import RECORD, TRIAL, BenchRun, bench_run
from pytest_agentbench.text import one_line

__all__ = ["Bench", "bench_ahead", "bench_of", "launch_options", "told"]


class Bench:
    """The fixture ``bench``: one trial, to be run."""

    def __init__(self, item: pytest.Item, run: BenchRun, trial: TrialId, agent: Agent) -> None:
        self._item = item
        self._machine = run.trial(trial)
        if RECORD not in item.stash:  # run again by another plugin: the first result is kept
            self._machine.directory = run.directory(trial, agent.name, own_test(item))
        self._run = run
        self.agent = agent
        #: Number of the trial, from 1.
        self.trial = trial.trial
        #: The record, once the trial has run.
        self.record: TrialRecord | None = None
        self._begun = False

    @property
    def task(self) -> Any:
        """What the agent is asked (an :class:`~pytest_agentbench.AgentTask`)."""
        return self._machine.agent_task

    @property
    def workspace(self) -> Path:
        """The trial's prepared workspace."""
        return self._machine.workspace.path

    @property
    def directory(self) -> Path:
        """Where the trial's evidence goes."""
        return self._run.directory(self._item.stash[TRIAL], self.agent.name, own_test(self._item))

    @property
    def app(self) -> str | None:
        """HTML of the page that the agent made, once the trial has run."""
        transcript = self._machine.transcript
        return None if transcript is None else self._machine.benchmark.app(transcript)

    def run(self) -> TrialRecord:
        """Run the agent and grade the trial (once), and return its record.

        Skips the test when the trial is skipped, and raises
        :class:`~pytest_agentbench.AgentBenchError` (outcome: error) when the harness could not
        tell.
        """
        __tracebackhide__ = True
        if self.record is None:
            self.begin()
            self.record = self._machine.finish()
            first = RECORD not in self._item.stash
            self._item.stash[RECORD] = (self.record, self._machine.text)
            if first:
                self._item.user_properties.extend(_properties(self.record))
        if self.record.verdict == "skip":
            pytest.skip(self.record.reason)
        if self.record.verdict == "error":
            raise TrialError(self.record.reason)
        return self.record

    def begin(self) -> None:
        """Run the agent and the graders, and ask the judge (once)."""
        if not self._begun:
            self._begun = True
            self._machine.begin(self.agent)

    @property
    def waiting(self) -> bool:
        """Whether the judge has been asked and has not answered."""
        return self._machine.waiting

    def cancel(self) -> None:
        """Give up what the judge has not begun to answer."""
        self._machine.cancel()

    def check(self) -> None:
        """Raise :class:`~pytest_agentbench.GradeFailed` unless the trial passes."""
        __tracebackhide__ = True
        record = self.run()
        if not record.passed:
            failure = GradeFailed(failure_text(record))
            failure.headline = record.reason  # type: ignore[attr-defined]
            raise failure

    def close(self) -> None:
        """Remove the workspace."""
        self._machine.close()


class TrialError(AgentBenchError):
    """A trial whose verdict is error."""


def _properties(record: TrialRecord) -> list[tuple[str, object]]:
    """JUnit properties of a trial: plain values only, or a worker could not send them."""
    pairs: list[tuple[str, object]] = [
        ("agentbench.benchmark", record.benchmark),
        ("agentbench.task_id", record.task_id.encode("ascii", "backslashreplace").decode()),
        ("agentbench.agent", record.agent),
        ("agentbench.trial", record.trial),
        ("agentbench.verdict", record.verdict),
    ]
    if record.score is not None:
        pairs.append(("agentbench.score", float(record.score)))
    failed = [check.name for check in record.checks if check.passed is False]
    if failed:
        pairs.append(("agentbench.failed_checks", one_line(", ".join(failed), 500)))
    return pairs


def told(excinfo: pytest.ExceptionInfo[BaseException]) -> Any:
    """What pytest shows for one of our exceptions: its text, and no stack."""
    shown = excinfo.getrepr(style="value")
    crash = getattr(shown, "reprcrash", None)
    if crash is not None:  # for the one-line summary
        crash.message = getattr(excinfo.value, "headline", str(excinfo.value))
    return shown


def bench_of(item: pytest.Item, request: pytest.FixtureRequest) -> Bench:
    """The trial of *item*, made once."""
    bench: Bench | None = getattr(item, "bench", None)
    if bench is None:
        run = bench_run(item.config)
        run.resources.launch = lambda: launch_options(request)
        bench = Bench(item, run, item.stash[TRIAL], _agent(item, request))
        if not is_own(item):
            item.bench = bench  # type: ignore[attr-defined]
    return bench


def bench_ahead(item: pytest.Item, request: pytest.FixtureRequest) -> Bench | None:
    """The trial of *item* before its turn, with the *request* of the item whose turn it is.

    ``None`` where the agent may be another one when its turn comes, or lives in this process.
    """
    agent_scope = request._get_active_fixturedef("bench_agent").scope
    if TRIAL not in item.stash or is_own(item) or agent_scope != "session":
        return None
    agent = _agent(item, request)
    return Bench(item, bench_run(item.config), item.stash[TRIAL], agent) if agent.apart else None


def _agent(item: pytest.Item, request: pytest.FixtureRequest) -> Agent:
    """The agent of *item*: an option's, or what the fixture ``bench_agent`` gives."""
    run = bench_run(item.config)
    given = request.getfixturevalue("bench_agent")
    run.load_agents()
    if run.settings.agent_given or given is next(iter(run.agents.values())):
        return run.agents[item.stash[TRIAL].agent]
    return run.agent_of(given)


def launch_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """How pytest-playwright would launch (``--headed``, ``--browser-channel``, overrides)."""
    if not request.config.pluginmanager.hasplugin("playwright"):
        return {}
    try:
        options = dict(request.getfixturevalue("browser_type_launch_args"))
    except pytest.FixtureLookupError:
        return {}
    known = ("executable_path", "channel", "headless", "slow_mo", "args")
    return {name: options[name] for name in known if name in options}
