"""Transcripts in other people's formats."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_agentbench.formats import from_any, to_anthropic, to_atif, to_openai
from pytest_agentbench.transcripts import Transcript, assistant, text_part, tool_call, user

CANONICAL = [
    user("Read it."),
    {
        "type": "message",
        "message": {
            "role": "assistant",
            "content": [text_part("I will."), tool_call("read", {"path": "a.md"}, "c1")],
        },
    },
    {
        "type": "message",
        "message": {
            "role": "toolResult",
            "toolCallId": "c1",
            "isError": False,
            "content": [text_part("hello")],
        },
    },
    assistant(text_part("It says hello.")),
]
OPENAI = [
    {"role": "user", "content": "Read it."},
    {
        "role": "assistant",
        "content": "I will.",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "read", "arguments": '{"path": "a.md"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "hello"},
    {"role": "assistant", "content": "It says hello."},
]
ANTHROPIC = {
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Read it."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I will."},
                {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a.md"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [{"type": "text", "text": "hello"}],
                }
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "It says hello."}]},
    ]
}
ATIF = {
    "schema_version": "ATIF-v1.4",
    "session_id": "s",
    "agent": {"name": "a", "version": "1"},
    "steps": [
        {"step_id": 1, "source": "user", "message": "Read it."},
        {
            "step_id": 2,
            "source": "agent",
            "message": "I will.",
            "tool_calls": [
                {"tool_call_id": "c1", "function_name": "read", "arguments": {"path": "a.md"}}
            ],
            "observation": {"results": [{"source_call_id": "c1", "content": "hello"}]},
        },
        {"step_id": 3, "source": "agent", "message": "It says hello."},
    ],
}


@pytest.mark.parametrize("given", [OPENAI, ANTHROPIC, ATIF], ids=["openai", "anthropic", "atif"])
def test_each_format_reads_as_the_canonical_one(given: Any) -> None:
    events = [event for event in from_any(given) or () if event["type"] == "message"]

    assert events == CANONICAL


def test_each_format_is_written_as_it_is_read() -> None:
    assert to_openai(CANONICAL) == OPENAI
    assert to_anthropic(CANONICAL) == ANTHROPIC
    assert to_atif(CANONICAL, agent="a", session="s")["steps"] == ATIF["steps"]


@pytest.mark.parametrize("write", [to_openai, to_anthropic, to_atif])
def test_round_trips(write: Any) -> None:
    again = [event for event in from_any(write(CANONICAL)) or () if event["type"] == "message"]

    assert again == CANONICAL


@pytest.mark.parametrize("given", [OPENAI, ANTHROPIC, ATIF], ids=["openai", "anthropic", "atif"])
@pytest.mark.parametrize("indent", [None, 1])
def test_files_are_recognised_by_their_shape(given: Any, indent: int | None) -> None:
    transcript = Transcript.from_jsonl(json.dumps(given, indent=indent))

    assert [call.arguments for call in transcript.tool_calls("read")] == [{"path": "a.md"}]
    assert transcript.final_text() == "It says hello."


def test_one_message_a_line() -> None:
    text = "".join(json.dumps(message) + "\n" for message in OPENAI)

    assert list(Transcript.from_jsonl(text).events) == CANONICAL


def test_usage_under_every_name() -> None:
    messages = [
        {
            "role": "assistant",
            "content": "a",
            "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
        },
        {
            "role": "assistant",
            "content": "b",
            "usage": {"input_tokens": 5, "output_tokens": 1, "cache_read_input_tokens": 3},
        },
    ]
    usage = Transcript.coerce(messages, "").usage()

    assert (usage.input_tokens, usage.output_tokens, usage.requests) == (15, 3, 2)
    # the second message names no total: what it read from a cache is on top of its input
    assert (usage.total_tokens, usage.cache_read_tokens, usage.cost_usd) == (12 + 9, 3, None)


@pytest.mark.parametrize(
    "given", [[], {}, [1, 2], "text", {"type": "session"}, CANONICAL, {"role": "king"}, None]
)
def test_what_is_no_other_format_is_left_alone(given: Any) -> None:
    assert from_any(given) is None


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": 5},
        {"role": "assistant", "content": [None, 1, "x"]},
        {"role": "assistant", "content": "", "tool_calls": [None, {"id": 1}, {"function": 3}]},
        {"role": "tool", "content": {"a": 1}},
        {"role": "user", "content": [{"type": "tool_result"}]},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{bad"}}]},
    ],
)
def test_odd_messages_are_read_without_a_fuss(message: Any) -> None:
    transcript = Transcript.from_jsonl(json.dumps([message]))

    assert all(isinstance(event, dict) for event in transcript.normalized())
    json.dumps(transcript.normalized())


def test_graders_get_one_form_of_everything() -> None:
    events = Transcript(
        (
            {"type": "message", "message": {"role": "user", "content": "plain"}},
            {"type": "message", "message": {"role": "assistant", "content": None}},
            {"type": "message", "message": None},
            assistant({"type": "toolCall", "name": None, "params": {"a": 1}}),
            assistant({"type": "toolCall", "name": "f", "arguments": '{"b": 2}'}),
            {"raw": "broken", "parse_error": "why"},
        )
    ).normalized()

    contents = [event["message"]["content"] for event in events if event.get("type") == "message"]
    assert contents[0] == [text_part("plain")]
    assert contents[1:3] == [[], []]
    assert contents[3][0] | {"x": 0} == {
        "type": "toolCall",
        "name": "",
        "arguments": {"a": 1},
        "params": {"a": 1},
        "x": 0,
    }
    assert contents[4][0]["arguments"] == contents[4][0]["params"] == {"b": 2}
    assert events[-1] == {"raw": "broken", "parse_error": "why"}
