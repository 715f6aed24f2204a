"""The judge's seam: what is to be judged goes in, a verdict or scores come out.

A judge is any callable that takes a :class:`JudgeRequest`.  Asked for a ``verdict``, it returns a
:class:`JudgeVerdict`: PASS or FAIL with a reason.  Asked for ``scores``, it returns what a model
would: a text, or an object like ``{"scores": {…}, "total": 0.8, "notes": "…"}``, for the benchmark
to read.  What it raises is the harness's trouble (verdict error), never a failed rubric.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pytest_agentbench.errors import ConfigError, HarnessError

__all__ = [
    "Judge",
    "JudgeRequest",
    "JudgeVerdict",
    "ReplayJudge",
    "ask",
    "ask_scores",
    "load_judge",
    "recorded",
]


#: Seconds that a judge may take for one rubric.
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


@dataclass(frozen=True, slots=True)
class JudgeVerdict:
    """PASS (true) or FAIL (false), and why."""

    passed: bool
    reason: str = ""


class Judge(Protocol):
    """What ``--bench-judge=py:module:attr`` must name."""

    def __call__(self, request: JudgeRequest) -> JudgeVerdict | str | Mapping[str, Any]: ...


class ReplayJudge:
    """``replay:FILE``: recorded answers, one JSON object a line.

    ``{"task_id", "answer"}``, with ``benchmark``, ``agent``, ``trial`` and ``rubric_id`` where the
    answer is for one of them only.  ``answer`` is a text or an object for scores, and
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
            names = ("benchmark", "task_id", "agent", "trial", "rubric_id")
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
        "answer": answer,
    }
    return json.dumps(line, default=str).encode("ascii") + b"\n"


def load_judge(spec: str) -> Judge | None:
    """The judge that ``--bench-judge`` names; ``None`` for ``off``.

    Raises
    ------
    ConfigError
        *spec* is unknown, or what it names cannot be imported.
    """
    if spec == "off":
        return None
    kind, _, rest = spec.partition(":")
    if kind == "replay" and rest.strip():
        path = Path(rest).expanduser()
        if not path.exists():
            raise ConfigError(f"--bench-judge: {str(path)!r} is not there")
        return ReplayJudge(path)
    if kind != "py":
        raise ConfigError(
            f"--bench-judge: expected off, py:MODULE:ATTR or replay:FILE, got {spec!r}"
        )
    from pytest_agentbench.agents.python import import_attribute

    judge = import_attribute("--bench-judge", rest)
    if isinstance(judge, type):
        try:
            judge = judge()
        except Exception as error:
            raise ConfigError(
                f"--bench-judge: {spec!r} cannot be made: {type(error).__name__}: {error}"
            ) from error
    if not callable(judge):
        raise ConfigError(
            f"--bench-judge: {spec!r} is of type {type(judge).__name__}, and no callable"
        )
    found: Judge = judge
    return found


def ask(judge: Judge, request: JudgeRequest, timeout: float = LIMIT_S) -> JudgeVerdict:
    """Ask *judge* for a verdict; anything but a clear one is the harness's trouble.

    Raises
    ------
    HarnessError
        The judge raised, returned something that is not a :class:`JudgeVerdict`, or did not
        return in *timeout* seconds (its thread is left behind).
    """
    verdict = _call(judge, request, timeout)
    if not isinstance(verdict, JudgeVerdict) or not isinstance(verdict.passed, bool):
        raise HarnessError(
            f"the answer to rubric {request.rubric_id!r} is no JudgeVerdict: {verdict!r:.200}"
        )
    return verdict


def ask_scores(
    judge: Judge, request: JudgeRequest, timeout: float = LIMIT_S
) -> str | Mapping[str, Any]:
    """Ask *judge* for scores: a text or an object, which is for the benchmark to read.

    Raises
    ------
    HarnessError
        As in :func:`ask`.
    """
    answer = _call(judge, request, timeout)
    if not isinstance(answer, str | Mapping):
        raise HarnessError(
            f"the answer to rubric {request.rubric_id!r} is neither a text nor an object: "
            f"{answer!r:.200}"
        )
    return answer


def _call(judge: Judge, request: JudgeRequest, timeout: float) -> Any:
    answer: list[Any] = []
    trouble: list[BaseException] = []

    def work() -> None:
        try:
            answer.append(judge(request))
        except BaseException as error:  # not even an exit of the judge's ends the worker
            trouble.append(error)

    thread = threading.Thread(target=work, name="agentbench-judge", daemon=True)
    thread.start()
    thread.join(timeout)
    if trouble:
        error = trouble[0]
        raise HarnessError(
            f"the judge failed on rubric {request.rubric_id!r}: {type(error).__name__}: {error}"
        ) from error
    if not answer:
        raise HarnessError(
            f"the judge did not answer on rubric {request.rubric_id!r} in {timeout:g} s"
        )
    return answer[0]
