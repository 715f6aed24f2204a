"""Drive one micro-app in Chromium the way a person would, and report what was seen.

This is the mechanics of the genui grading rules: loading, looking, stepping, collecting payloads.
It judges nothing but payload validity, which it needs to know when to stop clicking.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_agentbench.apppage import (
    CLOSED,
    CRASHED,
    TOTAL_S,
    VALIDATION_S,
    AppJob,
    AppPage,
    AppReport,
    BadStep,
    Done,
    Fault,
    Step,
    StepResult,
)
from pytest_agentbench.browser import BrowserEngine
from pytest_agentbench.schemas import SchemaError
from pytest_agentbench.stage import ORIGIN, Stage

__all__ = ["ACTIONS", "run_app"]

#: What a step may do, and whether it needs a value.
ACTIONS: Mapping[str, bool] = {
    "click": False,
    "set_range": True,
    "fill": True,
    "select_option": True,
    "check": False,
    "uncheck": False,
    "press": True,
    "hover": False,
    "wait_for": False,
}

LOAD_S = 15.0
MATCH_S = 5.0
CALLBACK_S = 3.0
BETWEEN_S = 1.0
#: Less than that between extra clicks when nothing is pending.
BETWEEN_LEAST_S = 0.0
SETTLE_S = 0.8
EVIDENCE_S = 5.0
#: After a step, what it set off may take this long before the next one follows.
BREATH_S = 0.5
MAX_EXTRA_CLICKS = 25
MAX_LISTENERS = 2000
MAX_ROOTS = 500
#: Events that a person causes; an element that listens to one of them is interactive.
_PERSONS = re.compile(
    r"click|dblclick|pointer\w+|mouse\w+|touch\w+|key\w+|input|change|submit"
    r"|drag\w*|drop|wheel"
)
#: A click that hits nothing it was aimed at (the element moved) is tried again.
AIMS = 25


def run_app(
    engine: BrowserEngine, job: AppJob, *, evidence: Callable[[AppReport], bool]
) -> AppReport:
    """Run *job* on a fresh page of *engine*; once more when the page crashes.

    A page that makes Chromium crash does so again, and fails; a crash that does not come again was
    Chromium's own.

    Parameters
    ----------
    evidence
        Called with the finished report: whether a screenshot and the final DOM are wanted.

    Raises
    ------
    BadStep
        A selector of the row is not CSS, or a step names an unknown key.
    SchemaError
        The row's schema cannot be used after all.
    HarnessError
        The browser (not the page) failed.
    """
    report = _run_once(engine, job, evidence)
    if report.fault == CRASHED:
        report = _run_once(engine, job, evidence)
        report.crashes = 2 if report.fault == CRASHED else 1
    return report


def _run_once(
    engine: BrowserEngine, job: AppJob, evidence: Callable[[AppReport], bool]
) -> AppReport:
    bad: list[Exception] = []

    async def work(stage: Stage) -> AppReport:
        run = _Run(engine, stage, job)
        try:
            await run.play()
        except (BadStep, SchemaError) as error:
            bad.append(error)
        else:
            if run.report.fault in (CRASHED, CLOSED):
                await asyncio.sleep(0.3)  # the news of the browser's own end may come later
                if not engine.alive:
                    raise RuntimeError("the browser died")
            if evidence(run.report):
                await run.collect_evidence()
        return run.report

    # the app's own limit ends inside; what is on top is for evidence and a slow harness
    report = engine.run(work, TOTAL_S * job.scale + 2 * VALIDATION_S + 4 * EVIDENCE_S)
    if bad:
        raise bad[0]
    report.browser = engine.version
    return report


class _Run(AppPage):
    """Plays a job: loads, looks, steps, and waits for a payload."""

    # -- the course of a trial ------------------------------------------------------------------

    async def play(self) -> None:
        report = self.report
        watcher = asyncio.get_running_loop().create_task(self._watch_memory())
        try:
            await self._load()
            report.loaded = True
            await self._look(selectors=True, count=True)
            for step in self.job.steps:
                report.steps.append(await self._step(step))
                await self._check_fault()
            if self.job.validate is not None:
                await self._press_on()
            await self._settle()
            await self._look(selectors=True, count=True)
            report.finished = True
        except Done:
            report.finished = True
        except Fault as fault:
            report.fault = str(fault)
        finally:
            watcher.cancel()
            self._closing = True
        await self._validate()
        report.blocked = self.stage.blocked[:100]
        report.provided = sorted(set(self.stage.provided))

    async def _load(self) -> None:
        limit = LOAD_S * self.job.scale
        never = f"the page never finished loading (in {limit:g} s)"
        goto = self.stage.page.goto(f"{ORIGIN}/", wait_until="load", timeout=limit * 1000)
        try:
            await self._guard(goto, limit + 1, never)
        except Fault:
            raise
        except Exception as error:  # Playwright's: a time-out, or a navigation of the page's own
            if "Timeout" in str(error):
                raise Fault(never) from None
            await self._loaded_after_all(limit, never)
        if self.stage.probe_context is None or self.stage.control is None:
            raise Fault("the page replaced itself while loading")
        try:
            await self._probe("0", never)  # the main thread answers
        except (Fault, Done):
            raise
        except Exception:  # Playwright's: the document was replaced just now
            await self._loaded_after_all(limit, never)

    async def _loaded_after_all(self, limit: float, never: str) -> None:
        """A page that tried to go elsewhere while loading counts once it has settled down."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            await asyncio.sleep(0.05)
            try:
                if await self._probe("document.readyState === 'complete'", never):
                    return
            except (Fault, Done):
                raise
            except Exception:
                continue  # between two documents
        raise Fault(never)

    async def _begin(self) -> None:
        """From the first interaction on, payloads count."""
        if not self._begun:
            self._begun = True
            await self._control("begin()")

    async def _step(self, step: Step) -> StepResult:
        result = StepResult(str(step), True)
        if step.action == "click":
            result.reason = await self._click(step.selector)
            await self._look()
        else:
            result.reason = await self._find(f"__ab.find({_js(step.selector)})", step.selector)
            if not result.reason and step.action != "wait_for":
                await self._begin()
                result.reason = await self._act(step, result)
        result.ok = not result.reason
        if result.ok and step is not self.job.steps[-1]:
            await self._control(f"breath({BREATH_S * 1000:g})", BREATH_S)
            await self._look()
        return result

    async def _press_on(self) -> None:
        """Wait for a valid payload; without one, click the remaining matches of the last click."""
        clicks = [step.selector for step in self.job.steps if step.action == "click"]
        if await self._callback(CALLBACK_S, least=BETWEEN_LEAST_S):
            return
        while clicks and self.report.extra_clicks < MAX_EXTRA_CLICKS:
            found = await self._probe(f"__ab.next({_js(clicks[-1])})")
            if "x" not in found:
                break
            self.report.extra_clicks += 1
            await self._begin()
            await self._mouse(found["x"], found["y"])
            valid = await self._callback(BETWEEN_S, least=BETWEEN_LEAST_S)
            await self._look()
            if valid:
                return
        await self._callback(CALLBACK_S - BETWEEN_LEAST_S)

    async def _settle(self) -> None:
        """Listen for late errors, no longer than something can still happen."""
        end = time.monotonic() + SETTLE_S
        while True:
            await self._control(f"quiet({max(0.0, end - time.monotonic()) * 1000:g})", SETTLE_S)
            if not self.stage.requests or time.monotonic() >= end:
                return
            await asyncio.sleep(0.02)

    # -- steps ----------------------------------------------------------------------------------

    async def _click(self, selector: str) -> str:
        """Click the first match that can be clicked; the reason when there is none."""
        for _ in range(AIMS):
            reason = await self._find(f"__ab.aim({_js(selector)})", selector)
            if reason:
                return reason
            await self._begin()
            await self._mouse(self._found["x"], self._found["y"])
            if self._gone or await self._probe("__ab.landed()"):
                return ""
        return "moved away or was replaced before the click reached it"

    async def _mouse(self, x: float, y: float) -> None:
        where = {"x": x, "y": y}
        press = {**where, "button": "left", "clickCount": 1}
        send = self.stage.cdp.send
        events = asyncio.gather(
            send("Input.dispatchMouseEvent", {"type": "mouseMoved", **where}),
            send("Input.dispatchMouseEvent", {"type": "mousePressed", "buttons": 1, **press}),
            send("Input.dispatchMouseEvent", {"type": "mouseReleased", **press}),
        )
        await self._guard(events, self._answer, "the page hangs: no answer after a click")

    async def _find(self, expression: str, selector: str) -> str:
        """Evaluate *expression*; without a match wait for one and do so again.

        What it gave is in ``self._found``; returned is the reason when there was no match.
        """
        self._found = await self._probe(expression)
        end = time.monotonic() + MATCH_S * self.job.scale
        while "reason" in self._found:  # again and again: what turns or fades comes and goes
            limit = end - time.monotonic()
            if limit <= 0:
                break
            wait = f"__ab.wait({_js(selector)}, {limit * 1000:g})"
            self._found = await self._probe(wait, limit=limit + self._answer, await_promise=True)
            if "reason" not in self._found:
                if not self._begun:  # it took a while: what is there now is still "after load"
                    await self._look(selectors=True, count=True)
                self._found = await self._probe(expression)
        return str(self._found.get("reason", ""))

    async def _act(self, step: Step, result: StepResult) -> str:
        """Do any step but a click; the reason when it could not be done."""
        selector, value = _js(step.selector), _js(step.value)
        found: Mapping[str, Any] = {}
        match step.action:
            case "set_range" | "select_option":
                call = "setRange" if step.action == "set_range" else "select"
                found = await self._probe(f"__ab.{call}({selector}, {value})")
                result.asked, result.reached = step.value, found.get("reached")
            case "fill":
                found = await self._fill(step)
            case "check" | "uncheck":
                found = await self._check_box(step.selector, step.action == "check")
            case "press":
                found = await self._probe(f"__ab.focus({selector})")
                if "reason" not in found:
                    await self._key(step.value)
            case "hover":
                found = await self._probe(f"__ab.aim({selector})")
                if "x" in found:
                    move = {"type": "mouseMoved", "x": found["x"], "y": found["y"]}
                    send = self.stage.cdp.send("Input.dispatchMouseEvent", move)
                    await self._guard(send, self._answer, "the page hangs: no answer to the mouse")
        return str(found.get("reason", ""))

    async def _fill(self, step: Step) -> Mapping[str, Any]:
        selector, value = _js(step.selector), _js(step.value)
        found: Mapping[str, Any] = await self._probe(f"__ab.focusText({selector})")
        if "reason" in found:
            return found
        hangs = "the page hangs: no answer to typing"
        if not found["typed"]:
            found = await self._probe(f"__ab.setValue({selector}, {value})", hangs)
        elif step.value:
            typing = self.stage.cdp.send("Input.insertText", {"text": step.value})
            await self._guard(typing, self._answer, hangs)
            found = await self._probe("__ab.blur()", hangs)
        else:
            await self._guard(self.stage.page.keyboard.press("Delete"), self._answer, hangs)
            found = await self._probe("__ab.blur()", hangs)
        return found

    async def _check_box(self, selector: str, wanted: bool) -> Mapping[str, Any]:
        question = f"__ab.checked({_js(selector)})"
        state: Mapping[str, Any] = await self._probe(question)
        if "reason" in state or state["checked"] == wanted:
            return state
        reason = await self._click(selector)
        if reason:
            return {"reason": reason}
        state = await self._probe(question)
        if "reason" not in state and state["checked"] != wanted:
            return {"reason": f"is {'not' if wanted else 'still'} checked after a click"}
        return state

    async def _key(self, key: str) -> None:
        pressing = self.stage.page.keyboard.press(key)
        try:
            await self._guard(pressing, self._answer, "the page hangs: no answer to a key")
        except (Fault, Done):
            raise
        except Exception as error:
            if "Unknown key" in str(error):
                raise BadStep(f"press: unknown key {key!r}") from None
            raise

    # -- looking --------------------------------------------------------------------------------

    async def _look(self, *, selectors: bool = False, count: bool = False) -> None:
        """Note which strings (and selectors) are there, and how many interactive elements."""
        report, job = self.report, self.job
        texts = [i for i, seen in enumerate(report.strings) if not seen]
        styles = [i for i, seen in enumerate(report.selectors) if not seen] if selectors else []
        count = count and report.count < job.min_count
        if self._gone or not (texts or styles or count):
            return
        want = {
            "strings": [job.strings[i] for i in texts],
            "selectors": [job.selectors[i] for i in styles],
            "count": count,
        }
        seen = await self._probe(f"__ab.look({_js(want)})")
        for i, there in zip(texts, seen["strings"], strict=True):
            report.strings[i] = there
        for i, there in zip(styles, seen["selectors"], strict=True):
            report.selectors[i] = there
        if count:
            found = seen["count"]
            if found < job.min_count:
                found = await self._count_with_listeners()
            report.count = max(report.count, found)

    async def _count_with_listeners(self) -> int:
        """Count again, with the elements that only listen: the inspector sees all listeners."""
        send, world = self.stage.cdp.send, self.stage.probe_context
        nodes: dict[int, None] = {}
        # root by root, in the page's own world: with "pierce", which reports shadow trees and all
        # worlds at once, Chromium crashes now and then
        for number in range(min(await self._probe("__ab.roots()"), MAX_ROOTS)):
            root: dict[str, Any] = {"expression": f"__ab.root({number})", "contextId": world}
            for method, key in (("Runtime.evaluate", "result"), ("DOM.describeNode", "node")):
                root = (await self._guard(send(method, root), self._answer))[key]
                root = {k: root[k] for k in ("objectId", "backendNodeId") if k in root}
            found = await self._guard(send("DOM.resolveNode", root), self._answer)
            query = {"objectId": found["object"]["objectId"], "depth": -1}
            answer = await self._guard(send("DOMDebugger.getEventListeners", query), self._answer)
            nodes |= dict.fromkeys(
                listener["backendNodeId"]
                for listener in answer["listeners"]
                if "backendNodeId" in listener and _PERSONS.fullmatch(listener["type"])
            )
        resolving = [
            send("DOM.resolveNode", {"backendNodeId": node, "executionContextId": world})
            for node in list(nodes)[:MAX_LISTENERS]
        ]
        resolved = await self._guard(
            asyncio.gather(*resolving, return_exceptions=True), self._answer
        )
        handles = [
            {"objectId": node["object"]["objectId"]} for node in resolved if isinstance(node, dict)
        ]
        call = {
            "executionContextId": world,
            "functionDeclaration": "function (...nodes) { return __ab.count(...nodes); }",
            "arguments": handles,
            "returnByValue": True,
        }
        counted = await self._guard(send("Runtime.callFunctionOn", call), self._answer)
        return int(counted["result"]["value"])

    async def _callback(self, seconds: float, least: float | None = None) -> bool:
        """Wait until a valid payload has come; false when time is over.

        With *least*, also when nothing is pending after so many seconds.
        """
        least_ms = (seconds if least is None else least) * self.job.scale * 1000
        end = time.monotonic() + seconds * self.job.scale
        while True:
            await self._validate()
            if self.report.valid_payload:
                return True
            left = end - time.monotonic()
            if left <= 0 or self._gone:
                return False
            before = len(self.report.payloads)
            call = f"payload({before}, {left * 1000:g}, {least_ms:g})"
            total = await self._control(call, left)
            if total <= before:  # time is over
                return False

    async def collect_evidence(self) -> None:
        """A screenshot and the final DOM, as far as the page still gives them."""
        try:  # a page that hangs gives no picture
            await asyncio.wait_for(self._evaluate("0"), 0.5)
        except Exception:
            return
        with contextlib.suppress(Exception):
            shot = self.stage.page.screenshot(timeout=EVIDENCE_S * 1000, animations="allow")
            self.report.screenshot = await asyncio.wait_for(shot, EVIDENCE_S)
        with contextlib.suppress(Exception):
            page = await asyncio.wait_for(self._evaluate("__ab.page()"), EVIDENCE_S)
            self.report.html, self.report.text = page["html"], page["text"]


def _js(value: str | Mapping[str, Any] | Sequence[Any]) -> str:
    return json.dumps(value)
