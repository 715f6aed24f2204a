"""A row of PinchBench, read as a task."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pytest_agentbench.assets import AssetError, SeedFile, seed_files, unpack
from pytest_agentbench.benchmark import Cells
from pytest_agentbench.benchmarks.pinchbench.layout import BROKEN, DEFAULT_TIMEOUT_S, criteria
from pytest_agentbench.datasets import Row
from pytest_agentbench.model import Session, Task, TaskRef
from pytest_agentbench.text import one_line

__all__ = ["AUTOMATED", "HYBRID", "JUDGED", "Spec", "grader_code", "parse_row"]

MAX_WEIGHT = 1e6
AUTOMATED, HYBRID, JUDGED = "automated", "hybrid", "llm_judge"
_FENCE = re.compile(r"```python(.*?)```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Spec:
    """The grading part of a row, and what its workspace holds."""

    grading_type: str
    category: str
    expected_behavior: str
    code: str
    rubric: str
    weights: Mapping[str, float]
    sessions: tuple[Session, ...]
    prerequisites: tuple[str, ...]
    files: tuple[SeedFile, ...]


def parse_row(benchmark: str, ref: TaskRef, row: Row) -> Task:
    """The task of *row*; what is broken is a :class:`RowError` that names the cell."""
    cells = Cells(benchmark, ref, row)
    if row.cells.get(BROKEN):
        raise cells.error("task_md", str(row.cells[BROKEN]))
    kind = cells.text("grading_type", empty=True) or AUTOMATED
    if kind not in (AUTOMATED, HYBRID, JUDGED):
        known = f"{AUTOMATED}, {HYBRID} or {JUDGED}"
        raise cells.error("grading_type", f"expected {known}, found {one_line(repr(kind), 60)}")
    sessions = tuple(_sessions(cells))
    prompt = cells.text("prompt", empty=bool(sessions))
    rubric = cells.text("llm_judge_rubric", empty=True).strip()
    if not rubric:
        items = criteria(cells.text("grading_criteria", empty=True))
        rubric = "\n".join(f"- {item}" for item in items)
    spec = Spec(
        grading_type=kind,
        category=cells.text("category", empty=True),
        expected_behavior=cells.text("expected_behavior", empty=True),
        code=grader_code(cells.text("automated_checks", empty=True)),
        rubric=rubric,
        weights=_weights(cells) if kind == HYBRID else {},
        sessions=sessions,
        prerequisites=tuple(_texts(cells, "prerequisites")),
        files=tuple(_files(cells)),
    )
    limit = cells.number("timeout_seconds", DEFAULT_TIMEOUT_S)
    return Task(ref, prompt, spec, limit)


def grader_code(text: str) -> str:
    """The grader in a cell: its first fence ``python``, else all of it if it defines ``grade``."""
    found = _FENCE.search(text)
    if found is not None:
        return found[1].strip()
    whole = text.removeprefix("\ufeff")
    try:
        body = ast.parse(whole).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return whole if any(map(_defines_grade, body)) else ""


def _defines_grade(node: ast.AST) -> bool:
    """Whether *node* binds the name ``grade`` outside of functions and classes."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name == "grade"
    if isinstance(node, ast.alias):
        return (node.asname or node.name) == "grade"
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id == "grade"
    return any(map(_defines_grade, ast.iter_child_nodes(node)))


def _texts(cells: Cells, column: str) -> Iterator[str]:
    for number, item in enumerate(cells.json(column, list) or (), 1):
        if not isinstance(item, str):
            raise cells.error(column, f"entry {number}: expected a text")
        yield item


def _sessions(cells: Cells) -> Iterator[Session]:
    for number, item in enumerate(cells.json("sessions", list) or (), 1):
        if isinstance(item, str):
            yield Session(item)
            continue
        prompt = item.get("prompt", item.get("message")) if isinstance(item, dict) else None
        if not isinstance(prompt, str):
            reason = f"entry {number}: expected a text, or an object with a prompt"
            raise cells.error("sessions", reason)
        yield Session(prompt, bool(item.get("new_session", False)), str(item.get("id", "")))


def _weights(cells: Cells) -> Mapping[str, float]:
    weights = cells.json("grading_weights", dict) or {}
    for name in ("automated", "llm_judge"):
        value = weights.get(name, 0.5)
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not abs(number) < MAX_WEIGHT:
            reason = f"{name}: expected a number, found {one_line(repr(value), 60)}"
            raise cells.error("grading_weights", reason)
    return weights


def _files(cells: Cells) -> list[SeedFile]:
    column = "assets_tar"
    try:
        packed = cells.text(column, empty=True)
        assets = unpack(packed) if packed.strip() else {}
        column = "workspace_files"
        return seed_files(cells.json(column, list) or (), assets)
    except AssetError as error:
        raise cells.error(column, str(error)) from None
