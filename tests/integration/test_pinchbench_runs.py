"""pinchbench through the command line: header, verdicts, numbers, files, options."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import pytest
from tests_support import WITHOUT_LANDLOCK, grader, pinch_row

from .conftest import Run

Bench = Callable[..., Run]
linux = pytest.mark.skipif(sys.platform != "linux", reason="the layers are Linux's")


@pytest.fixture
def data(pytester: pytest.Pytester) -> str:
    """Rows of every kind and verdict; gives their ``--bench-data`` value."""
    changes: list[dict[str, Any]] = [
        {"task_id": "full"},
        {"task_id": "half", "automated_checks": grader("{'a': 1.0, 'b': 0.0}")},
        {"task_id": "hybrid", "grading_type": "hybrid", "category": "beta"},
        {"task_id": "judged", "grading_type": "llm_judge", "category": "beta"},
        {"task_id": "broken", "workspace_files": '[{"source": "a", "dest": "b"}]'},
        {"task_id": "nan", "automated_checks": grader("{'a': float('nan')}")},
        {"task_id": "lacking", "prerequisites": '["cli:no-such-program-here"]'},
    ]
    path = pytester.path / "rows.jsonl"
    path.write_text("".join(json.dumps(pinch_row(**change)) + "\n" for change in changes))
    return f"--bench-data={path}"


@pytest.fixture
def worker(pytester: pytest.Pytester) -> str:
    """An agent that reports its usage."""
    pytester.makepyfile(
        myagent="""
        def agent(task, workspace):
            usage = {"input": 90, "output": 10, "totalTokens": 100, "cost": {"total": 0.01}}
            content = [{"type": "text", "text": "done"}]
            message = {"role": "assistant", "content": content, "usage": usage}
            return [{"type": "message", "message": message}]
        """
    )
    return "--bench-agent=py:myagent:agent"


VERDICTS = {
    "full/1": "pass",
    "half/1": "fail",
    "hybrid/1": "skip",
    "judged/1": "skip",
    "broken/1": "error",
    "nan/1": "error",
    "lacking/1": "skip",
}


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_verdicts_and_numbers(bench: Bench, data: str, worker: str, workers: str) -> None:
    run = bench("--bench=pinchbench", data, worker, workers, "--junitxml=junit.xml", fresh=True)

    assert run.verdicts == dict(sorted(VERDICTS.items()))
    assert run.outcomes == {"passed": 1, "failed": 1, "skipped": 3, "errors": 2}
    assert run.metric("mean_score") == pytest.approx(0.75)
    suite = run.summary["suites"][0]
    own = suite["pinchbench"]
    assert (own["score"], own["max_score"], own["pct"]) == (1.5, 2.0, 75.0)
    assert own["category_scores"] == {
        "ALPHA": {"score": 1.5, "max_score": 2.0, "pct": 75.0, "task_count": 2}
    }
    assert own["efficiency"]["total_tokens"] == 200
    assert suite["score_per_1k_tokens"] == pytest.approx(7.5)
    assert suite["score_per_dollar"] == pytest.approx(75.0)
    run.result.stdout.fnmatch_lines(
        [
            "  mean_score  0.750*",
            "*2 of 7 tasks have a value; unscored fail 0.214, pass 0.929",
            "  score 1.50 of 2 (75.0 %)",
            "    ALPHA * 1.50 of 2 * 75.0 %  2 of 5 tasks scored",
            "    BETA * of 0 *0 of 2 tasks scored",
            "  scored runs: 200 tokens (100 each), 2 requests, $0.02",
        ]
    )
    assert max(map(len, section(run))) <= 80
    tree = ET.parse(run.out.parent / "junit.xml")
    properties = {p.get("name"): p.get("value") for p in tree.iterfind(".//testsuite/properties/*")}
    assert properties["mean_score"] == "0.75"
    assert (properties["error"], properties["skip"]) == ("2", "3")


def section(run: Run) -> list[str]:
    lines = run.text.splitlines()
    first = next(n for n, line in enumerate(lines) if "= agentbench =" in line)
    last = next(n for n, line in enumerate(lines) if line.startswith("run directory: "))
    return lines[first:last]


def test_with_a_judge_everything_is_scored(
    bench: Bench, data: str, worker: str, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(myjudge="def judge(request): return 'Total: 0.5'")

    run = bench("--bench=pinchbench", data, worker, "--bench-judge=py:myjudge:judge")

    found = {record.task_id: record.score for record in run.records if record.scored}
    assert found == {"full": 1.0, "half": 0.5, "hybrid": 0.75, "judged": 0.5}
    again = bench(
        "--bench=pinchbench", data, worker, f"--bench-judge=replay:{run.out}", out="again"
    )
    assert {record.task_id: record.score for record in again.records if record.scored} == found


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        ("not judge", {"full", "half", "broken", "nan", "lacking"}),
        ("hybrid", {"hybrid"}),
        ("automated and alpha", {"full", "half", "broken", "nan", "lacking"}),
    ],
)
def test_markers_select(bench: Bench, data: str, expression: str, chosen: set[str]) -> None:
    run = bench("--bench=pinchbench", data, "--bench-agent=noop", "-m", expression, fresh=True)

    assert {record.task_id for record in run.records} == chosen


def test_the_default_agent_needs_the_bundled_suite(bench: Bench, data: str) -> None:
    run = bench("--bench=pinchbench", data)

    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert "pinchbench has no reference solutions for" in run.errors


def test_prerequisites_by_option(bench: Bench, data: str, worker: str) -> None:
    for how, verdict in (("run", "pass"), ("fail", "fail")):
        run = bench(
            *("--bench=pinchbench", data, worker, f"--bench-missing={how}", "-k", "lacking"),
            out=how,
        )
        assert run.verdicts == {"lacking/1": verdict}
    wrong = bench("--bench=pinchbench", data, worker, "--bench-missing=skpi")
    assert (
        "--bench-missing: expected skip, run or fail, got 'skpi'. Did you mean 'skip'?"
        in wrong.errors
    )


def test_the_header_and_the_run_directory_name_the_layers(
    bench: Bench, data: str, worker: str
) -> None:
    run = bench("--bench=pinchbench", data, worker, "-k", "full")

    run.result.stdout.fnmatch_lines(["agentbench: sandbox *limits*"])
    isolation = json.loads((run.out / "run.json").read_text())["isolation"]
    assert "limits" in isolation["held"]
    (record,) = run.records
    assert set(record.details["sandbox"]["layers"]) <= set(isolation["held"])


def test_without_a_sandbox_everyone_is_told(bench: Bench, data: str, worker: str) -> None:
    run = bench("--bench=pinchbench", data, worker, "--bench-sandbox=off", "-k", "full")

    assert run.verdicts == {"full/1": "pass"}
    told = "sandbox degraded: nothing holds; missing: everything (--bench-sandbox=off)"
    run.result.stdout.fnmatch_lines([f"agentbench: {told}", told])


@linux
def test_strict_refuses_a_machine_without_landlock(
    bench: Bench, data: str, worker: str, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(nolandlock=WITHOUT_LANDLOCK)
    common = ("-p", "nolandlock", "--bench=pinchbench", data, worker, "-k", "full")

    strict = bench(*common, "--bench-sandbox=strict", fresh=True)
    auto = bench(*common, fresh=True, out="auto")

    assert strict.ret == pytest.ExitCode.USAGE_ERROR
    assert "--bench-sandbox: strict, but this machine lacks landlock" in strict.errors
    assert auto.verdicts == {"full/1": "pass"}
    auto.result.stdout.fnmatch_lines(
        ["agentbench: sandbox degraded: *landlock*", "sandbox degraded:*"]
    )


def test_without_a_terminal_the_files_are_the_same(bench: Bench, data: str, worker: str) -> None:
    run = bench("--bench=pinchbench", data, worker, "-p", "no:terminal", fresh=True)

    assert run.verdicts == dict(sorted(VERDICTS.items()))
    assert run.summary["suites"][0]["pinchbench"]["pct"] == 75.0


def test_several_trials_are_one_task_with_a_spread(
    bench: Bench, pytester: pytest.Pytester, data: str
) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def bench_agent():
            return lambda task, workspace: (workspace / "n").write_text(str(task.trial)) and "x"
        """
    )
    row = json.loads((pytester.path / "rows.jsonl").read_text().splitlines()[0])
    row["automated_checks"] = grader("{'a': int(open(w + '/n').read()) % 2}")
    (pytester.path / "rows.jsonl").write_text(json.dumps(row) + "\n")

    run = bench("--bench=pinchbench", data, "--bench-trials=3", "-v")

    task = run.summary["suites"][0]["per_task"][0]
    assert (task["mean_score"], task["min_score"], task["max_score"]) == (
        pytest.approx(2 / 3),
        0.0,
        1.0,
    )
    assert task["std_score"] == pytest.approx(0.57735, abs=1e-5)
    run.result.stdout.fnmatch_lines(["  full * 2/3 *3  0.667  0.577  0.000  1.000"])


def test_the_bundled_reference_run(bench: Bench) -> None:
    run = bench("--bench=pinchbench", "--bench-data=bundled", "-n2", "--bench-sandbox=auto")

    assert run.ret == 0
    assert run.outcomes == {"passed": 9, "skipped": 3}
    run.result.stdout.fnmatch_lines(["  calibration: 9 of 9 references pass their own checks"])
