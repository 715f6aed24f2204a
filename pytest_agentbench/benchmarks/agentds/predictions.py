"""The predictions of a submission as what the metric takes: labels, numbers or rankings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pytest_agentbench.benchmarks.agentds.challenge import Challenge
from pytest_agentbench.benchmarks.agentds.labels import Truth, plain_label
from pytest_agentbench.benchmarks.agentds.problems import MISSING, NAMED, Submission, named
from pytest_agentbench.text import count, one_line

__all__ = ["read_predictions"]


def read_predictions(
    ids: Sequence[pa.Array],
    columns: Sequence[pa.Array],
    challenge: Challenge,
    truth: Truth,
    result: Submission,
) -> Any:
    """One prediction per row, in the order of the file; what is wrong is noted in *result*."""
    readers = {"labels": _labels, "numbers": _numbers, "ranking": _rankings}
    return readers[challenge.metric.wants](ids, columns, challenge, truth, result)


def _labels(
    ids: Sequence[pa.Array],
    columns: Sequence[pa.Array],
    challenge: Challenge,
    truth: Truth,
    result: Submission,
) -> Any:
    name, classes = challenge.predictions[0], truth.classes
    codes = pc.index_in(columns[0], value_set=pa.array(classes, pa.string()))
    if not codes.null_count:
        return codes.to_numpy().astype(np.int64)
    place = {label: code for code, label in enumerate(classes)}
    texts = [text.strip() for text in columns[0].to_pylist()]
    found = np.array([place.get(plain_label(text, classes), -1) for text in texts])
    bad = np.flatnonzero(found < 0)
    missing = [row for row in bad.tolist() if texts[row].lower() in MISSING]
    if missing:
        result.wrong("missing_value", f"{name}: no label for {named(ids, missing)}")
    bad = np.setdiff1d(bad, missing)
    if len(bad):
        values = list(dict.fromkeys(texts[row] for row in bad))
        shown = one_line(", ".join(map(repr, values[:NAMED])), 120)
        hint = _label_hint(values, classes)
        result.wrong(
            "unknown_label",
            f"{name}: {shown} for {named(ids, bad)}; allowed are {'|'.join(classes[:20])}"
            + (hint and f" ({hint})"),
        )
    return found


def _label_hint(values: Sequence[str], classes: Sequence[str]) -> str:
    lowered = {label.lower() for label in classes}
    if all(value.lower() in lowered for value in values):
        return "the labels differ in case"
    numbers = [_number(value) for value in values]
    if all(0 < number < 1 for number in numbers):
        return "these look like probabilities: choose a threshold"
    if all(number == int(number) for number in numbers if np.isfinite(number)) and all(
        np.isnan(_number(label)) for label in classes
    ):
        if np.isfinite(numbers).all():
            return "these look like codes: turn them back into labels"
    return ""


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan


def _numbers(
    ids: Sequence[pa.Array],
    columns: Sequence[pa.Array],
    challenge: Challenge,
    truth: Truth,
    result: Submission,
) -> Any:
    name = challenge.predictions[0]
    try:
        values = pc.cast(columns[0], pa.float64()).to_numpy()
    except pa.ArrowInvalid:
        import pandas as pd

        values = pd.to_numeric(columns[0].to_pandas().str.strip(), errors="coerce").to_numpy(
            dtype=float
        )
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        _number_problems(name, ids, bad.tolist(), columns[0], result)
    elif (values < 0).any() and challenge.metric.name != "Normalized Gini":
        if not (np.asarray(truth.values) < 0).any():
            low = int((values < 0).sum())
            result.warnings.append(
                f"{name}: {count(low, 'prediction')} below 0, where none is true"
            )
    return values


def _number_problems(
    name: str, ids: Sequence[pa.Array], bad: Sequence[int], column: pa.Array, result: Submission
) -> None:
    """Tell apart what is missing, what is infinite, and what is no number at all."""
    texts = {row: column[row].as_py().strip() for row in bad}
    kinds: dict[str, list[int]] = {}
    for row, text in texts.items():
        if text.lower() in MISSING:
            kind = "missing_value"
        else:
            kind = "not_finite" if np.isinf(_number(text)) else "not_a_number"
        kinds.setdefault(kind, []).append(row)
    for kind, rows in kinds.items():
        shown = list(dict.fromkeys(texts[row] for row in rows))
        values = one_line(", ".join(map(repr, shown[:NAMED])), 120)
        hint = _number_hint(shown) if kind == "not_a_number" else ""
        what = {
            "missing_value": "no number",
            "not_finite": f"{values}, which is not finite,",
            "not_a_number": f"{values}, which is not a number,",
        }[kind]
        result.wrong(kind, f"{name}: {what} for {named(ids, rows)}" + (hint and f" ({hint})"))


def _number_hint(texts: Sequence[str]) -> str:
    if any(re.search(r"[$€£¥%]", text) for text in texts):
        return "write numbers without currency or percent signs"
    if all(re.fullmatch(r"-?\d+,\d+", text) for text in texts):
        return "write a point before decimals, and no thousands separators"
    if any(re.fullmatch(r"-?\d{1,3}([, _']\d{3})+(\.\d+)?", text) for text in texts):
        return "write numbers without thousands separators"
    return ""


def _rankings(
    ids: Sequence[pa.Array],
    columns: Sequence[pa.Array],
    challenge: Challenge,
    truth: Truth,
    result: Submission,
) -> list[tuple[str, ...]]:
    rows = list(zip(*(column.to_pylist() for column in columns), strict=True))
    rankings = [tuple(item.strip() for item in row) for row in rows]
    known = truth.items
    seen = known if known is not None else frozenset().union(*truth.values)

    def missing(item: str) -> bool:
        """Whether *item* stands for nothing; one may be called NA."""
        return item.lower() in MISSING and item not in seen

    short = [n for n, row in enumerate(rankings) if any(map(missing, row))]
    if short:
        empty = {
            name
            for n in short
            for name, item in zip(challenge.predictions, rankings[n], strict=True)
            if missing(item)
        }
        names = ", ".join(name for name in challenge.predictions if name in empty)
        result.wrong(
            "missing_value",
            f"{names}: nothing for {named(ids, short)}; {len(challenge.predictions)} different "
            f"{challenge.item} are wanted in each row",
        )
    if _whole(seen):  # numbers may have become floats
        rankings = [tuple(_plain_item(item, seen) for item in row) for row in rankings]
    full = set(range(len(rankings))).difference(short)
    repeated = [n for n in sorted(full) if len(set(rankings[n])) != len(rankings[n])]
    if repeated:
        names = f"{challenge.predictions[0]} to {challenge.predictions[-1]}"
        result.wrong(
            "repeated_items",
            f"{names}: the same {challenge.item} twice for {named(ids, repeated)}",
        )
    if known is not None:
        strange = list(_strange(rankings, known))
        if strange:
            shown = one_line(", ".join(map(repr, dict.fromkeys(strange))), 80)
            result.warnings.append(
                f"{challenge.item}: {len(strange)} recommended that do not exist, and count as "
                f"irrelevant: {shown}"
            )
    return rankings


def _whole(items: Iterable[str]) -> bool:
    return all(re.fullmatch(r"\d+", item) for item in items)


def _plain_item(item: str, known: frozenset[str]) -> str:
    head, dot, tail = item.partition(".")
    return head if dot and item not in known and tail and not tail.strip("0") else item


def _strange(rankings: Iterable[Sequence[str]], known: frozenset[str]) -> Iterator[str]:
    for row in rankings:
        for item in row:
            if item not in known and item:
                yield item
