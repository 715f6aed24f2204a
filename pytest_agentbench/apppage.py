"""A micro-app's page: what it tells, what it answers, and when it is of no more use.

The mechanics of talking: every question to the page has a limit, and ends at once when the page
crashes, leaves or floods the browser.  What is done with the page is in :mod:`microapp`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pytest_agentbench.browser import BrowserEngine
from pytest_agentbench.stage import Stage

__all__ = [
    "AppJob",
    "AppPage",
    "AppReport",
    "BadStep",
    "Done",
    "Fault",
    "Payload",
    "Step",
    "StepResult",
]

T = TypeVar("T")

TOTAL_S = 60.0
#: A page that does not answer for this long hangs.
ANSWER_S = 5.0
#: For validating all payloads of an app.
VALIDATION_S = 10.0
MAX_POPUPS = 5
#: More dialogs or popups than this are a storm, which ends the trial at once.
MAX_STORM = 50
MAX_ERRORS = 50
CRASHED = "the page crashed"
CLOSED = "the page closed itself"
GREEDY = "the page took more than 1.5 GB of memory"
#: The browser's own remark, which is no error of the page's.
_RESIZE = re.compile(
    r"ResizeObserver loop (completed with undelivered notifications|limit exceeded)\.?"
)
#: What the protocol says when it is asked about a document that is no more.
_NO_DOCUMENT = re.compile(
    r"Cannot find (context|object|execution)|context was destroyed|No node with given id"
    r"|Could not find node|Node with given id|does not belong to the document"
)


class BadStep(Exception):
    """A selector of the row is not CSS, or a key has no such name."""


class Done(Exception):
    """The page is gone, but not before it sent a valid payload: nothing more to do."""


class Fault(Exception):
    """The page cannot be used any further; the message is the reason to show."""


@dataclass(frozen=True, slots=True)
class Step:
    """One interaction of a row."""

    action: str
    selector: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.action} {self.selector}" + (f" {self.value!r}" if self.value else "")


@dataclass(frozen=True, slots=True)
class AppJob:
    """What to render, what to look for, what to do.

    ``validate`` gives the problems of each of several payloads (none: valid) in a number of
    seconds; ``None`` when no callback is expected.
    """

    html: str
    strings: tuple[str, ...] = ()
    selectors: tuple[str, ...] = ()
    min_count: int = 0
    steps: tuple[Step, ...] = ()
    validate: Callable[[Sequence[str], float], list[list[str]]] | None = None
    scale: float = 1.0


@dataclass(slots=True)
class Payload:
    """One call of ``sendAction``: its JSON text, or why JSON cannot carry it."""

    text: str
    counts: bool
    fault: str | None = None
    note: str = ""
    argc: int = 1
    problems: list[str] | None = None

    @property
    def valid(self) -> bool:
        """Whether it counts (sent after the first interaction began) and is valid."""
        return self.counts and self.problems == []


@dataclass(slots=True)
class StepResult:
    """How a step went."""

    step: str
    ok: bool
    reason: str = ""
    asked: str | None = None
    reached: str | None = None


@dataclass(slots=True)
class AppReport:
    """What was seen.  ``fault`` is set when the page could not be used to the end."""

    strings: list[bool] = field(default_factory=list)
    selectors: list[bool] = field(default_factory=list)
    count: int = 0
    loaded: bool = False
    finished: bool = False
    fault: str | None = None
    crashes: int = 0
    errors: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)
    payloads: list[Payload] = field(default_factory=list)
    steps: list[StepResult] = field(default_factory=list)
    extra_clicks: int = 0
    dialogs: list[dict[str, str]] = field(default_factory=list)
    popups: int = 0
    left_for: list[str] = field(default_factory=list)
    blocked: list[dict[str, str]] = field(default_factory=list)
    provided: list[str] = field(default_factory=list)
    screenshot: bytes | None = None
    html: str = ""
    text: str = ""
    browser: str = ""

    @property
    def valid_payload(self) -> bool:
        """Whether a valid payload came after the first interaction began."""
        return any(payload.valid for payload in self.payloads)


class AppPage:
    """The page of one job, and the report on it so far."""

    def __init__(self, engine: BrowserEngine, stage: Stage, job: AppJob) -> None:
        self.engine = engine
        self.stage = stage
        self.job = job
        self.report = AppReport(
            strings=[False] * len(job.strings), selectors=[False] * len(job.selectors)
        )
        self._broken = asyncio.Event()
        self._greedy = False
        self._deadline = time.monotonic() + TOTAL_S * job.scale
        self._answer = ANSWER_S * max(job.scale, 0.2)
        self._begun = False
        self._validation_s = VALIDATION_S
        self._gone = False
        self._closing = False
        self._found: dict[str, Any] = {}
        stage.html = job.html
        stage.listener = self._on_event

    # -- events ---------------------------------------------------------------------------------

    def _on_event(self, kind: str, data: Any) -> None:
        report = self.report
        if self._closing:
            return
        if kind == "bridge":
            self._on_bridge(data)
        elif kind == "error":
            self._error(data)
        elif kind == "document":
            if report.loaded:
                self._left(data)
                self._gone = True
        elif kind == "reloads":
            self._break("the page reloads itself without end")
        elif kind == "cleared":
            if report.loaded:
                self._gone = True
                if not report.left_for:
                    self._left("a document of its own making")
        elif kind == "leave":
            if report.loaded:
                self._left(data)
        elif kind == "dialog":
            report.dialogs.append(data)
            if len(report.dialogs) > MAX_STORM:
                self._break(f"the page opened more than {MAX_STORM} dialogs")
        elif kind == "popup":
            report.popups += 1
            if report.popups > MAX_STORM:
                self._break(f"the page opened more than {MAX_STORM} popups")
        elif kind == "flood":
            self._break("the page floods the browser with messages")
        elif kind == "crash":
            self._break(GREEDY if self._greedy else CRASHED)
        elif kind == "close":
            self._break(CLOSED)

    def _on_bridge(self, text: str) -> None:
        line, _, body = text.partition("\n")
        head = json.loads(line)
        if head["k"] == "payload":
            # a row without steps has no interaction to wait for
            counts = head["phase"] == 1 or not self.job.steps
            self.report.payloads.append(
                Payload(body, counts, head["fault"], head["note"], head["argc"])
            )
        elif head["k"] == "error":
            self._error(body)
        elif head["k"] == "console":
            self.report.console.append(f"{head['level']}: {body}")
            if head["level"] == "error":
                self._error(f"console.error: {body}")

    def _error(self, text: str) -> None:
        """Note a JavaScript error, once however many ways it is told."""
        if _RESIZE.fullmatch(_bare(text)):
            return
        bare = _bare(text)
        known = [_bare(error) for error in self.report.errors]
        if len(known) < MAX_ERRORS and not any(bare in k or k in bare for k in known):
            self.report.errors.append(text)

    def _left(self, url: str) -> None:
        if url not in self.report.left_for:
            self.report.left_for.append(url[:500])
        self._broken.set()

    def _break(self, reason: str) -> None:
        if self.report.fault is None:
            self.report.fault = reason
        self._gone = True
        self._broken.set()

    async def _check_fault(self) -> None:
        """Raise when the page is of no more use: it crashed, or left before a valid payload."""
        if not self._broken.is_set():
            return
        if self.report.fault is not None:
            raise Fault(self.report.fault)
        await self._validate()
        if not self.report.valid_payload:
            raise Fault(f"the page navigated away to {self.report.left_for[0]}")
        if self._gone:
            raise Done
        self._broken.clear()

    async def _watch_memory(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            with contextlib.suppress(Exception):
                for pid in await self.engine.greedy_renderers():
                    self._greedy = True  # to blame if our page goes down with it
                    os.kill(pid, signal.SIGKILL)

    # -- asking the page ------------------------------------------------------------------------

    async def _guard(self, action: Awaitable[T], limit: float, hangs: str = "") -> T:
        """*action*, unless the page breaks, or *limit* or the whole time is over first."""
        left = max(0.0, self._deadline - time.monotonic())
        end = time.monotonic() + min(limit, left)
        task = asyncio.ensure_future(action)
        broken = asyncio.ensure_future(self._broken.wait())
        try:
            while True:
                await asyncio.wait(
                    {task, broken},
                    timeout=max(0.0, end - time.monotonic()),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if task.done():
                    error = task.exception()
                    if error is not None:
                        await self._explain(error)
                    return task.result()
                if not broken.done():
                    break
                await self._check_fault()
                broken = asyncio.ensure_future(self._broken.wait())
            if left < limit:
                raise Fault(f"the app was not done in {TOTAL_S * self.job.scale:g} s")
            if self.report.popups > MAX_POPUPS:  # it is busy with these
                raise Fault(f"the page opened more than {MAX_POPUPS} popups")
            raise Fault(hangs or "the page hangs: it does not answer any more")
        finally:
            broken.cancel()
            if not task.done():
                task.cancel()
                task.add_done_callback(lambda t: t.cancelled() or t.exception())

    async def _explain(self, error: BaseException) -> None:
        """A call failed: because the page crashed or went away, or else *error* is ours."""
        if isinstance(error, BadStep) or not self.report.loaded:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._broken.wait(), 1.0)
        await self._check_fault()
        if self._gone:
            raise Done
        if _NO_DOCUMENT.search(str(error)):
            await self._validate()
            if self.report.valid_payload:  # leaving is only recorded after one
                raise Done
            raise Fault("the page replaced itself")

    async def _probe(
        self,
        expression: str,
        hangs: str = "",
        limit: float = 0.0,
        *,
        await_promise: bool = False,
    ) -> Any:
        evaluation = self._evaluate(expression, await_promise)
        return await self._guard(evaluation, limit or self._answer, hangs)

    async def _evaluate(self, expression: str, await_promise: bool = False) -> Any:
        """Evaluate in the isolated world, where the page's own JavaScript has no say."""
        answer = await self.stage.cdp.send(
            "Runtime.evaluate",
            {
                "expression": expression,
                "contextId": self.stage.probe_context,
                "returnByValue": True,
                "awaitPromise": await_promise,
            },
        )
        details = answer.get("exceptionDetails")
        if details:
            text = details.get("exception", {}).get("description", details.get("text", ""))
            if "is not a valid selector" in text:
                raise BadStep(text.splitlines()[0])
            raise RuntimeError(f"probe: {text}")
        return answer["result"].get("value")

    async def _control(self, call: str, seconds: float = 0.0) -> Any:
        """Call a method of the bridge in the page's world; it takes up to *seconds*."""
        send = self.stage.cdp.send(
            "Runtime.callFunctionOn",
            {
                "objectId": self.stage.control,
                "functionDeclaration": f"function() {{ return this.{call}; }}",
                "returnByValue": True,
                "awaitPromise": True,
            },
        )
        answer = await self._guard(send, self._answer + seconds)
        return answer["result"].get("value")

    # -- payloads ------------------------------------------------------------------------------

    async def _validate(self) -> None:
        if self.job.validate is None:
            return
        new = [p for p in self.report.payloads if p.counts and p.problems is None]
        for payload in new:
            if payload.fault is not None:
                payload.problems = [f"JSON cannot carry it: {payload.fault}"]
        new = [payload for payload in new if payload.problems is None]
        if not new:
            return
        begin = time.monotonic()
        validate, texts = self.job.validate, [payload.text for payload in new]
        found = await asyncio.to_thread(validate, texts, max(0.1, self._validation_s))
        self._validation_s -= time.monotonic() - begin
        for payload, problems in zip(new, found, strict=True):
            payload.problems = _explained(payload, problems)


def _explained(payload: Payload, found: list[str]) -> list[str]:
    """The problems of *payload*, with what may explain them."""
    found = list(found)
    text = payload.text
    if found and payload.note:
        found.append(f"(the payload was {payload.note})")
    if found and text[:2] in ('"{', '"['):
        found.append("(the payload is a JSON string, not an object)")
    if found and payload.argc > 1:
        found.append(f"(only the first of {payload.argc} arguments is the payload)")
    return found


def _bare(text: str) -> str:
    """An error text without what differs between the ways it is told."""
    text = text.splitlines()[0] if text else ""
    return re.sub(
        r"^(Uncaught |unhandled rejection: |console\.error: |\w*Error: )+", "", text
    ).strip()
