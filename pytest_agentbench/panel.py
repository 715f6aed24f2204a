"""Asking the judge: several votes per question, several questions at a time, each within its time.

A question is asked at once and collected later, so that a slow judge does not keep the next trial
from running.  What a vote comes to is a value or a trouble; a verdict takes a majority of all votes
that were asked for, whatever the others came to.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pytest_agentbench.errors import HarnessError
from pytest_agentbench.judge import LIMIT_S, Judge, Judged, JudgeRequest, JudgeVerdict, recorded
from pytest_agentbench.model import Usage

__all__ = ["Panel", "Pending", "Vote", "judge_details", "majority", "median"]


@dataclass(frozen=True, slots=True)
class Vote:
    """One answer: ``value`` is a :class:`JudgeVerdict`, or what the request's ``read`` made of it;
    ``trouble`` says why there is none."""

    request: JudgeRequest
    answer: Any = None
    value: Any = None
    trouble: HarnessError | None = None
    usage: Usage = field(default_factory=Usage)
    cached: bool = False
    #: Whether the judge came to say anything.
    answered: bool = False

    def line(self) -> bytes:
        """The answer as ``replay:`` reads it; nothing where there is none."""
        if not self.answered or self.trouble is not None:
            return b""
        is_verdict = isinstance(self.value, JudgeVerdict)
        return recorded(self.request, asdict(self.value) if is_verdict else self.answer)


class Pending:
    """A question that has been asked; its votes may still be on their way."""

    def __init__(self, request: JudgeRequest, jobs: Sequence[_Job]) -> None:
        self.request = request
        self._jobs = jobs
        self._votes: tuple[Vote, ...] | None = None

    @property
    def done(self) -> bool:
        """Whether :meth:`votes` would return at once."""
        return all(job.done.is_set() for job in self._jobs)

    def votes(self) -> tuple[Vote, ...]:
        """All votes, when they are there or out of time."""
        if self._votes is None:
            self._votes = tuple(job.vote() for job in self._jobs)
        return self._votes

    def wait(self, seconds: float) -> None:
        """Wait until done, at most *seconds*."""
        end = time.monotonic() + seconds
        for job in self._jobs:
            job.done.wait(max(0.0, end - time.monotonic()))

    def cancel(self) -> None:
        """Give up votes that have not begun."""
        for job in self._jobs:
            job.cancelled = True


class Panel:
    """A judge that is asked *votes* times per question, *concurrency* votes at a time.

    *limit_s* is the time for one vote.  A vote that does not end in it is left behind, in a daemon
    thread, and another thread takes its place.
    """

    def __init__(
        self, judge: Judge, *, votes: int = 1, concurrency: int = 1, limit_s: float = LIMIT_S
    ) -> None:
        self.judge = judge
        self.votes = votes
        self.limit_s = limit_s
        self._concurrency = concurrency
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads = 0
        self._lock = threading.Lock()

    def ask(self, request: JudgeRequest) -> Pending:
        """Ask for all votes on *request*; returns at once."""
        jobs = [_Job(self, replace(request, vote=number)) for number in range(1, self.votes + 1)]
        for job in jobs:
            self._queue.put(job)
        with self._lock:
            wanted = min(self._concurrency, self._threads + len(jobs))
            missing, self._threads = wanted - self._threads, wanted
        for _ in range(missing):
            self._hire()
        return Pending(request, jobs)

    def close(self) -> None:
        """Let idle threads end."""
        with self._lock:
            for _ in range(self._threads):
                self._queue.put(None)
            self._threads = 0

    def _hire(self) -> None:
        threading.Thread(target=self._work, name="agentbench-judge", daemon=True).start()

    def _work(self) -> None:
        while True:
            job = self._queue.get()
            if job is None or not job.run():
                return


class _Job:
    """One vote."""

    def __init__(self, panel: Panel, request: JudgeRequest) -> None:
        self._panel = panel
        self.request = request
        self.done = threading.Event()
        self.cancelled = False
        self._begun = threading.Event()
        self._since = 0.0
        self._vote: Vote | None = None
        self._lock = threading.Lock()

    def run(self) -> bool:
        """Ask; whether the thread is to go on with the next vote."""
        if not self.cancelled:
            self._since = time.monotonic()
            self._begun.set()
            self._settle(_ask(self._panel.judge, self.request))
        else:
            self._settle(Vote(self.request, trouble=HarnessError("the judge was not asked")))
        return self._vote is not None and not isinstance(self._vote.trouble, _Late)

    def vote(self) -> Vote:
        """The vote; a trouble when its time is over."""
        limit = self._panel.limit_s
        while not self.done.is_set():
            if not self._begun.is_set():
                self._begun.wait(0.5)
                if self.cancelled:
                    self._settle(Vote(self.request, trouble=HarnessError("it was not asked")))
                continue
            left = self._since + limit - time.monotonic()
            if left > 0:
                self.done.wait(left)
                continue
            late = _Late(
                f"the judge did not answer on rubric {self.request.rubric_id!r} in {limit:g} s"
            )
            if self._settle(Vote(self.request, trouble=late)):
                self._panel._hire()  # its thread may never come back
        assert self._vote is not None
        return self._vote

    def _settle(self, vote: Vote) -> bool:
        with self._lock:
            if self._vote is not None:
                return False
            self._vote = vote
        self.done.set()
        self._begun.set()
        return True


class _Late(HarnessError):
    """The vote's thread was left behind."""


def _ask(judge: Judge, request: JudgeRequest) -> Vote:
    """Ask once; whatever goes wrong is the vote's trouble."""
    rubric = f"rubric {request.rubric_id!r}"
    try:
        answer: Any = judge(request)
    except HarnessError as error:
        trouble = HarnessError(f"the judge failed on {rubric}: {error}")
        return Vote(request, trouble=trouble, usage=getattr(error, "usage", Usage()))
    except BaseException as error:  # not even an exit of the judge's ends the worker
        told = f"the judge failed on {rubric}: {type(error).__name__}: {error}"
        return Vote(request, trouble=HarnessError(told))
    usage, cached = Usage(), False
    if isinstance(answer, Judged):
        usage, cached, answer = answer.usage, answer.cached, answer.answer
    found = Vote(request, answer=answer, usage=usage, cached=cached, answered=True)
    try:
        return replace(found, value=_value(request, answer, rubric))
    except HarnessError as error:
        return replace(found, trouble=error)
    except Exception as error:
        told = f"the answer to {rubric} cannot be read: {type(error).__name__}: {error}"
        return replace(found, trouble=HarnessError(told))


def _value(request: JudgeRequest, answer: Any, rubric: str) -> Any:
    if request.wants == "verdict":
        if not isinstance(answer, JudgeVerdict) or not isinstance(answer.passed, bool):
            raise HarnessError(f"the answer to {rubric} is no JudgeVerdict: {answer!r:.200}")
        return JudgeVerdict(answer.passed, str(answer.reason))
    if not isinstance(answer, str | Mapping):
        raise HarnessError(
            f"the answer to {rubric} is neither a text nor an object: {answer!r:.200}"
        )
    return answer if request.read is None else request.read(answer)


# -- what votes come to ---------------------------------------------------------------------------


def majority(votes: Sequence[Vote]) -> JudgeVerdict:
    """The verdict of more than half of *votes*, with the first such vote's reason.

    Raises
    ------
    HarnessError
        There is none: too many votes came to nothing.
    """
    needed = len(votes) // 2 + 1
    for side in (True, False):
        told = [vote.value for vote in votes if vote.value is not None]
        agreeing = [verdict for verdict in told if verdict.passed is side]
        if len(agreeing) >= needed:
            split = f" ({len(agreeing)} of {len(votes)} votes)" if len(votes) > 1 else ""
            return JudgeVerdict(side, f"{agreeing[0].reason}{split}".strip())
    raise _no_result(votes)


def median(votes: Sequence[Vote], key: Callable[[Any], float]) -> Vote:
    """The vote in the middle by *key* of its value, the lower one of two; more than half must have
    come to one.

    Raises
    ------
    HarnessError
        Too many votes came to nothing.
    """
    told = sorted((vote for vote in votes if vote.trouble is None), key=lambda v: key(v.value))
    if len(told) < len(votes) // 2 + 1:
        raise _no_result(votes)
    return told[(len(told) - 1) // 2]


def _no_result(votes: Sequence[Vote]) -> HarnessError:
    troubles = [vote.trouble for vote in votes if vote.trouble is not None]
    if len(votes) == 1:
        return troubles[0]
    return HarnessError(f"{len(troubles)} of {len(votes)} votes came to nothing: {troubles[0]}")


def judge_details(pending: Sequence[Pending]) -> dict[str, Any]:
    """What a record tells of the judge: requests, tokens, cost, and how the votes fell."""
    votes = [vote for question in pending for vote in question.votes()]
    told: dict[str, Any] = {
        "votes": {
            question.request.rubric_id: _fallen(question.votes())
            for question in pending
            if question.request.wants == "verdict"
        },
        "cached": sum(vote.cached for vote in votes),
        "requests": sum(vote.usage.requests or 0 for vote in votes if not vote.cached),
    }
    for name in ("input_tokens", "output_tokens", "cost_usd"):
        amounts = [getattr(vote.usage, name) for vote in votes if not vote.cached]
        known = [amount for amount in amounts if amount is not None]
        told[name] = sum(known) if known else None
    return told


def _fallen(votes: Sequence[Vote]) -> dict[str, int]:
    kinds = Counter(
        "unclear" if vote.value is None else "pass" if vote.value.passed else "fail"
        for vote in votes
    )
    return {kind: kinds[kind] for kind in ("pass", "fail", "unclear")}
