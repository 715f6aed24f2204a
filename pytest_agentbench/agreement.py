"""Whether a judge can be believed: its verdicts on answers whose verdict is known.

The agent ``reference`` gives answers that every rubric must let pass, the agent ``wrong`` ones that
none may.  What it said nothing clear about, and trials that came to no answer (errors, a spent
budget), are counted apart: they agree with nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_agentbench.model import TrialRecord
from pytest_agentbench.text import WIDTH, count, one_line, shorten

__all__ = ["Agreement", "Disagreement", "agreement", "agreement_lines", "verdict"]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A verdict that is not the one it should be."""

    benchmark: str
    task_id: str
    trial: int
    rubric: str
    expected: str
    reason: str


@dataclass(frozen=True, slots=True)
class Agreement:
    """How a judge's verdicts compare with the right ones.

    ``accuracy`` is the share of right ones in [0, 1]; ``kappa`` is Cohen's (1960), which is 0 for
    a judge that guesses, and NaN while all answers are of one kind.  ``right`` of ``passes``
    references pass and ``caught`` of ``wrongs`` wrong answers fail.  ``missing`` verdicts were not
    to be had.
    """

    passes: int
    right: int
    wrongs: int
    caught: int
    missing: int
    kappa: float
    disagreements: tuple[Disagreement, ...]

    @property
    def total(self) -> int:
        """Verdicts."""
        return self.passes + self.wrongs

    @property
    def accuracy(self) -> float:
        """Share of right verdicts; NaN without one."""
        return (self.right + self.caught) / self.total if self.total else math.nan

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "verdicts": self.total,
            "missing": self.missing,
            "accuracy": self.accuracy if self.total else None,
            "cohens_kappa": None if math.isnan(self.kappa) else self.kappa,
            "references": {"verdicts": self.passes, "passed": self.right},
            "wrong_answers": {"verdicts": self.wrongs, "failed": self.caught},
            "disagreements": [
                {name: getattr(item, name) for name in item.__slots__}
                for item in self.disagreements
            ],
        }


def agreement(records: Iterable[TrialRecord]) -> Agreement | None:
    """What *records* of calibrating agents tell of the judge; ``None`` if there are none."""
    expected: list[bool] = []
    found: list[bool] = []
    missing = 0
    disagreements = []
    seen = False
    for record in records:
        kind = record.details.get("calibration")
        judge = record.details.get("judge")
        if kind not in ("right", "wrong"):
            continue
        if not isinstance(judge, Mapping):
            if record.verdict == "error" or record.details.get("budget_spent"):
                missing, seen = missing + 1, True  # one at least
            continue
        asked = judge.get("votes", {})
        wanted = kind == "right"
        for check in record.checks:
            if check.name not in asked or check.tier != "judge":
                continue
            seen = True
            if check.passed is None:
                missing += 1
                continue
            expected.append(wanted)
            found.append(check.passed)
            if check.passed is not wanted:
                disagreements.append(
                    Disagreement(
                        record.benchmark,
                        record.task_id,
                        record.trial,
                        check.name,
                        "PASS" if wanted else "FAIL",
                        check.message,
                    )
                )
    if not seen:
        return None
    pairs = list(zip(expected, found, strict=True))
    return Agreement(
        passes=sum(expected),
        right=sum(wanted and got for wanted, got in pairs),
        wrongs=len(pairs) - sum(expected),
        caught=sum(not wanted and not got for wanted, got in pairs),
        missing=missing,
        kappa=_kappa(expected, found),
        disagreements=tuple(disagreements),
    )


def _kappa(expected: list[bool], found: list[bool]) -> float:
    """Cohen's kappa; NaN unless both kinds of answers were judged."""
    if len(set(expected)) < 2:
        return math.nan
    from sklearn.metrics import cohen_kappa_score

    return float(cohen_kappa_score(expected, found))


def agreement_lines(found: Agreement, least: float | None) -> Iterator[str]:
    """*found* for the terminal; *least* is the accuracy that is asked for."""
    if not found.total:
        yield f"judge: no verdict on {count(found.missing, 'known answer')}"
    else:
        kappa = "–" if math.isnan(found.kappa) else f"{found.kappa:.3f}"
        yield (
            f"judge: agreement {found.accuracy:.3f} ({found.right + found.caught} of "
            f"{count(found.total, 'verdict')}), Cohen's kappa {kappa}"
        )
        told = []
        if found.passes:
            told.append(f"{found.right} of {found.passes} references pass")
        if found.wrongs:
            told.append(f"{found.caught} of {found.wrongs} wrong answers fail")
        if found.missing:
            told.append(f"{found.missing} without a verdict")
        yield f"  {', '.join(told)}"
    for item in found.disagreements:
        yield shorten(
            f"    {item.task_id} {item.rubric}: expected {item.expected}: "
            f"{one_line(item.reason, 80)}",
            WIDTH,
        )
    if least is not None:
        yield f"  agreement of at least {least:g}: {verdict(found, least)}"


def verdict(found: Agreement | None, least: float) -> str:
    """``pass``, ``fail``, or ``inconclusive`` where a verdict is missing that could decide."""
    if found is None or not found.total:
        return "inconclusive"
    good, every = found.right + found.caught, found.total + found.missing
    if good / every >= least:
        return "pass"
    return "inconclusive" if (good + found.missing) / every >= least else "fail"
