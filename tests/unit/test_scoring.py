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
