"""A whole benchmark in one file: sums to be worked out, with the numbers in a workspace file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pytest_agentbench import Attempt, Benchmark, Check, Grade, Task, Transcript
from pytest_agentbench.benchmark import Cells, Tools
from pytest_agentbench.datasets import Row
from pytest_agentbench.model import TaskRef


class Arithmetic(Benchmark):
    """Add up the numbers of a file and write the sum into another one."""

    name = "arithmetic"
    columns = ("task_id", "numbers", "level")
    group_columns = ("level",)
    has_reference = True

    def bundled(self) -> Iterable[Mapping[str, Any]]:
        yield {"task_id": "small", "numbers": "[1, 2]", "level": "easy"}
        yield {"task_id": "large", "numbers": "[100, 200, 300]", "level": "hard"}

    def task(self, ref: TaskRef, row: Row) -> Task:
        numbers = Cells(self.name, ref, row).json("numbers", list)
        return Task(ref, "Add up numbers.txt; write the sum to sum.txt.", spec=numbers)

    def prepare(self, task: Task, workspace: Path) -> None:
        (workspace / "numbers.txt").write_text("\n".join(map(str, task.spec)))

    def reference(self, task: Task, place: Callable[[], Path]) -> Transcript:
        (place() / "sum.txt").write_text(str(sum(task.spec)))
        return Transcript.from_answer(task.prompt, "done")

    def grade(self, attempt: Attempt, tools: Tools) -> Grade:
        answer = attempt.workspace / "sum.txt"
        found = answer.read_text().strip() if answer.exists() else "no sum.txt"
        wanted = str(sum(attempt.task.spec))
        right = found == wanted
        check = Check(
            "sum", "code", right, float(right), "" if right else f"expected {wanted}, found {found}"
        )
        return Grade(checks=(check,), score=float(right))
