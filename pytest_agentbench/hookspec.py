"""Hooks of pytest-agentbench, to be written in a ``conftest.py`` or a plugin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_agentbench.benchmark import Benchmark
    from pytest_agentbench.model import TrialRecord
    from pytest_agentbench.summary import SuiteSummary


@pytest.hookspec
def pytest_agentbench_benchmarks(  # type: ignore[empty-body]
    config: pytest.Config,
) -> Sequence[Benchmark | type[Benchmark]]:
    """Give benchmarks that need no entry point.

    .. code-block:: python

        def pytest_agentbench_benchmarks(config):
            return [MyBenchmark]

    .. versionadded:: 0.1
    """


@pytest.hookspec(firstresult=True)
def pytest_agentbench_agent(config: pytest.Config, spec: str) -> Any:
    """Give the agent that a ``--bench-agent`` value names, or ``None`` to leave it to others.

    The agent is a callable ``agent(task, workspace) -> Transcript | str`` (sync or async) or an
    :class:`pytest_agentbench.agents.Agent`.

    .. code-block:: python

        def pytest_agentbench_agent(config, spec):
            if spec == "mine":
                return lambda task, workspace: "the answer"

    .. versionadded:: 0.1
    """


@pytest.hookspec
def pytest_agentbench_trial_finished(config: pytest.Config, record: TrialRecord) -> None:
    """A trial has its verdict.  Called in the controller, in the order in which trials end.

    .. versionadded:: 0.1
    """


@pytest.hookspec
def pytest_agentbench_summary(config: pytest.Config, summary: Sequence[SuiteSummary]) -> None:
    """All trials have ended.  Called in the controller, once, if there was a trial.

    .. versionadded:: 0.1
    """
