"""Other people's transcripts: OpenAI chat messages, Anthropic messages, ATIF; from and to them.

* OpenAI chat completions: ``{"role", "content", "tool_calls"}`` and ``{"role": "tool"}``.
* Anthropic messages: content blocks ``text``, ``thinking``, ``tool_use`` and ``tool_result``.
* ATIF, the Agent Trajectory Interchange Format (``schema_version`` ``ATIF-v1.*``): ``steps``.

Reading is by shape: nothing has to be declared.  What is none of these stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["from_any", "to_anthropic", "to_atif", "to_openai"]

Event = Mapping[str, Any]
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})


def from_any(value: Any) -> list[Any] | None:
    """Canonical events out of a parsed JSON value of a known format, else ``None``."""
    if isinstance(value, Mapping):
        if isinstance(value.get("steps"), list) and "ATIF" in str(value.get("schema_version")):
            return list(_from_atif(value))
        if isinstance(value.get("messages"), list) and value.get("type") != "message":
            system = value.get("system")
            first = [{"role": "system", "content": system}] if system else []
            return from_any([*first, *value["messages"]])
        return from_any([value]) if _is_message(value) else None
    if isinstance(value, list):
        if len(value) == 1 and isinstance(value[0], Mapping) and "steps" in value[0]:
            return from_any(value[0])
        if value and any(map(_is_message, value)) and not any(map(_is_canonical, value)):
            return list(_from_messages(value))
    return None


def _is_message(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("role"), str)
        and value["role"] in _ROLES
        and "message" not in value
        and ("content" in value or "tool_calls" in value)
    )


def _is_canonical(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("message"), Mapping)


def _message(role: str, content: list[Any], **more: Any) -> dict[str, Any]:
    return {"type": "message", "message": {"role": role, "content": content, **more}}


def _text(value: Any) -> dict[str, Any]:
    return {"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}


# -- OpenAI and Anthropic -------------------------------------------------------------------------


def _from_messages(messages: Iterable[Any]) -> Iterator[Any]:
    for message in messages:
        if not _is_message(message):
            yield message
            continue
        role = message["role"]
        if role in ("tool", "function"):
            yield _result(message.get("tool_call_id"), message.get("content"), message.get("name"))
            continue
        parts: list[Any] = []
        for part in _blocks(message.get("content")):
            kind = part.get("type")
            if kind == "tool_result":  # Anthropic: results come in a user message
                if parts:
                    yield _message(role, parts)
                    parts = []
                yield _result(
                    part.get("tool_use_id"), part.get("content"), None, bool(part.get("is_error"))
                )
            elif kind == "tool_use":
                parts.append(_call(part.get("id"), part.get("name"), part.get("input")))
            else:
                parts.append(dict(part))
        for call in message.get("tool_calls") or ():
            if isinstance(call, Mapping):
                function = call.get("function")
                function = function if isinstance(function, Mapping) else call
                name, arguments = function.get("name"), function.get("arguments")
                parts.append(_call(call.get("id"), name, arguments))
        usage = _usage(message.get("usage"))
        more: dict[str, Any] = {} if usage is None else {"usage": usage}
        if parts or role == "assistant":
            yield _message("system" if role == "developer" else role, parts, **more)


def _blocks(content: Any) -> list[Mapping[str, Any]]:
    if content is None:
        return []
    if not isinstance(content, list):
        return [_text(content)] if content != "" else []
    return [part if isinstance(part, Mapping) else _text(part) for part in content]


def _call(identifier: Any, name: Any, arguments: Any) -> dict[str, Any]:
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments) if arguments.strip() else {}
            arguments = parsed if isinstance(parsed, dict) else arguments
        except (ValueError, RecursionError):
            pass  # kept as it was sent
    return {
        "type": "toolCall",
        "id": str(identifier or ""),
        "name": str(name or ""),
        "arguments": {} if arguments is None else arguments,
    }


def _result(identifier: Any, content: Any, name: Any, error: bool = False) -> dict[str, Any]:
    more: dict[str, Any] = {"toolCallId": str(identifier or ""), "isError": error}
    if name:
        more["toolName"] = str(name)
    return _message("toolResult", [dict(part) for part in _blocks(content)], **more)


def _usage(usage: Any) -> dict[str, Any] | None:
    """Usage under our names, with a total and a cost where they can be told."""
    if not isinstance(usage, Mapping):
        return None
    names = {
        "input": ("input", "input_tokens", "prompt_tokens"),
        "output": ("output", "output_tokens", "completion_tokens"),
        "cacheRead": ("cacheRead", "cache_read_input_tokens", "cached_tokens"),
        "cacheWrite": ("cacheWrite", "cache_creation_input_tokens"),
        "totalTokens": ("totalTokens", "total_tokens"),
    }
    found: dict[str, Any] = {}
    for ours, theirs in names.items():
        for name in theirs:
            if usage.get(name) is not None:
                found[ours] = usage[name]
                break
    if "totalTokens" not in found:
        # what a prompt_tokens counts includes what came out of a cache; an input_tokens does not
        parts = ["input", "output"]
        if "prompt_tokens" not in usage:
            parts += ["cacheRead", "cacheWrite"]
        amounts = [found[name] for name in parts if name in found]
        if amounts and all(isinstance(n, int | float) and not isinstance(n, bool) for n in amounts):
            found["totalTokens"] = sum(amounts)
    cost = usage.get("cost", usage.get("cost_usd"))
    if cost is not None:
        found["cost"] = cost if isinstance(cost, Mapping) else {"total": cost}
    return found


def to_openai(events: Iterable[Any]) -> list[dict[str, Any]]:
    """OpenAI chat messages; events that are no messages are left out."""
    out = []
    for message in _messages(events):
        role, parts = message.get("role"), _parts(message)
        if role == "toolResult":
            entry: dict[str, Any] = {
                "role": "tool",
                "tool_call_id": str(message.get("toolCallId", "")),
            }
            if message.get("toolName"):
                entry["name"] = str(message["toolName"])
            out.append({**entry, "content": _joined(parts)})
            continue
        entry = {"role": str(role), "content": _joined(parts)}
        calls = [
            {
                "id": str(part.get("id", "")),
                "type": "function",
                "function": {
                    "name": str(part.get("name", "")),
                    "arguments": _arguments_text(_arguments(part)),
                },
            }
            for part in parts
            if part.get("type") == "toolCall"
        ]
        out.append({**entry, **({"tool_calls": calls} if calls else {})})
    return out


def to_anthropic(events: Iterable[Any]) -> dict[str, Any]:
    """``{"system", "messages"}`` as Anthropic's API takes them."""
    system, out = [], []
    for message in _messages(events):
        role, parts = message.get("role"), _parts(message)
        if role == "system":
            system.append(_joined(parts))
        elif role == "toolResult":
            block: dict[str, Any] = {
                "type": "tool_result",
                "tool_use_id": str(message.get("toolCallId", "")),
                "content": [part for part in parts if part.get("type") == "text"],
            }
            if message.get("isError"):
                block["is_error"] = True
            out.append({"role": "user", "content": [block]})
        else:
            content = []
            for part in parts:
                if part.get("type") == "toolCall":
                    content.append(
                        {
                            "type": "tool_use",
                            "id": str(part.get("id", "")),
                            "name": str(part.get("name", "")),
                            "input": _arguments(part),
                        }
                    )
                else:
                    content.append(dict(part))
            out.append({"role": str(role), "content": content})
    result: dict[str, Any] = {"messages": out}
    if system:
        result["system"] = "\n".join(system)
    return result


# -- ATIF -----------------------------------------------------------------------------------------


def _from_atif(trajectory: Mapping[str, Any]) -> Iterator[Any]:
    yield {"type": "session", "version": 3, "id": str(trajectory.get("session_id", ""))}
    for step in trajectory["steps"]:
        if not isinstance(step, Mapping):
            yield step
            continue
        source = step.get("source")
        parts: list[Any] = []
        if isinstance(step.get("reasoning_content"), str):
            parts.append({"type": "thinking", "thinking": step["reasoning_content"]})
        parts += [dict(part) for part in _blocks(step.get("message"))]
        for call in step.get("tool_calls") or ():
            if isinstance(call, Mapping):
                name = call.get("function_name", call.get("name"))
                parts.append(_call(call.get("tool_call_id"), name, call.get("arguments")))
        role = "assistant" if source == "agent" else "system" if source == "system" else "user"
        usage = _usage(step.get("metrics"))
        more: dict[str, Any] = {} if usage is None else {"usage": usage}
        if parts or role == "assistant":
            yield _message(role, parts, **more)
        observation = step.get("observation")
        results = observation.get("results") if isinstance(observation, Mapping) else None
        for result in results or ():
            if isinstance(result, Mapping):
                yield _result(result.get("source_call_id"), result.get("content"), None)


def to_atif(events: Iterable[Any], *, agent: str = "agent", session: str = "") -> dict[str, Any]:
    """An ATIF trajectory; results become the observation of the step before them."""
    steps: list[dict[str, Any]] = []
    for message in _messages(events):
        role, parts = message.get("role"), _parts(message)
        if role == "toolResult" and steps:
            results = steps[-1].setdefault("observation", {"results": []})["results"]
            results.append(
                {
                    "source_call_id": str(message.get("toolCallId", "")),
                    "content": _joined(parts),
                }
            )
            continue
        step: dict[str, Any] = {
            "step_id": len(steps) + 1,
            "source": {"assistant": "agent", "system": "system"}.get(str(role), "user"),
            "message": _joined(parts),
        }
        thoughts = [str(p.get("thinking", "")) for p in parts if p.get("type") == "thinking"]
        if thoughts:
            step["reasoning_content"] = "\n".join(thoughts)
        calls = [
            {
                "tool_call_id": str(part.get("id", "")),
                "function_name": str(part.get("name", "")),
                "arguments": _arguments(part),
            }
            for part in parts
            if part.get("type") == "toolCall"
        ]
        if calls:
            step["tool_calls"] = calls
        usage = message.get("usage")
        if isinstance(usage, Mapping):
            cost = usage.get("cost")
            metrics = {
                "prompt_tokens": usage.get("input"),
                "completion_tokens": usage.get("output"),
                "cached_tokens": usage.get("cacheRead"),
                "cost_usd": cost.get("total") if isinstance(cost, Mapping) else cost,
            }
            step["metrics"] = {name: value for name, value in metrics.items() if value is not None}
        steps.append(step)
    return {
        "schema_version": "ATIF-v1.4",
        "session_id": session,
        "agent": {"name": agent, "version": "unknown"},
        "steps": steps,
    }


# -- canonical messages ---------------------------------------------------------------------------


def _messages(events: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    for event in events:
        message = event.get("message") if isinstance(event, Mapping) else None
        if isinstance(message, Mapping):
            yield message


def _parts(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return _blocks(message.get("content"))


def _joined(parts: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(str(part.get("text", "")) for part in parts if part.get("type") == "text")


def _arguments(part: Mapping[str, Any]) -> Any:
    return part.get("arguments", part.get("params", {}))


def _arguments_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)
