"""Statistics of repeated trials: pure functions, undefined (NaN) rather than flattering.

References
----------
Chen et al. 2021, *Evaluating Large Language Models Trained on Code* (pass@k), arXiv:2107.03374.
Yao et al. 2024, *tau-bench* (pass^k), arXiv:2406.12045.
Wilson 1927, *Probable inference, the law of succession, and statistical inference*.
Efron & Tibshirani 1993, *An Introduction to the Bootstrap* (percentile interval).
AgentDS 2026 (quantile score in a pool of participants), arXiv:2603.19005.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = [
    "TIES",
    "Interval",
    "bootstrap_mean",
    "mean",
    "pass_at_k",
    "pass_hat_k",
    "projected_pass_at_k",
    "projected_pass_hat_k",
    "quantile_moves",
    "quantiles",
    "wilson",
]


#: What rank equals share, by the name of the rule.
TIES = ("min", "average", "max")


class Interval(NamedTuple):
    """A two-sided interval; both ends NaN when it is undefined."""

    low: float
    high: float


def _valid(n: int, c: int, k: int) -> None:
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    if not 0 <= c <= n:
        raise ValueError(f"successes must be between 0 and the {n} trials, got {c}")


def pass_at_k(n: int, c: int, k: int) -> float:
    """Probability that at least one of *k* trials succeeds: ``1 - C(n-c, k) / C(n, k)``.

    Parameters
    ----------
    n, c, k
        Scored trials, successes among them, and the number of trials drawn without replacement.

    Returns
    -------
    float
        In [0, 1]; NaN when fewer than *k* trials were scored.
    """
    _valid(n, c, k)
    if n < k:
        return math.nan
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Probability that all of *k* trials succeed (``pass^k``): ``C(c, k) / C(n, k)``.

    NaN when fewer than *k* trials were scored; parameters as in :func:`pass_at_k`.
    """
    _valid(n, c, k)
    if n < k:
        return math.nan
    return math.comb(c, k) / math.comb(n, k)


def projected_pass_at_k(n: int, c: int, k: int) -> float:
    """``1 - (1-p)^k`` with ``p = c/n``: a biased projection for ``k > n``, to be labelled so."""
    _valid(n, c, k)
    return 1.0 - (1.0 - c / n) ** k if n else math.nan


def projected_pass_hat_k(n: int, c: int, k: int) -> float:
    """``p^k`` with ``p = c/n``: a biased projection for ``k > n``, to be labelled so."""
    _valid(n, c, k)
    return (c / n) ** k if n else math.nan


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean of the values that are not NaN; NaN when there is none."""
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


def wilson(successes: int, n: int, z: float = 1.959963984540054) -> Interval:
    """Wilson score interval of a proportion (95 % by default); NaN without trials."""
    if n == 0:
        return Interval(math.nan, math.nan)
    _valid(n, successes, 1)
    p = successes / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    low = max(0.0, centre - half) if successes else 0.0
    high = min(1.0, centre + half) if successes < n else 1.0
    return Interval(low, high)  # the ends are exact where rounding would miss them


def bootstrap_mean(
    values: Sequence[float], *, resamples: int = 10_000, confidence: float = 0.95, seed: int = 0
) -> Interval:
    """Percentile bootstrap interval of the mean over tasks (clusters).

    Parameters
    ----------
    values
        One value per task, each already averaged over the task's trials; NaNs are left out.
    resamples, confidence, seed
        Number of resamples, the share of them inside, and the generator's seed: the same values
        give the same interval on every machine and at every ``-n``.

    Returns
    -------
    Interval
        NaN for no value; for a single value the interval is undefined too (NaN), since one task
        says nothing about the spread over tasks.
    """
    known = [value for value in values if not math.isnan(value)]
    if len(known) < 2:
        return Interval(math.nan, math.nan)
    if min(known) == max(known):
        return Interval(known[0], known[0])  # every resample is the same
    import numpy as np

    # few distinct values (0, 0.2, …, 1) whatever the number of tasks: resampling tasks is the same
    # as drawing multinomial counts of the values, which costs O(resamples x values)
    distinct, counts = np.unique(np.asarray(known, dtype=float), return_counts=True)
    draws = np.random.default_rng(seed).multinomial(len(known), counts / len(known), size=resamples)
    means = draws @ distinct / len(known)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(float(low), float(high))


def quantiles(values: ArrayLike, *, higher: bool, ties: str = "min") -> Any:
    """Quantile score of each participant: ``(n - r) / (n - 1)``, 1 for the best, 0 for the worst.

    Parameters
    ----------
    values
        The metric of each participant, shape (participants,); NaN is a participant without a valid
        submission, who scores 0 and does not count in n.
    higher
        Whether more is better.
    ties
        The rank r of equals: ``min`` (the best of theirs), ``average`` or ``max`` (the worst).

    Returns
    -------
    numpy.ndarray
        Shape (participants,), in [0, 1].  A single participant (n = 1) scores 0: there is nobody
        to be better than.
    """
    import numpy as np
    from scipy.stats import rankdata

    if ties not in TIES:
        raise ValueError(f"ties must be one of {', '.join(TIES)}, got {ties!r}")
    given = np.asarray(values, dtype=float)
    result = np.zeros(given.shape)
    known = ~np.isnan(given)
    n = int(known.sum())
    if n > 1:
        ranks = rankdata(-given[known] if higher else given[known], method=ties)
        result[known] = (n - ranks) / (n - 1)
    return result


def quantile_moves(
    values: ArrayLike, own: int, *, higher: bool, ties: str = "min"
) -> tuple[float, float]:
    """The least and the greatest quantile of participant number *own* if one other participant
    were added (anywhere) or removed (anyone)."""
    import numpy as np

    given = np.asarray(values, dtype=float)
    mine = given[own]
    if math.isnan(mine):
        return 0.0, 0.0
    others = np.delete(given, own)
    others = others[~np.isnan(others)]
    better = int((others > mine).sum() if higher else (others < mine).sum())
    equal = int((others == mine).sum())
    worse = len(others) - better - equal

    def score(better: int, equal: int, worse: int) -> float:
        n = better + equal + worse + 1
        rank = better + {"min": 1.0, "average": 1 + equal / 2, "max": 1.0 + equal}[ties]
        return (n - rank) / (n - 1) if n > 1 else 0.0

    counts = (better, equal, worse)
    moved = [score(better, equal, worse)]
    for place in range(3):
        for change in (1, -1):
            other = list(counts)
            other[place] += change
            if min(other) >= 0:
                moved.append(score(*other))
    return min(moved), max(moved)
