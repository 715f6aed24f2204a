"""A benchmark that is somebody else's package, found through its entry point."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Run

PACKAGE = Path(__file__).parents[1] / "thirdparty_bench"


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, installed into a directory of its own."""
    pytest.importorskip("hatchling")
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--target", str(target), str(PACKAGE)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return target


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_it_is_a_benchmark_like_ours(
    bench: Callable[..., Run],
    installed: Path,
    monkeypatch: pytest.MonkeyPatch,
    workers: str,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(installed))
    agent = f"--bench-agent=cmd:{sys.executable} -c \"open('sum.txt', 'w').write('3')\""
    run = bench("--bench=arithmetic", agent, workers, fresh=True)
    assert run.outcomes == {"passed": 1, "failed": 1}
    failed = next(record for record in run.records if record.verdict == "fail")
    assert failed.reason == "sum: expected 600, found 3"
    workspace = Path(failed.details["directory"]) / "workspace"
    assert [p.name for p in workspace.iterdir()] == ["sum.txt"], "only what differs is kept"
    assert failed.details["workspace"]["created"] == ["sum.txt"]
    again = bench(
        "--bench=arithmetic",
        f"--bench-agent=replay:{Path(failed.details['directory']).parents[2]}",
        workers,
        fresh=True,
        out="again",
    )
    assert again.verdicts == run.verdicts, "a run can be graded again from its directory"


def test_its_reference_and_markers(
    bench: Callable[..., Run], installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(installed))
    run = bench("--bench=arithmetic", "-m", "hard", fresh=True)
    assert run.outcomes == {"passed": 1, "deselected": 1}
    both = bench(
        "--bench=arithmetic,genui",
        "--bench-data=genui=bundled",
        "-k",
        "small or plain_reg_01",
        fresh=True,
        out="both",
    )
    assert both.verdicts == {"small/1": "pass", "plain_reg_01/1": "pass"}
    assert {s["suite"] for s in json.loads((both.out / "summary.json").read_text())["suites"]} == {
        "arithmetic",
        "genui",
    }
