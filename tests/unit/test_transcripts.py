from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.transcripts import Transcript, assistant, text_part, user


def call(name: str, arguments: Any, key: str = "arguments") -> dict[str, Any]:
    return assistant({"type": "toolCall", "id": "1", "name": name, key: arguments})


def test_an_answer_is_the_final_text() -> None:
    transcript = Transcript.from_answer("question", "answer")

    assert transcript.final_text() == "answer"
    assert transcript.tool_calls() == []


def test_the_final_text_is_the_last_assistant_message_only() -> None:
    transcript = Transcript(
        (
            assistant(text_part("earlier")),
            assistant(text_part("one"), text_part("two")),
            user("thanks"),
        )
    )

    assert transcript.final_text() == "one\ntwo"


@pytest.mark.parametrize(
    ("arguments", "key"),
    [({"html": "<p>"}, "arguments"), ('{"html": "<p>"}', "arguments"), ({"html": "<p>"}, "params")],
)
def test_tool_calls_in_their_forms(arguments: Any, key: str) -> None:
    calls = Transcript((call("render", arguments, key),)).tool_calls("render")

    assert [dict(c.arguments) for c in calls] == [{"html": "<p>"}]


@pytest.mark.parametrize("arguments", [None, "not json", "[1]", 5, ["x"]])
def test_arguments_that_are_no_object_are_empty(arguments: Any) -> None:
    calls = Transcript((call("render", arguments),)).tool_calls()

    assert [dict(c.arguments) for c in calls] == [{}]


def test_reading_keeps_unknown_and_broken_lines() -> None:
    text = '{"type": "note", "x": 1}\n\nbroken\n[1, 2]\n' + json.dumps(user("hi"))

    events = Transcript.from_jsonl(text).events

    assert events[0] == {"type": "note", "x": 1}
    assert events[1]["raw"] == "broken"
    assert "Expecting value" in events[1]["parse_error"]
    assert events[2] == {"type": "raw", "raw": [1, 2]}
    assert events[3] == user("hi")


@given(
    st.lists(
        st.dictionaries(
            st.text(max_size=5),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.text(max_size=8),
                lambda inner: (
                    st.lists(inner, max_size=3)
                    | st.dictionaries(st.text(max_size=4), inner, max_size=3)
                ),
                max_leaves=8,
            ),
            max_size=4,
        ),
        max_size=6,
    )
)
def test_jsonl_round_trip_and_no_event_breaks_the_readers(events: list[dict[str, Any]]) -> None:
    transcript = Transcript.from_events(events)

    again = Transcript.from_jsonl(transcript.to_jsonl())

    assert again == transcript
    assert isinstance(again.final_text(), str)
    assert isinstance(again.tool_calls(), list)
    assert again.usage() == transcript.usage()


def test_usage_is_summed_and_unknown_stays_unknown() -> None:
    message = assistant()
    message["message"]["usage"] = {"input": 10, "output": 5, "cost": {"total": 0.25}}
    other = assistant()
    other["message"]["usage"] = {"input_tokens": 1}

    usage = Transcript((message, other)).usage()

    assert (usage.input_tokens, usage.output_tokens, usage.cost_usd, usage.requests) == (
        11,
        5,
        0.25,
        2,
    )
    assert Transcript().usage().input_tokens is None


def test_coerce_refuses_what_is_no_transcript() -> None:
    assert Transcript.coerce("x", "p").final_text() == "x"
    assert Transcript.coerce([user("a")], "p").events == (user("a"),)
    with pytest.raises(TypeError, match="not int"):
        Transcript.coerce(5, "p")
