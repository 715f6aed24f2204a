"""The pytest plugin: a switchboard.  Every hook delegates.

A run that neither names ``--bench`` nor has a test with our marker costs the import of this module
and of the option table; everything else is imported when a trial is collected.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_agentbench.fixtures import (
    bench,
    bench_agent,
    bench_judge,
    bench_page,
    bench_task,
    bench_workspace,
)
from pytest_agentbench.settings import OPTIONS, wanted

if TYPE_CHECKING:
    from types import ModuleType

    from pytest_agentbench.reporting import Reporter

__all__ = [
    "bench",
    "bench_agent",
    "bench_judge",
    "bench_page",
    "bench_task",
    "bench_workspace",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """One prefix for all options, each with an ini twin."""
    group = parser.getgroup("agentbench", "agent benchmarks")
    for option in OPTIONS:
        group.addoption(
            option.flag,
            dest=option.dest,
            metavar=option.metavar,
            action="append" if option.many else "store",
            default=None,
            help=option.help,
        )
        help = f"the same as {option.flag}"
        if option.many:
            parser.addini(option.dest, help, type="linelist", default=[])
        else:
            parser.addini(option.dest, help, type="string", default="")


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare our own hooks."""
    from pytest_agentbench import hookspec

    pluginmanager.add_hookspecs(hookspec)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker; with ``--bench``, check every option now."""
    config.addinivalue_line(
        "markers",
        "bench(name, trials=K): run the test for each task of the benchmark NAME and each trial",
    )
    switch = _Switch(config)
    config.pluginmanager.register(switch, "agentbench-switch")
    if config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.register(_XdistSwitch(switch), "agentbench-xdist")
    if wanted(lambda dest: getattr(config.option, dest, None), config.getini):
        from pytest_agentbench.session.collection import activate

        activate(config)
        switch.report()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A user's own test over the tasks of a benchmark."""
    if metafunc.definition.get_closest_marker("bench") is not None:
        from pytest_agentbench.session.collection import parametrize

        parametrize(metafunc)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Never collect from a run directory: what is in there was written by agents."""
    if collection_path.suffix == ".py":
        return None  # asked for each file of every run: no look at the disk
    written = (collection_path / name for name in ("trials.jsonl", "run.json"))
    return True if collection_path.name == ".agentbench" or all(map(Path.exists, written)) else None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Add the benchmarks to what the session collects."""
    report = yield
    live = _live()
    if live is not None and isinstance(collector, pytest.Session) and report.passed:
        report.result = [*report.result, *live.collect_suites(collector)]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Note what follows, which may be begun while a judge thinks."""
    live = _live()
    if live is not None:
        live.ahead_of(item.config).following = nextitem


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the record on the report, which carries it to the controller."""
    report = yield
    live = _live()
    if live is not None:
        from pytest_agentbench.reporting import attach

        attach(item, call, report)
    return report


class _Switch:
    """Hooks that need the configuration.  The reporter exists once there is a trial to report."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.reporter: Reporter | None = None

    def report(self) -> Reporter | None:
        """The reporter, made on first use; ``None`` in a worker."""
        if self.reporter is None and not hasattr(self.config, "workerinput"):
            from pytest_agentbench.reporting import Reporter

            self.reporter = Reporter(self.config)
        return self.reporter

    def pytest_report_header(self) -> list[str]:
        if self.reporter is None:
            return []
        from pytest_agentbench.session.about import header

        return header(self.reporter.run)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> None:
        live = _live()
        if live is not None:
            live.check_default_agent(session)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        live = _live()
        if live is not None and any(live.expected(item) for item in session.items):
            live.share_own_tests(session)
            reporter = self.report()
            if reporter is not None:
                reporter.collected(session.items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        if self.reporter is not None and not session.config.option.collectonly:
            self.reporter.start()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self.reporter is not None:
            self.reporter.logreport(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self.reporter is not None:
            self.reporter.finish()
            session.exitstatus = self.reporter.exit_status(exitstatus, session.testsfailed)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.reporter is not None:
            self.reporter.terminal_summary(terminalreporter)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        live = _live()
        if live is not None:
            live.close(self.config)


class _XdistSwitch:
    """Hooks that exist only where xdist does."""

    def __init__(self, switch: _Switch) -> None:
        self.switch = switch

    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker what all processes of the run agree on."""
        from pytest_agentbench.session.handover import KEY, worker_input

        node.workerinput[KEY] = worker_input(self.switch.config)

    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        from pytest_agentbench.session.handover import worker_input

        spool = Path(worker_input(self.switch.config)["spool"])
        if self.switch.reporter is not None or any(spool.glob("*.tests")):
            reporter = self.switch.report()
            if reporter is not None:
                reporter.collected_by_worker(ids)


def _live() -> ModuleType | None:
    """The collection module if anything needed it so far: the plugin is inert until then."""
    return sys.modules.get("pytest_agentbench.session.collection")
