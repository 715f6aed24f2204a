"""Metrics of prediction challenges: each takes what is true and what was predicted.

scikit-learn's where it has them.  The inputs are one-dimensional sequences of equal length, aligned
by position (aligning by id is the caller's); numbers are finite.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "METRICS",
    "Metric",
    "accuracy",
    "by_name",
    "macro_f1",
    "macro_recall",
    "mae",
    "mape",
    "mse",
    "ndcg_at_10",
    "normalized_gini",
    "rmse",
]

Numbers = Sequence[float]


def macro_f1(true: Sequence[Any], predicted: Sequence[Any]) -> float:
    """Macro-F1 in [0, 1]: the mean of each class's F1, over the classes that occur in either.

    A class without a true or a predicted member scores 0.  Labels are anything that can be
    compared for equality.  Source: scikit-learn's ``f1_score(average="macro")``.
    """
    from sklearn.metrics import f1_score

    codes = _codes(true, predicted)
    return float(f1_score(*codes, average="macro", zero_division=0))


def macro_recall(true: Sequence[Any], predicted: Sequence[Any]) -> float:
    """Macro-recall in [0, 1]: the mean of each class's recall, over the classes in either.

    Source: scikit-learn's ``recall_score(average="macro")``.
    """
    from sklearn.metrics import recall_score

    codes = _codes(true, predicted)
    return float(recall_score(*codes, average="macro", zero_division=0))


def accuracy(true: Sequence[Any], predicted: Sequence[Any]) -> float:
    """The share of labels that are equal, in [0, 1].  Source: scikit-learn's ``accuracy_score``."""
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(*_codes(true, predicted)))


def _codes(true: Sequence[Any], predicted: Sequence[Any]) -> tuple[Any, Any]:
    """Both as integer codes of one common set of labels: comparing texts is what costs."""
    import numpy as np
    import pandas as pd

    given = np.asarray(true), np.asarray(predicted)
    if all(values.dtype.kind in "iu" for values in given):
        return given
    joined = pd.concat([pd.Series(true, dtype=object), pd.Series(predicted, dtype=object)])
    codes, _ = pd.factorize(joined, use_na_sentinel=False)
    return codes[: len(true)], codes[len(true) :]


def mse(true: Numbers, predicted: Numbers) -> float:
    """Mean squared error, in squared units of the target; at least 0.

    Source: scikit-learn's ``mean_squared_error``.
    """
    return _overflowing("mean_squared_error", true, predicted)


def rmse(true: Numbers, predicted: Numbers) -> float:
    """Root of the mean squared error, in units of the target; at least 0.  Source: :func:`mse`."""
    return math.sqrt(mse(true, predicted))


def mae(true: Numbers, predicted: Numbers) -> float:
    """Mean absolute error, in units of the target; at least 0.

    Source: scikit-learn's ``mean_absolute_error``.
    """
    return _overflowing("mean_absolute_error", true, predicted)


def mape(true: Numbers, predicted: Numbers) -> float:
    """Mean absolute error relative to the true value, as a fraction; at least 0.

    A true value nearer to 0 than the machine's epsilon counts as that.  Source: scikit-learn's
    ``mean_absolute_percentage_error``.
    """
    return _overflowing("mean_absolute_percentage_error", true, predicted)


def _overflowing(name: str, true: Numbers, predicted: Numbers) -> float:
    """scikit-learn's *name*; infinite, without a word, where numbers get too large."""
    import numpy as np
    import sklearn.metrics

    with np.errstate(over="ignore"):
        return float(getattr(sklearn.metrics, name)(_floats(true), _floats(predicted)))


def normalized_gini(true: Numbers, predicted: Numbers) -> float:
    """Gini of the order that *predicted* gives, divided by that of the perfect order.

    The items are sorted by falling prediction; the Gini is the area between the cumulated share of
    *true* and the diagonal.  Items with equal predictions share their cumulated values evenly,
    which is the mean over all their orders: the order of the rows cannot matter, and a constant
    prediction gives 0.  1 is a perfect order; NaN where *true* sums up to nothing or is constant.
    *true* is non-negative.  Source: the usual competition metric (Frees, Meyers and Cummings 2011
    for the ordered Lorenz curve), with ties averaged.
    """
    import numpy as np

    losses, scores = np.asarray(_floats(true)), np.asarray(_floats(predicted))
    if not len(losses) or losses.min() == losses.max():
        return math.nan  # compared, not computed: of constants the Gini is noise around 0
    perfect = _gini(losses, losses)
    if math.isnan(perfect) or perfect == 0:
        return math.nan
    return _gini(losses, scores) / perfect


def _gini(losses: Any, scores: Any) -> float:
    import numpy as np

    total, count = float(losses.sum()), len(losses)
    if not total or not count:
        return math.nan
    # rank of each item from the top, from 1, equal ones at the mean of theirs
    values, group, sizes = np.unique(-scores, return_inverse=True, return_counts=True)
    del values
    last = np.cumsum(sizes)
    ranks = (last - (sizes - 1) / 2)[group]
    # the sum over positions of the cumulated share is that of each share times its positions
    cumulated = float((losses * (count - ranks + 1)).sum()) / total
    return (cumulated - (count + 1) / 2) / count


def ndcg_at_10(relevant: Sequence[frozenset[str]], ranked: Sequence[Sequence[str]]) -> float:
    """Mean over customers of NDCG at 10 with binary relevance, in [0, 1].

    Parameters
    ----------
    relevant
        For each customer, the items that count.  A customer without any is left out.
    ranked
        For each customer, up to ten different items, the best first.

    The gain of a relevant item at position i (from 1) is 1 / log2(i + 1); the ideal ranking has
    min(10, number of relevant items) of them on top.  Source: Järvelin and Kekäläinen 2002.

    Raises
    ------
    ValueError
        An item stands twice in a ranking: crediting it twice would give more than 1.
    """
    values = []
    for wanted, items in zip(relevant, ranked, strict=True):
        top = list(items)[:10]
        if len(set(top)) != len(top):
            raise ValueError("an item stands twice in a ranking")
        if wanted:
            gain = math.fsum(_DISCOUNTS[n] for n, item in enumerate(top) if item in wanted)
            values.append(gain / math.fsum(_DISCOUNTS[: min(10, len(wanted))]))
    return math.fsum(values) / len(values) if values else math.nan


_DISCOUNTS = [1 / math.log2(position + 1) for position in range(1, 11)]


def _floats(values: Numbers) -> Any:
    import numpy as np

    return np.asarray(values, dtype=float)


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric by name: what it wants (``labels``, ``numbers`` or ``ranking``), whether more is
    better, and the function."""

    name: str
    wants: str
    higher: bool
    function: Callable[..., float]

    @property
    def bounded(self) -> bool:
        """Whether a value can stand for a score; an error in euros cannot."""
        return self.higher


_ALL = (
    Metric("Macro-F1", "labels", True, macro_f1),
    Metric("Macro-Recall", "labels", True, macro_recall),
    Metric("Accuracy", "labels", True, accuracy),
    Metric("RMSE", "numbers", False, rmse),
    Metric("MSE", "numbers", False, mse),
    Metric("MAE", "numbers", False, mae),
    Metric("MAPE", "numbers", False, mape),
    Metric("Normalized Gini", "numbers", True, normalized_gini),
    Metric("NDCG@10", "ranking", True, ndcg_at_10),
)
#: Metrics by their names.
METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _ALL}


def by_name(name: str) -> Metric:
    """The metric called *name*; case, blanks, hyphens and a unit in parentheses do not matter.

    Raises
    ------
    KeyError
        There is none.
    """
    return _PLAIN[_plain(name)]


def _plain(name: str) -> str:
    return re.sub(r"\(.*?\)|[\s_-]+", "", name).lower()


_PLAIN = {_plain(metric.name): metric for metric in _ALL}
