"""Helpers for tests that run pytest inside pytest."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# what cannot be imported anew by each inner run
import numpy  # noqa: F401
import pandas.core.arrays.arrow.extension_types  # noqa: F401
import pyarrow.csv
import pyarrow.parquet  # noqa: F401
import pytest
import scipy.stats  # noqa: F401
import sklearn.metrics  # noqa: F401

from pytest_agentbench.model import TrialRecord
from pytest_agentbench.runlog import read_records

if find_spec("openai"):  # not without the extra "test", where this file is loaded all the same
    import openai

    _ = openai.OpenAI(api_key="none").chat.completions
HAS_XDIST = find_spec("xdist") is not None
#: An agent that does what the prompt says, so that each row decides its own verdict.
OBEDIENT = """
import os, pytest

def obey(task, workspace):
    if task.prompt == "raise":
        raise ValueError("the agent's own mistake")
    if task.prompt.startswith("odd trials"):
        return "hello" if task.trial % 2 else "nothing"
    return task.prompt

@pytest.fixture(scope="session")
def bench_agent():
    return obey
"""


class Run:
    """A finished run: its outcomes, its records and its output."""

    def __init__(self, result: pytest.RunResult, out: Path) -> None:
        self.result = result
        self.ret = result.ret
        self.out = out
        self.text = result.stdout.str()
        self.errors = result.stderr.str()

    @property
    def outcomes(self) -> dict[str, int]:
        return self.result.parseoutcomes()

    @property
    def records(self) -> list[TrialRecord]:
        return read_records(self.out)

    @property
    def verdicts(self) -> dict[str, str]:
        """Verdict by task and trial."""
        found = {f"{r.task_id}/{r.trial}": r.verdict for r in self.records}
        assert len(found) == len(self.records), "a trial has two records"
        return dict(sorted(found.items()))

    @property
    def summary(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads((self.out / "summary.json").read_text())
        return data

    def metric(self, name: str, suite: int = 0) -> float:
        value: float = self.summary["suites"][suite]["metrics"][name]["value"]
        return value


@pytest.fixture
def rows(pytester: pytest.Pytester, make_row: Callable[..., dict[str, Any]]) -> Callable[..., str]:
    """Writes a dataset of rows that need no browser; gives its ``--bench-data`` value.

    Each argument is a prompt, or a dictionary of cells.  The answer must contain "hello".
    """

    def write(*cells: str | dict[str, Any], name: str = "rows.jsonl") -> str:
        path = pytester.path / name
        made = []
        for number, cell in enumerate(cells, 1):
            changes = {"user_prompt": cell} if isinstance(cell, str) else cell
            assertions = '{"must_contain_strings_in_text_response": ["hello"]}'
            given = {"task_id": f"t{number}", "outcome_dom_assertions": assertions, **changes}
            made.append(make_row(given.pop("task_id"), **given))
        path.write_text("".join(json.dumps(row) + "\n" for row in made))
        return f"--bench-data={path}"

    return write


@pytest.fixture
def obedient(pytester: pytest.Pytester) -> None:
    """The obedient agent as the ``bench_agent`` fixture."""
    pytester.makeconftest(OBEDIENT)


@pytest.fixture
def bench(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    """Runs pytest with arguments; ``fresh=True`` in a process of its own."""
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):
        monkeypatch.delenv(name, raising=False)
    # inner runs load what they need and nothing else that happens to be installed
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.syspathinsert()

    def run(*args: str, fresh: bool = False, out: str | None = "run") -> Run:
        given = [*args, *([f"--bench-out={out}"] if out else [])]
        if not HAS_XDIST:
            if _distributed(args):
                pytest.skip("pytest-xdist is not installed")
            args = tuple(arg for arg in args if arg != "-n0")
            given = [*args, *([f"--bench-out={out}"] if out else [])]
        plugins = ["-p", "pytest_agentbench.plugin"]
        if any(arg.startswith(("-n", "--dist")) for arg in args):
            plugins += ["-p", "xdist"]
        given = [*plugins, "--strict-markers", "--strict-config", "-W", "error", *given]
        # the outer run has imported the plugin already
        given += ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]
        if fresh or _distributed(args):
            result = pytester.runpytest_subprocess(*given)
        else:
            result = pytester.runpytest_inprocess(*given)
        return Run(result, pytester.path / (out or ""))

    return run


def _distributed(args: tuple[str, ...]) -> bool:
    return any(arg.startswith("-n") and arg != "-n0" for arg in args)
