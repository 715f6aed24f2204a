"""What the plugin costs, as ratios measured in one run.

    python tests/perf/ratios.py [--only trials browser graders submissions judge startup] [--rounds N] [--json FILE]

Each comparison runs both sides in turn, several rounds, and divides the medians; whole processes
are timed.  Ratios travel between machines, milliseconds do not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from pytest_agentbench.assets import write_files
from pytest_agentbench.model import TaskRef

TASKS = 2000
PAGE_ROUNDS = 3

BARE = f"""
import pytest

@pytest.mark.parametrize("trial", range({TASKS}))
def test_bare(trial):
    assert {{result}}
"""

# the checks of a genui row, written as one would with pytest-playwright's page fixture
PLAYWRIGHT_TEST = """
import json, pathlib
import jsonschema, pytest

ROWS = [row for row in map(json.loads, open(pathlib.Path(__file__).with_name("rows.jsonl")))]
ORIGIN = "https://app.example/"
INTERACTIVE = (
    "button, input:not([type=hidden]), select, textarea, a[href], summary, [onclick], [role=button],"
    "[contenteditable], [draggable=true], [tabindex]"
)
HERMES = "window.sent = []; window.hermes = {sendAction(p) { window.sent.push(p); }};"

@pytest.mark.parametrize("row", ROWS, ids=[row["task_id"] for row in ROWS])
def test_app(page, row):
    errors = []
    page.on("pageerror", lambda error: errors.append(error))
    page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
    page.add_init_script(HERMES)

    def answer(route):
        if route.request.url == ORIGIN:
            route.fulfill(body=row["reference_solution"], content_type="text/html; charset=utf-8")
        else:
            route.abort()

    page.route("**/*", answer)
    page.goto(ORIGIN)
    dom = json.loads(row["outcome_dom_assertions"])
    text = " ".join(page.locator("html").text_content().split())
    for string in dom.get("must_contain_strings", ()):
        assert string in text or string in page.content()
    for selector in dom.get("required_selectors", ()):
        assert page.locator(selector).count() > 0
    assert page.locator(INTERACTIVE).count() >= 1
    for step in json.loads(row["outcome_interaction_steps"]):
        target = page.locator(step["selector"]).locator("visible=true").first
        if step["action"] == "click":
            target.click()
        elif step["action"] == "set_range":
            target.evaluate(
                "(e, v) => { e.value = v; for (const t of ['input', 'change'])"
                " e.dispatchEvent(new Event(t, {bubbles: true})); }",
                str(step["value"]),
            )
        else:
            arguments = [str(step["value"])] if "value" in step else []
            getattr(target, step["action"])(*arguments)
    schema = json.loads(row["expected_callback_schema"] or "null")
    if schema:
        validator = jsonschema.Draft202012Validator(schema)

        def arrived():
            return any(map(validator.is_valid, page.evaluate("window.sent")))

        last = [s["selector"] for s in json.loads(row["outcome_interaction_steps"])][-1]
        remaining = page.locator(last).locator("visible=true")
        for number in range(remaining.count()):
            if arrived():
                break
            remaining.nth(number).click()
        assert arrived()
    assert not errors
"""

LAUNCH = """
import pytest

@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args):
    return {{**browser_type_launch_args, "executable_path": {executable!r}}}
"""


def main() -> None:
    """Measure what was asked for, print a table, write the JSON file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    steps = (trials, browser, graders, submissions, judge, startup)
    names = {step.__name__: step for step in steps}
    parser.add_argument("--only", nargs="+", choices=names, default=list(names))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results: list[dict[str, object]] = []
    print(f"{'what':<44}{'ours':>9}{'other':>9}{'result':>10}  bar")
    for name in options.only:
        with tempfile.TemporaryDirectory() as directory:
            for result in names[name](Path(directory), options.rounds):
                results.append(result)
                print(
                    f"{result['what']:<44}{result['ours']:>8.2f} {result['other']:>8.2f} "
                    f"{result['result']:>10}  {result['bar']}",
                    flush=True,
                )
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


def trials(place: Path, rounds: int) -> list[dict[str, object]]:
    """A trial of the noop agent without a browser, against a bare parametrized test."""
    found = []
    for outcome, wanted in (("pass", "[]"), ("fail", '["x"]')):
        row = {
            "suite_type": "regression",
            "category": "negative_control",
            "prompt_explicitness": "implicit_intent",
            "acceptable_ui_archetypes": '["none"]',
            "user_prompt": "Say x.",
            "mock_tool_context": "[]",
            "expected_tool_trigger": False,
            "outcome_dom_assertions": f'{{"must_contain_strings_in_text_response": {wanted}}}',
            "outcome_interaction_steps": "[]",
            "expected_callback_schema": "null",
            "model_grader_rubrics": "[]",
            "reference_solution": "x",
        }
        rows = place / f"{outcome}.jsonl"
        lines = (json.dumps({"task_id": f"t{n:04}", **row}) for n in range(TASKS))
        rows.write_text("".join(line + "\n" for line in lines))
        bare = place / f"test_{outcome}.py"
        bare.write_text(BARE.format(result=outcome == "pass"))
        for workers in ("-n0", "-n2"):
            common = ["-q", "--tb=no", "--no-summary", workers]
            ours = ["--bench=genui", f"--bench-data={rows}", "--bench-agent=noop", *common]
            expected = f"{TASKS} {outcome}ed"
            seconds = compare(
                rounds,
                lambda ours=ours, expected=expected: pytest_run(place, ours, expected),  # type: ignore[misc]
                lambda common=common, bare=bare, expected=expected: pytest_run(  # type: ignore[misc]
                    place, [str(bare), *common], expected
                ),
            )
            found.append(ratio(f"{TASKS} trials that {outcome}, {workers}", *seconds, "<= 2.0"))
    return found


def browser(place: Path, rounds: int) -> list[dict[str, object]]:
    """A graded micro-app, against the same checks as a pytest-playwright test, per executable."""
    from pytest_agentbench.benchmarks.genui import GenUI

    # the buttons of disk_cap_01 are found anew after each click, which the plain test does not do
    rows = [
        row
        for row in GenUI().bundled()
        if row["expected_tool_trigger"] and row["task_id"] != "disk_cap_01"
    ]
    (place / "test_page.py").write_text(textwrap.dedent(PLAYWRIGHT_TEST))
    for repeats in (1, PAGE_ROUNDS):
        more = [{**r, "task_id": f"{r['task_id']}_{n}"} for n in range(repeats) for r in rows]
        text = "".join(json.dumps(row) + "\n" for row in more)
        (place / f"rows{repeats}.jsonl").write_text(text)
    found = []
    for name in ("chromium-headless-shell", "chromium"):
        executable = shutil.which(name)
        if executable is None:
            print(f"{name}: not installed, left out", file=sys.stderr)
            continue
        (place / "conftest.py").write_text(LAUNCH.format(executable=executable))

        def ours(repeats: int) -> float:
            data = place / f"rows{repeats}.jsonl"
            options = ["--bench=genui", f"--bench-data={data}", "--bench-agent=reference", "-q"]
            return pytest_run(place, options, f"{repeats * len(rows)} passed")

        def plain(repeats: int) -> float:
            (place / "rows.jsonl").write_text((place / f"rows{repeats}.jsonl").read_text())
            return pytest_run(place, ["test_page.py", "-q"], f"{repeats * len(rows)} passed")

        def marginal(side: Callable[[int], float]) -> float:
            """Seconds per app, without what a run costs once."""
            few, many = side(1), side(PAGE_ROUNDS)
            return (many - few) / ((PAGE_ROUNDS - 1) * len(rows))

        seconds = compare(
            max(1, rounds // 2),
            lambda ours=ours, marginal=marginal: marginal(ours),  # type: ignore[misc]
            lambda plain=plain, marginal=marginal: marginal(plain),  # type: ignore[misc]
        )
        found.append(ratio(f"one more app, {name}", *seconds, "<= 0.8"))
    return found


def graders(place: Path, rounds: int) -> list[dict[str, object]]:
    """Recorded pinchbench trials, graded in the sandbox by a whole run, against a plain loop.

    The loop starts ``python -I`` for each trial, which calls grade() with no isolation at all.
    With the published rows and recordings beside the checkout those are used, else the bundled
    ones.
    """
    from pytest_agentbench.benchmarks.pinchbench import PinchBench, grader_code
    from pytest_agentbench.datasets import load
    from pytest_agentbench.transcripts import Transcript

    benchmark = PinchBench()
    published = Path(__file__).parents[3] / "shared/data/pinchbench"
    if published.is_dir():
        rows = load(str(next(published.glob("*.parquet"))), bundled=benchmark.bundled).rows
        recorded = published / "recorded/pinchbench"
    else:
        import pytest_agentbench

        rows = load("bundled", bundled=benchmark.bundled).rows
        package = Path(pytest_agentbench.__file__).parent
        recorded = package / "benchmarks/data/pinchbench/recorded/right/pinchbench"
    graded = {
        str(row.cells["task_id"]): (row, grader_code(str(row.cells["automated_checks"])))
        for row in rows
        if "def grade" in str(row.cells["automated_checks"])
    }
    found = sorted(p for p in recorded.glob("*/*") if p.parent.name in graded)[:200]
    replayed = place / "recorded/pinchbench"
    for trial in found:
        shutil.copytree(trial, replayed / trial.parent.name / trial.name)
    jobs = []
    for trial in found:
        row, code = graded[trial.parent.name]
        spec = benchmark.task(TaskRef("pinchbench", trial.parent.name, "", row.index, ""), row).spec
        transcript = Transcript.from_jsonl((trial / "transcript.jsonl").read_text())
        jobs.append((spec.files, trial / "workspace", code, transcript.normalized()))
    used = {trial.parent.name for trial in found}
    data = place / "rows.jsonl"
    lines = (json.dumps(dict(row.cells)) for row in rows if row.cells["task_id"] in used)
    data.write_text("".join(line + "\n" for line in lines))

    def plain() -> float:
        begin = time.perf_counter()
        for files, changed, code, transcript in jobs:
            with tempfile.TemporaryDirectory() as workspace:
                write_files(Path(workspace), files)
                if changed.is_dir():
                    shutil.copytree(changed, workspace, dirs_exist_ok=True)
                job = json.dumps([code, transcript, workspace])
                done = subprocess.run(
                    [sys.executable, "-I", "-X", "utf8", "-c", PLAIN_GRADER],
                    input=job,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                if done.returncode:
                    raise SystemExit(done.stderr)
        return time.perf_counter() - begin

    options = ["--bench=pinchbench", f"--bench-data={data}", "-q", "--tb=no", "--no-summary"]
    agent = f"--bench-agent=replay:{replayed.parent}"
    trials = max(int(trial.name) for trial in found)
    seconds = compare(
        max(1, rounds // 2),
        lambda: pytest_run(place, [*options, agent, f"--bench-trials={trials}"], " skipped"),
        plain,
    )
    return [ratio(f"{len(jobs)} graders, sandboxed, whole run -n0", *seconds, "<= 1.0")]


PLAIN_GRADER = """
import json, sys
code, transcript, workspace = json.load(sys.stdin)
names = {}
exec(code, names)
json.dumps(names["grade"](transcript, workspace))
"""


#: Reads and scores a file of 150,000 rows, time after time; prints seconds and peak memory.
SUBMISSION = """
import ctypes, json, statistics, sys, time
from pathlib import Path
import numpy as np, pandas as pd
from pytest_agentbench.benchmarks.agentds.challenge import Challenge, published
from pytest_agentbench.benchmarks.agentds.ids import Ids
from pytest_agentbench.benchmarks.agentds.labels import Truth, read_table
from pytest_agentbench.benchmarks.agentds.submission import read_submission
from sklearn.metrics import f1_score, mean_squared_error

place, key, side = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
challenge = next(c for c in map(Challenge.parse, published()) if c.key == key)
labels = challenge.metric.wants == "labels"
name = challenge.predictions[0]
table = read_table(place / "truth.csv")
values = table[name].astype(float if not labels else int).to_numpy()
truth = Truth(Ids.of(table[list(challenge.ids)]), values, challenge.values)
del table

def ours():
    found = read_submission(place, challenge, truth, max_bytes=10**8, headers={})
    assert not found.problems, found.problems
    return challenge.metric.function(truth.values, found.values)

def bare():
    frame = pd.read_csv(place / "submission.csv")
    if labels:
        return f1_score(values, frame[name], average="macro")
    return mean_squared_error(values, frame[name])

def memory(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024

run, times = {"ours": ours, "bare": bare}[side], []
if sys.argv[4] == "memory":
    # a small call first, so that what is loaded on first use does not count
    f1_score([0, 1], [0, 1], average="macro"), mean_squared_error([0.0], [0.0])
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before = memory("VmRSS")
    run()
    print(json.dumps(memory("VmHWM") - before))
else:
    run()
    for _ in range(7):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    print(json.dumps(statistics.median(times)))
"""

#: Quantiles, means and intervals of a large leaderboard; prints seconds.
LEADERBOARD = """
import json, time
import numpy as np
from pytest_agentbench.benchmarks.agentds.board import overall_means
from pytest_agentbench.scoring import quantiles

values = np.random.default_rng(0).normal(size=(1000, 17))
domains = [f"d{n // 3}" for n in range(17)]
quantiles(values[:10, 0], higher=True)
begin = time.perf_counter()
scores = np.stack([quantiles(column, higher=True) for column in values.T], axis=1)
overall_means(scores, domains, resamples=1000)
print(json.dumps(time.perf_counter() - begin))
"""
ROWS = 150_000


def submissions(place: Path, rounds: int) -> list[dict[str, object]]:
    """Checking and scoring a large submission, against pandas and scikit-learn alone."""
    results = []
    for key, what in (("banking-1", "one UUID"), ("manufacturing-3", "three columns")):
        made = place / key
        made.mkdir()
        _write_submission(made, composite=key != "banking-1")

        def measure(side: str, kind: str, key: str = key, made: Path = made) -> float:
            command = [sys.executable, "-c", SUBMISSION, str(made), key, side, kind]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            return float(json.loads(done.stdout))

        for kind, unit, bar in (("time", "", "at most 1.5x"), ("memory", " (MiB)", "at most 2x")):
            ours, other = compare(
                rounds, lambda k=kind: measure("ours", k), lambda k=kind: measure("bare", k)
            )
            label = f"a submission, ids of {what}: {kind}{unit}"
            results.append(ratio(label, ours, other, bar))
    done = subprocess.run(
        [sys.executable, "-c", LEADERBOARD], capture_output=True, text=True, check=True
    )
    seconds = float(json.loads(done.stdout))
    results.append(
        {
            "what": "leaderboard of 1,000 participants",
            "ours": seconds,
            "other": 2.0,
            "result": f"{seconds:.2f} s",
            "bar": "< 2 s",
        }
    )
    return results


def _write_submission(place: Path, *, composite: bool) -> None:
    """Truth in order and a submission in another one."""
    chance = random.Random(1)
    if composite:
        head = "date,shift,machine_id,HoursDelayed\n"
        days = [f"2025-{month:02d}-{day:02d}" for month in range(1, 13) for day in range(1, 26)]
        ids = [f"{d},{s},M{m:03d}" for d in days for s in ("day", "night") for m in range(250)]
        rows = [f"{text},{chance.expovariate(0.5):.3f}\n" for text in ids[:ROWS]]
    else:
        head = "TxnID,FraudLabel\n"
        ids = [str(uuid.UUID(int=chance.getrandbits(128))) for _ in range(ROWS)]
        rows = [f"{text},{int(chance.random() < 0.05)}\n" for text in ids]
    assert len(rows) == ROWS
    (place / "truth.csv").write_text(head + "".join(rows))
    chance.shuffle(rows)
    (place / "submission.csv").write_text(head + "".join(rows))


def judge(place: Path, rounds: int) -> list[dict[str, object]]:
    """A run with a judge that takes half a second, against the run without and the least that so
    many votes can take."""
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from scripted_llm import ScriptedLLM, verdict

    from pytest_agentbench.benchmarks.genui import GenUI

    criteria = [{"id": f"r{number}", "criteria": "It is good."} for number in (1, 2)]
    rows = place / "judged.jsonl"
    plain = next(row for row in GenUI().bundled() if not row["expected_tool_trigger"])
    judged = [
        {**plain, "task_id": f"t{number}", "model_grader_rubrics": json.dumps(criteria)}
        for number in range(20)
    ]
    rows.write_text("".join(json.dumps(row) + "\n" for row in judged))
    votes, at_once, delay = 3, 16, 0.5
    least = len(judged) * len(criteria) * votes * delay / at_once
    common = ["--bench=genui", f"--bench-data={rows}", "-q", "-n0", "--bench-artifacts=none"]
    found = []
    with ScriptedLLM(verdict("PASS"), delay=delay) as server:
        asked = [
            *common,
            f"--bench-judge=openai:x@{server.url}",
            *(f"--bench-judge-votes={votes}", f"--bench-judge-concurrency={at_once}"),
        ]
        cache = f"--bench-judge-cache={place}/answers.sqlite"
        for what, more in (("half a second", ["--bench-judge-cache=off"]), ("cached", [cache])):
            with_judge, without = compare(
                rounds,
                lambda more=more: pytest_run(place, [*asked, *more], "20 passed"),  # type: ignore[misc]
                lambda: pytest_run(place, common, "20 passed"),
            )
            if what == "cached":
                found.append(ratio("120 votes out of the cache", with_judge, without, ""))
            else:
                found.append(ratio(f"120 votes of {what}", with_judge, without + least, "<= 1.3"))
    return found


def startup(place: Path, rounds: int) -> list[dict[str, object]]:
    """A pytest run that does not use the plugin, with it and without it."""
    (place / "test_one.py").write_text("def test_one(): pass\n")
    off = ["-q", "-p", "no:agentbench"]
    ours, other = compare(
        rounds * 6,
        lambda: pytest_run(place, ["-q"], "1 passed"),
        lambda: pytest_run(place, off, "1 passed"),
    )
    result = {
        "what": "start-up with the plugin inactive",
        "ours": ours,
        "other": other,
        "result": f"{(ours - other) * 1000:+.1f} ms",
        "bar": "< 10 ms",
    }
    return [result]


def compare(
    rounds: int, ours: Callable[[], float], other: Callable[[], float]
) -> tuple[float, float]:
    """Median seconds of both sides, run in turn after a warm-up that is not counted."""
    ours(), other()
    pairs = [(ours(), other()) if n % 2 else (other(), ours())[::-1] for n in range(rounds)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def ratio(what: str, ours: float, other: float, bar: str) -> dict[str, object]:
    """A line of the table."""
    return {
        "what": what,
        "ours": ours,
        "other": other,
        "result": f"{ours / other:.2f}x",
        "bar": bar,
    }


def pytest_run(place: Path, arguments: list[str], expected: str) -> float:
    """Seconds that a pytest run takes; it must end as *expected*, or nothing was measured."""
    env = {
        k: v
        for k, v in os.environ.items()
        if k not in ("PYTHONDONTWRITEBYTECODE", "PYTEST_ADDOPTS")
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    begin = time.perf_counter()
    done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - begin
    if expected not in done.stdout:
        raise SystemExit(
            f"{command}: expected {expected!r}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return seconds


if __name__ == "__main__":
    main()
