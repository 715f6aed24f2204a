"""From reports to records, numbers, files and lines: what the controller does with trials."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from pytest_agentbench.errors import AgentBenchError, GradeFailed
from pytest_agentbench.model import TrialRecord, plain
from pytest_agentbench.report.boards import Board, write_board
from pytest_agentbench.report.judge import JudgeReport
from pytest_agentbench.report.junit import suite_properties
from pytest_agentbench.report.terminal import brief_line, summary_lines
from pytest_agentbench.runlog import RunLog
from pytest_agentbench.session.about import run_facts
from pytest_agentbench.session.collection import TrialItem
from pytest_agentbench.session.own_tests import expected, expected_by_nodeid, read_own_tests
from pytest_agentbench.session.state import RECORD, BenchRun, bench_run, usage_error
from pytest_agentbench.session.trial import told
from pytest_agentbench.summary import Expected, SuiteSummary, summarize
from pytest_agentbench.text import one_line

__all__ = ["Reporter", "attach"]


def attach(item: pytest.Item, call: pytest.CallInfo[Any], report: pytest.TestReport) -> None:
    """Put what *item* is a trial of, and its record, on *report* as one ASCII text.

    A text, because what is nested or not plain would not survive the way to the controller.
    """
    trial = expected(item)
    if trial is None:
        return
    if call.excinfo is not None and isinstance(call.excinfo.value, GradeFailed):
        report.longrepr = told(call.excinfo)
    if call.excinfo is not None and isinstance(call.excinfo.value, AgentBenchError):
        report.longrepr = told(call.excinfo)
        if call.when == "call":
            # a user's test runs the trial in its call; the harness's trouble is an error there too
            report.when = "setup"
    if call.when == "teardown" or RECORD not in item.stash:
        return
    record, text = item.stash[RECORD]
    if isinstance(item, TrialItem) and call.when == "setup":
        report.duration = record.duration_s  # others may have run while the judge was thinking
    # an expected failure is a failure too; a strict one that did not come is none of the agent's
    if call.when == "call" and record.passed and call.excinfo is not None:
        why = call.excinfo.exconly(tryshort=True)
        if isinstance(call.excinfo.value, pytest.skip.Exception):
            record = record.replace(verdict="skip", score=None, reason=str(call.excinfo.value))
        elif isinstance(item, TrialItem):
            # our own call only asserts the verdict: something else went wrong around it
            record = record.replace(verdict="error", score=None, reason=one_line(why, 500))
            report.when = "setup"
        else:
            # the test itself asks for more than the benchmark does
            record = record.replace(verdict="fail", reason=f"the test's own check: {one_line(why)}")
        text = record.to_text()
    if call.when == "call" or report.outcome != "passed":
        report.agentbench = text  # type: ignore[attr-defined]


class Reporter:
    """Collects records in the controller (or the only process), writes and prints them."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.run: BenchRun = bench_run(config)
        self.log = RunLog(self.run.out)
        self.expected: dict[str, Expected] = {}
        self.records: dict[str, TrialRecord] = {}
        self.summaries: list[SuiteSummary] = []
        self.boards: list[Board] = []
        self.judge = JudgeReport({})
        #: What the fixture ``bench_agent`` calls the agent of a suite: known from its first record.
        self._names: dict[tuple[str, str], str] = {}
        self._unnamed: list[tuple[str, Expected, TrialRecord]] = []
        self.repeated = 0
        #: Why the run directory is not whole.
        self.trouble = ""
        self._catalog: dict[str, Expected] | None = None
        self._started = False
        self._begin = time.time()
        with usage_error():
            self.log.check()

    # -- before ---------------------------------------------------------------------------------

    def collected(self, items: Sequence[pytest.Item]) -> None:
        """Note which trials were selected (without xdist, or by a worker's own items)."""
        for item in items:
            trial = expected(item)
            if trial is not None:
                self.expected[item.nodeid] = trial

    def collected_by_worker(self, ids: Sequence[str]) -> None:
        """Note which trials were selected, by the node ids that a worker collected.

        The controller knows the plan of ``--bench``; what users' own tests are trials of, the
        workers have left for it.
        """
        for nodeid, trial in read_own_tests(self.config):
            self.expected.setdefault(nodeid, trial)
        if self._catalog is None:
            self._catalog = expected_by_nodeid(self.run)
        for nodeid in ids:
            planned = self._catalog.get(_plain_id(nodeid))
            if planned is not None:
                self.expected.setdefault(nodeid, planned)

    def start(self) -> None:
        """Create the run directory; called when the first trial is about to run."""
        if not self._started and self.expected and not _runs_nothing(self.config):
            self._started = True
            # users' own tests have not been looked at before
            names = {trial.benchmark for trial in self.expected.values()}
            self._guarded("the sandbox", lambda: self.run.check_sandbox(names))
            with usage_error():
                self.log.start({**self._about(), "complete": False})

    # -- meanwhile ------------------------------------------------------------------------------

    def logreport(self, report: pytest.TestReport) -> None:
        """Take a record off a report; a trial that ended without one is an error."""
        nodeid = report.nodeid
        trial = self.expected.get(nodeid)
        if trial is None:
            return
        self.start()
        text = getattr(report, "agentbench", None)
        if text is not None:
            record = TrialRecord.from_json(json.loads(text))
            self._names.setdefault((trial.suite, trial.agent), record.agent)
            self._name_lost()
            self._add(nodeid, record, text)
            return
        lost = None
        if report.when not in ("setup", "call", "teardown"):
            report.when = "setup"  # a dead worker's trial: an error, not a failure
            lost = _lost(trial, "error", _text(report, "the worker died"))
        elif report.failed and report.when == "setup":
            lost = _lost(trial, "error", _text(report, "the setup failed"))
        elif report.skipped and report.when in ("setup", "call"):
            lost = _lost(trial, "skip", _text(report, "skipped"))
        elif report.failed and report.when == "call":
            # a user's test that failed before it ran the trial
            lost = _lost(trial, "fail", _text(report, "the test failed"))
        if lost is not None:
            if nodeid in self.records:
                return  # it has its result, and something else skipped or failed around it
            self._unnamed.append((nodeid, trial, lost))
            if self.run.settings.agent_given or (trial.suite, trial.agent) in self._names:
                self._name_lost()

    def _name_lost(self) -> None:
        """Add the records of lost trials, under the name that their agent goes by."""
        lost, self._unnamed = self._unnamed, []
        for nodeid, trial, record in lost:
            named = record.replace(agent=self._name(trial))
            self._add(nodeid, named, named.to_text())

    def _name(self, trial: Expected) -> str:
        """What the agent of *trial* is called, as far as is known."""
        default = "bench_agent" if self.run.overridden else trial.agent
        return self._names.get((trial.suite, trial.agent), default)

    def _guarded(self, what: str, step: Callable[[], Any]) -> Any:
        """*step()*; what others' code raises in it turns the run red, and loses nothing."""
        try:
            return step()
        except Exception as error:
            self.trouble = self.trouble or f"{what}: {type(error).__name__}: {one_line(str(error))}"
            return None

    def _add(self, nodeid: str, record: TrialRecord, text: str) -> None:
        if nodeid in self.records:
            self.repeated += 1  # by a plugin that runs tests again: the first result counts
            return
        self.records[nodeid] = record
        try:
            self.log.append(text)
        except OSError as error:  # a full disk must not end the run
            self.trouble = self.trouble or f"records are missing in trials.jsonl: {error}"
        hook = self.config.hook.pytest_agentbench_trial_finished
        self._guarded(
            "pytest_agentbench_trial_finished", lambda: hook(config=self.config, record=record)
        )

    # -- after ----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Compute the numbers, add them to the JUnit suite, complete the run directory."""
        run = self.run
        if _runs_nothing(self.config):
            return
        self._name_lost()
        self.expected = {
            nodeid: replace(trial, agent=self._name(trial))
            for nodeid, trial in self.expected.items()
        }
        self.summaries = summarize(
            self.expected.values(),
            {self.expected[nodeid]: record for nodeid, record in self.records.items()},
            ks=run.settings.report_ks,
            extras=self._extras,
            reports=self._reports,
            headline=lambda name: run.plan.load(name).benchmark.headline,
            seed=run.settings.seed,
        )
        self.boards = list(self._leaderboards())
        self.judge = JudgeReport.of(self.records.values(), run.settings.judge_min_agreement)
        if self._started:
            whole = len(self.records) == len(self.expected)
            try:
                self.log.close({**self._about(), "complete": whole}, self._summary_json())
            except OSError as error:
                self.trouble = self.trouble or f"the run directory is not whole: {error}"
            for board in self.boards:
                self._guarded(
                    f"leaderboard of {board.benchmark}", partial(write_board, board, self.log.out)
                )
        if not self.records:
            return
        for name, value in (*suite_properties(self.summaries), *self.judge.properties()):
            _junit_property(self.config, name, value)
        if run.isolation is not None:
            _junit_property(self.config, "sandbox", str(run.isolation))
        hook = self.config.hook.pytest_agentbench_summary
        self._guarded(
            "pytest_agentbench_summary",
            lambda: hook(config=self.config, summary=self.summaries),
        )

    def exit_status(self, status: int, failed: int) -> int:
        """The exit status of a run that pytest would end with *status*; *failed* reports failed.

        A gate decides in place of failed trials, and of nothing else: errors, trials that were not
        run and tests of other kinds stay red.
        """
        ok, red = pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED
        if status == ok and (self.trouble or self.judge.red):
            return red
        if status != red or self.judge.least is None or self.judge.red or self.trouble:
            return status
        verdicts = Counter(record.verdict for record in self.records.values())
        whole = len(self.records) == len(self.expected) and not verdicts["error"]
        return ok if whole and failed == verdicts["fail"] else status

    def _extras(self, name: str, records: Sequence[TrialRecord]) -> Mapping[str, float]:
        benchmark = self.run.plan.load(name).benchmark
        return self._guarded(f"headlines of {name}", lambda: benchmark.headlines(records)) or {}

    def _reports(self, summary: SuiteSummary, records: Sequence[TrialRecord]) -> Mapping[str, Any]:
        benchmark = self.run.plan.load(summary.benchmark).benchmark
        step = lambda: benchmark.report(summary, records)  # noqa: E731
        return self._guarded(f"report of {summary.benchmark}", step) or {}

    def _leaderboards(self) -> Iterator[Board]:
        """A board for each suite whose benchmark makes one."""
        suites: dict[tuple[str, str], dict[str, list[TrialRecord]]] = {}
        tasks: dict[tuple[str, str], set[str]] = {}
        for nodeid, trial in self.expected.items():
            key = trial.suite, trial.benchmark
            tasks.setdefault(key, set()).add(trial.task_id)
            if nodeid in self.records:
                table = suites.setdefault(key, {})
                table.setdefault(trial.agent, []).append(self.records[nodeid])
        for (suite, name), agents in suites.items():
            benchmark, selected = self.run.plan.load(name).benchmark, len(tasks[suite, name])
            step = partial(benchmark.leaderboard, agents, selected)
            table = self._guarded(f"leaderboard of {name}", step)
            if table:
                yield Board(suite, name, table)

    def _board_lines(self, board: Board) -> list[str]:
        benchmark = self.run.plan.load(board.benchmark).benchmark
        step = lambda: list(benchmark.leaderboard_lines(board.table))  # noqa: E731
        return self._guarded(f"leaderboard of {board.benchmark}", step) or []

    def _own_lines(self, summary: SuiteSummary) -> list[str]:
        benchmark = self.run.plan.load(summary.benchmark).benchmark
        step = lambda: list(benchmark.report_lines(summary.report))  # noqa: E731
        return self._guarded(f"report of {summary.benchmark}", step) or []

    def terminal_summary(self, terminal: Any) -> None:
        """The section at the end of the terminal's output."""
        option = self.config.option
        if _runs_nothing(self.config) or getattr(option, "no_summary", False):
            return
        verbosity = self.config.get_verbosity()
        if not self.expected and not self.run.active:
            return
        if verbosity >= 0:
            terminal.write_sep("=", "agentbench")
        for name, loaded in self.run.plan.loaded.items():
            if not loaded.tasks:
                terminal.write_line(f"{name}: {loaded.dataset.source} has no rows: nothing to run")
        for summary in self.summaries if verbosity < 0 else ():
            terminal.write_line(brief_line(summary))
        for summary in self.summaries if verbosity >= 0 else ():
            for line in summary_lines(
                summary,
                verbose=verbosity > 0,
                judge=self.run.settings.judge,
                own=self._own_lines(summary),
            ):
                terminal.write_line(line)
        for board in self.boards if verbosity >= 0 else ():
            for line in (f"{board.suite} · leaderboard", *self._board_lines(board)):
                terminal.write_line(line)
        for line in self.judge.lines(brief=verbosity < 0):
            terminal.write_line(line)
        if self.run.settings.max_cost is not None and verbosity >= 0:
            spent = self.run.resources.budget.spent
            terminal.write_line(f"cost: ${spent:.4g} of ${self.run.settings.max_cost:.4g}")
        if self.run.isolation is not None and not self.run.isolation.full:
            terminal.write_line(f"sandbox {self.run.isolation}")
        if self.repeated:
            terminal.write_line(
                f"{self.repeated} trials were run again by another plugin; first results count"
            )
        if self.trouble:
            terminal.write_line(f"ERROR: {self.trouble}")
        if self._started and verbosity >= 0:
            terminal.write_line(f"run directory: {_relative(self.config, self.run.out)}")

    # -- files ----------------------------------------------------------------------------------

    def _about(self) -> dict[str, Any]:
        counts = {"expected": len(self.expected), "reported": len(self.records)}
        return {**run_facts(self.run, self._begin), **counts}

    def _summary_json(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "complete": len(self.expected) == len(self.records),
            "expected": len(self.expected),
            "reported": len(self.records),
            "suites": [summary.to_json() for summary in self.summaries],
            **self.judge.to_json(),
            "leaderboards": plain({board.suite: board.table for board in self.boards}),
        }


def _runs_nothing(config: pytest.Config) -> bool:
    """Whether pytest only shows something: tests, fixtures, plans."""
    names = ("collectonly", "setuponly", "setupplan", "showfixtures", "show_fixtures_per_test")
    return any(getattr(config.option, name, False) for name in names)


def _lost(trial: Expected, verdict: Any, reason: str) -> TrialRecord:
    """The record of a trial that came to no record of its own."""
    return TrialRecord(
        benchmark=trial.benchmark,
        task_id=trial.task_id,
        trial=trial.trial,
        agent=trial.agent,
        verdict=verdict,
        reason=reason,
        started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        details={"groups": dict(trial.groups)},
    )


def _text(report: pytest.TestReport, otherwise: str) -> str:
    longrepr = report.longrepr
    if isinstance(longrepr, tuple):
        return one_line(str(longrepr[2]).removeprefix("Skipped: "))
    crash = getattr(longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(longrepr or "")
    return one_line(text, 500) or otherwise


def _plain_id(nodeid: str) -> str:
    """A node id without the group that ``--dist loadgroup`` appends."""
    return re.sub(r"@[^@\[\]]*$", "", nodeid)


def _junit_property(config: pytest.Config, name: str, value: str) -> None:
    # record_testsuite_property works in the process that runs a test, which under xdist is not
    # the one that writes the file (pytest#7767)
    from _pytest.junitxml import xml_key

    xml = config.stash.get(xml_key, None)
    if xml is not None:
        xml.add_global_property(name, value)


def _relative(config: pytest.Config, path: Any) -> str:
    try:
        return str(path.relative_to(config.invocation_params.dir))
    except ValueError:
        return str(path)
