from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.scoring import (
    bootstrap_mean,
    mean,
    pass_at_k,
    pass_hat_k,
    projected_pass_at_k,
    projected_pass_hat_k,
    quantile_moves,
    quantiles,
    wilson,
)


def test_three_of_five() -> None:
    assert pass_at_k(5, 3, 2) == pytest.approx(0.9)
    assert pass_hat_k(5, 3, 2) == pytest.approx(0.3)
    assert pass_at_k(5, 3, 1) == pass_hat_k(5, 3, 1) == pytest.approx(0.6)
    assert pass_at_k(5, 3, 5) == 1.0
    assert pass_hat_k(5, 3, 5) == 0.0


def test_undefined_beyond_the_scored_trials() -> None:
    assert math.isnan(pass_at_k(4, 4, 5))
    assert math.isnan(pass_hat_k(4, 4, 5))
    assert math.isnan(pass_at_k(0, 0, 1))


@pytest.mark.parametrize(("n", "c", "k"), [(5, 6, 1), (5, -1, 1), (5, 3, 0)])
def test_impossible_counts_are_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match=r"k must be|successes must"):
        pass_at_k(n, c, k)
    with pytest.raises(ValueError, match=r"k must be|successes must"):
        pass_hat_k(n, c, k)


@given(
    st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n)))
)
def test_estimators_equal_the_average_over_all_draws(case: tuple[int, int, int]) -> None:
    n, c, k = case
    outcomes = [True] * c + [False] * (n - c)
    draws = list(itertools.combinations(outcomes, k))

    any_passes = Fraction(sum(any(draw) for draw in draws), len(draws))
    all_pass = Fraction(sum(all(draw) for draw in draws), len(draws))

    assert pass_at_k(n, c, k) == pytest.approx(float(any_passes))
    assert pass_hat_k(n, c, k) == pytest.approx(float(all_pass))


def test_projection_is_the_closed_form() -> None:
    assert projected_pass_at_k(5, 3, 10) == pytest.approx(1 - 0.4**10)
    assert projected_pass_hat_k(5, 3, 10) == pytest.approx(0.6**10)
    assert math.isnan(projected_pass_at_k(0, 0, 3))


def test_mean_leaves_out_nan() -> None:
    assert mean([1.0, math.nan, 0.0]) == 0.5
    assert math.isnan(mean([math.nan]))
    assert math.isnan(mean([]))


def test_wilson_known_values() -> None:
    low, high = wilson(8, 10)

    assert low == pytest.approx(0.4902, abs=1e-4)
    assert high == pytest.approx(0.9433, abs=1e-4)
    assert math.isnan(wilson(0, 0).low)


def test_bootstrap_is_seeded_and_plausible() -> None:
    values = [1.0] * 12 + [0.0] * 8

    first, again = bootstrap_mean(values), bootstrap_mean(values)
    other = bootstrap_mean(values, seed=1)

    assert first == again
    assert first.low < 0.6 < first.high
    assert 0.15 < 0.6 - first.low < 0.3
    assert abs(first.low - other.low) <= 0.05


def test_bootstrap_undefined_for_one_task_and_exact_for_equal_ones() -> None:
    assert math.isnan(bootstrap_mean([0.5]).low)
    assert math.isnan(bootstrap_mean([]).high)
    assert bootstrap_mean([0.25, 0.25, math.nan]) == (0.25, 0.25)


# -- quantiles ----------------------------------------------------------------------------------

TIED = [0.9, 0.8, 0.8, 0.5, 0.1]


def slow_quantiles(values: list[float], higher: bool, ties: str) -> list[float]:
    """(n - r) / (n - 1) by counting, from the definition."""
    known = [value for value in values if not math.isnan(value)]
    found = []
    for value in values:
        if math.isnan(value) or len(known) == 1:
            found.append(0.0)
            continue
        better = sum(other > value if higher else other < value for other in known)
        equal = sum(other == value for other in known)
        rank = better + {"min": 1, "average": (1 + equal) / 2, "max": equal}[ties]
        found.append((len(known) - rank) / (len(known) - 1))
    return found


@pytest.mark.parametrize(
    ("values", "higher", "ties", "expected"),
    [
        ([0.9, 0.8, 0.7, 0.6, 0.5], True, "min", [1, 0.75, 0.5, 0.25, 0]),
        ([0.9, 0.8, 0.7, 0.6, 0.5], False, "min", [0, 0.25, 0.5, 0.75, 1]),
        (TIED, True, "min", [1, 0.75, 0.75, 0.25, 0]),
        (TIED, True, "average", [1, 0.625, 0.625, 0.25, 0]),
        (TIED, True, "max", [1, 0.5, 0.5, 0.25, 0]),
        ([0.5] * 4, True, "min", [1] * 4),
        ([0.5] * 4, True, "average", [0.5] * 4),
        ([0.5] * 4, True, "max", [0] * 4),
        ([0.9], True, "min", [0]),
        ([0.9, 0.8, 0.7, math.nan], True, "min", [1, 0.5, 0, 0]),
        ([], True, "min", []),
    ],
)
def test_quantiles(values: list[float], higher: bool, ties: str, expected: list[float]) -> None:
    assert quantiles(values, higher=higher, ties=ties).tolist() == expected


def test_quantile_of_a_rank() -> None:
    found = quantiles(range(29), higher=False)

    assert found[9] == pytest.approx(0.678571, abs=1e-6)
    assert found[16] == pytest.approx(0.428571, abs=1e-6)


def test_an_unknown_tie_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="min, average, max"):
        quantiles([1.0], higher=True, ties="dense")


metric_values = st.lists(st.integers(0, 5).map(float) | st.just(math.nan), min_size=1, max_size=8)


@given(metric_values, st.booleans(), st.sampled_from(["min", "average", "max"]))
def test_quantiles_by_counting(values: list[float], higher: bool, ties: str) -> None:
    found = quantiles(values, higher=higher, ties=ties)

    assert found.tolist() == pytest.approx(slow_quantiles(values, higher, ties))


@given(metric_values, st.booleans(), st.sampled_from(["min", "average", "max"]))
def test_how_far_one_participant_moves_a_quantile(
    values: list[float], higher: bool, ties: str
) -> None:
    found = [slow_quantiles(values, higher, ties)[0]]
    for other in (-1.0, *range(6), 9.0):
        found.append(slow_quantiles([*values, other], higher, ties)[0])
    for gone in range(1, len(values)):
        found.append(slow_quantiles(values[:gone] + values[gone + 1 :], higher, ties)[0])
    if math.isnan(values[0]):
        found = [0.0]

    assert quantile_moves(values, 0, higher=higher, ties=ties) == pytest.approx(
        (min(found), max(found))
    )
