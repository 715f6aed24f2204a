"""Tasks of several sessions: an agent is called once for each, in one workspace."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pytest_agentbench.agents import Call
from pytest_agentbench.model import AgentRun
from pytest_agentbench.transcripts import Transcript

__all__ = ["by_session"]


def by_session(call: Call, run: Callable[[Call], AgentRun]) -> AgentRun:
    """Call *run* for each session of the task and join the transcripts.

    All sessions share the time limit.  What goes wrong in one ends the sequence; what was done
    until then is graded.
    """
    sessions = call.task.sessions
    if len(sessions) <= 1:
        return run(call)
    deadline = time.monotonic() + call.time_limit_s
    events: list[Any] = []
    conversation: list[Any] = []
    logs: list[str] = []
    problem = None
    for number, session in enumerate(sessions, 1):
        where = f"session {number} of {len(sessions)}"
        left = deadline - time.monotonic()
        if left <= 0:
            problem = f"{where} was not begun: the {call.time_limit_s:g} s for all were over"
            break
        if session.new_session:
            conversation = []
        task = replace(
            call.task,
            time_limit_s=left,
            prompt=session.prompt,
            sessions=sessions[:number],
            session=number,
            history=tuple(conversation),
        )
        done = run(replace(call, task=task, time_limit_s=left))
        events.append({"type": "session", "version": 3, "id": session.id or f"session-{number}"})
        events += done.transcript.events
        conversation += done.transcript.events
        if done.log:
            logs.append(f"== {where} ==\n{done.log}")
        if done.problem is not None:
            late = f"the agent was not done in {call.time_limit_s:g} s, all sessions together"
            problem = f"{where}: {late if time.monotonic() >= deadline else done.problem}"
            break
    return AgentRun(Transcript(tuple(events)), problem, "\n".join(logs))
