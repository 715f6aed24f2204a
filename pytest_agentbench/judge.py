"""The judge's seam: a rubric goes in, PASS or FAIL with a reason comes out.

A judge is any callable that takes a :class:`JudgeRequest` and returns a :class:`JudgeVerdict`.
What it raises is the harness's trouble (verdict error), never a failed rubric.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Protocol

from pytest_agentbench.errors import ConfigError, HarnessError

__all__ = ["Judge", "JudgeRequest", "JudgeVerdict", "ask", "load_judge"]


#: Seconds that a judge may take for one rubric.
LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """One rubric and the material it is applied to.

    ``screenshot`` is a PNG, or ``None`` when there is nothing to see.
    """

    rubric_id: str
    criteria: str
    prompt: str
    transcript: Any
    page_text: str = ""
    page_source: str = ""
    screenshot: bytes | None = None


@dataclass(frozen=True, slots=True)
class JudgeVerdict:
    """PASS (true) or FAIL (false), and why."""

    passed: bool
    reason: str = ""


class Judge(Protocol):
    """What ``--bench-judge=py:module:attr`` must name."""

    def __call__(self, request: JudgeRequest) -> JudgeVerdict: ...


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
    if kind != "py":
        raise ConfigError(f"--bench-judge: expected off or py:MODULE:ATTR, got {spec!r}")
    from pytest_agentbench.agents.python import import_attribute

    judge: Judge = import_attribute("--bench-judge", rest)
    return judge


def ask(judge: Judge, request: JudgeRequest, timeout: float = LIMIT_S) -> JudgeVerdict:
    """Ask *judge*; anything but a clear verdict is the harness's trouble.

    Raises
    ------
    HarnessError
        The judge raised, returned something that is not a :class:`JudgeVerdict`, or did not
        return in *timeout* seconds (its thread is left behind).
    """
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
    verdict = answer[0]
    if not isinstance(verdict, JudgeVerdict) or not isinstance(verdict.passed, bool):
        raise HarnessError(
            f"the answer to rubric {request.rubric_id!r} is no JudgeVerdict: {verdict!r:.200}"
        )
    return verdict
