"""A prepared page, and what it tells: every event that matters, in order, to one listener."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, CDPSession, Page

__all__ = ["ORIGIN", "WORLD", "Stage", "listen"]

#: Where an app believes it lives: a secure origin that exists nowhere.
ORIGIN = "https://app.agentbench.invalid"
#: The isolated world of the probe.
WORLD = "agentbench"
#: A page that causes more messages than this is stopped, or the next one would wait for them.
MAX_EVENTS = 20_000


@dataclass
class Stage:
    """A prepared page in a context of its own, and what happened on it so far."""

    context: BrowserContext
    page: Page
    cdp: CDPSession
    secret: str
    html: str = ""
    url: str = f"{ORIGIN}/"
    served: int = 0
    #: Requests under way.
    requests: int = 0
    #: Messages that the page caused so far.
    events: int = 0
    blocked: list[dict[str, str]] = field(default_factory=list)
    provided: list[str] = field(default_factory=list)
    #: Called for each event, in order: kind, then what belongs to it.
    listener: Callable[[str, Any], None] = lambda kind, data: None
    probe_context: int | None = None
    main_frame: str = ""
    control: str | None = None


def listen(stage: Stage) -> None:
    """Connect the page's events to ``stage.listener``."""
    cdp, page = stage.cdp, stage.page

    def count() -> None:
        stage.events += 1
        if stage.events == MAX_EVENTS:
            stage.listener("flood", None)

    def on_binding(event: dict[str, Any]) -> None:
        count()
        if event["name"] == stage.secret:
            stage.listener("bridge", event["payload"])

    def on_console_api(event: dict[str, Any]) -> None:
        count()
        args = event["args"]
        if event["type"] == "debug" and args and args[0].get("value") == stage.secret:
            stage.control = args[1].get("objectId")

    def on_context(event: dict[str, Any]) -> None:
        created = event["context"]
        frame = created.get("auxData", {}).get("frameId")
        if created["name"] == WORLD and frame == stage.main_frame:
            stage.probe_context = created["id"]

    def on_navigated(event: dict[str, Any]) -> None:
        if "parentId" not in event["frame"]:
            stage.listener("document", event["frame"]["url"])

    def on_within(event: dict[str, Any]) -> None:
        if event["frameId"] == stage.main_frame:
            stage.url = event["url"]

    def on_requested(event: dict[str, Any]) -> None:
        # told even where Chromium then refuses (file:, data:); what stays within the document
        # (a fragment) or may stay there (javascript:) is no attempt to leave
        url, elsewhere = event["url"], event.get("disposition", "currentTab") != "currentTab"
        same = "#" in url and url.partition("#")[0] == stage.url.partition("#")[0]
        if event["frameId"] == stage.main_frame and not (
            elsewhere or same or url.startswith(("javascript:", "mailto:", "tel:", "sms:"))
        ):
            stage.listener("leave", url)

    def on_console(message: Any) -> None:
        count()
        # the page's own console is replaced by the bridge: what comes here are workers' calls and
        # the browser's own lines, and only calls have arguments
        if message.type == "error" and message.args:
            stage.listener("error", f"console.error in a worker: {message.text[:2000]}")

    async def on_dialog(dialog: Any) -> None:
        stage.listener("dialog", {"type": dialog.type, "message": dialog.message[:200]})
        with contextlib.suppress(Exception):
            if dialog.type == "prompt":
                await dialog.accept(dialog.default_value)
            else:
                await dialog.accept()

    async def on_popup(popup: Page) -> None:
        if popup is not page:
            stage.listener("popup", popup.url[:500])
            with contextlib.suppress(Exception):
                await popup.close()

    def on_request(change: int) -> Callable[[Any], None]:
        def add(_: Any) -> None:
            stage.requests += change

        return add

    cdp.on("Runtime.bindingCalled", on_binding)
    cdp.on("Runtime.consoleAPICalled", on_console_api)
    cdp.on("Runtime.executionContextCreated", on_context)
    cdp.on("Page.frameNavigated", on_navigated)
    cdp.on("Page.navigatedWithinDocument", on_within)
    cdp.on("Page.frameRequestedNavigation", on_requested)
    cdp.on("Page.frameScheduledNavigation", on_requested)
    cdp.on("Runtime.executionContextsCleared", lambda _: stage.listener("cleared", None))
    page.on("request", on_request(+1))
    page.on("requestfinished", on_request(-1))
    page.on("requestfailed", on_request(-1))
    page.on("console", on_console)
    page.on("pageerror", lambda error: stage.listener("error", str(error)[:2000]))
    page.on("crash", lambda _: stage.listener("crash", None))
    page.on("dialog", on_dialog)
    page.on("close", lambda _: stage.listener("close", None))
    stage.context.on("page", on_popup)
