"""Users' own tests over the tasks of a benchmark, and what every item is a trial of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.plan import TrialId, trial_name
from pytest_agentbench.session.handover import worker_input
from pytest_agentbench.session.state import TRIAL, BenchRun, bench_run
from pytest_agentbench.summary import Expected

__all__ = [
    "expected",
    "expected_by_nodeid",
    "expected_of",
    "own_test",
    "parametrize",
    "read_own_tests",
    "share_own_tests",
]


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
        if is_own(item) and (trial := expected(item)) is not None
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
        trial = _parameter(item)
        if trial is None:
            return None
        item.stash[TRIAL] = trial
    return expected_of(trial, own_test(item))


def is_own(item: pytest.Item) -> bool:
    """Whether *item* is a user's own test over a benchmark's tasks."""
    return _parameter(item) is not None


def _parameter(item: pytest.Item) -> TrialId | None:
    callspec = getattr(item, "callspec", None)
    trial = callspec.params.get("bench") if callspec is not None else None
    return trial if isinstance(trial, TrialId) else None


def own_test(item: pytest.Item) -> str | None:
    """The node id of a user's own test, without task and trial but with its other parameters."""
    if not is_own(item):
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
