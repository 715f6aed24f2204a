"""The judge in the report: what it was asked and cost, and whether it can be believed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_agentbench.agreement import Agreement, agreement, agreement_lines, verdict
from pytest_agentbench.model import TrialRecord
from pytest_agentbench.text import count

__all__ = ["JudgeReport"]

_AMOUNTS = ("requests", "cached", "input_tokens", "output_tokens", "cost_usd")


@dataclass(frozen=True, slots=True)
class JudgeReport:
    """``usage`` adds up what the records tell (``None``: nobody told), ``least`` is the agreement
    that is asked for."""

    usage: Mapping[str, float | None]
    agreement: Agreement | None = None
    least: float | None = None

    @classmethod
    def of(cls, records: Iterable[TrialRecord], least: float | None) -> JudgeReport:
        """The report on all *records* of a run."""
        every = list(records)
        told = [r.details["judge"] for r in every if isinstance(r.details.get("judge"), Mapping)]
        usage: dict[str, float | None] = {}
        for name in _AMOUNTS:
            known = [part[name] for part in told if part.get(name) is not None]
            usage[name] = sum(known) if known else None
        return cls(usage if told else {}, agreement(every), least)

    @property
    def red(self) -> bool:
        """Whether an agreement is asked for and not shown."""
        return self.least is not None and verdict(self.agreement, self.least) != "pass"

    def lines(self, *, brief: bool) -> Iterator[str]:
        """For the terminal; *brief* leaves out all but what is red."""
        if not brief and (self.usage.get("requests") or self.usage.get("cached")):
            yield self._usage_line()
        if self.agreement is not None and (self.red or not brief):
            yield from agreement_lines(self.agreement, self.least)
        elif self.red:
            yield (
                f"judge: agreement of at least {self.least:g}: inconclusive, it was asked about no "
                "known answer"
            )

    def _usage_line(self) -> str:
        told = [count(int(self.usage["requests"] or 0), "request")]
        if self.usage["cached"]:
            told.append(f"{count(int(self.usage['cached']), 'answer')} from the cache")
        sent, got = self.usage["input_tokens"], self.usage["output_tokens"]
        if sent is not None and got is not None:
            told.append(f"{int(sent + got):,} tokens")
        if self.usage["cost_usd"] is not None:
            told.append(f"${self.usage['cost_usd']:,.4g}")
        return f"judge: {', '.join(told)}"

    def properties(self) -> Iterator[tuple[str, str]]:
        """For JUnit's suite."""
        if self.agreement is not None and self.agreement.total:
            yield "judge_agreement", f"{self.agreement.accuracy:.6g}"
            yield "judge_kappa", f"{self.agreement.kappa:.6g}"

    def to_json(self) -> dict[str, Any]:
        """Plain values, for ``summary.json``."""
        return {
            "judge_usage": dict(self.usage) or None,
            "judge_agreement": None if self.agreement is None else self.agreement.to_json(),
        }
