"""Shared by all tests: rows to build datasets from, and the data handed over beside the project."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_agentbench.benchmarks.genui import GenUI
from pytest_agentbench.browser import BrowserEngine

#: Test data that is not part of the project; tests that need it skip without it.
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The directory ``../shared/data``, where it is present."""
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED} is not here")
    return SHARED


@pytest.fixture(scope="session")
def bundled_rows() -> dict[str, dict[str, Any]]:
    """The bundled genui rows by task id."""
    return {row["task_id"]: dict(row) for row in GenUI().bundled()}


@pytest.fixture(scope="session")
def engine() -> Iterator[BrowserEngine]:
    """A browser engine for the whole session."""
    engine = BrowserEngine()
    yield engine
    engine.close()


def plain_row(task_id: object, **changes: Any) -> dict[str, Any]:
    """A genui row that any answer without a micro-app passes, unless changed."""
    return {
        "task_id": task_id,
        "suite_type": "regression",
        "category": "negative_control",
        "prompt_explicitness": "implicit_intent",
        "acceptable_ui_archetypes": '["none"]',
        "user_prompt": "Say hello.",
        "mock_tool_context": "[]",
        "expected_tool_trigger": False,
        "outcome_dom_assertions": "{}",
        "outcome_interaction_steps": "[]",
        "expected_callback_schema": "null",
        "model_grader_rubrics": "[]",
        "reference_solution": "hello",
        **changes,
    }


@pytest.fixture
def make_row() -> Callable[..., dict[str, Any]]:
    """Makes a genui row that passes without a browser."""
    return plain_row


@pytest.fixture
def jsonl(tmp_path: Path) -> Callable[..., Path]:
    """Writes rows to a jsonl file outside the tested rootdir."""

    def write(*rows: dict[str, Any], name: str = "rows.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write
