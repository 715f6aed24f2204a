from __future__ import annotations

import json
import math

import numpy as np
import pytest

from pytest_agentbench.model import AgentTask, Check, Session, Tool, TrialRecord, Usage, plain

RECORD = TrialRecord(
    benchmark="b",
    task_id="t",
    trial=1,
    agent="a",
    verdict="fail",
    score=0.5,
    checks=(Check("c", "dom", None, None, "judge off"), Check("d", "callback", False, 0.0, "x")),
    reason="d: x",
    tags=("t1",),
    usage=Usage(input_tokens=3),
    details={"n": [1, 2]},
)


def test_a_record_survives_json() -> None:
    assert TrialRecord.from_json(json.loads(json.dumps(RECORD.to_json()))) == RECORD


def test_a_records_text_is_one_ascii_line() -> None:
    text = RECORD.replace(reason="é\n\ud800").to_text()

    assert text.isascii()
    assert "\n" not in text


def test_an_unknown_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="schema 2"):
        TrialRecord.from_json({**RECORD.to_json(), "schema": 2})


def test_a_record_shows_its_verdict_and_reason() -> None:
    assert repr(RECORD) == "<b::t trial 1 fail: d: x>"


def test_an_agent_task_survives_json() -> None:
    task = AgentTask(
        "b",
        "t",
        "p",
        (Session("p"),),
        (Tool("x", calls=({"args": {}, "output": "o"},)),),
        5.0,
        1,
        0,
    )

    assert AgentTask.from_json(json.loads(json.dumps(task.to_json()))) == task


def test_plain_makes_anything_json() -> None:
    value = {
        1: np.float64(0.5),
        "nan": math.nan,
        "np": np.int64(3),
        "bool": np.bool_(True),
        "set": {1},
        "tuple": (1, b"x"),
    }

    found = plain(value)

    assert found["1"] == 0.5
    assert found["nan"] is None
    assert found["np"] == 3
    assert found["bool"] is True
    assert json.dumps(found)
