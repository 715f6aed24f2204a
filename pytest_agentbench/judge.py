"""The judge's seam: what is to be judged goes in, a verdict or scores come out.

A judge is any callable that takes a :class:`JudgeRequest`.  Asked for a ``verdict``, it returns a
:class:`JudgeVerdict`: PASS or FAIL with a reason.  Asked for ``scores``, it returns what a model
would: a text, or an object like ``{"scores": {…}, "total": 0.8, "notes": "…"}``, for the benchmark
to read.  What it raises is the harness's trouble (verdict error), never a failed rubric.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.model import Usage

__all__ = [
    "Judge",
    "JudgeRequest",
    "JudgeVerdict",
    "Judged",
    "ReplayJudge",
    "python_judge",
    "recorded",
]


#: Seconds that a judge may take for one answer.
LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """One rubric and the material it is applied to.

    ``wants`` is ``verdict`` or ``scores``; ``instructions`` is the whole prompt for a model, where
    the benchmark writes it.  ``screenshot`` is a PNG, or ``None`` when there is nothing to see.
    """

    rubric_id: str
    criteria: str
    prompt: str
    transcript: Any
    page_text: str = ""
    page_source: str = ""
    screenshot: bytes | None = None
    wants: str = "verdict"
    instructions: str = ""
    benchmark: str = ""
    task_id: str = ""
    agent: str = ""
    trial: int = 0
    #: Number of the vote, from 1.
    vote: int = 1
    #: Makes a value of an answer with scores; raises ``HarnessError`` for one that cannot be read.
    read: Callable[[Any], Any] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class JudgeVerdict:
    """PASS (true) or FAIL (false), and why."""

    passed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """An answer with what it took, for judges that know: ``cached`` if nobody was asked for it."""

    answer: JudgeVerdict | str | Mapping[str, Any]
    usage: Usage = field(default_factory=Usage)
    cached: bool = False


class Judge(Protocol):
    """What ``--bench-judge=py:module:attr`` must name."""

    def __call__(
        self, request: JudgeRequest
    ) -> JudgeVerdict | str | Mapping[str, Any] | Judged: ...


class ReplayJudge:
    """``replay:FILE``: recorded answers, one JSON object a line.

    ``{"task_id", "answer"}``, with ``benchmark``, ``agent``, ``trial``, ``rubric_id`` and ``vote``
    where the answer is for one of them only.  ``answer`` is a text or an object for scores, and
    ``{"passed", "reason"}`` for a verdict.  The last line that fits counts.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        files = sorted(path.rglob("judge.jsonl")) if path.is_dir() else [path]
        self._answers: list[Mapping[str, Any]] = []
        for file in files:
            try:
                lines = file.read_text(encoding="utf-8").split("\n")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"--bench-judge: cannot read {str(file)!r}: {error}") from None
            for number, line in enumerate(lines, 1):
                if line.strip():
                    self._answers.append(_answer_line(line, f"{str(file)!r}, line {number}"))

    def __call__(self, request: JudgeRequest) -> Any:
        for line in reversed(self._answers):
            names = ("benchmark", "task_id", "agent", "trial", "rubric_id", "vote")
            if all(line.get(name) in (None, getattr(request, name)) for name in names):
                answer = line["answer"]
                if request.wants == "verdict" and isinstance(answer, Mapping):
                    return JudgeVerdict(answer.get("passed"), str(answer.get("reason", "")))  # type: ignore[arg-type]
                return answer
        raise LookupError(f"{self._path} holds no answer for it")


def _answer_line(line: str, where: str) -> Mapping[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--bench-judge: {where} is not JSON: {error}") from None
    if not isinstance(value, dict) or not {"task_id", "answer"} <= value.keys():
        raise ConfigError(f"--bench-judge: {where}: expected an object with task_id and answer")
    return value


def recorded(request: JudgeRequest, answer: Any) -> bytes:
    """*answer* as a line that :class:`ReplayJudge` reads."""
    line = {
        "benchmark": request.benchmark,
        "task_id": request.task_id,
        "agent": request.agent,
        "trial": request.trial,
        "rubric_id": request.rubric_id,
        "vote": request.vote,
        "answer": answer,
    }
    return json.dumps(line, default=str).encode("ascii") + b"\n"


def python_judge(rest: str) -> Judge:
    """The judge that ``py:``*rest* names: a callable, or a class of such.

    Raises
    ------
    ConfigError
        It cannot be imported, made or called.
    """
    from pytest_agentbench.agents.python import import_attribute

    judge = import_attribute("--bench-judge", rest)
    if isinstance(judge, type):
        try:
            judge = judge()
        except Exception as error:
            raise ConfigError(
                f"--bench-judge: {'py:' + rest!r} cannot be made: {type(error).__name__}: {error}"
            ) from error
    if not callable(judge):
        raise ConfigError(
            f"--bench-judge: {'py:' + rest!r} is of type {type(judge).__name__}, and no callable"
        )
    found: Judge = judge
    return found
