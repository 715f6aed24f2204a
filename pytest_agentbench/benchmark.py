"""What a benchmark is: rows in, tasks out, and a grader.

A benchmark is one file: a subclass of :class:`Benchmark`, found through the entry point group
``pytest_agentbench.benchmarks`` or returned from the hook ``pytest_agentbench_benchmarks``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.datasets import Row, read_json
from pytest_agentbench.errors import RowError
from pytest_agentbench.model import AgentTask, Attempt, Grade, Session, Task, TaskRef, TrialRecord
from pytest_agentbench.sandbox import Sandbox
from pytest_agentbench.text import one_line

if TYPE_CHECKING:
    from pytest_agentbench.browser import BrowserEngine
    from pytest_agentbench.datasets import Dataset
    from pytest_agentbench.panel import Panel, Pending
    from pytest_agentbench.settings import Settings
    from pytest_agentbench.summary import SuiteSummary
    from pytest_agentbench.transcripts import Transcript

__all__ = ["Benchmark", "Cells", "Judging", "Tools"]


@dataclass(frozen=True, slots=True)
class Judging:
    """A grade for which the judge has been asked.

    ``finish()`` makes it, from the votes of *pending*; until they are there, other trials run.
    """

    pending: tuple[Pending, ...]
    finish: Callable[[], Grade]


@dataclass(frozen=True, slots=True)
class Tools:
    """What a grader may use.

    ``browser`` starts Chromium when it is first called; ``sandbox`` runs code out of a dataset.
    """

    browser: Callable[[], BrowserEngine]
    judge: Panel | None
    timeout_scale: float
    #: Whether evidence of a failed, or of any, trial is wanted.
    evidence: str
    sandbox: Sandbox = field(default_factory=Sandbox)
    #: ``--bench-pass-score``, for graders that decide themselves; ``None`` where it is not given.
    pass_score: float | None = None
    #: Characters of a file, and of all files of a workspace, that a judge is shown; ``None``: all.
    judge_caps: tuple[int, int] | None = (50_000, 160_000)


class Benchmark(ABC):
    """A suite of tasks with its graders.

    Subclasses set the class attributes and write :meth:`task` and :meth:`grade`; the other methods
    have working defaults.
    """

    #: Short name: letters, digits and underscores.
    name: str
    #: Hub id of the published dataset, used when ``--bench-data`` names none.
    published: str = ""
    #: Columns that a dataset must have.
    columns: tuple[str, ...] = ()
    #: The column with the task's identifier.
    id_column: str = "task_id"
    #: Columns whose values become markers and by which reports are broken down.
    group_columns: tuple[str, ...] = ()
    #: Score in [0, 1] from which a trial passes, unless ``--bench-pass-score`` says else.
    pass_score: float = 1.0
    #: The largest value of ``--bench-pass-score`` that makes sense; more than 1 only where a grader
    #: compares it with something else than a score.
    largest_pass_score: float = 1.0
    #: Whether rows carry reference solutions, so that ``reference`` can be the agent.
    has_reference: bool = False
    #: Whether graders run in the sandbox: it is then looked at before the run, and in the header.
    sandboxed: bool = False
    #: Whether pages are opened in a browser.
    browses: bool = False
    #: The metric that comes first in the summary; empty for pass@k.
    headline: str = ""

    def bundled(self) -> Iterable[Mapping[str, Any]]:
        """The rows that come with the package; none by default."""
        return ()

    def configure(self, settings: Settings, source: str) -> None:  # noqa: B027  (nothing is right)
        """Take what options of the benchmark's own say, before the rows of *source* are asked for.

        Raises
        ------
        ConfigError
            A value cannot be used.
        """

    def facts(self) -> Mapping[str, str]:
        """What results depend on besides the rows, for the header and ``run.json``."""
        return {}

    def rows(self, source: str) -> Iterable[Mapping[str, Any]] | None:
        """The rows of a ``--bench-data`` value, or ``None`` to have it read in the usual ways."""
        return None

    def layout(self, path: Path) -> Iterable[Mapping[str, Any]] | None:
        """The rows of a directory in the benchmark's own layout, or ``None`` if it is in none."""
        return None

    def solvable(self, dataset: Dataset) -> bool:
        """Whether there are reference solutions for *dataset*."""
        return self.has_reference

    def tags(self, row: Row) -> Sequence[str]:
        """Markers of a row besides the benchmark's name; the values of ``group_columns``."""
        return [str(row.cells[name]) for name in self.group_columns if row.cells.get(name)]

    @abstractmethod
    def task(self, ref: TaskRef, row: Row) -> Task:
        """Parse *row* in full.

        Raises
        ------
        RowError
            A cell is broken (use :class:`Cells`, which raises it with the row and column named).
        """

    def agent_task(self, task: Task, trial: int, seed: int) -> AgentTask:
        """What the agent may see of *task*.  Never a reference, a check, a rubric or a label."""
        return AgentTask(
            benchmark=self.name,
            id=task.ref.id,
            prompt=task.prompt,
            sessions=(Session(task.prompt),),
            tools=(),
            time_limit_s=task.time_limit_s,
            trial=trial,
            seed=seed,
        )

    def needs_judge(self, task: Task) -> bool:
        """Whether nothing of *task* can be graded without a judge; it is then skipped."""
        return False

    def check_gradable(self, task: Task) -> None:  # noqa: B027  (nothing is right)
        """Look, before the agent runs, whether *task* can be graded at all.

        Raises
        ------
        SkipTrial
            What is needed is not there.
        HarnessError
            It is there and cannot be used.
        """

    def absent(self, task: Task) -> Sequence[str]:
        """Prerequisites that *task* declares and this machine lacks, one phrase each."""
        return ()

    def prepare(self, task: Task, workspace: Path) -> None:  # noqa: B027  (nothing is right)
        """Put the task's files into the empty *workspace*; nothing by default."""

    def reference(self, task: Task, place: Callable[[], Path]) -> Transcript:
        """The transcript of the reference solution (only where ``has_reference``).

        ``place()`` is the workspace, for solutions that leave files.
        """
        raise LookupError(f"{self.name} has no reference solutions")

    def wrong(self, task: Task, place: Callable[[], Path]) -> Transcript | None:
        """The transcript of an answer that a judge must not let pass; ``None`` if there is none.

        It runs as the agent ``wrong``, to see whether a judge can be believed.
        """
        return None

    def app(self, transcript: Transcript) -> str | None:
        """The HTML page that the agent made, for the fixture ``bench_page``; none by default."""
        return None

    @abstractmethod
    def grade(self, attempt: Attempt, tools: Tools) -> Grade | Judging:
        """Grade one trial.  With a judge, ask it (``tools.judge.ask``) and return a
        :class:`Judging`.

        Whatever is wrong with what the agent did is a failed check; an exception of any kind is
        the harness's trouble and becomes the verdict error.
        """

    def headlines(self, records: Sequence[TrialRecord]) -> Mapping[str, float]:
        """Further numbers for the summary, computed from the scored records of one agent."""
        return {}

    def report(self, summary: SuiteSummary, records: Sequence[TrialRecord]) -> Mapping[str, Any]:
        """Further tables for ``summary.json``, from all records of one agent."""
        return {}

    def leaderboard(
        self, records: Mapping[str, Sequence[TrialRecord]], tasks: int
    ) -> Mapping[str, Any] | None:
        """A table over all agents of a suite, from their records; *tasks* were selected.

        Its ``rows``, mappings of plain values, are also written as CSV and parquet.
        """
        return None

    def leaderboard_lines(self, board: Mapping[str, Any]) -> Iterable[str]:
        """:meth:`leaderboard` for the terminal, at most 80 columns wide."""
        return ()

    def report_lines(self, report: Mapping[str, Any]) -> Iterable[str]:
        """:meth:`report` for the terminal, at most 80 columns wide."""
        return ()


class Cells:
    """Typed access to a row's cells; what is wrong is a :class:`RowError` naming the column."""

    def __init__(self, benchmark: str, ref: TaskRef, row: Row) -> None:
        self._benchmark = benchmark
        self._where = f"{row.index + 1} ({one_line(ref.id, 60)})" if ref.id else str(row.index + 1)
        self._cells = row.cells

    def error(self, column: str, reason: str) -> RowError:
        """A :class:`RowError` for *column*, to raise."""
        return RowError(self._benchmark, self._where, column, reason)

    def _get(self, column: str) -> Any:
        if column not in self._cells:
            raise self.error(column, "the column is missing")
        return self._cells[column]

    def text(self, column: str, *, empty: bool = False) -> str:
        """A text cell; an empty one is an error unless *empty* is allowed."""
        value = self._get(column)
        if value is None and empty:
            return ""
        if not isinstance(value, str):
            raise self.error(column, f"expected text, found {_kind(value)}")
        if not empty and not value.strip():
            raise self.error(column, "expected text, found nothing")
        return value

    def number(self, column: str, default: float) -> float:
        """A number above 0, or the text of one; *default* where there is nothing."""
        value = self._cells.get(column)
        if value is None or (isinstance(value, str) and not value.strip()):
            return default
        try:
            number = float("nan") if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = float("nan")
        if not 0 < number < float("inf"):
            raise self.error(column, f"expected a number above 0, found {_kind(value)}")
        return number

    def flag(self, column: str) -> bool:
        """A boolean cell, or the text of one (``true``, ``False``)."""
        value = self._get(column)
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        raise self.error(column, f"expected true or false, found {_kind(value)}")

    def json(self, column: str, *kinds: type) -> Any:
        """A cell with JSON text (or the value itself) of one of *kinds*; SQL null, an empty cell
        and JSON ``null`` are ``None``."""
        value = self._get(column)
        if isinstance(value, str):
            if not value.strip():
                return None
            try:
                value = read_json(value)
            except ValueError as error:
                raise self.error(column, f"is not JSON: {error}") from None
        if value is not None and (
            not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)
        ):
            wanted = " or ".join(_NAMES[kind] for kind in kinds)
            raise self.error(column, f"expected {wanted}, found {_kind(value)}")
        return value


_NAMES = {dict: "a JSON object", list: "a JSON array", bool: "true or false", str: "a text"}


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return f"the text {one_line(value, 60)!r}"
    if isinstance(value, bool | int | float):
        return f"{value}"
    if isinstance(value, dict):
        return "an object"
    return "an array" if isinstance(value, list) else type(value).__name__
