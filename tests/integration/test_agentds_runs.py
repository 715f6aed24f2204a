"""agentds through the command line: the published layout, labels, pools, leaderboards, options."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests_support import handed_challenges, known_challenges, publish

from .conftest import Run

Bench = Callable[..., Run]
NAIVE = "--bench-agent=py:pytest_agentbench.benchmarks.agentds.baselines:naive"
BUNDLED = ("--bench=agentds", "--bench-data=bundled")

CHALLENGE = """
key = "sizes"
domain = "Trees"
metric = "{metric}"
id = ["tree"]
prediction = ["size"]
train = "train.csv"
test = "test.csv"
labels = "secret/truth.csv"
"""


@pytest.fixture
def own(pytester: pytest.Pytester) -> Callable[..., Path]:
    """Makes a directory with one challenge of one's own, unless changed."""

    def make(
        metric: str = "MAE",
        *,
        toml: str = "",
        truth: str = "tree,size\na,1\nb,2\nc,4\n",
        pool: str = "",
        train: str = "tree,size\nx,3\ny,5\nz,1\n",
    ) -> Path:
        root = pytester.path / "data"
        place = root / "trees"
        (place / "secret").mkdir(parents=True)
        (place / "challenge.toml").write_text(CHALLENGE.format(metric=metric) + toml)
        (place / "train.csv").write_text(train)
        (place / "test.csv").write_text("tree\na\nb\nc\n")
        (place / "secret" / "truth.csv").write_text(truth)
        if pool:
            head = "challenge,participant,metric_value,submissions,submitted_at\n"
            (root / "pool.csv").write_text(head + pool)
        return root

    return make


@pytest.fixture
def writes(pytester: pytest.Pytester) -> Callable[..., str]:
    """An agent that writes a text as submission.csv; gives its ``--bench-agent`` value."""

    def make(text: str | None, name: str = "writer") -> str:
        pytester.makepyfile(
            **{
                name: f"""
                def {name}(task, workspace):
                    text = {text!r}
                    if text is not None:
                        (workspace / "submission.csv").write_text(text)
                    return ", ".join(sorted(p.name for p in workspace.rglob("*")))
                """
            }
        )
        return f"--bench-agent=py:{name}:{name}"

    return make


def submission(*sizes: object) -> str:
    return "tree,size\n" + "".join(f"{t},{s}\n" for t, s in zip("abc", sizes, strict=True))


def details(run: Run, number: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = dict(run.records[number].details["agentds"])
    return found


# -- the bundled suite --------------------------------------------------------------------------


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_reference_and_naive_are_ranked_in_the_pool(bench: Bench, workers: str) -> None:
    run = bench(*BUNDLED, "--bench-agent=reference", NAIVE, workers)

    run.result.assert_outcomes(passed=12)
    board = run.summary["leaderboards"]["agentds"]
    ranks = {row["participant"]: row["rank"] for row in board["rows"] if row["agent"]}
    assert len(board["rows"]) == 32
    assert ranks["reference"] < 10 < 25 < ranks["naive"]
    assert set(board["domains"]) == {"Energy", "Library", "Orchard"}
    run.result.stdout.re_match_lines(
        [
            r"agentbench: agentds: pool the bundled pool, ties min$",
            r"agentds · agent reference .*",
            r"  quantile    0\.\d{3}  95 % .*mean of the domains",
            r"agentds · leaderboard",
            r"  pool of 30, 2 agents, 6 challenges, n \d+ to 32",
            r"    rank participant +overall +Energy +Library +Orchard",
            r"   \* +\d+ reference +0\.\d{3} .*",
            r"   \* +\d+ naive +0\.\d{3} .*",
        ]
    )
    assert max(map(len, run.text.partition("= agentbench =")[2].splitlines())) <= 80


def test_the_leaderboard_is_a_table_on_disk_too(bench: Bench) -> None:
    run = bench(*BUNDLED, NAIVE)

    rows = pd.read_csv(run.out / "leaderboard-agentds.csv")
    same = pd.read_parquet(run.out / "leaderboard-agentds.parquet")
    board = run.summary["leaderboards"]["agentds"]["rows"]

    assert rows["participant"].tolist() == [row["participant"] for row in board]
    assert same["participant"].tolist() == rows["participant"].tolist()
    assert rows["overall"].tolist() == pytest.approx([row["overall"] for row in board])
    assert {"domains.Energy", "challenges.energy-1", "submissions"} <= set(rows.columns)
    facts = json.loads((run.out / "run.json").read_text())["datasets"]["agentds"]["facts"]
    assert facts == {"labels": "the challenges' own, if any", "pool": "the bundled pool, ties min"}


def test_trials_and_markers(bench: Bench) -> None:
    run = bench(*BUNDLED, NAIVE, "--bench-trials=2", "-m", "orchard and not rmse")

    assert run.verdicts == {"orchard-1/1": "pass", "orchard-1/2": "pass"}


# -- the published layout -----------------------------------------------------------------------


@pytest.fixture(params=["handed", "built in"])
def challenges(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """The 17 challenges, as the handed table and as the package's own has them."""
    if request.param == "built in":
        return known_challenges()
    shared: Path = request.getfixturevalue("shared_data")
    return handed_challenges(shared / "agentds" / "challenges.csv")


def test_published_challenges(
    bench: Bench, pytester: pytest.Pytester, challenges: list[dict[str, Any]]
) -> None:
    data, labels = pytester.path / "data", pytester.path / "labels"
    publish(data, challenges, labels)
    names = {f"{challenge['key']}/1" for challenge in challenges}
    assert len(names) == 17

    without = bench("--bench=agentds", f"--bench-data={data}", NAIVE, "-n2", out="without")
    given = [f"--bench-data={data}", f"--bench-agentds-labels={labels}", NAIVE]
    run = bench("--bench=agentds", *given, "-n2", out="with")

    assert without.verdicts == dict.fromkeys(sorted(names), "skip")
    assert all("--bench-agentds-labels" in record.reason for record in without.records)
    assert without.metric("pass@1") is None
    assert run.verdicts == dict.fromkeys(sorted(names), "pass")
    assert {record.details["groups"]["domain"] for record in run.records} == {
        "Commerce",
        "Food Production",
        "Healthcare",
        "Insurance",
        "Manufacturing",
        "Retail Banking",
    }


def test_a_local_split_needs_no_labels_and_says_so(bench: Bench, pytester: pytest.Pytester) -> None:
    data = pytester.path / "data"
    publish(data, known_challenges(), None)

    run = bench("--bench=agentds", f"--bench-data={data}", "--bench-agentds-labels=split", NAIVE)

    assert set(run.verdicts.values()) == {"pass"}
    assert len(run.verdicts) == 17
    assert all(details(run, n)["labels"].startswith("local split") for n in range(17))
    run.result.stdout.fnmatch_lines(
        [
            "agentbench: agentds: labels local split (share 0.2, seed 0)",
            "  labels: local split * not the published test set",
        ]
    )


def test_labels_in_folders_are_found_by_their_columns(
    bench: Bench, pytester: pytest.Pytester
) -> None:
    data, labels = pytester.path / "data", pytester.path / "labels"
    chosen = [c for c in known_challenges() if c["key"].startswith("insurance")]
    publish(data, chosen, pytester.path / "flat")
    tables = [pd.read_csv(pytester.path / "flat" / f"{c['key']}.csv", dtype=str) for c in chosen]
    tables.pop(1)
    (labels / "Insurance").mkdir(parents=True)
    tables[0].merge(tables[1]).to_csv(labels / "Insurance" / "test_claims_labels.csv", index=False)

    run = bench(
        "--bench=agentds", f"--bench-data={data}", f"--bench-agentds-labels={labels}", NAIVE
    )

    assert run.verdicts == {
        "insurance-1/1": "pass",
        "insurance-2/1": "skip",
        "insurance-3/1": "pass",
    }


def test_reference_needs_the_bundled_challenges(bench: Bench, pytester: pytest.Pytester) -> None:
    publish(pytester.path / "data", known_challenges()[:1], None)

    run = bench("--bench=agentds", f"--bench-data={pytester.path / 'data'}", out=None)

    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert "no reference solutions" in run.text + run.errors


# -- challenges of one's own --------------------------------------------------------------------


def test_an_own_challenge_without_a_pool(
    bench: Bench, own: Callable[..., Path], writes: Callable[..., str]
) -> None:
    data, agent = f"--bench-data={own()}", writes(submission(1, 2, 7))

    run = bench("--bench=agentds", data, agent, "--bench-artifacts=all")

    record = run.records[0]
    assert (record.verdict, record.score) == ("pass", None)
    assert details(run)["metric_value"] == 1.0
    assert run.metric("pass@1") == 1.0
    assert "MAE" in record.checks[1].message
    # neither the labels nor what names them is shown to the agent
    said = (run.out / "writer" / "agentds" / "sizes" / "1" / "transcript.jsonl").read_text()
    assert "challenge.json, description.md, submission.csv, test.csv, train.csv" in said


@pytest.mark.parametrize(
    ("sizes", "least", "metric", "verdict"),
    [
        ((1, 2, 7), "1", "MAE", "pass"),
        ((1, 2, 34), "12.5", "MAE", "pass"),
        ((1, 2, 43), "12.5", "MAE", "fail"),
        ((1, 2, 7), "0.5", "MAE", "fail"),
        ((1, 2, 4), "1", "Normalized Gini", "pass"),
        ((4, 2, 1), "0.5", "Normalized Gini", "fail"),
    ],
)
def test_the_pass_mark_without_a_pool_is_the_metric(
    bench: Bench,
    own: Callable[..., Path],
    writes: Callable[..., str],
    sizes: tuple[int, ...],
    least: str,
    metric: str,
    verdict: str,
) -> None:
    data = f"--bench-data={own(metric)}"

    run = bench("--bench=agentds", data, writes(submission(*sizes)), f"--bench-pass-score={least}")

    assert run.records[0].verdict == verdict
    if verdict == "fail":
        assert f"--bench-pass-score is {float(least):g}" in run.records[0].reason


POOL = "sizes,Ada,0.5,3,2026-01-02T10:00:00Z\nsizes,Bo,1.5,1,\nsizes,Cy,,0,\n"


def test_a_new_entrant_and_a_participant_of_the_pool(
    bench: Bench, own: Callable[..., Path], writes: Callable[..., str]
) -> None:
    data = f"--bench-data={own(pool=POOL)}"
    agents = [writes(submission(1, 2, 7), name) for name in ("newcomer", "Bo")]

    run = bench("--bench=agentds", data, *agents)

    found, again = (details(run, number) for number in (0, 1))
    assert (found["quantile"], found["rank"], found["n"]) == (0.5, 2, 3)
    assert (again["quantile"], again["rank"], again["n"]) == (0.0, 2, 2)
    assert found["quantile_moves"] == [0.0, 1.0]
    assert run.records[0].score == 0.5
    message = run.records[0].checks[1].message
    assert "rank 2 of 3" in message and "one participant more or less" in message


@pytest.mark.parametrize(("ties", "quantile"), [("min", 0.5), ("average", 0.25), ("max", 0.0)])
def test_tie_rules(
    bench: Bench,
    own: Callable[..., Path],
    writes: Callable[..., str],
    ties: str,
    quantile: float,
) -> None:
    data = f"--bench-data={own(pool=POOL)}"

    run = bench(
        "--bench=agentds", data, writes(submission(1, 2, 8.5)), f"--bench-agentds-ties={ties}"
    )

    assert run.records[0].score == quantile


def test_quantile_is_the_pass_mark_where_there_is_a_pool(
    bench: Bench, own: Callable[..., Path], writes: Callable[..., str]
) -> None:
    data, agent = f"--bench-data={own(pool=POOL)}", writes(submission(1, 2, 7))

    run = bench("--bench=agentds", data, agent, "--bench-pass-score=0.6")

    assert run.records[0].verdict == "fail"
    assert "quantile 0.5" in run.records[0].reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "submission: there is no submission.csv"),
        ("tree,size\na,1\n", "row_count: 1 row where 3 are expected"),
    ],
)
def test_without_a_valid_submission_a_trial_fails_with_0(
    bench: Bench,
    own: Callable[..., Path],
    writes: Callable[..., str],
    text: str | None,
    reason: str,
) -> None:
    run = bench("--bench=agentds", f"--bench-data={own(pool=POOL)}", writes(text))

    record = run.records[0]
    assert (record.verdict, record.score) == ("fail", 0.0)
    assert record.reason.startswith(reason)
    assert run.ret == pytest.ExitCode.TESTS_FAILED
    board = run.summary["leaderboards"]["agentds"]["rows"]
    assert [row["overall"] for row in board if row["agent"]] == [0.0]


def test_agents_are_each_others_pool(
    bench: Bench, own: Callable[..., Path], writes: Callable[..., str]
) -> None:
    agents = [
        writes(submission(1, 2, size), name)
        for size, name in ((4, "best"), (5, "middle"), (9, "worst"))
    ]

    run = bench("--bench=agentds", f"--bench-data={own()}", *agents, writes(None, "absent"))

    board = run.summary["leaderboards"]["agentds"]
    assert [(row["participant"], row["overall"]) for row in board["rows"]] == [
        ("best", 1.0),
        ("middle", 0.5),
        ("worst", 0.0),
        ("absent", 0.0),
    ]
    assert board["challenges"] == {"sizes": 3}


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"truth": "tree,size\na,1\nb,2\n"}, "have no value for ids of the test file: c"),
        ({"truth": "tree,size\na,1\nb,2\nc,much\n"}, "hold no finite number for c"),
        ({"truth": "tree,size\na,1\na,1\nb,2\nc,3\n"}, "repeats ids: a"),
        ({"truth": "tree,weight\na,1\n"}, "expected the columns tree, size"),
        ({"truth": ""}, "truth.csv"),
        ({"pool": "sizes,Ada,much,1,\n"}, "row 2, metric_value: 'much' is not a finite number"),
        ({"pool": "sizes,Ada,1,1,\nsizes,Ada,2,1,\n"}, "row 3: 'Ada' stands twice"),
        ({"pool": "sizes,Ada,1,1,yesterday\n"}, "submitted_at: 'yesterday' is no ISO 8601"),
        ({"metric": "AUC"}, "column 'metric': expected one of"),
        ({"toml": 'lables = "x"'}, "column 'lables': unknown key. Did you mean 'labels'?"),
        ({"toml": 'files = ["../../*"]'}, "column 'files': expected a path inside"),
        ({"toml": "time_limit_s = -1"}, "column 'time_limit_s': expected a number above 0"),
        ({"toml": "= nothing"}, "column 'challenge.toml': cannot be read"),
        ({"toml": 'direction = "higher"'}, "column 'direction': MAE is better the lower it is"),
    ],
)
def test_what_the_harness_cannot_use_is_an_error(
    bench: Bench,
    own: Callable[..., Path],
    writes: Callable[..., str],
    changes: dict[str, str],
    part: str,
) -> None:
    run = bench("--bench=agentds", f"--bench-data={own(**changes)}", writes(submission(1, 2, 4)))

    assert [record.verdict for record in run.records] == ["error"]
    assert part in run.records[0].reason
    assert "agentds" in run.records[0].reason


def test_labels_elsewhere_replace_the_challenges_own(
    bench: Bench, own: Callable[..., Path], writes: Callable[..., str], pytester: pytest.Pytester
) -> None:
    other = pytester.path / "labels"
    other.mkdir()
    (other / "sizes.csv").write_text("tree,size\na,2\nb,3\nc,5\n")
    data = f"--bench-data={own()}"

    run = bench(
        "--bench=agentds", data, f"--bench-agentds-labels={other}", writes(submission(1, 2, 4))
    )

    assert details(run)["metric_value"] == 1.0


def test_a_link_out_of_the_data_is_refused(
    bench: Bench, own: Callable[..., Path], writes: Callable[..., str]
) -> None:
    root = own(toml='files = ["more"]')
    (root / "trees" / "more").mkdir()
    (root / "trees" / "more" / "passwords").symlink_to("/etc/passwd")

    run = bench("--bench=agentds", f"--bench-data={root}", writes(submission(1, 2, 4)))

    assert run.records[0].verdict == "error"
    assert "leads out of" in run.records[0].reason


@pytest.mark.parametrize(
    ("option", "part"),
    [
        ("--bench-agentds-labels=nowhere", "'nowhere' is not a directory"),
        ("--bench-agentds-labels=split:2", "0 < SHARE < 1"),
        ("--bench-agentds-labels=split:many", "0 < SHARE < 1"),
        ("--bench-agentds-pool=nowhere", "'nowhere' is not a file"),
        ("--bench-agentds-ties=mni", "'mni'"),
        ("--bench-agentds-max-mb=0", "--bench-agentds-max-mb"),
        ("--bench-pass-score=2", "expected a number between 0 and 1 for agentds, got 2"),
        ("--bench-data=org/no-such-dataset,x", "--bench-data: 'x'"),
    ],
)
def test_wrong_options_are_usage_errors(bench: Bench, option: str, part: str) -> None:
    data = () if option.startswith("--bench-data") else ("--bench-data=bundled",)

    run = bench("--bench=agentds", *data, NAIVE, option, out=None)

    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert part in run.text + run.errors


def test_the_size_limit(bench: Bench, own: Callable[..., Path], writes: Callable[..., str]) -> None:
    long = submission(1, 2, "4." + "0" * 2000)

    run = bench(
        "--bench=agentds", f"--bench-data={own()}", writes(long), "--bench-agentds-max-mb=0.001"
    )

    assert run.records[0].reason.startswith("size: submission.csv is larger than 0.001 MB")


def test_no_trial_reaches_the_files_of_another(
    bench: Bench, own: Callable[..., Path], pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(
        vandal="""
        def agent(task, workspace):
            assert (workspace / "train.csv").read_text().startswith("tree,size")
            for path in workspace.rglob("*.csv"):
                path.write_text("gone")
            (workspace / "submission.csv").write_text("tree,size\\na,1\\nb,2\\nc,4\\n")
            return "done"
        """
    )
    root = own()

    run = bench(
        "--bench=agentds",
        f"--bench-data={root}",
        "--bench-agent=py:vandal:agent",
        "--bench-trials=3",
    )

    assert set(run.verdicts.values()) == {"pass"}
    assert (root / "trees" / "test.csv").read_text().startswith("tree")


def test_an_own_test_takes_the_same_tasks(bench: Bench, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.bench("agentds")
        def test_mine(bench):
            trial = bench.run()
            assert trial.passed
        """
    )

    run = bench("--bench-data=bundled", "--bench-limit=2")

    run.result.assert_outcomes(passed=2)
    assert len(run.summary["leaderboards"]) == 1
    name = next(run.out.glob("leaderboard-*.csv")).name
    with (run.out / name).open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 31


def test_a_pool_without_the_challenge_is_an_error(
    bench: Bench, own: Callable[..., Path], writes: Callable[..., str]
) -> None:
    data = f"--bench-data={own(pool='Sizes,Ada,0.5,1,')}"

    run = bench("--bench=agentds", data, writes(submission(1, 2, 4)))

    assert run.verdicts == {"sizes/1": "error"}
    assert "has no participant in sizes; it has Sizes" in run.records[0].reason


def test_what_has_no_score_is_no_0_in_the_mean(
    bench: Bench, own: Callable[..., Path], pytester: pytest.Pytester
) -> None:
    """Without a pool an error in centimetres is no score: not of who misses it either."""
    pytester.makepyfile(
        sometimes=f"""
        def agent(task, workspace):
            if task.trial != 2:
                (workspace / "submission.csv").write_text({submission(1, 2, 4)!r})
            return "done"
        """
    )
    agent = "--bench-agent=py:sometimes:agent"

    run = bench("--bench=agentds", f"--bench-data={own()}", agent, "--bench-trials=3", "-q")

    assert [record.verdict for record in run.records] == ["pass", "fail", "pass"]
    assert [record.score for record in run.records] == [None] * 3
    assert run.metric("mean_score") is None
    assert run.metric("pass@1") == pytest.approx(2 / 3)
    assert "mean_score – (0 of 1 tasks)" in run.text


@pytest.mark.parametrize("option", ["-x", "--bench-limit=1"])
def test_a_leaderboard_of_a_part_of_the_challenges(bench: Bench, option: str) -> None:
    run = bench(*BUNDLED, "--bench-agent=noop", option)

    board = run.summary["leaderboards"]["agentds"]
    row = next(row for row in board["rows"] if row["agent"])
    assert (row["scored"], row["overall"], row["overall_low"]) == (1, 0.0, None)
