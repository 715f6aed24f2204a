"""The agents that need no agent: the reference solution, a wrong one, and none at all."""

from __future__ import annotations

from pytest_agentbench.agents import Agent, Call
from pytest_agentbench.errors import SkipTrial
from pytest_agentbench.model import AgentRun
from pytest_agentbench.transcripts import Transcript, user

__all__ = ["NoopAgent", "ReferenceAgent", "WrongAgent"]


class ReferenceAgent(Agent):
    """Gives each task's reference solution: calibrates the benchmark, not a model."""

    name = "reference"
    live = False
    calibrates = True

    def run(self, call: Call) -> AgentRun:
        return AgentRun(call.solution())


class WrongAgent(Agent):
    """Gives an answer that a judge must not let pass: calibrates the judge."""

    name = "wrong"
    live = False
    calibrates = False

    def run(self, call: Call) -> AgentRun:
        answer = call.wrong()
        if answer is None:
            raise SkipTrial(f"{call.task.benchmark} has no wrong answer to {call.task.id!r}")
        return AgentRun(answer)


class NoopAgent(Agent):
    """Answers nothing; every task that it passes is not worth asking."""

    name = "noop"
    live = False

    def run(self, call: Call) -> AgentRun:
        return AgentRun(Transcript((user(call.task.prompt),)))
