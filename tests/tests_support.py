"""Rows and programs that several tests need."""

from __future__ import annotations

from typing import Any


def grader(body: str) -> str:
    """The cell of a grader that returns *body*."""
    return f"```python\ndef grade(t, w):\n    return {body}\n```"


def pinch_row(task_id: str = "task_x", **changes: Any) -> dict[str, Any]:
    """A row with an automated grader that gives full marks, unless changed."""
    return {
        "task_id": task_id,
        "name": "X",
        "category": "alpha",
        "grading_type": "automated",
        "timeout_seconds": 60,
        "prompt": "Do it.",
        "expected_behavior": "It is done.",
        "automated_checks": grader("{'done': 1.0}"),
        "llm_judge_rubric": "",
        "grading_criteria": "- [ ] Done",
        "grading_weights": "{}",
        "multi_session": False,
        "sessions": "[]",
        "prerequisites": "[]",
        "workspace_files": "[]",
        "asset_paths": "[]",
        "assets_tar": "",
        "task_md": "",
        **changes,
    }


#: Makes the calling process, and all that it starts, see a kernel without Landlock.
WITHOUT_LANDLOCK = """
import ctypes, struct, sys, platform
numbers = (444, 445, 446)
say = lambda code, yes, no, value: struct.pack("=HBBI", code, yes, no, value)
program = [say(0x20, 0, 0, 0)]
for number in numbers:
    program += [say(0x15, 0, 1, number), say(0x06, 0, 0, 0x00050000 | 38)]
program.append(say(0x06, 0, 0, 0x7FFF0000))
code = ctypes.create_string_buffer(b"".join(program), 8 * len(program))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
libc = ctypes.CDLL(None)
libc.prctl(38, 1, 0, 0, 0)
assert libc.prctl(22, 2, ctypes.byref(Program(len(program), ctypes.addressof(code))), 0, 0) == 0
"""
