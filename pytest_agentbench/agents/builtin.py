"""The two agents that need no agent: the reference solution, and one that does nothing."""

from __future__ import annotations

from pytest_agentbench.agents import Agent, Call
from pytest_agentbench.model import AgentRun
from pytest_agentbench.transcripts import Transcript, user

__all__ = ["NoopAgent", "ReferenceAgent"]


class ReferenceAgent(Agent):
    """Gives each task's reference solution: calibrates the benchmark, not a model."""

    name = "reference"
    live = False

    def run(self, call: Call) -> AgentRun:
        return AgentRun(call.solution())


class NoopAgent(Agent):
    """Answers nothing; every task that it passes is not worth asking."""

    name = "noop"
    live = False

    def run(self, call: Call) -> AgentRun:
        return AgentRun(Transcript((user(call.task.prompt),)))
