"""The state of a run in one process, which hangs on the pytest configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_agentbench.agents import Agent, resolve
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.model import TrialRecord
from pytest_agentbench.plan import Loaded, Plan, TrialId
from pytest_agentbench.registry import Registry
from pytest_agentbench.resources import Resources
from pytest_agentbench.runlog import trial_directory
from pytest_agentbench.runner import Trial
from pytest_agentbench.sandbox import Isolation
from pytest_agentbench.session.handover import worker_input
from pytest_agentbench.settings import Settings
from pytest_agentbench.text import slug

__all__ = ["RECORD", "TRIAL", "BenchRun", "bench_run", "existing_run", "usage_error"]

#: What an item is a trial of, and the trial's record (also as text) once it has one.
TRIAL: pytest.StashKey[TrialId] = pytest.StashKey()
RECORD: pytest.StashKey[tuple[TrialRecord, str]] = pytest.StashKey()
_RUN: pytest.StashKey[BenchRun] = pytest.StashKey()


class usage_error:  # noqa: N801  (reads as a statement)
    """Context in which a bad option is a usage error."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, ConfigError):
            raise pytest.UsageError(str(error)) from None


@dataclass
class BenchRun:
    """A run in one process: settings, plan, agents, resources.

    ``select`` are the node ids that the command line names; ``out`` is the run directory;
    ``overridden`` says whether a fixture of the user's stands in for the default agent.
    """

    config: pytest.Config
    settings: Settings
    plan: Plan
    resources: Resources
    run_id: str
    out: Path
    select: tuple[str, ...] = ()
    overridden: bool = False
    #: What the sandbox of graders is worth here; ``None`` where no benchmark needs it.
    isolation: Isolation | None = None
    agents: dict[str, Agent] = field(default_factory=dict)
    #: What the fixture ``bench_agent`` gave.
    _given: dict[str | int, Agent] = field(default_factory=dict)
    _configured_agents: list[Agent] = field(default_factory=list)
    _marked: set[str] = field(default_factory=set)

    @property
    def active(self) -> bool:
        """Whether ``--bench`` names a benchmark."""
        return bool(self.settings.benchmarks)

    @property
    def agent_names(self) -> tuple[str, ...]:
        """Names of the agents under test."""
        self.load_agents()
        return tuple(self.agents)

    def load_agents(self) -> None:
        """Resolve ``--bench-agent`` (once); two agents of one name get numbers."""
        if self.agents:
            return
        for spec in self.settings.agents:
            given = self.config.hook.pytest_agentbench_agent(config=self.config, spec=spec)
            agent = self._configured(resolve(spec if given is None else given))
            base, number = agent.name, 2
            while agent.name in self.agents:
                agent.name, number = f"{base}{number}", number + 1
            self.agents[agent.name] = agent

    def agent_of(self, given: Any) -> Agent:
        """The agent that *given* is, names or wraps; set up once by the options."""
        if not isinstance(given, str | Agent):
            return resolve(given)
        key = given if isinstance(given, str) else id(given)
        if key not in self._given:
            self._given[key] = self._configured(resolve(given))
        return self._given[key]

    def _configured(self, agent: Agent) -> Agent:
        agent.configure(self.settings)
        self._configured_agents.append(agent)
        return agent

    def close(self) -> None:
        """End what trials share."""
        self.resources.close()
        for agent in self._configured_agents:
            agent.close()

    def load(self, name: str) -> Loaded:
        """The benchmark *name*, with its tasks' tags registered as markers."""
        loaded = self.plan.load(name)
        if name not in self._marked:
            self._marked.add(name)
            tags = {tag for task in loaded.tasks for tag in task.tags}
            self._register(name, f"trials of the benchmark {name}")
            for tag in sorted(tags):
                self._register(tag, f"trials of tasks tagged {tag}")
        return loaded

    def _register(self, name: str, text: str) -> None:
        self.config.addinivalue_line("markers", f"{name}: {text}")

    def check_sandbox(self, names: Iterable[str]) -> None:
        """Try the sandbox, once, if one of the benchmarks *names* grades in it.

        Raises
        ------
        ConfigError
            It is to be strict, and a layer is missing.
        """
        if self.isolation is None and any(self.load(name).benchmark.sandboxed for name in names):
            try:
                self.isolation = self.resources.sandbox.check()
            except ConfigError:
                self.resources.close()  # nothing is unconfigured after a usage error
                raise

    def trial(self, trial: TrialId) -> Trial:
        """The machinery that runs *trial*; without evidence when nothing is to be kept."""
        loaded = self.plan.load(trial.task.benchmark)
        return Trial(
            ref=trial.task,
            row=loaded.dataset.rows[trial.task.index],
            benchmark=loaded.benchmark,
            number=trial.trial,
            settings=self.settings,
            resources=self.resources,
        )

    def directory(self, trial: TrialId, agent: str, test: str | None = None) -> Path:
        """Where the trial's evidence goes; the trials of a user's *test* are kept apart."""
        task = trial.task
        out = self.out if test is None else self.out / "tests" / slug(test)
        return trial_directory(out, agent, task.benchmark, task.slug, trial.trial)


def bench_run(config: pytest.Config) -> BenchRun:
    """The run of this process, made when first asked for."""
    if _RUN not in config.stash:
        with usage_error():
            config.stash[_RUN] = _make_run(config)
    return config.stash[_RUN]


def existing_run(config: pytest.Config) -> BenchRun | None:
    """The run of this process, if anything asked for it yet."""
    return config.stash.get(_RUN, None)


def _make_run(config: pytest.Config) -> BenchRun:
    settings = Settings.read(
        lambda dest: getattr(config.option, dest, None),
        config.getini,
        base=config.inipath.parent if config.inipath is not None else None,
    )
    given = config.hook.pytest_agentbench_benchmarks(config=config)
    registry = Registry(
        (benchmark for result in given for benchmark in result or ()),
        before_load=pytest.register_assert_rewrite,
    )
    for name, _ in settings.data:
        if name:
            registry.check(name, "--bench-data")
    shared = worker_input(config)
    distributed = config.getoption("dist", "no") != "no" and not config.option.collectonly
    several = shared["worker"] or distributed
    base = config.invocation_params.dir
    out = (
        base / settings.out if settings.out else config.rootpath / ".agentbench" / shared["run_id"]
    )
    return BenchRun(
        config=config,
        settings=settings,
        plan=Plan(settings, registry.get, Path(shared["spool"]) if several else None),
        resources=Resources(
            settings,
            Path(shared["work"]) if several else None,
            config.rootpath,
            Path(shared["work"]) / "spent" if several else None,
        ),
        run_id=shared["run_id"],
        out=Path(shared["out"] or out),
        select=tuple(shared["select"]),
    )
