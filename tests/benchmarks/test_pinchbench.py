"""pinchbench: the bundled suite, upstream's numbers, broken rows, judges, sessions, layouts."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests_support import grader, pinch_row

from pytest_agentbench.agents import Agent, resolve
from pytest_agentbench.assets import pack
from pytest_agentbench.benchmarks.pinchbench import PinchBench, grader_code, materialize
from pytest_agentbench.benchmarks.pinchbench.judging import (
    read_answer,
    score_of,
    summarize_transcript,
    workspace_text,
    write_prompt,
)
from pytest_agentbench.benchmarks.pinchbench.layout import criteria, parse_task, read_layout
from pytest_agentbench.benchmarks.pinchbench.prerequisites import lacking
from pytest_agentbench.benchmarks.pinchbench.scores import (
    category_scores,
    combine,
    efficiency,
    usage_totals,
)
from pytest_agentbench.datasets import Dataset, Row, load
from pytest_agentbench.judge import ReplayJudge
from pytest_agentbench.model import TaskRef, TrialRecord
from pytest_agentbench.panel import Panel
from pytest_agentbench.resources import Resources
from pytest_agentbench.runner import Trial
from pytest_agentbench.settings import Settings

BENCHMARK = PinchBench()
Judge = Callable[[Any], Any]
RunRow = Callable[..., TrialRecord]


def ref_of(row: Row) -> TaskRef:
    return TaskRef("pinchbench", row.cells["task_id"], row.cells["task_id"], row.index, row.sha256)


@pytest.fixture(scope="module")
def resources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Resources]:
    resources = Resources(Settings(), tmp_path_factory.mktemp("work"))
    yield resources
    resources.close()


@pytest.fixture
def run_row(resources: Resources, tmp_path: Path) -> RunRow:
    """Runs one trial of a row."""

    def run(
        cells: Mapping[str, Any] | Row,
        agent: Agent | str | Callable[..., Any] = "noop",
        judge: Judge | None = None,
        number: int = 1,
        **settings: Any,
    ) -> TrialRecord:
        row = cells if isinstance(cells, Row) else Dataset.build("x", [cells]).rows[0]
        resources._panel = [None if judge is None else Panel(judge)]
        trial = Trial(
            ref=ref_of(row),
            row=row,
            benchmark=BENCHMARK,
            number=number,
            settings=Settings(**settings),
            resources=resources,
            directory=tmp_path / "evidence" / str(number),
        )
        try:
            return trial.run(resolve(agent))
        finally:
            trial.close()

    return run


def scores(record: TrialRecord, tier: str = "code") -> dict[str, float | None]:
    return {check.name: check.score for check in record.checks if check.tier == tier}


# -- the bundled suite ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bundled() -> dict[str, Row]:
    dataset = load("bundled", bundled=BENCHMARK.bundled)
    return {row.cells["task_id"]: row for row in dataset.rows}


def recorded(kind: str) -> Path:
    import pytest_agentbench

    package = Path(pytest_agentbench.__file__).parent
    return package / "benchmarks/data/pinchbench/recorded" / kind


def full_marks(request: Any) -> str:
    assert request.wants == "scores"
    return '{"scores": {"all": 1.0}, "total": 1.0, "notes": "good"}'


def test_the_bundled_suite_shows_every_kind_of_task(bundled: dict[str, Row]) -> None:
    specs = {name: BENCHMARK.task(ref_of(row), row).spec for name, row in bundled.items()}

    assert len(specs) == 12
    assert {spec.grading_type for spec in specs.values()} == {"automated", "hybrid", "llm_judge"}
    assert len({spec.category for spec in specs.values()}) >= 3
    assert any(spec.weights for spec in specs.values())
    assert any(spec.prerequisites for spec in specs.values())
    assert any(len(spec.sessions) == 3 and spec.sessions[2].new_session for spec in specs.values())
    seeded = [file for spec in specs.values() for file in spec.files]
    assert any(b"\0" in file.data for file in seeded)
    assert any(file.name.count("/") >= 2 for file in seeded)
    assert any(spec.rubric and not row.cells["llm_judge_rubric"]
               for spec, row in zip(specs.values(), bundled.values(), strict=True))  # fmt: skip


def test_every_reference_passes_and_every_wrong_answer_fails(
    bundled: dict[str, Row], run_row: RunRow
) -> None:
    def low(request: Any) -> str:
        return '{"scores": {"all": 0.2}, "total": 0.2}'

    for name, row in bundled.items():
        right = run_row(row, "reference", full_marks)
        wrong = run_row(row, f"replay:{recorded('wrong')}", low)
        nothing = run_row(row, "noop", low)

        assert (name, right.verdict, right.reason) == (name, "pass", "")
        assert (name, wrong.verdict) == (name, "fail")
        assert (name, nothing.verdict) == (name, "fail")


def test_the_bundled_files_are_in_upstreams_layout_byte_for_byte(
    bundled: dict[str, Row], tmp_path: Path
) -> None:
    materialize(bundled.values(), tmp_path)

    source = recorded("right").parents[1]
    ours = {p.relative_to(source): p.read_bytes() for p in files(source / "tasks")}
    ours |= {p.relative_to(source): p.read_bytes() for p in files(source / "assets")}
    assert {p.relative_to(tmp_path): p.read_bytes() for p in files(tmp_path)} == ours


def files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


# -- upstream's numbers ---------------------------------------------------------------------------


def vectors(shared: Path, name: str) -> list[dict[str, Any]]:
    text = (shared / "pinchbench/vectors" / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_automated_vectors(shared_data: Path, run_row: RunRow) -> None:
    for vector in vectors(shared_data, "automated.jsonl"):
        row = pinch_row(automated_checks=vector["automated_checks"])
        record = run_row(row, lambda task, workspace: [])
        automated = record.details.get("automated", {})
        name = vector["id"]
        if name == "no_fence":  # here, code without a fence counts
            assert record.score == 1.0
            continue
        assert grader_code(vector["automated_checks"]) == vector["code"], name
        if vector["error"] is not None:
            assert (name, record.verdict, record.score) == (name, "fail", 0.0)
            assert record.reason == f"grade() raised {vector['error']}"
        elif not math.isfinite(vector["score"]):
            assert (name, record.verdict, record.score) == (name, "error", None)
        else:
            assert record.score == pytest.approx(vector["score"], abs=1e-12), name
            assert scores(record) == vector["breakdown"], name
            assert automated["notes"] == vector["notes"], name


def test_hybrid_vectors(shared_data: Path) -> None:
    for vector in vectors(shared_data, "hybrid.jsonl"):
        score = combine(vector["automated"], vector["llm_judge"], vector["weights"])
        assert score == pytest.approx(vector["score"], abs=1e-12), vector


def test_judge_answer_vectors(shared_data: Path) -> None:
    for vector in vectors(shared_data, "judge_text.jsonl"):
        parsed = read_answer(vector["text"])
        found = score_of(parsed)

        assert json.dumps(parsed) == json.dumps(vector["parsed"]), vector["id"]
        total = 0.0 if found.total is None else found.total
        assert total == pytest.approx(vector["score"], nan_ok=True), vector["id"]
        assert json.dumps(dict(found.scores)) == json.dumps(vector["breakdown"]), vector["id"]
        assert found.notes == vector["notes"], vector["id"]


def test_transcript_summary_vectors(shared_data: Path) -> None:
    for vector in vectors(shared_data, "summary.jsonl"):
        if vector["error"] is None:
            assert summarize_transcript(vector["transcript"]) == vector["summary"], vector["id"]
        else:
            with pytest.raises(Exception, match=".") as caught:
                summarize_transcript(vector["transcript"])
            assert f"{caught.type.__name__}: {caught.value}" == vector["error"], vector["id"]


def test_workspace_text_vectors(shared_data: Path, tmp_path: Path) -> None:
    for vector in vectors(shared_data, "workspace_text.jsonl"):
        place = tmp_path / vector["id"]
        place.mkdir()
        for name, text in vector["files"].items():
            data = bytes.fromhex(text[4:]) if text.startswith("hex:") else text.encode()
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(data)
        assert workspace_text(place) == vector["text"], vector["id"]


def test_task_file_vectors(shared_data: Path) -> None:
    for vector in vectors(shared_data, "task_md.jsonl"):
        if vector.get("error"):
            with pytest.raises(ValueError, match="front matter"):
                parse_task(vector["md"])
            continue
        cells = parse_task(vector["md"])
        for name in ("task_id", "name", "grading_type", "timeout_seconds", "prompt"):
            assert cells[name] == vector[name], (vector["id"], name)
        assert json.loads(cells["workspace_files"]) == vector["workspace_files"]
        assert criteria(cells["grading_criteria"]) == vector["grading_criteria"]
        assert (cells["automated_checks"] or None) == vector["automated_checks"]


def test_aggregate_and_usage_vectors(shared_data: Path) -> None:
    vector = json.loads((shared_data / "pinchbench/vectors/aggregate.json").read_text())
    means = {task: grade["mean"] for task, grade in vector["grades"].items()}
    runs = [(e["task_id"], e["usage"], e.get("execution_time")) for e in vector["entries"]]
    tasks = [(e["task_id"], vector["categories"][e["task_id"]]) for e in vector["entries"]]

    assert efficiency(runs, means) == vector["efficiency"]
    assert efficiency([], {}) == vector["efficiency_empty"]
    ordered = category_scores(tasks, means, ["research", "coding"])
    assert json.dumps(ordered) == json.dumps(vector["category_scores_ordered"])
    unordered = category_scores(tasks, means)
    assert json.dumps(unordered) == json.dumps(vector["category_scores_unordered"])
    for usage in vectors(shared_data, "usage.jsonl"):
        trials = (shared_data / "pinchbench/recorded/pinchbench" / usage["task_id"]).glob("*")
        totals = [usage_totals(events(trial / "transcript.jsonl")) for trial in trials]
        assert any(total == pytest.approx(usage["usage"]) for total in totals), usage


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


@pytest.mark.parametrize(
    "surroundings",
    ["plain", "locale", "addopts", "hostile directory"],
)
def test_recorded_trials_have_upstreams_scores(
    shared_data: Path, tmp_path: Path, surroundings: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):
        monkeypatch.delenv(name, raising=False)
    if surroundings == "locale":
        monkeypatch.setenv("LC_ALL", "C")
    elif surroundings == "addopts":
        monkeypatch.setenv("PYTEST_ADDOPTS", "-qq")
    elif surroundings == "hostile directory":
        (tmp_path / "conftest.py").write_text(
            "import os\nos.environ['PYTEST_ADDOPTS'] = '--collect-only'\nfloat = int\n"
        )
        (tmp_path / "sitecustomize.py").write_text("raise SystemExit('sitecustomize')\n")
        (tmp_path / "yaml.py").write_text("raise SystemExit('yaml')\n")
    data = shared_data / "pinchbench"
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "pytest", "--bench=pinchbench", "-n2", "--tb=no"),
            f"--bench-data={data / 'train-00000-of-00001.parquet'}",
            f"--bench-agent=replay:{data / 'recorded'}",
            *("--bench-trials=3", "--bench-judge=off", "--bench-out=run"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (tmp_path / "run/trials.jsonl").exists(), done.stdout + done.stderr
    found = {
        (record["task_id"], record["trial"]): record
        for record in events(tmp_path / "run/trials.jsonl")
    }

    wanted = events(data / "expected.jsonl")
    for line in wanted:
        record = found[line["task_id"], line["trial"]]
        automated = record["details"]["automated"]
        where = (line["task_id"], line["trial"])
        code = {c["name"]: c["score"] for c in record["checks"] if c["tier"] == "code"}
        assert code == pytest.approx(line["scores"], abs=1e-9), where
        assert automated["score"] == pytest.approx(line["score"], abs=1e-9), where
        assert record["verdict"] in ("pass", "fail", "skip"), where
    assert len(wanted) > 200


def test_the_published_rows_in_upstreams_layout(shared_data: Path, tmp_path: Path) -> None:
    source = str(shared_data / "pinchbench/train-00000-of-00001.parquet")
    rows = load(source, bundled=BENCHMARK.bundled).rows
    materialize(rows, tmp_path / "one")
    again = load(str(tmp_path / "one"), bundled=BENCHMARK.bundled, layout=BENCHMARK.layout).rows
    materialize(again, tmp_path / "two")

    assert len(rows) == 147
    assert [r.cells["task_id"] for r in again] == [r.cells["task_id"] for r in rows]
    for row, other in zip(rows, again, strict=True):
        if row.cells["task_id"] != "task_eli5_pdf_summary":  # its asset is not in the data
            assert BENCHMARK.task(ref_of(row), row).spec == BENCHMARK.task(ref_of(row), other).spec
    one = {p.relative_to(tmp_path / "one"): p.read_bytes() for p in files(tmp_path / "one")}
    two = {p.relative_to(tmp_path / "two"): p.read_bytes() for p in files(tmp_path / "two")}
    assert one == two
    assert len(one) > 180


# -- grading --------------------------------------------------------------------------------------


def test_partial_scores_fail_unless_the_mark_is_lower(run_row: RunRow) -> None:
    row = pinch_row(automated_checks=grader("{'a': 1.0, 'b': 0.5}"))

    record = run_row(row)
    lower = run_row(row, pass_score=0.7)

    assert (record.verdict, record.score) == ("fail", 0.75)
    assert record.reason == "b: scored 0.5"
    assert [(c.name, c.passed) for c in record.checks] == [("a", True), ("b", False)]
    assert (lower.verdict, lower.score) == ("pass", 0.75)


@pytest.mark.parametrize(
    "body",
    ["{'a': 7.5}", "{'a': -1}", "{'a': float('nan')}", "{'a': float('inf')}", "{'a': 2, 'b': 0}"],
)
def test_a_score_that_is_none_is_an_error(run_row: RunRow, body: str) -> None:
    record = run_row(pinch_row(automated_checks=grader(body)))

    assert (record.verdict, record.score) == ("error", None)
    assert "not between 0 and 1" in record.reason


@pytest.mark.parametrize("score", [0.9995, 0.99999999])
def test_almost_full_marks_do_not_look_like_full_marks(run_row: RunRow, score: float) -> None:
    record = run_row(pinch_row(automated_checks=grader(f"{{'a': {score}}}")))

    assert (record.verdict, record.reason) == ("fail", f"a: scored {score}")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("None", "grade() returned NoneType, not a dictionary"),
        ("[1.0]", "grade() returned list, not a dictionary"),
        ("{}", "grade() returned no numbers"),
        ("{'a': 'good'}", "grade() returned no numbers"),
    ],
)
def test_a_grader_that_gives_nothing_is_told(run_row: RunRow, body: str, reason: str) -> None:
    record = run_row(pinch_row(automated_checks=grader(body)))

    assert (record.verdict, record.score, record.reason) == ("fail", 0.0, reason)
    assert record.details["automated"]["notes"] == ""


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def grade(t, w): pass", True),
        ("async def grade(t, w): pass", True),
        ("if True:\n    def grade(t, w): pass", True),
        ("grade: object = print", True),
        ("a, grade = 1, print", True),
        ("from x import y as grade", True),
        ("\ufeffdef grade(t, w): pass", True),
        ("def other():\n    grade = 1", False),
        ("grade(1, 2)", False),
        ("class X:\n    def grade(t, w): pass", False),
        ("the grade is 5", False),
    ],
)
def test_code_without_a_fence_must_define_grade(code: str, found: bool) -> None:
    assert bool(grader_code(code)) is found


@pytest.mark.parametrize("body", ["__import__('sys').exit(0)", "__import__('os')._exit(0)"])
def test_a_grader_that_ends_otherwise_is_an_error(run_row: RunRow, body: str) -> None:
    record = run_row(pinch_row(automated_checks=grader(body)))

    assert (record.verdict, record.score) == ("error", None)
    assert record.reason.startswith("the grader ")


def test_an_exception_is_a_zero_and_the_judge_is_not_asked(run_row: RunRow) -> None:
    def judge(request: Any) -> str:
        raise AssertionError("asked")

    row = pinch_row(grading_type="hybrid", automated_checks=grader("[][0]"))
    for given in (judge, None):
        record = run_row(row, judge=given)
        assert (record.verdict, record.score) == ("fail", 0.0)
        assert record.reason == "grade() raised IndexError: list index out of range"


def test_the_agents_changes_are_in_the_record(run_row: RunRow) -> None:
    seeds = [{"path": name, "content": "1"} for name in ("kept.txt", "changed.txt", "gone.txt")]

    def agent(task: Any, workspace: Path) -> str:
        (workspace / "changed.txt").write_text("2")
        (workspace / "gone.txt").unlink()
        (workspace / "sub").mkdir()
        (workspace / "sub/new.txt").write_text("3")
        return "done"

    record = run_row(pinch_row(workspace_files=json.dumps(seeds)), agent)

    assert record.details["workspace"] == {
        "created": ["sub/new.txt"],
        "changed": ["changed.txt"],
        "deleted": ["gone.txt"],
    }


def test_a_replay_earns_what_the_run_earned(run_row: RunRow, tmp_path: Path) -> None:
    def agent(task: Any, workspace: Path) -> str:
        (workspace / "old.txt").unlink()
        (workspace / "gone").rmdir() if (workspace / "gone").exists() else None
        (workspace / "empty/deep").mkdir(parents=True)
        (workspace / "run.sh").write_text("#!/bin/sh\n")
        (workspace / "run.sh").chmod(0o755)
        (workspace / "seeded.sh").chmod(0o755)
        (workspace / os.fsdecode(b"caf\xe9")).write_text("x")
        return "done"

    body = (
        "(lambda o: {'old': not o.path.exists(w + '/old.txt'), 'dir': o.path.isdir(w + '/empty/deep'),"
        " 'run': o.access(w + '/run.sh', o.X_OK), 'mode': o.access(w + '/seeded.sh', o.X_OK),"
        " 'bytes': o.path.exists(o.fsencode(w) + b'/caf\\xe9')})(__import__('os'))"
    )
    seeds = [{"path": name, "content": "1"} for name in ("old.txt", "seeded.sh")]
    row = pinch_row(workspace_files=json.dumps(seeds), automated_checks=grader(body))

    first = run_row(row, agent)
    replayed = tmp_path / "replay/pinchbench/task_x"
    replayed.mkdir(parents=True)
    (tmp_path / "evidence/1").rename(replayed / "1")
    again = run_row(row, f"replay:{tmp_path / 'replay'}")

    assert (first.verdict, first.reason) == ("pass", "")
    assert (again.verdict, again.reason) == ("pass", "")
    assert first.details["workspace"]["created"] == ["caf\\xe9", "run.sh"]


def test_bytes_of_a_row_reach_the_workspace(run_row: RunRow) -> None:
    assets = {"raw/data.bin": bytes(range(256)), "raw/log file.txt": b"a\r\nb"}
    seeds = [
        {"source": "raw/data.bin", "dest": ".hidden/deep/data.bin"},
        {"source": "raw/log file.txt", "dest": "log.txt"},
    ]
    body = (
        "{'bin': open(w + '/.hidden/deep/data.bin', 'rb').read() == bytes(range(256)),"
        " 'crlf': open(w + '/log.txt', 'rb').read() == b'a\\r\\nb'}"
    )
    row = pinch_row(
        workspace_files=json.dumps(seeds),
        assets_tar=pack(assets),
        automated_checks=grader(body),
    )

    assert run_row(row).score == 1.0


@pytest.mark.parametrize(
    ("cells", "column", "reason"),
    [
        ({"grading_type": "magic"}, "grading_type", "expected automated, hybrid or llm_judge"),
        ({"timeout_seconds": "soon"}, "timeout_seconds", "expected a number above 0"),
        ({"timeout_seconds": 0}, "timeout_seconds", "expected a number above 0"),
        ({"prompt": ""}, "prompt", "expected text, found nothing"),
        ({"workspace_files": "{"}, "workspace_files", "is not JSON"),
        ({"workspace_files": '{"a": 1}'}, "workspace_files", "expected a JSON array"),
        (
            {"workspace_files": '[{"source": "a", "dest": "b"}]'},
            "workspace_files",
            "the source 'a' is not among the row's assets",
        ),
        ({"workspace_files": '[{"path": "../a", "content": ""}]'}, "workspace_files", "leads out"),
        ({"assets_tar": "!!"}, "assets_tar", "is not base64"),
        ({"sessions": '[{"id": "a"}]'}, "sessions", "entry 1"),
        (
            {"grading_type": "hybrid", "grading_weights": '{"automated": "x"}'},
            "grading_weights",
            "expected a number",
        ),
        (
            {"grading_type": "hybrid", "grading_weights": '{"llm_judge": 1e308}'},
            "grading_weights",
            "expected a number",
        ),
        (
            {"grading_type": "hybrid", "grading_weights": "[1]"},
            "grading_weights",
            "expected a JSON object",
        ),
        ({"prerequisites": "[1]"}, "prerequisites", "entry 1: expected a text"),
        ({"automated_checks": 5}, "automated_checks", "expected text"),
    ],
)
def test_a_broken_cell_is_an_error_that_names_it(
    run_row: RunRow, cells: dict[str, Any], column: str, reason: str
) -> None:
    record = run_row(pinch_row(**cells))

    assert (record.verdict, record.score) == ("error", None)
    assert record.reason.startswith(f"pinchbench: row 1 (task_x), column {column!r}: ")
    assert reason in record.reason


def test_a_broken_row_is_told_before_a_skip(run_row: RunRow) -> None:
    row = pinch_row(grading_type="llm_judge", workspace_files='[{"source": "a", "dest": "b"}]')

    assert run_row(row).verdict == "error"


# -- the judge ------------------------------------------------------------------------------------


def test_with_the_judge_off(run_row: RunRow) -> None:
    judged = run_row(pinch_row(grading_type="llm_judge"))
    hybrid = run_row(pinch_row(grading_type="hybrid"))

    assert (judged.verdict, judged.score, judged.checks) == ("skip", None, ())
    assert "the judge is off" in judged.reason
    assert (hybrid.verdict, hybrid.score) == ("skip", None)
    assert scores(hybrid) == {"done": 1.0}
    assert hybrid.details["automated"]["score"] == 1.0
    assert hybrid.reason == "the judge is off (the automated part scored 1)"


def test_a_hybrid_is_weighted(run_row: RunRow) -> None:
    row = pinch_row(grading_type="hybrid", grading_weights='{"automated": 0.6, "llm_judge": "0.4"}')

    record = run_row(row, judge=lambda request: {"scores": {"tone": 0.5, "facts": 0.5}})

    assert record.score == pytest.approx(0.8)
    assert record.verdict == "fail"
    assert record.reason == "score 0.8: automated 1, the judge gave 0.5"
    assert scores(record, "judge") == {"tone": 0.5, "facts": 0.5}
    assert scores(record) == {"done": 1.0}


@pytest.mark.parametrize("text", [None, 5, ["a"]])
def test_an_agents_odd_transcript_is_no_error(run_row: RunRow, text: Any) -> None:
    content = [{"type": "text", "text": text}, {"type": "toolCall", "arguments": None}]
    event = {"type": "message", "message": {"role": "assistant", "content": content}}

    record = run_row(
        pinch_row(grading_type="llm_judge"), lambda task, workspace: [event], lambda r: {"total": 1}
    )

    assert (record.verdict, record.score) == ("pass", 1.0)


def test_a_failing_judge_leaves_the_automated_part(run_row: RunRow) -> None:
    record = run_row(pinch_row(grading_type="hybrid"), judge=lambda request: "no idea")

    assert (record.verdict, scores(record)) == ("error", {"done": 1.0})
    assert record.details["automated"]["score"] == 1.0


def test_without_a_transcript_the_judge_is_not_asked(run_row: RunRow) -> None:
    def judge(request: Any) -> str:
        raise AssertionError("asked")

    record = run_row(pinch_row(grading_type="llm_judge"), lambda task, workspace: [], judge)

    assert (record.verdict, record.score) == ("fail", 0.0)
    assert record.reason == "the judge was not asked: there is no transcript"


def test_what_the_judge_is_shown(run_row: RunRow) -> None:
    seen = []

    def judge(request: Any) -> str:
        seen.append(request)
        return "Total: 0.75"

    def agent(task: Any, workspace: Path) -> str:
        (workspace / "report.md").write_text("the report")
        (workspace / "link.md").symlink_to("/etc/hostname")
        return "I wrote it."

    row = pinch_row(grading_type="llm_judge", grading_criteria="- [ ] First\n- [x] Second\n* no")
    record = run_row(row, agent, judge)
    (request,) = seen

    assert record.score == 0.75
    assert record.details["llm_judge"]["notes"] == "Score extracted from prose"
    assert request.criteria == "- First\n- Second"
    for part in (
        "Do it.",
        "It is done.",
        "Assistant: I wrote it.",
        "### File: report.md\nthe report",
    ):
        assert part in request.instructions
    assert "link.md" not in request.instructions


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("no idea", "no parseable response"),
        ("", "no parseable response"),
        ({"foo": 1}, "no score extracted"),
        ('{"total": 7.5}', "the judge gave the score 7.5"),
        ('{"total": NaN}', "the judge gave the score nan"),
        (5, "neither a text nor an object"),
        (None, "neither a text nor an object"),
        (ConnectionError("down"), "the judge failed on rubric"),
    ],
)
def test_an_answer_that_is_none_is_an_error(run_row: RunRow, answer: Any, reason: str) -> None:
    def judge(request: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    record = run_row(pinch_row(grading_type="hybrid"), judge=judge)

    assert (record.verdict, record.score) == ("error", None)
    assert reason in record.reason


def test_a_judges_answers_are_kept_and_replayed(run_row: RunRow, tmp_path: Path) -> None:
    row = pinch_row(grading_type="llm_judge")
    first = run_row(row, judge=lambda request: '{"scores": {"a": 0.5}}')
    evidence = tmp_path / "evidence/1/judge.jsonl"
    again = run_row(row, judge=ReplayJudge(evidence))
    tree = run_row(row, judge=ReplayJudge(tmp_path))
    other = run_row(pinch_row("task_y", grading_type="llm_judge"), judge=ReplayJudge(evidence))

    assert first.score == again.score == tree.score == 0.5
    assert other.verdict == "error"
    assert "holds no answer" in other.reason


def test_large_workspaces_are_cut_for_the_judge(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x" * 120)
    (tmp_path / "b.txt").write_text("y" * 120)

    text = workspace_text(tmp_path, file_cap=100, total_cap=150)

    assert "x" * 100 + "\n[… 20 more characters were left out]" in text
    assert "y" * 50 + "\n[… 70 more characters were left out]" in text
    changed = workspace_text(tmp_path, ["b.txt"], file_cap=100, total_cap=150)
    assert "y" * 100 in changed
    assert changed.index("a.txt") < changed.index("b.txt")
    assert "x" * 50 + "\n[… 70 more characters were left out]" in changed


def test_the_prompt_has_its_sections_in_order() -> None:
    prompt = write_prompt(prompt="P", expected="E", summary="S", files="", rubric="R")
    headings = [line for line in prompt.splitlines() if line.startswith("## ")]

    assert headings == [
        *("## Task", "## Expected Behavior", "## Agent Transcript (summarized)"),
        "## Grading Rubric",
    ]


# -- sessions and prerequisites -------------------------------------------------------------------

SESSIONS = json.dumps(
    ["one", {"id": "b", "message": "two"}, {"prompt": "three", "new_session": True}]
)


def test_an_agent_is_called_once_per_session(run_row: RunRow) -> None:
    seen = []

    def agent(task: Any, workspace: Path) -> str:
        seen.append((task.session, task.prompt, task.new_session, len(task.history)))
        assert len(task.sessions) == task.session
        with (workspace / "log").open("a") as file:
            file.write(task.prompt)
        return f"answer to {task.prompt}"

    body = "{'said': [e['type'] for e in t].count('message') == 6, 'log': open(w + '/log').read() == 'onetwothree'}"
    row = pinch_row(sessions=SESSIONS, automated_checks=grader(body))
    record = run_row(row, agent)

    assert seen == [(1, "one", True, 0), (2, "two", False, 2), (3, "three", True, 0)]
    assert (record.verdict, record.reason) == ("pass", "")


def test_a_command_is_called_once_per_session(run_row: RunRow, tmp_path: Path) -> None:
    script = tmp_path / "agent.py"
    script.write_text(
        "import json, os, pathlib\n"
        "task = json.load(open(os.environ['AGENTBENCH_TASK_FILE']))\n"
        "out = pathlib.Path(os.environ['AGENTBENCH_OUTPUT_DIR'])\n"
        "assert not list(out.iterdir()) and len(task['sessions']) == task['session']\n"
        "with open('log', 'a') as f: f.write(task['prompt'] + str(len(task['history'])))\n"
        "(out / 'response.txt').write_text('s' + os.environ['AGENTBENCH_SESSION'])\n"
        "pathlib.Path('../task.json').unlink(); os.symlink('/nowhere', '../task.json')\n"
    )
    body = "{'log': open(w + '/log').read() == 'one0two2three0'}"
    row = pinch_row(sessions=SESSIONS, automated_checks=grader(body))

    record = run_row(row, f"cmd:{sys.executable} {script}")

    assert (record.verdict, record.reason) == ("pass", "")


def test_sessions_share_one_time_limit(run_row: RunRow) -> None:
    row = pinch_row(sessions=SESSIONS, timeout_seconds=8)
    script = "import os, time; time.sleep(60 if os.environ['AGENTBENCH_SESSION'] == '3' else 0.5)"

    record = run_row(row, f'cmd:{sys.executable} -c "{script}"')

    assert record.verdict == "fail"
    assert record.reason == "session 3 of 3: the agent was not done in 8 s, all sessions together"
    assert record.agent_s < 12


def test_a_session_that_fails_ends_the_sequence(run_row: RunRow) -> None:
    record = run_row(pinch_row(sessions=SESSIONS), "cmd:sh -c 'echo x >> log; exit 3'")

    assert record.verdict == "fail"
    assert record.reason == "session 1 of 3: the agent exited with status 3"
    assert record.score == 1.0  # what was done is graded all the same


@pytest.mark.parametrize(
    ("missing", "verdict", "ran"),
    [("skip", "skip", False), ("run", "pass", True), ("fail", "fail", False)],
)
def test_prerequisites(run_row: RunRow, missing: str, verdict: str, ran: bool) -> None:
    calls = []

    def agent(task: Any, workspace: Path) -> str:
        calls.append(task.id)
        return "done"

    row = pinch_row(prerequisites='["cli:no-such-program-here", "cli:sh"]')
    record = run_row(row, agent, missing=missing)

    assert record.verdict == verdict
    assert bool(calls) is ran
    assert record.score == {"skip": None, "pass": 1.0, "fail": 0.0}[verdict]
    if not ran:
        assert "the command 'no-such-program-here' (cli:no-such-program-here)" in record.reason
    assert run_row(row, "noop").verdict == "pass"  # nothing is done, so nothing is needed


def test_kinds_of_prerequisites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_agentbench.benchmarks.pinchbench import prerequisites

    package = tmp_path / "@scope/tool"
    package.mkdir(parents=True)
    (package / "package.json").write_text("{}")
    monkeypatch.setenv("NODE_PATH", str(tmp_path))
    prerequisites._npm_roots.cache_clear()

    assert lacking("cli:sh") == ""
    assert lacking("npm:@scope/tool") == ""
    assert "the npm package '@scope/other'" in lacking("npm:@scope/other")
    assert "of a kind that is not known" in lacking("brew:jq")
    prerequisites._npm_roots.cache_clear()


# -- layouts --------------------------------------------------------------------------------------


def write_task(directory: Path, name: str, body: str = "", front: str = "") -> None:
    (directory / "tasks").mkdir(exist_ok=True)
    text = f"---\nid: {name}\n{front}---\n\n## Prompt\n\nDo {name}.\n{body}"
    (directory / "tasks" / f"{name}.md").write_text(text)


def test_a_manifest_gives_order_and_categories(tmp_path: Path) -> None:
    for name in ("task_a", "task_b", "task_c", "task_d"):
        write_task(tmp_path, name, front="category: own\n")
    (tmp_path / "tasks/manifest.yaml").write_text(
        "run_first: [task_c]\ncategories:\n  two:\n    - task_b\n  one: [task_a, task_c, task_gone]\n"
    )

    rows = read_layout(tmp_path) or []

    found = [(row["task_id"], row["category"]) for row in rows]
    assert found == [
        *(("task_c", "one"), ("task_b", "two"), ("task_a", "one")),
        *(("task_gone", ""), ("task_d", "own")),
    ]
    assert "the manifest names it" in rows[3]["broken"]


def test_a_directory_without_tasks_is_none(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/README.md").write_text("# hello")

    assert read_layout(tmp_path) is None


def test_a_broken_task_file_is_one_broken_row(tmp_path: Path, run_row: RunRow) -> None:
    write_task(tmp_path, "task_good")
    (tmp_path / "tasks/task_bad.md").write_text("no front matter")
    (tmp_path / "tasks/task_yaml.md").write_text("---\na: [\n---\n")

    rows = load(str(tmp_path), bundled=BENCHMARK.bundled, layout=BENCHMARK.layout).rows
    records = {row.cells["task_id"]: run_row(row) for row in rows}

    assert records["task_good"].verdict == "fail"  # it has no grader
    assert records["task_good"].reason == "No automated grading code found"
    assert "no YAML front matter" in records["task_bad"].reason
    assert "not YAML" in records["task_yaml"].reason


def test_what_would_be_written_outside_is_not(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="leads out"):
        materialize([pinch_row("../../evil")], tmp_path / "inner/place")

    assert not list(tmp_path.rglob("*evil*"))


# -- numbers --------------------------------------------------------------------------------------


def test_headlines_and_report_use_scored_trials_only() -> None:
    usage = {"total_tokens": 500, "cost_usd": 0.5, "request_count": 1}
    base = TrialRecord("pinchbench", "a", 1, "x", "fail", 0.5, details={"usage": usage})
    records = [
        base,
        replace(base, trial=2, verdict="pass", score=1.0),
        replace(base, task_id="b", verdict="skip", score=None),
        replace(base, task_id="c", verdict="error", score=None),
    ]

    found = BENCHMARK.headlines(records)

    assert found["score_per_1k_tokens"] == pytest.approx(0.75)
    assert found["score_per_dollar"] == pytest.approx(0.75)
    assert math.isnan(BENCHMARK.headlines(records[2:])["score_per_dollar"])
