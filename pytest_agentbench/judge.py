"""The judge's seam: a rubric goes in, PASS or FAIL with a reason comes out.

A judge is any callable that takes a :class:`JudgeRequest` and returns a :class:`JudgeVerdict`.
What it raises is the harness's trouble (verdict error), never a failed rubric.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from pytest_agentbench.errors import ConfigError, HarnessError

__all__ = ["Judge", "JudgeRequest", "JudgeVerdict", "ask", "load_judge"]


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


def ask(judge: Judge, request: JudgeRequest) -> JudgeVerdict:
    """Ask *judge*; anything but a clear verdict is the harness's trouble.

    Raises
    ------
    HarnessError
        The judge raised, or returned something that is not a :class:`JudgeVerdict`.
    """
    try:
        verdict = judge(request)
    except Exception as error:
        raise HarnessError(
            f"the judge failed on rubric {request.rubric_id!r}: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(verdict, JudgeVerdict) or not isinstance(verdict.passed, bool):
        raise HarnessError(
            f"the answer to rubric {request.rubric_id!r} is no JudgeVerdict: {verdict!r:.200}"
        )
    return verdict
