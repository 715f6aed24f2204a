"""A row of genui, read as what is to be graded."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_agentbench import schemas
from pytest_agentbench.apppage import Step
from pytest_agentbench.benchmark import Cells
from pytest_agentbench.microapp import ACTIONS
from pytest_agentbench.model import Tool
from pytest_agentbench.text import did_you_mean

__all__ = ["Spec", "parse_row"]

ASSERTIONS = (
    "zero_js_errors",
    "must_contain_strings",
    "required_selectors",
    "min_interactive_elements",
    "must_contain_strings_in_text_response",
)


@dataclass(frozen=True, slots=True)
class Spec:
    """The grading part of a row."""

    expected_trigger: bool
    zero_js_errors: bool
    strings: tuple[str, ...]
    selectors: tuple[str, ...]
    min_interactive: int | None
    text_strings: tuple[str, ...]
    steps: tuple[Step, ...]
    schema: Any
    rubrics: tuple[tuple[str, str], ...]
    tools: tuple[Tool, ...]
    reference: str


def parse_row(cells: Cells) -> Spec:
    """The grading part of a row; what is broken is a :class:`RowError` that names the cell."""
    cells.json("acceptable_ui_archetypes", list)
    assertions = _assertions(cells)
    schema = cells.json("expected_callback_schema", dict, bool)
    if schema is not None:
        try:
            schemas.check_schema(schema)
        except schemas.SchemaError as error:
            reason = f"is not a usable JSON Schema: {error}"
            raise cells.error("expected_callback_schema", reason) from None
    return Spec(
        expected_trigger=cells.flag("expected_tool_trigger"),
        zero_js_errors=assertions["zero_js_errors"],
        strings=assertions["must_contain_strings"],
        selectors=assertions["required_selectors"],
        min_interactive=assertions["min_interactive_elements"],
        text_strings=assertions["must_contain_strings_in_text_response"],
        steps=tuple(_steps(cells)),
        schema=schema,
        rubrics=tuple(_rubrics(cells)),
        tools=tuple(_tools(cells)),
        reference=cells.text("reference_solution", empty=True),
    )


def _assertions(cells: Cells) -> dict[str, Any]:
    column = "outcome_dom_assertions"
    given = cells.json(column, dict) or {}
    for name in given:
        if name not in ASSERTIONS:
            raise cells.error(
                column, f"unknown assertion {name!r}.{did_you_mean(name, ASSERTIONS)}"
            )
    zero = given.get("zero_js_errors", False)
    if not isinstance(zero, bool):
        raise cells.error(column, "zero_js_errors is not true or false")
    least = given.get("min_interactive_elements")
    if least is not None and (isinstance(least, bool) or not isinstance(least, int) or least < 0):
        raise cells.error(column, "min_interactive_elements is not a whole number from 0")
    result: dict[str, Any] = {"zero_js_errors": zero, "min_interactive_elements": least}
    for name in ASSERTIONS:
        if name not in result:
            texts = given.get(name, [])
            if not isinstance(texts, list) or not all(isinstance(t, str) and t for t in texts):
                raise cells.error(column, f"{name} is not a list of texts")
            result[name] = tuple(texts)
    for selector in result["required_selectors"]:
        _check_selector(cells, column, selector)
    return result


def _steps(cells: Cells) -> Iterator[Step]:
    column = "outcome_interaction_steps"
    for number, step in enumerate(cells.json(column, list) or [], 1):
        if not isinstance(step, dict):
            raise cells.error(column, f"step {number} is not an object")
        action = step.get("action")
        if not isinstance(action, str) or action not in ACTIONS:
            hint = did_you_mean(str(action), ACTIONS)
            known = ", ".join(ACTIONS)
            raise cells.error(column, f"step {number}: unknown action {action!r} ({known}).{hint}")
        selector = step.get("selector")
        if not isinstance(selector, str) or not selector.strip():
            raise cells.error(column, f"step {number} ({action}) has no selector")
        _check_selector(cells, column, selector)
        value = step.get("value", step.get("key"))
        if ACTIONS[action] and (value is None or isinstance(value, bool | list | dict)):
            raise cells.error(column, f"step {number} ({action}) has no value")
        if action == "set_range" and not _is_number(value):
            raise cells.error(column, f"step {number}: the value {value!r} is not a number")
        yield Step(action, selector, "" if value is None else str(value))


def _is_number(value: Any) -> bool:
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError):
        return False


def _rubrics(cells: Cells) -> Iterator[tuple[str, str]]:
    column = "model_grader_rubrics"
    seen = set()
    for number, rubric in enumerate(cells.json(column, list) or [], 1):
        criteria = rubric.get("criteria") if isinstance(rubric, dict) else None
        if not isinstance(criteria, str) or not criteria.strip():
            raise cells.error(column, f"rubric {number} has no criteria")
        name = str(rubric.get("id") or f"rubric_{number}")
        if name in seen:
            raise cells.error(column, f"the rubric id {name!r} stands twice")
        seen.add(name)
        yield name, criteria


def _tools(cells: Cells) -> Iterator[Tool]:
    column = "mock_tool_context"
    calls: dict[str, list[Mapping[str, Any]]] = {}
    for number, call in enumerate(cells.json(column, list) or [], 1):
        if not isinstance(call, dict) or not isinstance(call.get("tool"), str):
            raise cells.error(column, f"call {number} names no tool")
        calls.setdefault(call["tool"], []).append(
            {"args": call.get("args", {}), "output": call.get("output", "")}
        )
    for name, recorded in calls.items():
        yield Tool(name=name, calls=tuple(recorded))


_IDENT = r"-?[A-Za-z_\u0080-\U0010ffff][\w\u0080-\U0010ffff-]*"
_COMPOUND = (
    rf"(?:\*|{_IDENT})?(?:[#.]{_IDENT}"
    rf"|\[\s*{_IDENT}\s*(?:[~|^$*]?=\s*(?:\"[^\"\\\n]*\"|'[^'\\\n]*'|{_IDENT})\s*[is]?\s*)?\]"
    r"|:(?:first-child|last-child|only-child|first-of-type|last-of-type|checked|disabled|enabled"
    r"|empty|nth-(?:last-)?(?:child|of-type)\((?:\d+|odd|even)\)))*"
)
_PLAIN_CSS = re.compile(
    rf"\s*(?=\S){_COMPOUND}(?:\s*[>+~,]\s*(?=[^\s>+~,]){_COMPOUND}|\s+(?=[^\s>+~,]){_COMPOUND})*\s*"
)


def _check_selector(cells: Cells, column: str, selector: str) -> None:
    """Refuse what is plainly no CSS selector; doubtful ones are left to the browser to decide."""
    if _PLAIN_CSS.fullmatch(selector):
        return
    import tinycss2

    tokens = tinycss2.parse_component_value_list(selector)
    kinds = {token.type for token in tokens}
    foreign = re.match(r"\s*(//|\.\.|(text|xpath|css|id|role|data-testid)\s*=)", selector)
    bad = kinds & {"error", "{} block", "at-keyword"} or foreign or not selector.strip()
    if bad or re.search(r":(has-text|text|contains|visible|text-is|nth-match)\b", selector):
        raise cells.error(column, f"{selector!r} is not a CSS selector")
