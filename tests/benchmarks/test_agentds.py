"""agentds: challenges, what agents get, splits, pools, boards, and the bundled suite."""

from __future__ import annotations

import csv
import filecmp
import json
import math
import statistics
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests_support import known_challenges, publish

from pytest_agentbench.benchmarks.agentds import AgentDS
from pytest_agentbench.benchmarks.agentds.baselines import naive, solve
from pytest_agentbench.benchmarks.agentds.board import (
    Column,
    Result,
    board_lines,
    leaderboard,
    overall_means,
)
from pytest_agentbench.benchmarks.agentds.challenge import Broken, Challenge, published
from pytest_agentbench.benchmarks.agentds.generate import generate
from pytest_agentbench.benchmarks.agentds.labels import given_truth
from pytest_agentbench.benchmarks.agentds.places import (
    Place,
    agent_files,
    find_challenges,
    names_of,
)
from pytest_agentbench.benchmarks.agentds.pool import Entry, Pool, read_pool
from pytest_agentbench.benchmarks.agentds.split import cut_from_train
from pytest_agentbench.benchmarks.agentds.submission import read_submission
from pytest_agentbench.datasets import Dataset
from pytest_agentbench.errors import HarnessError, SkipTrial
from pytest_agentbench.model import AgentTask, Task, TaskRef
from pytest_agentbench.scoring import TIES, wilson
from pytest_agentbench.settings import Settings

DATA = Path(str(files("pytest_agentbench.benchmarks").joinpath("data", "agentds")))
KEYS = ("energy-1", "energy-2", "library-1", "library-2", "orchard-1", "orchard-2")


def places_of(root: Path) -> dict[str, Place]:
    found = {}
    for row in find_challenges(root):
        challenge = Challenge.parse(json.loads(row["spec"]))
        found[challenge.key] = Place(challenge, root / row["directory"], root, row["own"])
    return found


BUNDLED = places_of(DATA)


# -- the bundled suite --------------------------------------------------------------------------


def test_the_suite_is_what_the_generator_makes(tmp_path: Path) -> None:
    generate(tmp_path / "made")

    made = sorted(p.relative_to(tmp_path / "made") for p in (tmp_path / "made").rglob("*.*"))
    kept = sorted(p.relative_to(DATA) for p in DATA.rglob("*.*"))
    assert made == kept and len(made) > 400
    same, different, odd = filecmp.cmpfiles(tmp_path / "made", DATA, map(str, made), shallow=False)
    assert (len(same), different, odd) == (len(made), [], [])


def test_what_the_suite_covers() -> None:
    assert tuple(BUNDLED) == KEYS
    challenges = [place.challenge for place in BUNDLED.values()]
    assert {c.metric.name for c in challenges} == {
        "MSE",
        "MAE",
        "NDCG@10",
        "Macro-F1",
        "Normalized Gini",
        "RMSE",
    }
    assert len({c.domain for c in challenges}) == 3
    suffixes = {path.suffix for path in DATA.rglob("*.*")}
    assert {".png", ".pdf", ".json", ".jsonl", ".csv"} <= suffixes
    pool = read_pool(DATA / "pool.csv")
    assert len(pool.participants) == 30
    assert set(pool.entries) == set(KEYS)


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., float]:
    """Runs a solution on a bundled challenge and gives its metric."""
    benchmark = AgentDS()
    benchmark.configure(Settings(), "bundled")

    def run(key: str, solution: Callable[[Path], Any]) -> float:
        place = BUNDLED[key]
        workspace = tmp_path_factory.mktemp(key)
        task = Task(TaskRef("agentds", key, key, 0, ""), "", place, 60)
        benchmark.prepare(task, workspace)
        solution(workspace)
        truth = given_truth(place, None)
        found = read_submission(workspace, place.challenge, truth, max_bytes=10**7, headers={})
        assert not found.problems
        return float(place.challenge.metric.function(truth.values, found.values))

    return run


@pytest.mark.parametrize("key", KEYS)
def test_the_second_modality_matters(key: str, solved: Callable[..., float]) -> None:
    """The reference that reads it beats the one that does not, in quantiles of the pool."""
    task = AgentTask("agentds", "", "", sessions=(), tools=(), time_limit_s=60, trial=1, seed=0)
    pool, metric = read_pool(DATA / "pool.csv"), BUNDLED[key].challenge.metric

    def quantile(solution: Callable[[Path], Any]) -> float:
        value = solved(key, solution)
        return pool.standing(key, "x", value, higher=metric.higher, ties="min").quantile

    whole, tables = quantile(solve), quantile(lambda place: solve(place, modality=False))

    assert whole > tables + 0.15
    assert whole > quantile(lambda place: naive(task, place)) + 0.3


# -- challenges ---------------------------------------------------------------------------------


def test_the_table_of_published_challenges(shared_data: Path) -> None:
    with (shared_data / "agentds" / "challenges.csv").open(newline="") as file:
        handed = {row["key"]: row for row in csv.DictReader(file)}

    challenges = {spec["key"]: Challenge.parse(spec) for spec in published()}

    assert list(challenges) == list(handed)
    for key, row in handed.items():
        challenge = challenges[key]
        assert challenge.domain == row["domain"]
        assert challenge.header == tuple(row["submission_header"].split(","))
        assert challenge.ids == tuple(row["id_columns"].split("|"))
        assert row["metric"].startswith(challenge.metric.name)
        assert challenge.metric.higher == (row["direction"] == "higher")
        assert challenge.train == row["train_file"].rpartition("/")[2]
        assert challenge.test == row["test_file"].rpartition("/")[2]
        assert row["hf_dataset"] in AgentDS.published.split(",")
        if challenge.values:
            assert row["label_values"].startswith("|".join(challenge.values))


SPEC = {
    "key": "k",
    "metric": "RMSE",
    "id": ["i"],
    "prediction": ["p"],
    "train": "a.csv",
    "test": "b.csv",
}


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"metric": "F2"}, "metric"),
        ({"id": []}, "id"),
        ({"id": [1]}, "id"),
        ({"prediction": ["p", "q"]}, "prediction"),
        ({"prediction": ["i"]}, "prediction"),
        ({"train": "/etc/passwd"}, "train"),
        ({"labels": "../x"}, "labels"),
        ({"files": "x"}, None),
        ({"metric": "NDCG@10", "prediction": "s_1..s_10"}, None),
        ({"metric": "NDCG@10", "prediction": "s_1..s_11"}, "prediction"),
        ({"metric": "NDCG@10", "prediction": "s_9..s_1"}, "prediction"),
        ({"shifted": True}, "split_by"),
        ({"split_by": "x"}, "split_by"),
        ({"items": {"file": "x"}}, "items"),
        ({"direction": "up"}, "direction"),
        ({"time_limit_s": True}, "time_limit_s"),
        ({"metirc": "x"}, "metirc"),
    ],
)
def test_what_a_challenge_may_say(change: dict[str, Any], key: str | None) -> None:
    if key is None:
        assert Challenge.parse({**SPEC, **change}).key == "k"
    else:
        with pytest.raises(Broken) as caught:
            Challenge.parse({**SPEC, **change})
        assert caught.value.key == key


@pytest.mark.parametrize("key", ["key", "metric", "id", "prediction", "train", "test"])
def test_what_a_challenge_must_say(key: str) -> None:
    with pytest.raises(Broken, match="is missing") as caught:
        Challenge.parse({name: value for name, value in SPEC.items() if name != key})
    assert caught.value.key == key


# -- places and files ---------------------------------------------------------------------------


def test_both_ways_to_write_a_name() -> None:
    assert names_of("claims_train.csv") == ["claims_train.csv", "train_claims.csv"]
    assert names_of("test_claims.csv") == ["test_claims.csv", "claims_test.csv"]
    assert names_of("images") == ["images"]


@pytest.mark.parametrize(
    "folder", ["RetailBanking", "Retailbanking", "retail banking", "AgentDS-RetailBanking"]
)
def test_irregular_folders(tmp_path: Path, folder: str) -> None:
    publish(tmp_path, [c for c in known_challenges() if c["key"] == "banking-2"], None)
    (tmp_path / "RetailBanking").rename(tmp_path / folder)

    found = places_of(tmp_path)

    assert found["banking-2"].file("customer_panel_train.csv", "train").is_file()


def test_a_directory_that_is_one_domain(tmp_path: Path) -> None:
    publish(tmp_path, [c for c in known_challenges() if c["key"] == "healthcare-1"], None)

    assert "healthcare-1" in places_of(tmp_path / "Healthcare")


def test_an_agent_gets_its_own_challenge_and_no_label(tmp_path: Path) -> None:
    chosen = [c for c in known_challenges() if c["key"].startswith("healthcare")]
    publish(tmp_path, chosen, None)
    place = tmp_path / "Healthcare"
    for name, text in {
        "admissions_test_labels.csv": "admission_id,readmit_30d\n1,0\n",
        "solution.json": "{}",
        "more.csv": "admission_id,readmit_30d\n1,0\n",
        "sample_submission.csv": "admission_id,readmit_30d\n1,0\n",
        "sample_other.csv": "stay_id,discharge_ready_day11\n1,0\n",
        "description.md": "# Rules\n",
        "lookup.csv": "ward,beds\n1,2\n",
        ".cache": "x",
    }.items():
        (place / name).write_text(text)

    found = [name for name, _ in agent_files(places_of(tmp_path)["healthcare-1"])]

    assert found == [
        "admissions_test.csv",
        "admissions_train.csv",
        "description.md",
        "discharge_notes.json",
        "lookup.csv",
        "sample_submission.csv",
    ]


def test_own_challenges_give_what_they_name() -> None:
    place = BUNDLED["orchard-1"]

    found = [name for name, _ in agent_files(place)]

    assert {"train.csv", "test.csv"} <= set(found)
    assert sum(name.startswith("images/") for name in found) == len(found) - 2 > 100


def test_the_workspace_of_a_bundled_challenge(tmp_path: Path) -> None:
    benchmark = AgentDS()
    benchmark.configure(Settings(), "bundled")
    dataset = Dataset.build("bundled", benchmark.rows("bundled") or ())
    row = dataset.rows[1]
    task = benchmark.task(TaskRef("agentds", "energy-2", "energy-2", 1, ""), row)

    benchmark.prepare(task, tmp_path)

    names = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()}
    assert {"challenge.json", "description.md", "train.csv", "test.csv"} <= names
    assert not any("label" in name or "pool" in name or name.endswith(".toml") for name in names)
    about = json.loads((tmp_path / "challenge.json").read_text())
    assert (about["metric"], about["direction"]) == ("MAE", "lower is better")
    assert "site_id,cost_next_year_eur" in task.prompt
    assert (tmp_path / "invoices").is_dir()


# -- local splits -------------------------------------------------------------------------------


@pytest.fixture
def panel(tmp_path: Path) -> Callable[..., Place]:
    """Makes a challenge on a file of rows."""

    def make(rows: pd.DataFrame, test: pd.DataFrame | None = None, **changes: Any) -> Place:
        rows.to_csv(tmp_path / "train.csv", index=False)
        (rows.head(1) if test is None else test).to_csv(tmp_path / "test.csv", index=False)
        spec = {**SPEC, "train": "train.csv", "test": "test.csv", **changes}
        return Place(Challenge.parse(spec), tmp_path, tmp_path, True)

    return make


def test_a_split_is_the_same_for_every_order_of_rows(panel: Callable[..., Place]) -> None:
    rows = pd.DataFrame({"i": [f"r{n}" for n in range(50)], "x": range(50), "p": range(50)})

    one = cut_from_train(panel(rows), 0.2, 0)
    other = cut_from_train(panel(rows.sample(frac=1, random_state=1)), 0.2, 0)
    third = cut_from_train(panel(rows), 0.2, 7)

    assert len(one.test) == 10 and len(one.train) == 40
    assert set(one.test["i"]) == set(other.test["i"]) != set(third.test["i"])
    assert "p" not in one.test and "x" in one.test
    assert not set(one.test["i"]) & set(one.train["i"])
    assert one.truth.values.tolist() == [float(name[1:]) for name in one.test["i"]]


def test_a_split_keeps_the_shares_of_classes(panel: Callable[..., Place]) -> None:
    rows = pd.DataFrame({"i": [f"r{n}" for n in range(100)], "p": ["a"] * 90 + ["b"] * 10})

    cut = cut_from_train(panel(rows, metric="Macro-F1"), 0.2, 0)

    labels = [cut.truth.classes[code] for code in cut.truth.values]
    assert (labels.count("a"), labels.count("b")) == (18, 2)


def test_nothing_as_late_as_what_is_held_out_stays_in_train(panel: Callable[..., Place]) -> None:
    """The truth of a week is the next week's number: that must not stay in train."""
    rows = pd.DataFrame(
        [{"i": sku, "week": week, "sold": 100 * week} for sku in "ab" for week in range(1, 12)]
    )
    place = panel(
        rows, id=["i", "week"], target="sold", shifted=True, split_by="week", prediction=["p"]
    )

    cut = cut_from_train(place, 0.2, 0)

    assert sorted(set(cut.test["week"].astype(int))) == [9, 10]
    assert cut.train["week"].astype(int).max() == 8
    assert list(cut.test.columns) == ["i", "week"]
    truth = dict(zip(cut.test["week"].astype(int), cut.truth.values, strict=True))
    assert truth == {9: 1000.0, 10: 1100.0}


def test_a_ranking_is_split_by_customer(panel: Callable[..., Place]) -> None:
    rows = pd.DataFrame([{"i": f"c{n % 10}", "s": f"s{n}"} for n in range(40)])
    place = panel(rows, rows[["i"]].head(1), metric="NDCG@10", prediction="s_1..s_10")

    cut = cut_from_train(place, 0.2, 0)

    assert len(cut.test) == 2 and list(cut.test.columns) == ["i"]
    assert not set(cut.test["i"]) & set(cut.train["i"])
    for customer, wanted in zip(cut.test["i"], cut.truth.values, strict=True):
        assert wanted == frozenset(rows[rows["i"] == customer]["s"])


def test_a_split_that_cannot_be_made_is_told(panel: Callable[..., Place]) -> None:
    rows = pd.DataFrame({"i": ["a", "b"], "p": [1, 2]})

    with pytest.raises(HarnessError, match="too few"):
        cut_from_train(panel(rows), 0.2, 0)
    with pytest.raises(SkipTrial, match="lacks p"):
        cut_from_train(panel(rows[["i"]]), 0.2, 0)


def test_a_parquet_train_file_stays_one(tmp_path: Path) -> None:
    rows = pd.DataFrame({"i": range(20), "x": [0.5] * 20, "p": range(20)})
    rows.to_parquet(tmp_path / "train.parquet")
    rows.to_parquet(tmp_path / "test.parquet")
    (tmp_path / "challenge.toml").write_text(
        'key = "k"\nmetric = "MSE"\nid = ["i"]\nprediction = ["p"]\n'
        'train = "train.parquet"\ntest = "test.parquet"\n'
    )
    benchmark = AgentDS()
    benchmark.configure(Settings(agentds_labels="split:0.25"), str(tmp_path))
    row = next(iter(benchmark.rows(str(tmp_path)) or ()))
    task = benchmark.task(TaskRef("agentds", "k", "k", 0, ""), Dataset.build("x", [row]).rows[0])
    (tmp_path / "work").mkdir()

    benchmark.prepare(task, tmp_path / "work")

    train = pd.read_parquet(tmp_path / "work" / "train.parquet")
    test = pd.read_parquet(tmp_path / "work" / "test.parquet")
    assert (len(train), len(test)) == (15, 5)
    assert train["x"].dtype == float and list(test.columns) == ["i", "x"]


# -- pools and boards ---------------------------------------------------------------------------

HEAD = "version,challenge,participant,metric_value,submissions,submitted_at\n"


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_pool_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"pool{suffix}"
    table = pd.DataFrame(
        {
            "challenge": ["c", "c"],
            "participant": ["Ada", "Bo"],
            "metric_value": [0.5, math.nan],
            "submissions": [3, 0],
            "submitted_at": ["2026-01-02T11:00:00+01:00", None],
        }
    )
    table.to_csv(path, index=False) if suffix == ".csv" else table.to_parquet(path)

    pool = read_pool(path)

    assert pool.entries["c"]["Ada"] == Entry(0.5, 3, "2026-01-02T10:00:00.000+00:00")
    assert math.isnan(pool.entries["c"]["Bo"].value)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("challenge,participant\nc,a\n", "lacks the column metric_value"),
        (HEAD + "2,c,a,1,1,\n", "row 2: version '2' is unknown"),
        (HEAD + "1,,a,1,1,\n", "row 2: challenge and participant"),
        (HEAD + "1,c,a,inf,1,\n", "row 2, metric_value"),
        (HEAD + "1,c,a,1,many,\n", "row 2, submissions"),
        (HEAD + "1,c,a,1,1,,,,\n", "ParserWarning"),
        ("", "EmptyDataError"),
    ],
)
def test_a_broken_pool_is_an_error_that_says_where(tmp_path: Path, text: str, part: str) -> None:
    (tmp_path / "pool.csv").write_text(text)

    with pytest.raises(HarnessError) as caught:
        read_pool(tmp_path / "pool.csv")
    assert part in str(caught.value) and "pool.csv" in str(caught.value)


def test_a_missing_challenge_counts_0_in_its_domain() -> None:
    """1, 0.5 and nothing: (1 + 0.5 + 0) / 3, where the third was not submitted."""
    by_domain, overall, _ = overall_means([[1.0, 0.5, 0.0]], ["d"] * 3)

    assert by_domain.tolist() == [[0.5]] and overall.tolist() == [0.5]


def test_overall_is_the_mean_of_domains_not_of_challenges() -> None:
    domains = [f"d{n // 3}" for n in range(15)] + ["banking"] * 2

    _, overall, _ = overall_means([[0.5] * 15 + [1.0] * 2], domains)

    assert overall[0] == pytest.approx(0.583333, abs=1e-6)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.floats(0, 1) | st.just(math.nan)),
        min_size=1,
        max_size=12,
    )
)
def test_means_by_hand(cells: list[tuple[str, float]]) -> None:
    scores: dict[str, list[float]] = {}
    for domain, score in cells:
        scores.setdefault(domain, []).append(score)
    known = {d: [q for q in found if not math.isnan(q)] for d, found in scores.items()}
    means = [statistics.fmean(found) for found in known.values() if found]

    by_domain, overall, interval = overall_means(
        [[q for _, q in cells]], [d for d, _ in cells], resamples=50
    )

    for (_, found), mean in zip(known.items(), by_domain[0], strict=True):
        assert mean == pytest.approx(statistics.fmean(found) if found else math.nan, nan_ok=True)
    assert overall[0] == pytest.approx(statistics.fmean(means) if means else math.nan, nan_ok=True)
    if not np.isnan(interval).any():
        assert 0 <= interval[0, 0] <= interval[0, 1] <= 1


def pool_of(**values: float) -> Pool:
    return Pool({"c": {name: Entry(value, 2, "2026-01-01") for name, value in values.items()}})


def board(pool: Pool, **agents: list[Result | None]) -> dict[str, Any]:
    return leaderboard([Column("c", "d", True)], pool, {a: {"c": r} for a, r in agents.items()})


def test_ties_go_to_fewer_submissions_then_to_the_earlier_time() -> None:
    pool = Pool(
        {
            "c": {
                "late": Entry(0.5, 1, "2026-02-01"),
                "early": Entry(0.5, 1, "2026-01-01"),
                "busy": Entry(0.5, 9, "2025-01-01"),
                "absent": Entry(math.nan, 0, ""),
            }
        }
    )

    found = board(pool, bad=[Result(0.1, "2027")])

    names = [row["participant"] for row in found["rows"]]
    assert names == ["early", "late", "busy", "bad", "absent"]
    assert [row["rank"] for row in found["rows"]] == [1, 2, 3, 4, 5]


def test_an_agent_takes_the_place_of_its_namesake() -> None:
    found = board(pool_of(ada=0.9, bo=0.5), ada=[Result(0.1)])

    assert [(r["participant"], r["agent"]) for r in found["rows"]] == [("bo", False), ("ada", True)]
    assert found["challenges"] == {"c": 2}


def test_trials_are_ranked_one_by_one_and_averaged() -> None:
    found = board(pool_of(ada=0.5), one=[Result(0.9), Result(0.1)])

    scores = {row["participant"]: row["overall"] for row in found["rows"]}
    assert scores == {"ada": 0.5, "one": 0.5}


def test_what_could_not_be_scored_is_left_out_and_told() -> None:
    columns = [Column("c", "d", True), Column("e", "d", True)]
    results: dict[str, list[Result | None]] = {"c": [Result(0.9)], "e": [None]}

    found = leaderboard(columns, pool_of(ada=0.5), {"one": results})

    row = next(row for row in found["rows"] if row["agent"])
    assert (row["overall"], row["scored"]) == (1.0, 1)


def test_the_order_of_a_pool_does_not_matter() -> None:
    one = board(pool_of(ada=0.9, bo=0.5), x=[Result(0.7)])
    other = board(pool_of(bo=0.5, ada=0.9), x=[Result(0.7)])

    def shown(found: dict[str, Any]) -> list[tuple[str, float, int]]:
        return [(row["participant"], row["overall"], row["rank"]) for row in found["rows"]]

    assert shown(one) == shown(other) == [("ada", 1.0, 1), ("x", 0.5, 2), ("bo", 0.0, 3)]


@pytest.mark.parametrize("domains", [1, 6, 7, 9, 15])
def test_a_board_of_many_domains_fits(domains: int) -> None:
    columns = [Column(f"c{n}", f"A domain with a long name {n}", True) for n in range(domains)]
    pool = Pool({c.key: {"somebody": Entry(0.5, 1, "")} for c in columns})
    results: dict[str, list[Result | None]] = {c.key: [Result(0.9)] for c in columns}
    lacking = {**results, columns[-1].key: [None]}
    agents = {"an agent with a name that goes on and on, for ever" * 2: lacking, "x": results}

    found = leaderboard(columns, pool, agents)
    lines = list(board_lines({**found, "selected": domains}))

    assert max(map(len, lines)) <= 80
    assert sum(f"{domains - 1} of {domains} challenges scored" in line for line in lines) == 1


def test_no_interval_from_one_challenge_and_none_without_width() -> None:
    _, _, interval = overall_means(
        [[0.3, math.nan, math.nan], [1.0, 1.0, 1.0], [0.0, 0.0, math.nan]], ["a", "b", "c"]
    )

    assert np.isnan(interval[0]).all()
    assert interval[1].tolist() == pytest.approx(list(wilson(3, 3)))
    assert interval[2].tolist() == pytest.approx(list(wilson(0, 2)))


def test_the_rank_is_that_of_the_tie_rule() -> None:
    pool = pool_of(ada=0.5, bo=0.5, cy=0.1)

    ranks = {t: pool.standing("c", "x", 0.5, higher=True, ties=t).rank for t in TIES}

    assert ranks == {"min": 1, "average": 2, "max": 3}


# -- labels -------------------------------------------------------------------------------------


@pytest.fixture
def ranking(tmp_path: Path) -> Callable[..., Any]:
    """The truth of a ranking challenge with these labels."""

    def make(labels: pd.DataFrame, suffix: str = ".csv") -> Any:
        pd.DataFrame({"i": ["1", "2"]}).to_csv(tmp_path / "b.csv", index=False)
        pd.DataFrame({"s": range(20)}).to_csv(tmp_path / "items.csv", index=False)
        path = tmp_path / f"labels{suffix}"
        labels.to_csv(path, index=False) if suffix == ".csv" else labels.to_parquet(path)
        changes = {"metric": "NDCG@10", "prediction": "s_1..s_10", "labels": path.name}
        items = {"file": "items.csv", "column": "s"}
        challenge = Challenge.parse({**SPEC, **changes, "items": items})
        return given_truth(Place(challenge, tmp_path, tmp_path, True), None)

    return make


def test_labels_of_a_ranking(ranking: Callable[..., Any]) -> None:
    long = ranking(pd.DataFrame({"i": ["2", "1", "2"], "s": ["7", None, "8"]}))
    typed = ranking(pd.DataFrame({"i": [2, 1, 2], "s": [7.0, None, 8.0]}), ".parquet")

    assert long.values == typed.values == (frozenset(), frozenset({"7", "8"}))
    assert long.sha256 != typed.sha256


@pytest.mark.parametrize(
    ("rows", "part"),
    [
        ([("1", "7")], "have no value for ids of the test file: 2"),
        ([("1", "7"), ("2", "99")], "cannot be ranked: '99'"),
        ([("1", ""), ("2", "")], "name no item at all"),
    ],
)
def test_labels_of_a_ranking_that_cannot_be_used(
    ranking: Callable[..., Any], rows: list[tuple[str, str]], part: str
) -> None:
    with pytest.raises(HarnessError) as caught:
        ranking(pd.DataFrame(rows, columns=["i", "s"]))
    assert part in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "labels/healthcare-1.csv",
        "everything.parquet",
        "everything.json",
        "all.txt",
        "all.csv.gz",
        "all.pkl",
        "deep/er/Answers/x.csv",
        "no-header.csv",
    ],
)
def test_what_may_tell_the_truth_is_not_handed_out(tmp_path: Path, name: str) -> None:
    chosen = [c for c in known_challenges() if c["key"].startswith("healthcare")]
    publish(tmp_path, chosen, None)
    path = tmp_path / "Healthcare" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pd.DataFrame({"admission_id": [1], "readmit_30d": [0]})
    if name.endswith(".parquet"):
        table.to_parquet(path)
    elif not name.startswith("no-header"):
        path.write_text(table.to_json(orient="records") if "json" in name else table.to_csv())
    else:
        path.write_text("")

    for key in ("healthcare-1", "healthcare-2"):
        assert name not in dict(agent_files(places_of(tmp_path)[key]))


def test_a_ranking_in_a_table_is_the_truth_too(tmp_path: Path) -> None:
    publish(tmp_path, [c for c in known_challenges() if c["key"].startswith("commerce")], None)
    hidden = tmp_path / "Commerce" / "mine"
    hidden.mkdir()
    (hidden / "x.csv").write_text("price\n1\n")
    (tmp_path / "Commerce" / "bought.csv").write_text("customer_id,sku_id\n1,5\n")
    place = places_of(tmp_path)["commerce-1"]

    assert "bought.csv" not in dict(agent_files(place))
    assert "mine/x.csv" in dict(agent_files(place))
    assert "mine/x.csv" not in dict(agent_files(place, hidden=hidden.resolve()))


# -- the Hub ------------------------------------------------------------------------------------


def test_datasets_of_the_hub_are_snapshots_of_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its cache has them: links to files beside, one directory a dataset."""
    import huggingface_hub

    publish(tmp_path / "given", known_challenges(), None)
    asked = []

    def snapshot(name: str, *, repo_type: str, revision: str | None) -> str:
        asked.append((name, repo_type, revision))
        domain = name.partition("AgentDS-")[2]
        place = tmp_path / f"datasets--{domain}" / "snapshots" / "abc"
        blobs = tmp_path / f"datasets--{domain}" / "blobs"
        place.mkdir(parents=True)
        blobs.mkdir()
        for number, path in enumerate(sorted((tmp_path / "given" / domain).rglob("*.*"))):
            path.rename(blobs / str(number))
            link = place / path.relative_to(tmp_path / "given")
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(blobs / str(number))
        return str(place)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    benchmark = AgentDS()
    source = "org/AgentDS-Healthcare@v1, org/AgentDS-Insurance"
    benchmark.configure(Settings(), source)

    rows = list(benchmark.rows(source) or ())

    assert asked == [
        ("org/AgentDS-Healthcare", "dataset", "v1"),
        ("org/AgentDS-Insurance", "dataset", None),
    ]
    keys = [row["challenge_id"] for row in rows]
    assert keys == [f"{domain}-{n}" for domain in ("healthcare", "insurance") for n in (1, 2, 3)]
    assert not any(row["problem"] for row in rows)


# -- what a second reviewer found ---------------------------------------------------------------


def test_items_are_items_however_they_are_written(ranking: Callable[..., Any]) -> None:
    found = ranking(pd.DataFrame({"i": ["1", "2"], "s": [" 7 ", "8.0"]}))

    assert found.values == (frozenset({"7"}), frozenset({"8"}))


@pytest.mark.parametrize(
    ("train", "truth", "codes"),
    [(["1.0", "0.0"], ["1", "0"], [1, 0]), (["True", "False"], ["true", "false"], [1, 0])],
)
def test_labels_are_labels_however_they_are_written(
    tmp_path: Path, train: list[str], truth: list[str], codes: list[int]
) -> None:
    for name, values in (("a.csv", train), ("labels.csv", truth)):
        pd.DataFrame({"i": ["x", "y"], "p": values}).to_csv(tmp_path / name, index=False)
    pd.DataFrame({"i": ["x", "y"]}).to_csv(tmp_path / "b.csv", index=False)
    challenge = Challenge.parse({**SPEC, "metric": "Macro-F1", "labels": "labels.csv"})

    found = given_truth(Place(challenge, tmp_path, tmp_path, True), None)

    assert (found.classes, found.values.tolist()) == (("0", "1"), codes)


def test_a_sample_or_the_train_file_are_no_labels(tmp_path: Path) -> None:
    publish(tmp_path, [c for c in known_challenges() if c["key"] == "commerce-3"], None)
    (tmp_path / "Commerce" / "sample_submission.csv").write_text("offer_id,target_redeem\nx,0\n")

    with pytest.raises(SkipTrial):
        given_truth(places_of(tmp_path)["commerce-3"], tmp_path)


@pytest.mark.parametrize("pattern", ["**.png", ".", "x" * 5000])
def test_a_bad_pattern_costs_its_challenge_only(tmp_path: Path, pattern: str) -> None:
    for name in ("bad", "good"):
        (tmp_path / name).mkdir()
        for table in ("a.csv", "b.csv"):
            (tmp_path / name / table).write_text("i,p\n1,2\n")
        text = "".join(f"{k} = {json.dumps(v)}\n" for k, v in {**SPEC, "key": name}.items())
        more = f'files = ["{pattern}"]\n' if name == "bad" else ""
        (tmp_path / name / "challenge.toml").write_text(text + more)

    rows = find_challenges(tmp_path)

    problems = {row["challenge_id"]: row["problem"] for row in rows}
    assert problems["good"] is None
    assert pattern == "." or problems["bad"][0] == "files"


@pytest.mark.parametrize("weeks", [[*map(str, range(1, 12)), ""], [f"W{n}" for n in range(1, 12)]])
def test_odd_weeks_are_ordered_too(panel: Callable[..., Place], weeks: list[str]) -> None:
    rows = pd.DataFrame([{"i": "a", "week": w, "sold": str(n)} for n, w in enumerate(weeks, 1)])
    changes: dict[str, Any] = {"id": ["i", "week"], "target": "sold", "shifted": True}
    place = panel(rows, split_by="week", **changes)

    cut = cut_from_train(place, 0.2, 0)

    assert [week.lstrip("W") for week in cut.test["week"]] == ["9", "10"]
    assert cut.truth.values.tolist() == [10.0, 11.0]
    assert [week.lstrip("W") for week in cut.train["week"]] == [str(n) for n in range(1, 9)]


def test_no_other_copy_of_the_train_file_is_handed_out(tmp_path: Path) -> None:
    publish(tmp_path, [c for c in known_challenges() if c["key"].startswith("commerce")], None)
    place = tmp_path / "Commerce"
    (place / "raw").mkdir()
    for source in ("purchases_train.csv", "sales_history_train.csv"):
        data = (place / source).read_bytes()
        (place / f"train_{source.replace('_train', '')}").write_bytes(data)
        (place / "raw" / source).write_bytes(data)

    for key in ("commerce-1", "commerce-2"):
        names = [name for name, _ in agent_files(places_of(tmp_path)[key])]
        assert len([name for name in names if "train" in name]) == 1


def test_labels_by_another_name_and_other_challenges_stay_out(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv", "labels.csv", "more.txt"):
        (tmp_path / name).write_text("i,p\n1,2\n")
    (tmp_path / "x.csv").symlink_to(tmp_path / "labels.csv")
    (tmp_path / "y.csv").symlink_to(tmp_path / "a.csv")
    (tmp_path / "sub").mkdir()
    for name in ("challenge.toml", "truth.csv"):
        (tmp_path / "sub" / name).write_text("")
    challenge = Challenge.parse({**SPEC, "labels": "labels.csv", "files": ["**/*"]})

    names = [name for name, _ in agent_files(Place(challenge, tmp_path, tmp_path, True))]

    assert names == ["a.csv", "b.csv", "more.txt"]
