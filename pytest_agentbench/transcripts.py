"""Transcripts: everything an agent did in a trial, in order.

The canonical form is OpenClaw's event list, one JSON object a line::

    {"type": "message", "message": {"role": "assistant", "content": [{"type": "text", "text": …},
        {"type": "toolCall", "id": …, "name": …, "arguments": {…}}], "usage": {…}}}

Reading is tolerant: unknown events are kept, a line that is not JSON is kept as
``{"raw": line, "parse_error": why}``.  Other formats (see :mod:`pytest_agentbench.formats`) are
recognised and converted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from pytest_agentbench.formats import from_any
from pytest_agentbench.model import Usage

__all__ = [
    "ToolCall",
    "Transcript",
    "assistant",
    "is_amount",
    "text_part",
    "tool_call",
    "user",
]

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call.  ``arguments`` is ``{}`` when what was sent is not a JSON object."""

    name: str
    arguments: Mapping[str, Any]
    id: str = ""


@dataclass(frozen=True, slots=True)
class Transcript:
    """An immutable list of canonical events."""

    events: tuple[Event, ...] = ()

    # -- making one -----------------------------------------------------------------------------

    @classmethod
    def from_answer(cls, prompt: str, answer: str) -> Transcript:
        """The transcript of an agent that only answered in text."""
        return cls((user(prompt), assistant(text_part(answer))))

    @classmethod
    def from_events(cls, events: Iterable[Any]) -> Transcript:
        """Canonical events out of a list; what is not an object is kept as a ``raw`` event."""
        given = list(events)
        found = from_any(given)
        return cls(
            tuple(
                event if isinstance(event, Mapping) else {"type": "raw", "raw": event}
                for event in (given if found is None else found)
            )
        )

    @classmethod
    def from_jsonl(cls, text: str) -> Transcript:
        """Read a ``transcript.jsonl``; blank lines are passed over, bad ones kept.

        A file that is one JSON value of a known format is read as such.
        """
        text = text.removeprefix("\ufeff")
        events = [_read_line(line) for line in text.split("\n") if line.strip()]
        if events and (len(events) == 1 or "parse_error" in events[0]):
            whole = events[0] if len(events) == 1 else _read_line(text)
            found = from_any(whole)
            if found is not None:
                return cls.from_events(found)
        return cls.from_events(events)

    @classmethod
    def coerce(cls, value: Any, prompt: str) -> Transcript:
        """What an agent callable returned, as a transcript.

        Raises
        ------
        TypeError
            *value* is neither a transcript, a text, nor a list of events.
        """
        if isinstance(value, Transcript):
            # as it will be stored: what JSON cannot carry is told here, as the agent's mistake
            return cls.from_jsonl(value.to_jsonl())
        if isinstance(value, str):
            return cls.from_answer(prompt, value)
        if isinstance(value, Sequence) and all(isinstance(item, Mapping) for item in value):
            return cls.from_jsonl(cls.from_events(value).to_jsonl())
        raise TypeError(
            f"an agent returns a Transcript, a str, or a list of events, not {type(value).__name__}"
        )

    # -- reading it -----------------------------------------------------------------------------

    def messages(self, role: str | None = None) -> Iterator[Event]:
        """The messages in order, optionally of one role only."""
        for event in self.events:
            message = event.get("message")
            if event.get("type", "message") == "message" and isinstance(message, Mapping):
                if role is None or message.get("role") == role:
                    yield message

    def tool_calls(self, name: str | None = None) -> list[ToolCall]:
        """The assistant's tool calls in order, optionally of one tool only."""
        calls = []
        for message in self.messages("assistant"):
            for part in _parts(message):
                if part.get("type") == "toolCall" and isinstance(part.get("name"), str):
                    if name is None or part["name"] == name:
                        arguments = part.get("arguments", part.get("params"))
                        calls.append(
                            ToolCall(part["name"], _arguments(arguments), str(part.get("id", "")))
                        )
        return calls

    def final_text(self) -> str:
        """The text of the last assistant message, its text parts joined by line feeds."""
        messages = list(self.messages("assistant"))
        last = messages[-1] if messages else {}
        return "\n".join(
            part["text"]
            for part in _parts(last)
            if part.get("type") == "text" and isinstance(part.get("text"), str)
        )

    def usage(self) -> Usage:
        """Token counts and cost summed over the messages that report them."""
        seen: dict[str, float] = {}
        requests = 0
        for message in self.messages("assistant"):
            usage = message.get("usage")
            if not isinstance(usage, Mapping):
                continue
            requests += 1
            cost = usage.get("cost")
            amounts = {
                "input_tokens": usage.get("input", usage.get("input_tokens")),
                "output_tokens": usage.get("output", usage.get("output_tokens")),
                "cache_read_tokens": usage.get("cacheRead"),
                "cache_write_tokens": usage.get("cacheWrite"),
                "total_tokens": usage.get("totalTokens", usage.get("total_tokens")),
                "cost_usd": cost.get("total") if isinstance(cost, Mapping) else cost,
            }
            for key, amount in amounts.items():
                if is_amount(amount):
                    seen[key] = seen.get(key, 0) + amount
        if not requests:
            return Usage()
        whole = {name: int(amount) for name, amount in seen.items() if name != "cost_usd"}
        return Usage(
            requests=requests,
            cost_usd=float(seen["cost_usd"]) if "cost_usd" in seen else None,
            **whole,
        )

    def normalized(self) -> list[dict[str, Any]]:
        """The events as graders expect them, copied.

        The content of each message is a list of objects; what a tool was called with stands under
        ``arguments`` and under ``params``.
        """
        out = []
        for event in self.events:
            copy = dict(event)
            message = copy.get("message")
            if copy.get("type") == "message":
                message = dict(message) if isinstance(message, Mapping) else {}
                message["content"] = [_normal(part) for part in _parts(message)]
                copy["message"] = message
            out.append(copy)
        return out

    # -- writing it -----------------------------------------------------------------------------

    def to_jsonl(self) -> str:
        """One event a line, pure ASCII, so that any text in it survives any encoding."""
        return "".join(json.dumps(event, default=str) + "\n" for event in self.events)


def is_amount(value: Any) -> TypeGuard[int | float]:
    """Whether *value* is a number that can be added up: what an agent reports may be anything."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value < 1e15


def user(prompt: str) -> dict[str, Any]:
    """A user message event."""
    return _message("user", [text_part(prompt)])


def assistant(*content: Mapping[str, Any]) -> dict[str, Any]:
    """An assistant message event with *content*, each a func:`text_part` or a :func:`tool_call`."""
    return _message("assistant", list(content))


def text_part(value: str) -> dict[str, Any]:
    """A text in a message."""
    return {"type": "text", "text": value}


def tool_call(name: str, arguments: Mapping[str, Any] | str, id: str = "call") -> dict[str, Any]:
    """A tool call in an assistant message; *arguments* may be JSON text."""
    return {"type": "toolCall", "id": id, "name": name, "arguments": arguments}


def _message(role: str, content: list[Any]) -> dict[str, Any]:
    return {"type": "message", "message": {"role": role, "content": content}}


def _read_line(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return {"raw": line, "parse_error": str(error)}


def _normal(part: Event) -> dict[str, Any]:
    copy = dict(part)
    if copy.get("type") == "text" and not isinstance(copy.get("text"), str):
        copy["text"] = "" if copy.get("text") is None else json.dumps(copy["text"], default=str)
    if copy.get("type") == "toolCall":
        given = copy.get("arguments", copy.get("params", copy.get("input")))
        for key in ("arguments", "params"):
            copy[key] = dict(_arguments(copy.get(key, given)))
        copy["name"] = str(copy.get("name") or "")
    return copy


def _parts(message: Event) -> list[Event]:
    content = message.get("content")
    if isinstance(content, str):
        return [text_part(content)]
    if not isinstance(content, Sequence):
        return []
    return [
        text_part(part) if isinstance(part, str) else part
        for part in content
        if isinstance(part, str | Mapping)
    ]


def _arguments(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}
