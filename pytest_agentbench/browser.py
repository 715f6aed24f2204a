"""Chromium: finding it, starting it, and giving each micro-app a page that reaches nothing.

One browser per process, driven by Playwright's asynchronous API in a thread of its own, so that
every wait has a deadline and a page that hangs costs its context, not the run.  Each app gets a
fresh browser context; the next one is prepared while the harness is busy elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import shutil
import signal
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from pytest_agentbench.errors import BrowserUnavailable, HarnessError
from pytest_agentbench.stage import ORIGIN, WORLD, Stage, listen
from pytest_agentbench.text import first_line

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, CDPSession, Playwright, Route

__all__ = ["LIBRARIES", "BrowserEngine", "find_executable"]

#: Looked for in this order when Playwright's own browser is not installed.
EXECUTABLES = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
#: Scripts that are provided instead of being blocked, by host.
LIBRARIES: Mapping[str, str] = {"cdn.tailwindcss.com": "window.tailwind = {config: {}};"}
#: The wall.  Interception (below) records what a page tries; these flags stop what it misses.
ARGS = (
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--proxy-server=http://127.0.0.1:9",
    "--proxy-bypass-list=<-loopback>",
    # the full browser heeds the one, the headless shell the other
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--js-flags=--max-old-space-size=512",
)
INSTALL = (
    "Install one: `playwright install chromium`, or Debian's and Ubuntu's package "
    "`chromium-headless-shell` or `chromium`."
)
#: A renderer that takes more than this is ended.
MAX_RENDERER_BYTES = 1536 * 1024 * 1024
#: The app's document is served this often before a page that reloads itself is left alone.
MAX_DOCUMENTS = 3
_SURROGATES = re.compile("[\ud800-\udfff]")
_START_S = 30.0
_CLOSE_S = 5.0

T = TypeVar("T")


def find_executable() -> str | None:
    """Path of a system Chromium, or ``None``."""
    for name in EXECUTABLES:
        path = shutil.which(name)
        if path:
            return path
    return None


@cache
def script(name: str) -> str:
    """Text of a packaged JavaScript file."""
    return files(__package__).joinpath("js", name).read_text(encoding="utf-8")


class BrowserEngine:
    """A browser that is started when first needed and started anew when it died.

    Parameters
    ----------
    libraries
        Host to script text, besides :data:`LIBRARIES`.
    launch
        Further arguments for Playwright's ``launch`` (``executable_path``, ``channel``,
        ``headless``, ``slow_mo``, ``args``).
    withheld
        Environment variables that the browser does not get.
    """

    def __init__(
        self,
        libraries: Mapping[str, str] | None = None,
        launch: Mapping[str, Any] | None = None,
        withheld: Collection[str] = (),
    ) -> None:
        self._libraries = {**LIBRARIES, **(libraries or {})}
        self._launch = dict(launch or {})
        self._withheld = withheld
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None
        self._pid: int | None = None
        self._system: CDPSession | None = None
        self._unavailable: str | None = None
        self._next: asyncio.Task[Stage] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        #: Name and version of the running browser, for the record.
        self.version = ""

    # -- called from any thread -----------------------------------------------------------------

    def run(self, work: Callable[[Stage], Awaitable[T]], timeout: float) -> T:
        """Run *work* on a fresh page and return its result.

        Raises
        ------
        BrowserUnavailable
            No Chromium could be started: told in full once, then in short.
        HarnessError
            The browser died and died again, or *work* did not end by itself in *timeout* seconds.
        """
        return self._submit(self._run(work, timeout), timeout + 3 * _START_S)

    def prepare(self) -> None:
        """Begin to get the next page ready, without waiting for it."""
        if self._unavailable is None:
            loop = self._started()
            loop.call_soon_threadsafe(self._prepare)

    def close(self) -> None:
        """End the browser and the thread; safe to call twice."""
        if self._loop is None or self._thread is None:
            return
        with contextlib.suppress(Exception):
            self._submit(self._shutdown(), 4 * _CLOSE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_S)
        self._loop = self._thread = None

    # -- the thread -----------------------------------------------------------------------------

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            loop = asyncio.new_event_loop()
            thread = threading.Thread(
                target=_serve, args=(loop,), name="agentbench-browser", daemon=True
            )
            thread.start()
            self._loop, self._thread = loop, thread
        return self._loop

    def _submit(self, coroutine: Coroutine[Any, Any, T], timeout: float) -> T:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._started())
        try:
            return future.result(timeout)
        except TimeoutError:
            future.cancel()
            raise HarnessError(f"the browser did not answer for {timeout:.0f} s") from None
        except BaseException:
            future.cancel()
            raise

    def _prepare(self) -> None:
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._stage())
            # an error is told to whoever asks for the page, not to the event loop's log
            self._next.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _run(self, work: Callable[[Stage], Awaitable[T]], timeout: float) -> T:
        for attempt in (1, 2):
            stage = await self._take()
            try:
                return await asyncio.wait_for(work(stage), timeout)
            except TimeoutError:
                raise HarnessError(
                    f"grading in the browser did not end in {timeout:.0f} s"
                ) from None
            except Exception as error:
                if attempt == 1 and not self.alive:
                    continue  # the browser itself was gone: that says nothing about the app
                raise HarnessError(f"the browser failed: {first_line(error)}") from error
            finally:
                self._discard(stage)
                self._prepare()
        raise AssertionError("unreachable")

    @property
    def alive(self) -> bool:
        """Whether the browser runs."""
        return self._browser is not None and self._browser.is_connected()

    async def _take(self) -> Stage:
        for _ in range(2):
            self._prepare()
            task, self._next = self._next, None
            assert task is not None
            try:
                stage = await task
            except BrowserUnavailable:
                raise
            except Exception:
                if self.alive:
                    raise
                continue  # prepared on a browser that died meanwhile
            if self.alive:
                return stage
        return await self._stage()

    # -- starting -------------------------------------------------------------------------------

    async def _start(self) -> Browser:
        if self._unavailable is not None:
            raise BrowserUnavailable(self._unavailable)
        browser = self._browser
        if browser is not None and browser.is_connected():
            return browser
        from playwright.async_api import async_playwright

        if self._playwright is None:
            self._playwright = await async_playwright().start()
        browser = await self._launch_browser(self._playwright)
        self._browser = browser
        self._system = await browser.new_browser_cdp_session()
        for process in await self._processes():
            if process["type"] == "browser":
                self._pid = int(process["id"])
        return browser

    async def _launch_browser(self, playwright: Playwright) -> Browser:
        options = {**self._launch}
        options["args"] = [*ARGS, *options.get("args", ())]
        executables = [options.pop("executable_path", None)]
        if executables == [None] and "channel" not in options:
            # a launch that cannot succeed would leave directories behind
            own = [None] if _installed(playwright.chromium.executable_path) else []
            executables = [*own, *filter(None, [find_executable()])]
        # Chromium's own sandbox works for a plain user only
        sandboxes = (False,) if os.name != "posix" or os.geteuid() == 0 else (True, False)
        problems = []
        for executable in dict.fromkeys(executables):
            for sandbox in sandboxes:
                try:
                    browser = await asyncio.wait_for(
                        playwright.chromium.launch(
                            **{
                                **options,
                                "executable_path": executable,
                                "chromium_sandbox": sandbox,
                                "timeout": _START_S * 1000,
                                "env": {
                                    name: value
                                    for name, value in os.environ.items()
                                    if name not in self._withheld
                                },
                            }
                        ),
                        _START_S + 5,
                    )
                except Exception as error:
                    problems.append(f"{executable or 'Playwright’s own'}: {first_line(error)}")
                    continue
                name = Path(executable).name if executable else "playwright chromium"
                self.version = f"{name} {browser.version}{'' if sandbox else ' (no sandbox)'}"
                return browser
        tried = "; ".join(dict.fromkeys(problems)) or "nothing: none is installed."
        self._unavailable = "no Chromium could be started (the first error says what to install)"
        raise BrowserUnavailable(f"no Chromium could be started. {INSTALL} Tried {tried}")

    async def _stage(self) -> Stage:
        browser = await self._start()
        context = await browser.new_context(
            accept_downloads=False,
            service_workers="block",
            viewport={"width": 1280, "height": 720},
            locale="en-US",
            timezone_id="UTC",
        )
        secret = "_" + secrets.token_hex(16)
        holder: list[Stage] = []

        async def on_route(route: Route) -> None:
            await self._answer(holder[0], route)

        await context.route("**/*", on_route)
        await context.route_web_socket("**", lambda ws: _refuse_socket(holder[0], ws))
        page = await context.new_page()
        cdp = await context.new_cdp_session(page)
        stage = Stage(context, page, cdp, secret)
        holder.append(stage)
        listen(stage)
        bridge = script("bridge.js").replace("__SECRET__", secret)
        probe = {"source": script("probe.js"), "worldName": WORLD}
        answers = await asyncio.gather(
            cdp.send("Page.enable"),
            cdp.send("Runtime.enable"),
            cdp.send("Runtime.addBinding", {"name": secret}),
            cdp.send("Page.addScriptToEvaluateOnNewDocument", {"source": bridge}),
            cdp.send("Page.addScriptToEvaluateOnNewDocument", probe),
            cdp.send("Page.getFrameTree"),
        )
        stage.main_frame = answers[-1]["frameTree"]["frame"]["id"]
        return stage

    # -- what a page asks for -------------------------------------------------------------------

    async def _answer(self, stage: Stage, route: Route) -> None:
        request = route.request
        url = urlsplit(request.url)
        with contextlib.suppress(Exception):  # the page may be gone meanwhile
            main = request.is_navigation_request() and request.frame == stage.page.main_frame
            if main and request.url == f"{ORIGIN}/" and request.method == "GET":
                stage.served += 1
                if stage.served <= MAX_DOCUMENTS:
                    # a lone surrogate has no encoding; a browser shows it like this
                    html = _SURROGATES.sub("\ufffd", stage.html)
                    await route.fulfill(body=html, content_type="text/html; charset=utf-8")
                else:
                    stage.listener("reloads", None)
                    await route.abort("aborted")
                return
            library = self._libraries.get(url.hostname or "")
            if library is not None and not main:
                stage.provided.append(request.url)
                await _fulfill_script(route, library)
                return
            stage.blocked.append({"url": request.url[:500], "type": request.resource_type})
            if main:
                # keeps the app's page: any other answer would show Chromium's own error page,
                # which has a button
                stage.listener("leave", request.url)
                await route.abort("aborted")
            elif request.resource_type == "script":
                await _fulfill_script(route, "")
            else:
                await route.abort("blockedbyclient")

    # -- ending ---------------------------------------------------------------------------------

    def _discard(self, stage: Stage) -> None:
        task = asyncio.get_running_loop().create_task(self._close_context(stage.context))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close_context(self, context: BrowserContext) -> None:
        try:
            await asyncio.wait_for(context.close(), _CLOSE_S)
        except TimeoutError:
            self.kill()
        except Exception:
            return  # it was closed by the browser's end

    def kill(self) -> None:
        """End the browser process the hard way; the next page starts another one."""
        if self._pid is not None:
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)

    async def _processes(self) -> list[dict[str, Any]]:
        if self._system is None:
            return []
        answer = await self._system.send("SystemInfo.getProcessInfo")
        found: list[dict[str, Any]] = answer["processInfo"]
        return found

    async def greedy_renderers(self) -> list[int]:
        """Process ids of renderers over the memory limit."""
        pids = [int(p["id"]) for p in await self._processes() if p["type"] == "renderer"]
        return [pid for pid in pids if _resident(pid) > MAX_RENDERER_BYTES]

    async def _shutdown(self) -> None:
        if self._next is not None:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(asyncio.shield(self._next), _CLOSE_S)
        if self._closing:
            await asyncio.wait(self._closing, timeout=_CLOSE_S)
        if self._browser is not None:
            try:
                await asyncio.wait_for(self._browser.close(), _CLOSE_S)
            except Exception:
                self.kill()
        if self._playwright is not None:
            await asyncio.wait_for(self._playwright.stop(), _CLOSE_S)
        self._browser = self._playwright = self._next = None


def _installed(executable: str) -> bool:
    """Whether Playwright's own Chromium, or its headless shell beside it, was downloaded."""
    path = Path(executable)
    return path.exists() or any(path.parents[2].glob("chromium_headless_shell-*"))


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    # Playwright abandons tasks of contexts that are closed under them; that is not worth a log line
    loop.set_exception_handler(lambda loop, context: None)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _fulfill_script(route: Route, body: str) -> None:
    await route.fulfill(
        status=200,
        body=body,
        content_type="text/javascript; charset=utf-8",
        headers={"access-control-allow-origin": "*"},
    )


async def _refuse_socket(stage: Stage, ws: Any) -> None:
    stage.blocked.append({"url": ws.url[:500], "type": "websocket"})
    await ws.close()


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0
