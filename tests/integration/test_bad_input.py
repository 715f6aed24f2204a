"""Wrong options and broken data: a clear message, nothing lost, the other trials complete."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Run

Bench = Callable[..., Run]
Rows = Callable[..., str]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--bench=genu"], "--bench: unknown benchmark 'genu'*Did you mean 'genui'"),
        (["--bench=genui", "--bench-trials=0"], "--bench-trials: *"),
        (["--bench=genui", "--bench-trials=two"], "--bench-trials: *"),
        (["--bench=genui", "--bench-k=0"], "--bench-k: *"),
        (["--bench=genui", "--bench-pass-score=2"], "--bench-pass-score: *"),
        (["--bench=genui", "--bench-timeout-scale=-1"], "--bench-timeout-scale: *"),
        (["--bench=genui", "--bench-artifacts=most"], "--bench-artifacts: *failed*all*none*"),
        (["--bench=genui", "--bench-seed=x"], "--bench-seed: *"),
        (["--bench=genui", "--bench-limit=0"], "--bench-limit: *"),
        (["--bench=genui", "--bench-judge=maybe"], "--bench-judge: *"),
        (
            ["--bench=genui", "--bench-agent=nop"],
            "--bench-agent: unknown agent 'nop'*Did you mean 'noop'*",
        ),
        (
            ["--bench=genui", "--bench-agent=cmd:no-such-program-x"],
            "--bench-agent: *no-such-program-x*",
        ),
        (["--bench=genui", "--bench-agent=py:nowhere:agent"], "--bench-agent: *nowhere*"),
        (["--bench=genui", "--bench-agent=replay:nowhere"], "--bench-agent: *nowhere*"),
        (["--bench=genui", "--bench-data=missing.parquet"], "--bench-data: *missing.parquet*"),
        (["--bench=genui", "--bench-data=other=bundled"], "--bench-data: *other*"),
        (["--bench=genui", "--bench-library=x"], "--bench-library: *"),
        (["--bench=genui", "--bench-trials=0", "-n2"], "--bench-trials: *"),
    ],
)
def test_a_bad_option_is_a_usage_error(bench: Bench, options: list[str], message: str) -> None:
    if not any(option.startswith("--bench-data") for option in options):
        options = [*options, "--bench-data=bundled"]
    run = bench(*options, out=None)
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    run.result.stderr.fnmatch_lines([f"*{message}*"])
    assert "Traceback" not in run.errors + run.text
    assert not Path(".agentbench").exists()


def test_data_without_its_columns(bench: Bench, rows: Rows) -> None:
    Path("few.jsonl").write_text('{"task_id": "a"}\n')
    run = bench("--bench=genui", "--bench-data=few.jsonl", out=None)
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert "lacks the columns suite_type, " in run.errors


def test_an_identifier_that_stands_twice(bench: Bench, rows: Rows) -> None:
    run = bench("--bench=genui", rows("hello", {"task_id": "t1"}), out=None)
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert "'t1' stands twice, in rows 1 and 2 of" in run.errors


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_an_empty_dataset(bench: Bench, workers: str) -> None:
    Path("empty.jsonl").write_text("")
    run = bench("--bench=genui", "--bench-data=empty.jsonl", workers, out=None)
    assert run.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "has no rows: nothing to run" in run.text
    assert not Path(".agentbench").exists()


@pytest.mark.parametrize("content", ["{not json}\n", '["a list"]\n', b"\xff\xfe\x00bad"])
def test_a_file_that_is_no_dataset(bench: Bench, content: str | bytes) -> None:
    Path("bad.jsonl").write_bytes(content if isinstance(content, bytes) else content.encode())
    run = bench("--bench=genui", "--bench-data=bad.jsonl", out=None)
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert "bad.jsonl" in run.errors and "Traceback" not in run.errors


BROKEN: list[tuple[str, object, str]] = [
    ("mock_tool_context", "{", "is not JSON"),
    ("mock_tool_context", '"text"', "expected a JSON array"),
    ("expected_tool_trigger", "perhaps", "expected true or false"),
    ("expected_tool_trigger", None, "expected true or false"),
    ("outcome_dom_assertions", '{"must_contain_strings": "x"}', "must_contain_strings"),
    ("outcome_dom_assertions", '{"no_such_check": 1}', "no_such_check"),
    ("outcome_interaction_steps", '[{"action": "jump", "selector": "b"}]', "unknown action 'jump'"),
    ("outcome_interaction_steps", '[{"action": "click"}]', "selector"),
    ("expected_callback_schema", '{"type": 5}', "schema"),
    ("expected_callback_schema", '{"$ref": "https://example.com/s.json"}', "example.com"),
    ("model_grader_rubrics", "{}", "expected a JSON array"),
    ("user_prompt", "", "expected text"),
    ("task_id", None, "identifier"),
]


def test_broken_rows_are_errors_and_the_others_run(bench: Bench, rows: Rows) -> None:
    data = rows("hello", *[{column: value} for column, value, _ in BROKEN], "hello")
    run = bench("--bench=genui", data, "--bench-agent=reference")
    assert run.outcomes == {"passed": 2, "errors": len(BROKEN)}
    assert [r.verdict for r in run.records] == ["pass", *["error"] * len(BROKEN), "pass"]
    for number, (column, _, reason) in enumerate(BROKEN, 2):
        told = run.records[number - 1].reason
        assert told.startswith(f"genui: row {number}"), told
        assert repr(column) in told and reason in told, told


def test_a_selector_that_is_not_css(bench: Bench, rows: Rows) -> None:
    wrong = {
        "expected_tool_trigger": True,
        "acceptable_ui_archetypes": '["quiz"]',
        "outcome_dom_assertions": '{"required_selectors": ["div["]}',
        "reference_solution": "<!doctype html><p>x",
    }
    run = bench("--bench=genui", rows(wrong, "hello"), "--bench-agent=reference")
    assert run.outcomes == {"passed": 1, "errors": 1}
    assert "div[" in run.records[0].reason and "outcome_dom_assertions" in run.records[0].reason


ODD = [
    "a/b",
    "..",
    "../../x",
    "a[b]",
    "a::b",
    "nul\0",
    "😀",
    "x" * 300,
    "A",
    "a",
    " lead",
    "-k",
    "%s{}",
    "a\nb",
]


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_odd_identifiers(bench: Bench, rows: Rows, workers: str) -> None:
    data = rows(*[{"task_id": identifier} for identifier in ODD])
    run = bench("--bench=genui", data, "--bench-agent=reference", workers, "--junitxml=r.xml")
    assert run.outcomes == {"passed": len(ODD)}
    assert sorted(r.task_id for r in run.records) == sorted(ODD), "the original is kept"
    places = {r.details["directory"] for r in run.records}
    assert len({place.casefold() for place in places}) == len(ODD)
    root = (run.out / "reference" / "genui").resolve()
    assert all(Path(place).resolve().parent.parent == root for place in places)
    listed = bench("--bench=genui", data, "--co", "-q", out=None)
    ids = [line for line in listed.text.splitlines() if "::" in line]
    assert len(set(ids)) == len(ODD)
    for nodeid in ids:
        assert nodeid.isascii() and nodeid.count("::") == 1 and len(nodeid) < 120
    again = bench("--bench=genui", data, ids[7], out="again")
    assert again.outcomes == {"passed": 1}, "a pasted node id selects its trial"


def test_precedence(bench: Bench, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    data = rows("hello")
    Path("pytest.ini").write_text(
        f"[pytest]\nbench = genui\nbench_trials = 2\nbench_seed = 1\nbench_agent = noop\nbench_{data[8:].replace('=', ' = ', 1)}"
    )
    monkeypatch.setenv("AGENTBENCH_TRIALS", "3")
    monkeypatch.setenv("AGENTBENCH_SEED", "2")
    run = bench("--bench-seed=3", "--bench-agent=reference")
    assert run.outcomes == {"passed": 3}, "the environment comes before the ini file"
    options = json.loads((run.out / "run.json").read_text())["options"]
    assert options["seed"] == 3, "the command line comes first"


def test_an_option_of_a_newer_pytest_ini_is_told(bench: Bench) -> None:
    Path("pytest.ini").write_text("[pytest]\nbench_trails = 2\n")
    assert bench(out=None).ret == pytest.ExitCode.USAGE_ERROR
