"""From a plan to pytest items."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_agentbench.errors import AgentBenchError, ConfigError, GradeFailed
from pytest_agentbench.model import TaskRef
from pytest_agentbench.plan import check_references, trial_name
from pytest_agentbench.session.ahead import Ahead
from pytest_agentbench.session.handover import end_with_parent, remember
from pytest_agentbench.session.own_tests import (
    expected,
    expected_by_nodeid,
    parametrize,
    share_own_tests,
)
from pytest_agentbench.session.state import TRIAL, BenchRun, bench_run, existing_run, usage_error
from pytest_agentbench.session.trial import Bench, bench_ahead, bench_of, told
from pytest_agentbench.text import did_you_mean
from pytest_agentbench.workspace import remove_tree

#: What the switchboard looks up here.
__all__ = [
    "Suite",
    "TrialItem",
    "activate",
    "ahead_of",
    "check_default_agent",
    "close",
    "collect_suites",
    "expected",
    "parametrize",
    "share_own_tests",
]


_AHEAD: pytest.StashKey[Ahead] = pytest.StashKey()


def ahead_of(config: pytest.Config) -> Ahead:
    """What this process has begun ahead."""
    return config.stash.setdefault(_AHEAD, Ahead())


def close(config: pytest.Config) -> None:
    """End the browser; in the controller, remove what was shared with the workers."""
    run = existing_run(config)
    if run is not None:
        ahead_of(config).close()
        run.close()
        if not hasattr(config, "workerinput"):
            for shared in filter(None, (run.plan.spool, run.resources.base)):
                remove_tree(shared)  # what a worker that died had no time to remove is in there


def activate(config: pytest.Config) -> None:
    """Check the options and load the benchmarks; every mistake is a usage error here."""
    run = bench_run(config)
    if hasattr(config, "workerinput"):
        end_with_parent()
    with usage_error():
        names = run.agent_names
        for name in run.settings.benchmarks:
            loaded = run.load(name)
            if run.settings.agent_given:
                check_references(loaded, names)
        _ = run.resources.panel
        if not hasattr(config, "workerinput") and not config.option.collectonly:
            run.check_sandbox(run.settings.benchmarks)
    _take_selectors(run)


def _take_selectors(run: BenchRun) -> None:
    """Keep pytest from looking for files: our node ids are no paths."""
    config = run.config
    names = run.settings.benchmarks
    ours = [arg for arg in config.args if _is_ours(arg, names, config.invocation_params.dir)]
    rest = [arg for arg in config.args if arg not in ours]
    source = getattr(config, "args_source", None)
    explicit = source is None or source.name == "ARGS"
    run.select = run.select or tuple(ours)
    with usage_error():
        _check_selectors(run)
    remember(config, out=str(run.out), select=list(run.select))
    config.args[:] = rest if explicit else []


def _check_selectors(run: BenchRun) -> None:
    """Refuse a node id that names no trial, as pytest does for its own."""
    if not run.select:
        return
    known = set(run.settings.benchmarks)
    for nodeid in expected_by_nodeid(run):
        known |= {nodeid, nodeid.partition("[")[0]}
    for selector in run.select:
        if selector not in known:
            raise ConfigError(f"not found: {selector}{did_you_mean(selector, known)}")


def _is_ours(arg: str, names: tuple[str, ...], base: Path) -> bool:
    head, colons, _ = arg.partition("::")
    # a directory of that name has no "::" behind it
    return head in names and (bool(colons) or not (base / head).exists())


def collect_suites(session: pytest.Session) -> Iterator[Suite]:
    """A collector for each benchmark that the command line asks for."""
    run = existing_run(session.config)
    if run is None or not run.active:
        return
    for name in run.settings.benchmarks:
        heads = {selector.partition("::")[0] for selector in run.select}
        if not run.select or name in heads:
            yield Suite.from_parent(session, name=name, nodeid=name)


class Suite(pytest.Collector):
    """All trials of a benchmark."""

    def collect(self) -> Iterator[TrialItem]:
        run = bench_run(self.config)
        run.load(self.name)
        several = len(run.agent_names) > 1
        first: TrialItem | None = None
        marks: dict[tuple[str, ...], list[pytest.MarkDecorator]] = {}
        for trial in run.plan.trials(self.name, run.agent_names, run.settings.trials):
            task = trial.task
            name = trial_name(task, trial.agent, trial.trial, several)
            if not _selected(run.select, self.name, task, name):
                continue
            item = TrialItem.from_parent(
                self,
                name=name,
                callobj=bench_trial,
                # the same for all: worked out for the first one only
                fixtureinfo=None if first is None else first._fixtureinfo,
            )
            first = first or item
            item.stash[TRIAL] = trial
            if task.tags not in marks:
                marks[task.tags] = [getattr(pytest.mark, n) for n in (self.name, *task.tags)]
            for mark in marks[task.tags]:
                item.own_markers.append(mark.mark)
                item.keywords[mark.name] = mark.mark
            yield item


def _selected(select: tuple[str, ...], suite: str, task: TaskRef, name: str) -> bool:
    if not select:
        return True
    ids = (suite, f"{suite}::{task.slug}", f"{suite}::{name}")
    return any(selector in ids for selector in select)


def check_default_agent(session: pytest.Session) -> None:
    """Refuse the default agent, unless a fixture stands in, where it has no solutions to give."""
    run = existing_run(session.config)
    if run is None or run.settings.agent_given:
        return
    found = session._fixturemanager.getfixturedefs("bench_agent", session)
    if found and found[-1].func.__module__ != "pytest_agentbench.fixtures":
        run.overridden = True
        return
    with usage_error():
        for name in run.settings.benchmarks:
            check_references(run.load(name), run.agent_names)


def bench_trial() -> None:
    """Stands for the body of a collected trial; see :class:`TrialItem`."""


class TrialItem(pytest.Function):
    """One trial.  It runs and is graded during setup, so that the harness's trouble is an error
    in pytest's own sense; the call asserts the verdict.

    It makes its :class:`Bench` itself: a fixture would double what a short trial costs.
    """

    bench: Bench | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if hasattr(self, "id"):
            # pytest >= 9.2 keeps an id in parts, and compares it with ids read back from the cache
            self._id = type(self.id).parse(self.nodeid)

    def setup(self) -> None:
        super().setup()
        option = self.config.option
        if not (getattr(option, "setuponly", False) or getattr(option, "setupplan", False)):
            ahead = ahead_of(self.config)
            self.bench = ahead.take(self)
            bench = bench_of(self, self._request)
            bench.begin()
            ahead.meanwhile(self, bench, lambda other: bench_ahead(other, self._request))
            bench.run()

    def runtest(self) -> None:
        __tracebackhide__ = True
        if self.bench is not None:
            self.bench.check()

    def teardown(self) -> None:
        if self.bench is not None:
            self.bench.close()
            self.bench = None
        super().teardown()

    def reportinfo(self) -> tuple[Path, int, str]:
        # a line, for reports of skipped items
        return self.config.rootpath / self.parent.name, 0, self.name  # type: ignore[union-attr]

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if not isinstance(excinfo.value, GradeFailed | AgentBenchError):
            return super().repr_failure(excinfo)
        return told(excinfo)
