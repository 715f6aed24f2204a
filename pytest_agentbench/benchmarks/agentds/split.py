"""A local split: a labelled test set cut from the train file."""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_agentbench.benchmarks.agentds.challenge import Challenge
from pytest_agentbench.benchmarks.agentds.labels import (
    Truth,
    first_ids,
    read_given,
    read_table,
    typed,
)
from pytest_agentbench.benchmarks.agentds.places import Place
from pytest_agentbench.errors import HarnessError, SkipTrial
from pytest_agentbench.text import file_name, score_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Cut", "cut_from_train", "table_bytes", "told_share"]


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """A local split: what the agent gets as train and test file, and the truth of the latter."""

    train: pd.DataFrame
    test: pd.DataFrame
    truth: Truth


def cut_from_train(place: Place, share: float, seed: int) -> Cut:
    """Hold out a share of the train file.

    Which rows: with ``split_by`` those with the last of its values, and nothing as late stays in
    train; else, within each class where there are classes, those whose ids have the smallest
    SHA-256 together with *seed*.  Of a ranking a share of the ids is held out, with all their rows.
    The order of the rows does not matter.

    Raises
    ------
    SkipTrial
        The train file lacks the ids or the truth.
    HarnessError
        It cannot be read, or is too small to be cut.
    """
    challenge = place.challenge
    path = place.file(challenge.train, "train")
    what = f"agentds: local split of {challenge.key}, {file_name(path.name)}"
    try:
        train = read_table(path)
        tested = read_table(place.file(challenge.test, "test"))
        as_given = read_given(path)
    except ValueError as error:
        raise HarnessError(f"{what}: {error}") from None
    lacking = [name for name in (*challenge.ids, challenge.target) if name not in train.columns]
    if lacking:
        raise SkipTrial(
            f"no local split of {challenge.key}: {file_name(path.name)} lacks {', '.join(lacking)}"
        )
    truth = _truth(challenge, train)
    held, kept = _parts(challenge, train, truth, share, seed)
    if not held.any() or not kept.any():
        raise HarnessError(f"{what}: {len(train)} rows are too few to hold out {share:g} of them")
    keys = list(challenge.ids)
    test = train[held].reset_index(drop=True)
    if challenge.ranking:
        found = test.groupby(keys, sort=False)[challenge.target].agg(frozenset).reset_index()
        ids, values = found[keys], found[challenge.target]
    else:
        ids, values = test[keys], truth[held].reset_index(drop=True)
        if test.duplicated(keys).any():
            twice = first_ids(ids[ids.duplicated()])
            raise HarnessError(f"{what}: repeats ids: {twice}")
    try:
        typed_truth = typed(place, ids, values)
    except ValueError as error:
        raise HarnessError(f"{what}: the values held out {error}") from None
    hidden = {challenge.target, *challenge.predictions, challenge.item}
    shown = [name for name in tested.columns if name in train.columns and name not in hidden]
    if challenge.ranking:
        shown = keys  # what else stands in a row is of one of the items that are held out
    given_test = as_given[held][shown if set(keys) <= set(shown) else keys]
    if challenge.ranking:
        given_test = given_test.drop_duplicates(keys)
    pairs = sorted(zip(_keys(ids), map(_plain, values), strict=True))
    digest = hashlib.sha256(repr(pairs).encode("utf-8", "replace")).hexdigest()
    return Cut(as_given[kept], given_test, replace(typed_truth, sha256=digest))


def _plain(value: Any) -> str:
    return str(sorted(value) if isinstance(value, frozenset) else value)


def _keys(ids: pd.DataFrame) -> list[str]:
    """Each id as one text."""
    return ["\x1f".join(row) for row in ids.itertuples(index=False)]


def _truth(challenge: Challenge, train: pd.DataFrame) -> pd.Series[Any]:
    """The truth of each row, empty where there is none."""
    truth = train[challenge.target]
    if challenge.shifted:
        by = [name for name in challenge.ids if name != challenge.split_by]
        ordered = train.iloc[_order(train[challenge.split_by])]
        groups = ordered.groupby(by)[challenge.target] if by else ordered[challenge.target]
        truth = groups.shift(-1).reindex(train.index).fillna("")
    return truth


def _order(values: pd.Series[Any]) -> Any:
    """Positions in the order of *values*: numbers in them count as such, blank ones come first."""
    import numpy as np

    keys = [_natural(value.strip()) for value in values]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=int)


def _natural(text: str) -> tuple[Any, ...]:
    """A key by which ``W2`` comes before ``W10``, and -1.5 before 0."""
    try:
        number = float(text)
    except ValueError:
        parts = re.split(r"(\d+)", text)
        return (1, *(int(p) if n % 2 else p for n, p in enumerate(parts))) if text else (-1,)
    return (0, number) if math.isfinite(number) else (1, text)


def _parts(
    challenge: Challenge, train: pd.DataFrame, truth: pd.Series[Any], share: float, seed: int
) -> tuple[Any, Any]:
    """Which rows of *train* are held out and which stay, as boolean arrays."""
    import numpy as np
    import pandas as pd

    usable = (truth.str.strip() != "").to_numpy()
    if challenge.split_by:
        times = train[challenge.split_by]
        ordered = times.iloc[_order(times)].drop_duplicates()
        known = ordered[ordered.isin(set(times[usable]))]
        if not len(known):
            return usable, ~usable
        first = known.iloc[-max(1, round(share * len(known)))]
        # nor may what is later stay: of a shifted target it would be the truth
        late = times.isin(set(ordered.iloc[list(ordered).index(first) :])).to_numpy()
        # a row without a time may be as late as any
        return usable & late, ~late & (times.str.strip() != "").to_numpy()
    keys = pd.Series(_keys(train[list(challenge.ids)]))
    rank = keys.drop_duplicates().map(
        lambda key: hashlib.sha256(f"{seed}\x1f{key}".encode("utf-8", "replace")).hexdigest()
    )
    if challenge.metric.wants == "labels":
        groups = truth.str.strip().to_numpy()[rank.index]
    else:
        groups = np.zeros(len(rank), dtype=int)
    place = rank.groupby(groups).rank(method="first")
    size = rank.groupby(groups).transform("size")
    chosen = set(keys[rank.index[place.to_numpy() <= np.round(share * size.to_numpy())]])
    held = usable & keys.isin(chosen).to_numpy()
    return held, ~held


def told_share(share: float, seed: int) -> str:
    """What a local split is called in reports."""
    return f"local split (share {score_text(share)}, seed {seed})"


def table_bytes(frame: pd.DataFrame, name: str) -> bytes:
    """*frame* as the content of a file called *name*: parquet, or CSV."""
    if name.lower().endswith(".parquet"):
        return frame.to_parquet(index=False)
    return frame.to_csv(index=False, lineterminator="\n").encode("utf-8")
