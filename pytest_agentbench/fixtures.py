"""Fixtures for trials: ``bench``, ``bench_task``, ``bench_agent``, ``bench_workspace``,
``bench_page`` and ``bench_judge``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

# every pytest run imports this module: whatever is heavy is imported where it is used
if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

    from pytest_agentbench.judge import Judge
    from pytest_agentbench.model import AgentTask
    from pytest_agentbench.session.trial import Bench


@pytest.fixture(scope="session")
def bench_agent(pytestconfig: pytest.Config) -> Any:
    """The agent under test.

    Override it in a ``conftest.py`` to test your own: return a callable
    ``agent(task, workspace) -> Transcript | str`` (sync or async) or a ``--bench-agent`` value.
    ``--bench-agent`` on the command line, in the environment or in the ini file comes first.
    """
    from pytest_agentbench.session.state import bench_run, usage_error

    run = bench_run(pytestconfig)
    with usage_error():
        run.load_agents()
    return next(iter(run.agents.values()))


@pytest.fixture
def bench(request: pytest.FixtureRequest, bench_agent: Any) -> Iterator[Bench]:
    """One trial: ``bench.run()`` runs the agent and grades it."""
    from pytest_agentbench.session.own_tests import expected
    from pytest_agentbench.session.trial import bench_of

    if expected(request.node) is None:
        pytest.fail("the fixture 'bench' needs @pytest.mark.bench(NAME) on the test", pytrace=False)
    bench = bench_of(request.node, request)
    yield bench
    bench.close()


@pytest.fixture
def bench_task(bench: Bench) -> AgentTask:
    """What the agent is asked, as it sees it."""
    task: AgentTask = bench.task
    return task


@pytest.fixture
def bench_workspace(bench: Bench) -> Path:
    """The trial's prepared workspace."""
    return bench.workspace


@pytest.fixture(scope="session")
def bench_judge(pytestconfig: pytest.Config) -> Judge | None:
    """The judge that ``--bench-judge`` names, or ``None``."""
    from pytest_agentbench.session.state import bench_run, usage_error

    with usage_error():
        panel = bench_run(pytestconfig).resources.panel
        return None if panel is None else panel.judge


@pytest.fixture
def bench_page(bench: Bench, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A Playwright page that shows the trial's app; the trial is run first.

    It is a page of pytest-playwright's ``browser`` where that can be launched.  The page reaches
    no network; its payloads are in ``window.__agentbench_payloads``.
    """
    from pytest_agentbench.browser import LIBRARIES
    from pytest_agentbench.stage import ORIGIN

    bench.run()
    html = bench.app
    if html is None:
        pytest.skip("the trial shows no app")
    browser, own = _browser(request)
    context = browser.new_context(accept_downloads=False, service_workers="block")
    try:
        context.add_init_script(_HERMES)

        def answer(route: Any) -> None:
            url = route.request.url
            host = url.partition("//")[2].partition("/")[0]
            if url == f"{ORIGIN}/":
                route.fulfill(body=html, content_type="text/html; charset=utf-8")
            elif host in LIBRARIES:
                route.fulfill(body=LIBRARIES[host], content_type="text/javascript")
            else:
                route.abort("blockedbyclient")

        context.route("**/*", answer)
        page = context.new_page()
        page.goto(f"{ORIGIN}/")
        yield page
    finally:
        context.close()
        if own:
            browser.close()


_HERMES = """
window.__agentbench_payloads = [];
window.hermes = {sendAction(payload) {
  window.__agentbench_payloads.push(JSON.parse(JSON.stringify(payload)));
  return Promise.resolve({ok: true, status: "received"});
}};
"""


def _browser(request: pytest.FixtureRequest) -> tuple[Any, bool]:
    """pytest-playwright's browser, or else one of our own; whether it is our own."""
    from pathlib import Path

    from playwright.sync_api import Error

    from pytest_agentbench.browser import find_executable
    from pytest_agentbench.session.trial import launch_options

    playwright = request.getfixturevalue("playwright")
    options = launch_options(request)
    executable = options.get("executable_path") or playwright.chromium.executable_path
    if Path(executable).exists() or options.get("channel"):
        try:
            return request.getfixturevalue("browser"), False
        except Error:
            pass  # it is there, but does not start as it is
    return playwright.chromium.launch(executable_path=find_executable()), True
