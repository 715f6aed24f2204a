"""From a plan to pytest items, and the state of a run that hangs on the pytest configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_agentbench.agents import Agent, resolve
from pytest_agentbench.errors import AgentBenchError, ConfigError, GradeFailed
from pytest_agentbench.handover import remember, worker_input
from pytest_agentbench.model import TaskRef, TrialRecord
from pytest_agentbench.plan import Loaded, Plan, TrialId, check_references, trial_name
from pytest_agentbench.registry import Registry
from pytest_agentbench.runlog import trial_directory
from pytest_agentbench.runner import Resources, Trial, failure_text
from pytest_agentbench.sandbox import Isolation
from pytest_agentbench.settings import Settings
from pytest_agentbench.summary import Expected
from pytest_agentbench.text import did_you_mean, one_line, slug
from pytest_agentbench.workspace import remove_tree

__all__ = [
    "RECORD",
    "TRIAL",
    "Bench",
    "BenchRun",
    "Suite",
    "TrialItem",
    "bench_run",
    "told",
    "usage_error",
]

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
            agent = resolve(spec if given is None else given)
            base, number = agent.name, 2
            while agent.name in self.agents:
                agent.name, number = f"{base}{number}", number + 1
            self.agents[agent.name] = agent

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
        resources=Resources(settings, Path(shared["work"]) if several else None),
        run_id=shared["run_id"],
        out=Path(shared["out"] or out),
        select=tuple(shared["select"]),
    )


def close(config: pytest.Config) -> None:
    """End the browser; in the controller, remove what was shared with the workers."""
    run = existing_run(config)
    if run is not None:
        run.resources.close()
        if not hasattr(config, "workerinput"):
            for shared in filter(None, (run.plan.spool, run.resources.base)):
                remove_tree(shared)  # what a worker that died had no time to remove is in there


def activate(config: pytest.Config) -> None:
    """Check the options and load the benchmarks; every mistake is a usage error here."""
    run = bench_run(config)
    with usage_error():
        names = run.agent_names
        for name in run.settings.benchmarks:
            loaded = run.load(name)
            if run.settings.agent_given:
                check_references(loaded, names)
        from pytest_agentbench.judge import load_judge

        load_judge(run.settings.judge)
        sandboxed = any(run.load(name).benchmark.sandboxed for name in run.settings.benchmarks)
        if sandboxed and not hasattr(config, "workerinput") and not config.option.collectonly:
            run.isolation = run.resources.sandbox.check()
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
            bench_of(self, self._request).run()

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
        given = request.getfixturevalue("bench_agent")
        trial = item.stash[TRIAL]
        run.load_agents()
        agent = run.agents[trial.agent]
        if not run.settings.agent_given and given is not next(iter(run.agents.values())):
            agent = resolve(given)
        run.resources.launch = lambda: launch_options(request)
        bench = Bench(item, run, trial, agent)
        if isinstance(item, TrialItem):
            item.bench = bench
    return bench


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


class Bench:
    """The fixture ``bench``: one trial, to be run."""

    def __init__(self, item: pytest.Item, run: BenchRun, trial: TrialId, agent: Agent) -> None:
        self._item = item
        self._machine = run.trial(trial)
        if RECORD not in item.stash:  # run again by another plugin: the first result is kept
            self._machine.directory = run.directory(trial, agent.name, _own_test(item))
        self._run = run
        self.agent = agent
        #: Number of the trial, from 1.
        self.trial = trial.trial
        #: The record, once the trial has run.
        self.record: TrialRecord | None = None

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
        return self._run.directory(self._item.stash[TRIAL], self.agent.name, _own_test(self._item))

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
            self.record = self._machine.run(self.agent)
            first = RECORD not in self._item.stash
            self._item.stash[RECORD] = (self.record, self._machine.text)
            if first:
                self._item.user_properties.extend(_properties(self.record))
        if self.record.verdict == "skip":
            pytest.skip(self.record.reason)
        if self.record.verdict == "error":
            raise TrialError(self.record.reason)
        return self.record

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


# -- a user's own tests ---------------------------------------------------------------------------


def parametrize(metafunc: pytest.Metafunc) -> None:
    """``@pytest.mark.bench("genui", trials=4)``: one item per task and trial."""
    mark = metafunc.definition.get_closest_marker("bench")
    if mark is None:
        return
    if "bench" not in metafunc.fixturenames:
        if mark not in metafunc.definition.own_markers:
            return  # the mark of a class or a module, some of whose tests are of another kind
        pytest.fail(
            f"{metafunc.definition.nodeid}: @pytest.mark.bench needs the fixture 'bench' in the "
            "test's arguments",
            pytrace=False,
        )
    unknown = mark.kwargs.keys() - {"trials"}
    trials = mark.kwargs.get("trials")
    named = len(mark.args) == 1 and isinstance(mark.args[0], str)
    if not named or unknown or not (trials is None or _is_count(trials)):
        pytest.fail(
            f"{metafunc.definition.nodeid}: expected @pytest.mark.bench(NAME, trials=K), with K a "
            f"whole number from 1, got arguments {mark.args} and {dict(mark.kwargs)}",
            pytrace=False,
        )
    run = bench_run(metafunc.config)
    name = mark.args[0]
    try:
        run.load(name)
        agents = run.agent_names
    except ConfigError as error:
        pytest.fail(str(error), pytrace=False)
    several = len(agents) > 1
    params = []
    for trial in run.plan.trials(name, agents, trials or run.settings.trials):
        params.append(
            pytest.param(
                trial,
                id=_param_id(trial, several=several),
                marks=[getattr(pytest.mark, tag) for tag in (name, *trial.task.tags)],
            )
        )
    metafunc.parametrize("bench", params, indirect=True)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def share_own_tests(session: pytest.Session) -> None:
    """In a worker: leave for the controller what users' own tests are trials of."""
    given = getattr(session.config, "workerinput", None)
    if given is None:
        return
    found = {
        item.nodeid: asdict(trial)
        for item in session.items
        if not isinstance(item, TrialItem) and (trial := expected(item)) is not None
    }
    if found:
        spool = Path(worker_input(session.config)["spool"])
        spool.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = spool / f"{given['workerid']}.partial"
        partial.write_text(json.dumps(found), encoding="ascii")
        partial.replace(spool / f"{given['workerid']}.tests")


def read_own_tests(config: pytest.Config) -> Iterator[tuple[str, Expected]]:
    """In the controller: what users' own tests are trials of, by node id."""
    for path in sorted(Path(worker_input(config)["spool"]).glob("*.tests")):
        for nodeid, fields in json.loads(path.read_text(encoding="ascii")).items():
            groups = tuple((column, value) for column, value in fields["groups"])
            yield nodeid, Expected(**{**fields, "groups": groups})


def expected(item: pytest.Item) -> Expected | None:
    """What *item* is a trial of, as the summary counts it."""
    trial = item.stash.get(TRIAL, None)
    if trial is None:
        callspec = getattr(item, "callspec", None)
        trial = callspec.params.get("bench") if callspec is not None else None
        if not isinstance(trial, TrialId):
            return None
        item.stash[TRIAL] = trial
    return expected_of(trial, _own_test(item))


def _own_test(item: pytest.Item) -> str | None:
    """The node id of a user's own test, without task and trial but with its other parameters."""
    if isinstance(item, TrialItem):
        return None
    name = item.nodeid.partition("[")[0]
    run, trial = bench_run(item.config), item.stash[TRIAL]
    ours = _param_id(trial, several=len(run.agent_names) > 1)
    others = list(item.callspec._idlist)  # type: ignore[attr-defined]
    if ours in others:
        others.remove(ours)
    return f"{name}[{'-'.join(others)}]" if others else name


def _param_id(trial: TrialId, *, several: bool) -> str:
    """What stands for *trial* in the id of a user's own test."""
    agent = f"{trial.agent}-" if several else ""
    return f"{trial.task.benchmark}-{trial.task.slug}-{agent}trial{trial.trial}"


def expected_of(trial: TrialId, suite: str | None) -> Expected:
    """*trial* as the summary counts it, in *suite* (the benchmark itself when ``None``)."""
    task = trial.task
    return Expected(
        suite=suite or task.benchmark,
        benchmark=task.benchmark,
        task_id=task.id or task.slug,
        agent=trial.agent,
        trial=trial.trial,
        groups=task.groups,
    )


def expected_by_nodeid(run: BenchRun) -> dict[str, Expected]:
    """Every trial that ``--bench`` could collect, by node id; the controller's view of the plan."""
    several = len(run.agent_names) > 1
    found = {}
    for name in run.settings.benchmarks:
        for trial in run.plan.trials(name, run.agent_names, run.settings.trials):
            item = trial_name(trial.task, trial.agent, trial.trial, several)
            found[f"{name}::{item}"] = expected_of(trial, None)
    return found
