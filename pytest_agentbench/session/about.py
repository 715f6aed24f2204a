"""What a run says of itself: pytest's header, and ``run.json``."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_agentbench.browser import LIBRARIES, find_executable
from pytest_agentbench.endpoints import judge_endpoint
from pytest_agentbench.runlog import versions
from pytest_agentbench.session.state import BenchRun
from pytest_agentbench.text import WIDTH, count, shorten

__all__ = ["header", "run_facts"]


def header(run: BenchRun) -> list[str]:
    """Lines for pytest's header."""
    return [f"agentbench: {line}" for line in _lines(run)]


_ROOM = WIDTH - len("agentbench: ")


def _lines(run: BenchRun) -> Iterator[str]:
    for name, loaded in run.plan.loaded.items():
        data = f"{loaded.dataset.source}@{loaded.dataset.fingerprint[:12]}"
        tasks = f"{count(len(loaded.tasks), 'task')} x {count(run.settings.trials, 'trial')}"
        yield f"{name}: {_tail(data, WIDTH - 40)}, {tasks}"
        for key, value in loaded.benchmark.facts().items():
            start = f"{name}: {key} "
            yield start + _tail(value, _ROOM - len(start))
    agents = ", ".join(run.agent_names)
    default = "" if run.settings.agent_given else " (or the fixture bench_agent)"
    yield shorten(f"agent {agents}{default}, judge {run.settings.judge}", _ROOM)
    yield from _judge_lines(run)
    if any(loaded.benchmark.browses for loaded in run.plan.loaded.values()):
        executable = find_executable()
        browser = str(executable).rpartition("/")[2] if executable else "none on PATH"
        yield f"browser Playwright's own if installed, else {browser}"
    if run.isolation is not None:
        yield f"sandbox {run.isolation}"


def _judge_lines(run: BenchRun) -> Iterator[str]:
    """Where a model that judges is reached, how often it is asked, what agents do not get."""
    endpoint = judge_endpoint(run.settings.judge, run.settings.judge_base_url)
    if endpoint is None:
        return
    votes = count(run.settings.judge_votes, "vote")
    cache = "off" if run.settings.judge_cache == "off" else "on"
    yield shorten(f"judge at {endpoint.base_url}, {votes} a rubric, cache {cache}", _ROOM)
    if run.resources.withheld:
        names = ", ".join(sorted(run.resources.withheld))
        yield shorten(f"kept from agents, since the judge's key: {names}", _ROOM)


def run_facts(run: BenchRun, begin: float) -> dict[str, Any]:
    """What a run that began at *begin* (Unix time) was: options, versions, data, isolation."""
    return {
        "schema": 1,
        "run_id": run.run_id,
        "started_at": datetime.fromtimestamp(begin, UTC).isoformat(timespec="seconds"),
        "duration_s": round(time.time() - begin, 3),
        "command": list(run.config.invocation_params.args),
        "options": asdict(run.settings),
        "agents": list(run.agent_names),
        "judge": run.settings.judge,
        "isolation": None
        if run.isolation is None
        else {**asdict(run.isolation), "full": run.isolation.full},
        "datasets": {
            name: {
                "source": loaded.dataset.source,
                "fingerprint": loaded.dataset.fingerprint,
                "rows": len(loaded.dataset.rows),
                "facts": dict(loaded.benchmark.facts()),
                "row_sha256": [row.sha256 for row in loaded.dataset.rows],
            }
            for name, loaded in run.plan.loaded.items()
        },
        "provided_libraries": sorted({*LIBRARIES, *(h for h, _ in run.settings.libraries)}),
        "versions": versions(),
        "git_commit": _git_commit(run.config.rootpath),
    }


def _tail(text: str, width: int) -> str:
    return text if len(text) <= width else "…" + text[-(width - 1) :]


def _git_commit(directory: Path) -> str | None:
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
