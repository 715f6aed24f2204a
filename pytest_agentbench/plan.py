"""The plan of a run: which tasks of which benchmarks, by which agents, how often.

The plan is the same in the controller and in every worker: it follows from the settings and the
rows alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pytest_agentbench.benchmark import Benchmark
from pytest_agentbench.datasets import Dataset, load, spooled
from pytest_agentbench.errors import ConfigError, DataError
from pytest_agentbench.model import TaskRef
from pytest_agentbench.settings import Settings
from pytest_agentbench.text import one_line, slug, tag

__all__ = ["Loaded", "Plan", "TrialId", "check_references", "trial_name"]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A benchmark with its rows and its tasks, in dataset order."""

    benchmark: Benchmark
    dataset: Dataset
    tasks: tuple[TaskRef, ...]


@dataclass(frozen=True, slots=True)
class TrialId:
    """One trial to run: the task, the agent's name and the trial's number, from 1."""

    task: TaskRef
    agent: str
    trial: int


def trial_name(task: TaskRef, agent: str, trial: int, several_agents: bool) -> str:
    """The item name of a trial: ``study_reg_01[trial1]``, with several agents ``[noop-trial1]``."""
    prefix = f"{agent}-" if several_agents else ""
    return f"{task.slug}[{prefix}trial{trial}]"


@dataclass(slots=True)
class Plan:
    """Loads benchmarks when they are first asked for.

    ``spool`` is a directory that all processes of the run share, or ``None`` for a single process.
    """

    settings: Settings
    get: Callable[[str], Benchmark]
    spool: Path | None = None
    _loaded: dict[str, Loaded] = field(default_factory=dict)

    def load(self, name: str) -> Loaded:
        """The benchmark *name* with its tasks.

        Raises
        ------
        ConfigError
            Unknown benchmark, unreadable data, missing column, or an id that stands twice.
        """
        if name not in self._loaded:
            benchmark = self.get(name)
            dataset = self._dataset(benchmark)
            self._loaded[name] = Loaded(benchmark, dataset, self._tasks(benchmark, dataset))
        return self._loaded[name]

    @property
    def loaded(self) -> dict[str, Loaded]:
        """What has been loaded so far, by name."""
        return dict(self._loaded)

    def trials(self, name: str, agents: tuple[str, ...], trials: int) -> Iterator[TrialId]:
        """Every trial of the benchmark *name*, task by task."""
        for task in self.load(name).tasks:
            for agent in agents:
                for trial in range(1, trials + 1):
                    yield TrialId(task, agent, trial)

    def _dataset(self, benchmark: Benchmark) -> Dataset:
        source = self.settings.source(benchmark.name) or benchmark.published
        if not source:
            source = "bundled"

        benchmark.configure(self.settings, source)
        wanted = self.settings.pass_score
        if wanted is not None and wanted > benchmark.largest_pass_score:
            raise ConfigError(
                f"--bench-pass-score: expected a number between 0 and "
                f"{benchmark.largest_pass_score:g} for {benchmark.name}, got {wanted:g}"
            )

        def make() -> Dataset:
            own = benchmark.rows(source)
            if own is not None:
                return Dataset.build(source, own)
            dataset = load(source, bundled=benchmark.bundled, layout=benchmark.layout)
            _check_columns(benchmark, dataset)
            return dataset

        if self.spool is None:
            return make()
        return spooled(self.spool, f"{benchmark.name}={source}", make)

    def _tasks(self, benchmark: Benchmark, dataset: Dataset) -> tuple[TaskRef, ...]:
        seen: dict[str, int] = {}
        slugs: set[str] = set()
        tasks = []
        for row in dataset.rows[: self.settings.limit]:
            given = row.cells.get(benchmark.id_column)
            known = given is not None and not isinstance(given, list | dict)
            identifier = str(given) if known else ""
            # a row without an id still gets an item, which tells so
            name = slug(identifier) if identifier else f"row-{row.index + 1}"
            if identifier in seen and identifier:
                raise DataError(
                    f"--bench-data: {benchmark.name}: the {benchmark.id_column} "
                    f"{one_line(identifier, 60)!r} stands twice, in rows {seen[identifier] + 1} "
                    f"and {row.index + 1} of {dataset.source}"
                )
            seen[identifier] = row.index
            if name.casefold() in slugs:  # differs in case only: one directory on some systems
                name = f"{name[:70]}-{row.sha256[:8]}"
            slugs.add(name.casefold())
            groups = tuple(
                (column, one_line(str(row.cells[column]), 60))
                for column in benchmark.group_columns
                if row.cells.get(column)
            )
            tags = dict.fromkeys(filter(None, map(tag, benchmark.tags(row))))
            tasks.append(
                TaskRef(
                    benchmark.name, identifier, name, row.index, row.sha256, tuple(tags), groups
                )
            )
        return tuple(tasks)


def _check_columns(benchmark: Benchmark, dataset: Dataset) -> None:
    if not dataset.rows:
        return
    missing = [name for name in benchmark.columns if name not in dataset.columns]
    if missing:
        found = ", ".join(sorted(map(str, dataset.columns))[:20])
        raise DataError(
            f"--bench-data: {benchmark.name}: {dataset.source} lacks the "
            f"column{'s' if len(missing) > 1 else ''} {', '.join(missing)} (found: {found})"
        )


def check_references(loaded: Loaded, agents: tuple[str, ...]) -> None:
    """Refuse the agent ``reference`` for a dataset without reference solutions.

    Raises
    ------
    ConfigError
        Naming ``--bench-agent``.
    """
    benchmark, dataset = loaded.benchmark, loaded.dataset
    if "reference" in agents and not benchmark.solvable(dataset):
        raise ConfigError(
            f"--bench-agent: {benchmark.name} has no reference solutions for {dataset.source}; "
            "name an agent, e.g. --bench-agent=cmd:'python my_agent.py'"
        )
