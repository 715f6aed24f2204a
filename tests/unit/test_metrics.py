"""Metrics against slow implementations written from their definitions, and right values."""

from __future__ import annotations

import csv
import itertools
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_agentbench.metrics import (
    METRICS,
    accuracy,
    by_name,
    macro_f1,
    macro_recall,
    mae,
    mape,
    mse,
    ndcg_at_10,
    normalized_gini,
    rmse,
)

# -- slow twins ---------------------------------------------------------------------------------


def slow_counts(true: Sequence[Any], made: Sequence[Any]) -> list[tuple[int, int, int]]:
    """For each class in either: true positives, false positives, false negatives."""
    found = []
    for label in sorted({*true, *made}, key=str):
        pairs = list(zip(true, made, strict=True))
        hit = sum(t == label and m == label for t, m in pairs)
        over = sum(t != label and m == label for t, m in pairs)
        lost = sum(t == label and m != label for t, m in pairs)
        found.append((hit, over, lost))
    return found


def slow_macro_f1(true: Sequence[Any], made: Sequence[Any]) -> float:
    counts = slow_counts(true, made)
    return sum(2 * hit / (2 * hit + over + lost) for hit, over, lost in counts) / len(counts)


def slow_macro_recall(true: Sequence[Any], made: Sequence[Any]) -> float:
    counts = slow_counts(true, made)
    return sum(hit / (hit + lost) if hit + lost else 0 for hit, _, lost in counts) / len(counts)


def slow_gini(true: Sequence[float], order: Sequence[int]) -> float:
    total, running, area = sum(true), 0.0, 0.0
    for place, at in enumerate(order, 1):
        running += true[at]
        area += running / total - place / len(true)
    return area / len(true)


def slow_normalized_gini(true: Sequence[float], made: Sequence[float]) -> float:
    """The mean over all orders of the items that keep falling predictions."""

    def mean(scores: Sequence[float]) -> float:
        orders = [
            order
            for order in itertools.permutations(range(len(true)))
            if all(scores[a] >= scores[b] for a, b in itertools.pairwise(order))
        ]
        return sum(slow_gini(true, order) for order in orders) / len(orders)

    return mean(made) / mean(true)


def slow_ndcg(relevant: Sequence[frozenset[str]], ranked: Sequence[Sequence[str]]) -> float:
    found = []
    for wanted, items in zip(relevant, ranked, strict=True):
        if wanted:
            gain = sum((item in wanted) / math.log2(n + 1) for n, item in enumerate(items, 1))
            best = sum(1 / math.log2(n + 1) for n in range(1, min(10, len(wanted)) + 1))
            found.append(gain / best)
    return sum(found) / len(found)


#: The first call of scikit-learn takes long.
unhurried = settings(deadline=None)

# -- properties ---------------------------------------------------------------------------------

labels = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from("abce")), min_size=1, max_size=30
)
floats = st.floats(-1e6, 1e6).map(lambda number: round(number, 3))
numbers = st.lists(st.tuples(floats, floats), min_size=1, max_size=30)


def columns(pairs: Sequence[tuple[Any, Any]]) -> tuple[list[Any], list[Any]]:
    return [one for one, _ in pairs], [other for _, other in pairs]


@unhurried
@given(labels)
def test_labels(pairs: list[tuple[str, str]]) -> None:
    true, made = columns(pairs)

    assert macro_f1(true, made) == pytest.approx(slow_macro_f1(true, made))
    assert macro_recall(true, made) == pytest.approx(slow_macro_recall(true, made))
    assert accuracy(true, made) == pytest.approx(sum(t == m for t, m in pairs) / len(pairs))


@unhurried
@given(labels)
def test_codes_score_what_labels_do(pairs: list[tuple[str, str]]) -> None:
    true, made = columns(pairs)
    codes = [np.array([ord(label) for label in column]) for column in (true, made)]

    assert macro_f1(*codes) == pytest.approx(macro_f1(true, made))


@unhurried
@given(numbers)
def test_numbers(pairs: list[tuple[float, float]]) -> None:
    true, made = columns(pairs)
    squares = [(t - m) ** 2 for t, m in pairs]

    assert mse(true, made) == pytest.approx(sum(squares) / len(pairs))
    assert rmse(true, made) == pytest.approx(math.sqrt(sum(squares) / len(pairs)))
    assert mae(true, made) == pytest.approx(sum(abs(t - m) for t, m in pairs) / len(pairs))
    if all(true):
        shares = [abs(t - m) / abs(t) for t, m in pairs]
        assert mape(true, made) == pytest.approx(sum(shares) / len(pairs))


small = st.integers(0, 4).map(float)


@unhurried
@given(st.lists(st.tuples(small, small), min_size=2, max_size=6))
def test_gini(pairs: list[tuple[float, float]]) -> None:
    true, made = columns(pairs)

    found = normalized_gini(true, made)

    if len(set(true)) == 1:
        assert math.isnan(found)
    else:
        assert found == pytest.approx(slow_normalized_gini(true, made), abs=1e-9)


@unhurried
@given(st.lists(st.tuples(small, floats), min_size=2, max_size=40), st.randoms())
def test_the_order_of_rows_does_not_matter(
    pairs: list[tuple[float, float]], chance: random.Random
) -> None:
    shuffled = chance.sample(pairs, len(pairs))

    for metric in METRICS.values():
        if metric.wants != "ranking":
            one, other = (metric.function(*columns(rows)) for rows in (pairs, shuffled))
            assert one == pytest.approx(other, nan_ok=True), metric.name


items = [str(n) for n in range(14)]
customers = st.lists(
    st.tuples(
        st.frozensets(st.sampled_from(items)), st.permutations(items).map(lambda found: found[:10])
    ),
    min_size=1,
    max_size=6,
)


@unhurried
@given(customers)
def test_ndcg(pairs: list[tuple[frozenset[str], list[str]]]) -> None:
    relevant, ranked = columns(pairs)

    found = ndcg_at_10(relevant, ranked)

    if any(relevant):
        assert found == pytest.approx(slow_ndcg(relevant, ranked))
        assert 0 <= found <= 1
    else:
        assert math.isnan(found)


# -- right values -------------------------------------------------------------------------------

LOSSES = [0, 0, 10, 0, 5, 0, 20, 1]


def test_macro_f1_is_not_macro_recall() -> None:
    """A published confusion matrix, and the number that was printed with it."""
    true = [0] * 344 + [1] * 656
    made = [0] * 154 + [1] * 190 + [0] * 79 + [1] * 577

    assert macro_f1(true, made) == pytest.approx(0.6723791243388209, abs=1e-15)
    assert macro_recall(true, made) == pytest.approx(0.6636237946681792, abs=1e-15)


def test_one_class_is_never_predicted() -> None:
    true, made = [1] + [0] * 99, [0] * 100

    assert macro_f1(true, made) == pytest.approx(0.497487, abs=1e-6)
    assert macro_recall(true, made) == 0.5


def test_a_class_that_occurs_nowhere_does_not_count() -> None:
    assert macro_f1(list("SSSSSSMM"), list("SSSSSCMS")) == pytest.approx(0.5)
    assert macro_f1(list("SM"), list("SM")) == 1.0


@pytest.mark.parametrize(
    ("made", "value"),
    [
        ([1, 2, 8, 0, 3, 4, 9, 5], 0.912621),
        ([-loss for loss in LOSSES], -1.0),
        ([1.0] * 8, 0.0),
        (LOSSES, 1.0),
    ],
)
def test_normalized_gini(made: Sequence[float], value: float) -> None:
    assert normalized_gini(LOSSES, made) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("true", [[], [0.0, 0.0], [3.0] * 3, [0.1] * 2, [0.7] * 29, [1 / 3] * 7])
def test_gini_of_nothing_is_undefined(true: list[float]) -> None:
    assert math.isnan(normalized_gini(true, true))
    assert math.isnan(normalized_gini(true, list(range(len(true)))))


def test_ndcg_at_10() -> None:
    first_ten = [[str(n) for n in range(1, 11)]]

    assert ndcg_at_10([frozenset("24") | {"99"}], first_ten) == pytest.approx(0.498189, abs=1e-6)
    assert math.isnan(ndcg_at_10([frozenset()], first_ten))
    # a customer for whom nothing is relevant is left out of the mean
    both = ndcg_at_10([frozenset("1"), frozenset()], first_ten * 2)
    assert both == 1.0


def test_an_item_is_not_credited_twice() -> None:
    with pytest.raises(ValueError, match="stands twice"):
        ndcg_at_10([frozenset("5")], [["5"] * 10])


def test_what_overflows_is_infinite_without_a_warning() -> None:
    assert rmse([0.0], [1e200]) == math.inf
    assert mape([0.0], [1e300]) == math.inf


@pytest.mark.parametrize("name", ["Macro-F1", "macro f1", "MACRO_F1", "macrof1"])
def test_names_are_not_picky(name: str) -> None:
    assert by_name(name).function is macro_f1


def test_a_unit_is_not_part_of_a_name() -> None:
    assert by_name("MAE (USD)").name == "MAE"
    with pytest.raises(KeyError):
        by_name("AUC")


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_direction(metric: Any) -> None:
    """A perfect prediction is at least as good as any other, in the metric's direction."""
    pairs: dict[str, tuple[Any, Any, Callable[[], Any]]] = {
        "labels": (list("abab"), list("abab"), lambda: list("aabb")),
        "numbers": ([1.0, 2.0, 4.0], [1.0, 2.0, 4.0], lambda: [4.0, 1.0, 1.0]),
        "ranking": ([frozenset("a")], [["a", "b"]], lambda: [["b", "a"]]),
    }
    true, right, wrong = pairs[metric.wants]

    perfect, other = metric.function(true, right), metric.function(true, wrong())

    assert perfect > other if metric.higher else perfect < other
    assert perfect == (1.0 if metric.bounded else 0.0)


#: Where each of the handed right values is asserted, or why it says nothing of a metric.
VECTORS = {
    **{f"V{n:02d}": "tests/unit/test_scoring.py: quantiles" for n in range(1, 10)},
    "V10": "tests/benchmarks/test_agentds.py: a missing challenge",
    "V11": "tests/benchmarks/test_agentds.py: the mean of domains",
    **{f"V{n}": "here: Macro-F1" for n in (12, 13, 14, 15)},
    **{f"V{n}": "here: Normalized Gini, ties averaged" for n in (16, 17, 18)},
    **{f"V{n}": "here: NDCG@10, repeats refused" for n in (19, 20, 22)},
    "V21": "graded gains: ours are 0 or 1, for which both forms are the same",
}


def test_every_handed_value_has_its_place(shared_data: Path) -> None:
    with (shared_data / "agentds" / "scorer_vectors.csv").open(newline="") as file:
        assert [row["id"] for row in csv.DictReader(file)] == sorted(VECTORS)
