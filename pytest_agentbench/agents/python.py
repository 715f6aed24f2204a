"""``py:MODULE:ATTR`` and callables: a Python function as an agent.

A function that is named on the command line runs in a process of its own, so that it can be ended
when its time is over, and can neither end the worker nor touch another trial.  A callable that a
``bench_agent`` fixture returns cannot be sent elsewhere; it runs in a thread.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_agentbench.agents import Agent, Call, resolve
from pytest_agentbench.agents.command import run_command
from pytest_agentbench.agents.sessions import by_session
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.model import AgentRun, AgentTask
from pytest_agentbench.text import one_line, slug
from pytest_agentbench.transcripts import Transcript, user

__all__ = ["InProcessAgent", "PythonAgent", "import_attribute", "python_agent"]

AgentFunction = Callable[[AgentTask, Path], Any]


def import_attribute(option: str, spec: str) -> Any:
    """The object that ``MODULE:ATTR`` names; the working directory is a place to import from.

    Raises
    ------
    ConfigError
        There is no such module or attribute, or importing it failed.
    """
    module, _, attribute = spec.partition(":")
    if not module or not attribute:
        raise ConfigError(f"{option}: expected py:MODULE:ATTR, got {'py:' + spec!r}")
    if str(Path.cwd()) not in sys.path and "" not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        found = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{option}: cannot load {'py:' + spec!r}: {type(error).__name__}: {error}"
        ) from error
    return found


def python_agent(spec: str) -> Agent:
    """The agent that ``py:``*spec* names: a function, a class to make, or an :class:`Agent`."""
    found = import_attribute("--bench-agent", spec)
    if isinstance(found, Agent):
        return found
    if isinstance(found, type) and issubclass(found, Agent):
        return resolve(found())
    if not callable(found):
        raise ConfigError(
            f"--bench-agent: {'py:' + spec!r} is a {type(found).__name__}, not a callable"
        )
    return PythonAgent(spec)


class PythonAgent(Agent):
    """An importable callable, run in a fresh process per trial."""

    def __init__(self, spec: str) -> None:
        self.spec = spec
        self.name = slug(spec.rpartition(":")[2])

    def run(self, call: Call) -> AgentRun:
        return by_session(call, self._run)

    def _run(self, call: Call) -> AgentRun:
        argv = [sys.executable, "-c", _HOST, json.dumps(sys.path), self.spec, str(call.output)]
        return run_command(argv, call)


#: ``-c`` puts the working directory, which is the agent's workspace, in front of ``sys.path``:
#: replaced before anything is imported from it.
_HOST = """
import sys, json
sys.path[:] = json.loads(sys.argv[1])
from pytest_agentbench.agents.python import host
sys.exit(host(sys.argv[2], sys.argv[3]))
"""


def host(spec: str, output: str) -> int:
    """Body of the process that runs one trial of a :class:`PythonAgent`."""
    with open(os.environ["AGENTBENCH_TASK_FILE"], encoding="ascii") as file:
        task = AgentTask.from_json(json.load(file))
    function = import_attribute("--bench-agent", spec)
    if isinstance(function, type):
        function = function()
    try:
        transcript = Transcript.coerce(_call(function, task, Path.cwd()), task.prompt)
    except BaseException as error:
        traceback.print_exc()
        print(f"{type(error).__name__}: {one_line(str(error), 300)}", file=sys.stderr)
        return 1
    Path(output, "transcript.jsonl").write_text(transcript.to_jsonl(), encoding="ascii")
    return 0


def _call(function: AgentFunction, task: AgentTask, workspace: Path) -> Any:
    result = function(task, workspace)
    if inspect.isawaitable(result):

        async def wait() -> Any:
            return await result

        return asyncio.run(wait())
    return result


class InProcessAgent(Agent):
    """A callable of the test process, run in a thread.

    Python cannot end a thread: out of time, a coroutine is cancelled, a plain function is left
    behind as a daemon thread and the trial goes on without it.
    """

    def __init__(self, function: AgentFunction) -> None:
        self.function = function
        self.apart = False
        self.name = slug(
            str(
                getattr(function, "name", None)
                or getattr(function, "__name__", "").strip("<>")
                or type(function).__name__
            )
        )

    def run(self, call: Call) -> AgentRun:
        return by_session(call, self._run)

    def _run(self, call: Call) -> AgentRun:
        outcome: list[AgentRun] = []
        nothing = Transcript((user(call.task.prompt),))
        late = f"the agent was not done in {call.time_limit_s:g} s"

        def work() -> None:
            try:
                result = self.function(call.task, call.workspace)
                if inspect.isawaitable(result):
                    result = asyncio.run(_within(result, call.time_limit_s))
                outcome.append(AgentRun(Transcript.coerce(result, call.task.prompt)))
            except TimeoutError:
                outcome.append(AgentRun(nothing, late))
            except BaseException as error:
                problem = f"the agent raised {type(error).__name__}: {one_line(str(error), 160)}"
                outcome.append(AgentRun(nothing, problem, traceback.format_exc()))

        thread = threading.Thread(target=work, name=f"agent-{self.name}", daemon=True)
        thread.start()
        thread.join(call.time_limit_s + 1.0)
        return outcome[0] if outcome else AgentRun(nothing, late)


async def _within(result: Any, seconds: float) -> Any:
    async with asyncio.timeout(seconds):
        return await result
