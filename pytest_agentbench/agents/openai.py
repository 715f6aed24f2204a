"""``openai:MODEL``: a model in a plain tool loop, for those who have no agent yet.

The model gets the task's own tools, which answer with their recorded outputs; where a task has
none, four that work in its workspace.  Paths outside the workspace are refused, and commands run
in the sandbox of graders, on a copy that is laid back.
"""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_agentbench.agents import Agent, Call
from pytest_agentbench.agents.sessions import by_session
from pytest_agentbench.endpoints import Endpoint, split_model
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.formats import to_openai
from pytest_agentbench.llm import Client, Completion, ContextFull, FunctionCall, LLMError
from pytest_agentbench.llmjudge import price_of
from pytest_agentbench.model import AgentRun, Tool
from pytest_agentbench.settings import Settings
from pytest_agentbench.text import slug
from pytest_agentbench.transcripts import Transcript, assistant, text_part, tool_call, user
from pytest_agentbench.workspace import read_regular, walk

__all__ = ["OpenAIAgent", "workspace_tools"]

#: Seconds for a command; characters of a result that the model is shown.
COMMAND_S = 120.0
MAX_RESULT = 50_000
MAX_FILE = 4 * 1024 * 1024
_MAX_LISTED = 2000

_SYSTEM = (
    "You are an agent that does what the user asks for. Use the tools where they help; answer in "
    "plain text where they do not. When you are done, answer without calling a tool."
)


class OpenAIAgent(Agent):
    """Asks a model until it answers without calling a tool."""

    books = True

    def __init__(self, rest: str) -> None:
        model, url = split_model(rest)
        if not model:
            raise ConfigError(f"--bench-agent: expected openai:MODEL, got {'openai:' + rest!r}")
        self.endpoint = Endpoint.make("agent", model, url, "--bench-agent")
        self.name = slug(model)
        self._client: Client | None = None
        self.configure(Settings())

    def configure(self, settings: Settings) -> None:
        """Take the limits and prices of *settings*.

        Raises
        ------
        ConfigError
            There is a budget, and no price for the model; or packages are missing.
        """
        self._steps = settings.agent_max_steps
        self._tokens = settings.agent_max_tokens
        price = price_of(settings, self.endpoint.model)
        self.close()
        self._client = Client(self.endpoint, price, "--bench-agent")

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def run(self, call: Call) -> AgentRun:
        client = self._client
        assert client is not None, "it is closed"
        written = 0  # tokens, over all sessions

        def session(part: Call) -> AgentRun:
            nonlocal written
            loop = _Loop(client, part, self._steps, self._tokens, written)
            done = loop.run()
            written = loop.written
            return done

        return by_session(call, session)


class _Loop:
    """One session."""

    def __init__(
        self, client: Client, call: Call, steps: int, tokens: int | None, written: int
    ) -> None:
        self.client, self.call = client, call
        self.steps, self.tokens, self.written = steps, tokens, written
        self.deadline = time.monotonic() + call.time_limit_s
        self.events: list[Mapping[str, Any]] = [user(call.task.prompt)]
        self.tools = list(call.task.tools or workspace_tools())
        self.answer: Callable[[str, Mapping[str, Any]], str] = (
            _Recorded(call.task.tools) if call.task.tools else _InWorkspace(call, self.deadline)
        )

    def run(self) -> AgentRun:
        try:
            problem = self._converse()
        except ContextFull as error:
            problem = f"the conversation got too long for the model: {error}"
        except LLMError:
            if time.monotonic() < self.deadline:
                raise  # the server's trouble says nothing about the model
            problem = f"the agent was not done in {self.call.time_limit_s:g} s"
        return AgentRun(Transcript(tuple(self.events)), problem)

    def _converse(self) -> str | None:
        """Take turns; what is wrong with how it ended, if anything."""
        for _ in range(self.steps):
            room = None if self.tokens is None else self.tokens - self.written
            if room is not None and room <= 0:
                return f"the agent wrote {self.written} tokens (--bench-agent-max-tokens)"
            done = self.client.complete(
                [
                    {"role": "system", "content": _SYSTEM},
                    *to_openai([*self.call.task.history, *self.events]),
                ],
                timeout=max(0.0, self.deadline - time.monotonic()),
                tools=[_declared(tool) for tool in self.tools],
                max_tokens=room,
                seed=self.call.task.seed + self.call.task.trial - 1,
            )
            self.call.spend(done.usage.cost_usd)
            self.written += done.usage.output_tokens or 0
            self.events.append(_event(done))
            if not done.calls:
                if room is not None and done.finish == "length":
                    return f"the agent wrote {self.written} tokens (--bench-agent-max-tokens)"
                return None
            for asked in done.calls:
                self.events.append(_result(asked, self._answered(asked)))
            if time.monotonic() >= self.deadline:
                return f"the agent was not done in {self.call.time_limit_s:g} s"
        return f"the agent was not done after {self.steps} requests (--bench-agent-max-steps)"

    def _answered(self, asked: FunctionCall) -> str:
        """What the tool answers; a model's mistakes are told to the model."""
        names = [tool.name for tool in self.tools]
        if asked.name not in names:
            return f"error: there is no tool {asked.name!r}; there are {', '.join(names)}"
        try:
            arguments = json.loads(asked.arguments or "{}")
        except (ValueError, RecursionError) as error:
            return f"error: the arguments are not JSON: {error}"
        if not isinstance(arguments, dict):
            return "error: the arguments are no JSON object"
        result = self.answer(asked.name, arguments)
        if len(result) > MAX_RESULT:
            left_out = len(result) - MAX_RESULT
            return f"{result[:MAX_RESULT]}\n[{left_out} more characters were left out]"
        return result


def _declared(tool: Tool) -> dict[str, Any]:
    parameters = dict(tool.parameters) or {"type": "object", "properties": {}}
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def _event(done: Completion) -> dict[str, Any]:
    text = [text_part(done.text or done.refusal)] if done.text or done.refusal else []
    event = assistant(
        *text, *(tool_call(asked.name, _arguments(asked), asked.id) for asked in done.calls)
    )
    usage = done.usage
    told = {
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "cacheRead": usage.cache_read_tokens,
        "totalTokens": usage.total_tokens,
        "cost": None if usage.cost_usd is None else {"total": usage.cost_usd},
    }
    event["message"]["usage"] = {name: value for name, value in told.items() if value is not None}
    return event


def _arguments(asked: FunctionCall) -> Any:
    try:
        value = json.loads(asked.arguments or "{}")
    except (ValueError, RecursionError):
        return asked.arguments  # kept as it was sent
    return value if isinstance(value, dict) else asked.arguments


def _result(asked: FunctionCall, text: str) -> dict[str, Any]:
    message = {
        "role": "toolResult",
        "toolCallId": asked.id,
        "toolName": asked.name,
        "content": [text_part(text)],
    }
    return {"type": "message", "message": message}


class _Recorded:
    """Tools that answer with what was recorded: for the same arguments if there is such a call,
    else with the next one that has not been given yet, else with the last."""

    def __init__(self, tools: tuple[Tool, ...]) -> None:
        self._calls = {tool.name: list(tool.calls) for tool in tools}
        self._given: dict[str, int] = {}

    def __call__(self, name: str, arguments: Mapping[str, Any]) -> str:
        calls = self._calls[name]
        if not calls:
            return json.dumps({"ok": True})
        same = [call for call in calls if call.get("args") == arguments]
        number = self._given.get(name, 0)
        if not same:
            self._given[name] = number + 1
        chosen = same[0] if same else calls[min(number, len(calls) - 1)]
        output = chosen.get("output", "")
        return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)


# -- tools for a workspace ------------------------------------------------------------------------


def workspace_tools() -> Iterator[Tool]:
    """``list_files``, ``read_file``, ``write_file`` and ``run_command``."""

    def tool(name: str, description: str, **parameters: str) -> Tool:
        properties = {key: {"type": "string", "description": d} for key, d in parameters.items()}
        schema = {"type": "object", "properties": properties, "required": list(parameters)}
        return Tool(name, description, schema)

    path = "Path below the workspace"
    yield tool("list_files", "List all files of the workspace.")
    yield tool("read_file", "Read a text file of the workspace.", path=path)
    yield tool("write_file", "Write a text file of the workspace.", path=path, content="The text")
    yield tool(
        "run_command",
        "Run a shell command in the workspace (no network). Gives its status and output.",
        command="The command",
    )


class _InWorkspace:
    """The four tools."""

    def __init__(self, call: Call, deadline: float) -> None:
        self._call, self._deadline = call, deadline

    def __call__(self, name: str, arguments: Mapping[str, Any]) -> str:
        tools: dict[str, Callable[..., str]] = {
            "list_files": self._list,
            "read_file": self._read,
            "write_file": self._write,
            "run_command": self._run,
        }
        given = {key: arguments.get(key) for key in _TEXTS[name]}
        wrong = [key for key, value in given.items() if not isinstance(value, str)]
        if wrong:
            return f"error: {wrong[0]} must be a text"
        try:
            return tools[name](**given)
        except OSError as error:
            return f"error: {error.strerror or error}"
        except ValueError as error:
            return f"error: {error}"

    def _inside(self, path: str) -> Path:
        """*path* in the workspace; no way out, by ``..``, by a link, or by name."""
        root = self._call.workspace
        target = root / path.removeprefix(f"{root}/")
        parts = target.relative_to(root).parts if target.is_relative_to(root) else ("..",)
        if ".." in parts or "\0" in path or not parts:
            raise ValueError(f"{path!r} is no path below the workspace")
        for number in range(1, len(parts) + 1):
            if root.joinpath(*parts[:number]).is_symlink():
                raise ValueError(f"{path!r} leads through a link")
        return target

    def _list(self) -> str:
        found = [
            f"{name} ({info.st_size} bytes)"
            for name, info in walk(self._call.workspace)
            if stat.S_ISREG(info.st_mode)
        ]
        more = f"\n… and {len(found) - _MAX_LISTED} more" if len(found) > _MAX_LISTED else ""
        return "\n".join(sorted(found)[:_MAX_LISTED]) + more or "the workspace is empty"

    def _read(self, path: str) -> str:
        data = read_regular(self._inside(path), MAX_FILE)
        if data is None:
            raise ValueError(f"there is no file {path!r}")
        return data.decode("utf-8", "replace")

    def _write(self, path: str, content: str) -> str:
        target = self._inside(path)
        if target.exists() and not target.is_file():
            raise ValueError(f"{path!r} is no file")
        data = content.encode("utf-8", "replace")
        if len(data) > MAX_FILE:
            raise ValueError(f"more than {MAX_FILE} bytes")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        return f"wrote {len(data)} bytes"

    def _run(self, command: str) -> str:
        if self._call.sandbox is None:
            raise ValueError("commands cannot be run here")
        left = max(1.0, self._deadline - time.monotonic())
        return self._call.sandbox.command(command, self._call.workspace, min(left, COMMAND_S))


_TEXTS = {
    "list_files": (),
    "read_file": ("path",),
    "write_file": ("path", "content"),
    "run_command": ("command",),
}
