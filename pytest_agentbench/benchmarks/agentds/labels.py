"""The truth of a test set, read from labels.

Ids and labels are texts as written, so that ``001`` and ``NA`` are what they are.
"""

from __future__ import annotations

import hashlib
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.benchmarks.agentds.challenge import Broken, Challenge
from pytest_agentbench.benchmarks.agentds.ids import Ids
from pytest_agentbench.benchmarks.agentds.places import Place, header_of, names_of, plain
from pytest_agentbench.errors import HarnessError, SkipTrial
from pytest_agentbench.text import file_name, one_line

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Truth", "first_ids", "given_truth", "plain_label", "read_given", "read_table", "typed"]

_TABLES = (".csv", ".parquet")


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """What is true of each id of a test set.

    ``values`` are, for each of the ``ids``, numbers (``numpy`` floats), codes into ``classes``
    (``numpy`` integers) or frozen sets of items.
    ``items`` are all that may be ranked (``None``: unknown).  ``sha256`` is that of the file.
    """

    ids: Ids
    values: Any
    classes: tuple[str, ...] = ()
    items: frozenset[str] | None = None
    sha256: str = ""


def read_table(path: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """A CSV or parquet file, every cell as text as written; *columns* only, if given.

    Raises
    ------
    ValueError
        It cannot be read, or lacks a column.
    """
    frame = read_given(path)
    missing = [name for name in columns or () if name not in frame.columns]
    if missing:
        found = ", ".join(map(str, frame.columns[:20]))
        raise ValueError(f"lacks the column {', '.join(missing)} (found: {one_line(found)})")
    frame = frame if columns is None else frame[list(columns)]
    if path.suffix.lower() == ".parquet":
        frame = frame.apply(_whole).astype(object)
        frame = frame.where(frame.notna(), "").map(str)
    return frame


def _whole(column: pd.Series[Any]) -> pd.Series[Any]:
    """Whole numbers that are floats only because some are missing, as such."""
    known = column.dropna()
    if column.dtype.kind == "f" and len(known) and (known % 1 == 0).all():
        return column.astype("Int64")
    return column


def read_given(path: Path) -> pd.DataFrame:
    """A CSV file with every cell as text, or a parquet file as it is.

    Raises
    ------
    ValueError
        It cannot be read.
    """
    import pandas as pd

    try:
        if path.suffix.lower() == ".parquet":
            return pd.read_parquet(path)
        with warnings.catch_warnings():
            # where rows have more fields than the header, pandas would drop the last ones
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(
                path, dtype=object, keep_default_na=False, encoding="utf-8-sig", index_col=False
            )
    except Exception as error:  # whatever a parser makes of a broken file
        raise ValueError(f"{type(error).__name__}: {one_line(str(error))}") from None


# -- labels that are given ----------------------------------------------------------------------


def given_truth(place: Place, directory: Path | None) -> Truth:
    """The truth from the labels in *directory*, or from those that the challenge names itself.

    Raises
    ------
    SkipTrial
        There are none.
    HarnessError
        They cannot be used: unreadable, incomplete, or not what the metric takes.
    """
    challenge = place.challenge
    path = _find(place, directory)
    try:
        ids = _test_ids(place)
        truth = _truth(place, ids, path)
        with path.open("rb") as file:
            return replace(truth, sha256=hashlib.file_digest(file, "sha256").hexdigest())
    except (OSError, ValueError) as error:
        raise HarnessError(
            f"agentds: labels of {challenge.key}, {file_name(str(path))}: {error}"
        ) from None


def _find(place: Place, directory: Path | None) -> Path:
    challenge = place.challenge
    if directory is not None:
        found = list(_candidates(place, directory))
        if len(found) > 1:
            names = ", ".join(file_name(str(path)) for path in found[:5])
            raise HarnessError(
                f"agentds: several files could be the labels of {challenge.key}: {names}; "
                f"call the right one {challenge.key}.csv"
            )
        if found:
            return found[0]
        raise SkipTrial(
            f"no labels of {challenge.key} in --bench-agentds-labels={directory}: expected "
            f"{challenge.key}.csv (or .parquet) with the columns {', '.join(challenge.header[:4])}"
        )
    if place.own and challenge.labels:
        try:
            return place.checked(place.directory / challenge.labels, "labels")
        except Broken as broken:
            raise HarnessError(f"agentds: {challenge.key}: {broken}") from None
    raise SkipTrial(
        "no labels (--bench-agentds-labels=DIR, or =split to cut a test set from train): the data "
        f"hold none for the test set of {challenge.key}"
    )


def _candidates(place: Place, directory: Path) -> Iterator[Path]:
    """Files that are called after the challenge; else those with the right columns."""
    for suffix in _TABLES:
        path = directory / f"{place.challenge.key}{suffix}"
        if path.is_file():
            yield path
            return
    tables = {
        name.lower()
        for table in (place.challenge.train, place.challenge.test)
        for name in names_of(table)
    }
    found = [
        path
        for path in sorted(directory.rglob("*"))
        if path.suffix.lower() in _TABLES
        and path.is_file()
        and "sample" not in path.name.lower()
        and path.name.lower() not in tables
        and _fits(place.challenge, path)
    ]
    if len(found) > 1:  # the labels may lie in domain folders, too
        domain = plain(place.challenge.domain)
        near = [path for path in found if any(plain(p.name) == domain for p in path.parents)]
        tests = [n.partition(".")[0].lower() for n in names_of(place.challenge.test)]
        same = [path for path in near or found if path.stem.lower().startswith(tuple(tests))]
        found = same or near or found
    yield from found


def _fits(challenge: Challenge, path: Path) -> bool:
    if path.suffix.lower() == ".parquet":
        from pyarrow import parquet

        try:
            header = parquet.read_schema(path).names
        except Exception:  # whatever it is, it holds no labels
            return False
    else:
        header = header_of(path)
    return _truth_columns(challenge, header) is not None


def _truth_columns(challenge: Challenge, header: Sequence[str]) -> list[str] | None:
    """The columns with ids and truth, or ``None``: a ranking may be wide or one item a row."""
    choices = [list(challenge.predictions), *([[challenge.item]] if challenge.ranking else [])]
    for columns in choices:
        if {*challenge.ids, *columns} <= set(header):
            return [*challenge.ids, *columns]
    return None


def _test_ids(place: Place) -> pd.DataFrame:
    path = place.file(place.challenge.test, "test")
    try:
        ids = read_table(path, place.challenge.ids)
    except ValueError as error:
        raise HarnessError(
            f"agentds: {place.challenge.key}: the test file {file_name(path.name)} {error}"
        ) from None
    if place.challenge.ranking:
        ids = ids.drop_duplicates()
    if not len(ids) or ids.duplicated().any():
        what = (
            "has no rows" if not len(ids) else f"repeats ids ({first_ids(ids[ids.duplicated()])})"
        )
        raise HarnessError(
            f"agentds: {place.challenge.key}: the test file {file_name(path.name)} {what}"
        )
    return ids.reset_index(drop=True)


def first_ids(ids: pd.DataFrame, limit: int = 5) -> str:
    """The first few of *ids*, for messages."""
    shown = ["/".join(map(str, row)) for row in ids.head(limit).itertuples(index=False)]
    more = f" and {len(ids) - limit} more" if len(ids) > limit else ""
    return one_line(", ".join(shown)) + more


def _truth(place: Place, ids: pd.DataFrame, path: Path) -> Truth:
    import pandas as pd

    challenge = place.challenge
    table = read_table(path)
    columns = _truth_columns(challenge, [str(name) for name in table.columns])
    if columns is None:
        found = ", ".join(map(str, table.columns[:20]))
        raise ValueError(
            f"expected the columns {', '.join(challenge.header[:4])}, found {one_line(found)}"
        )
    table = table[columns]
    keys = list(challenge.ids)
    if challenge.ranking:
        truth = "\0item"  # no column of the table is called so
        table = table.melt(id_vars=keys, value_name=truth, var_name="\0place")
        table = table.groupby(keys, sort=False)[truth].agg(_relevant).reset_index()
    else:
        truth = columns[-1]
        if table.duplicated(keys).any():
            raise ValueError(f"repeats ids: {first_ids(table[table.duplicated(keys)][keys])}")
    merged = ids.merge(table, on=keys, how="left", validate="one_to_one")
    lost = merged[truth].isna()
    if lost.any():
        raise ValueError(f"have no value for ids of the test file: {first_ids(ids[lost])}")
    return typed(place, ids, pd.Series(merged[truth].to_numpy(), dtype=object))


def _relevant(items: Any) -> Any:
    """The items of one id; an id with an empty item only is one for which nothing is relevant."""
    return frozenset(plain_item(item.strip()) for item in items if item.strip())


def plain_item(item: str) -> str:
    """*item* without the ``.0`` of a whole number that became a float."""
    return re.sub(r"^(\d+)\.0+$", r"\1", item)


def typed(place: Place, ids: pd.DataFrame, texts: pd.Series[Any]) -> Truth:
    """The truth as what the metric takes.

    Raises
    ------
    ValueError
        It is none of that.
    """
    import numpy as np
    import pandas as pd

    challenge = place.challenge
    if challenge.ranking:
        if not any(texts):
            raise ValueError("name no item at all")
        items = _all_items(place)
        named: set[str] = set().union(*texts)
        strange = named - items if items is not None else set()
        if strange:
            shown = one_line(", ".join(map(repr, sorted(strange)[:5])), 80)
            raise ValueError(f"name {challenge.item} that cannot be ranked: {shown}")
        return Truth(Ids.of(ids), tuple(texts), items=items)
    if challenge.metric.wants == "labels":
        labels = texts.str.strip()
        classes = challenge.values or _classes(place, labels)
        codes = pd.Index(classes).get_indexer(pd.Index([plain_label(x, classes) for x in labels]))
        if (codes < 0).any():
            bad = sorted(set(labels[codes < 0]))
            raise ValueError(
                f"hold {one_line(', '.join(map(repr, bad)), 80)}; known are {', '.join(classes)}"
            )
        return Truth(Ids.of(ids), codes.astype(np.int64), classes)
    numbers = pd.to_numeric(texts, errors="coerce").to_numpy(dtype=float)
    if not np.isfinite(numbers).all():
        raise ValueError(f"hold no finite number for {first_ids(ids[~np.isfinite(numbers)])}")
    if math.isnan(challenge.metric.function(numbers, numbers)):
        raise ValueError(f"leave {challenge.metric.name} undefined: they are constant or sum to 0")
    return Truth(Ids.of(ids), numbers)


def _classes(place: Place, labels: pd.Series[Any]) -> tuple[str, ...]:
    """The labels of an own challenge that names none: those of the train file and the truth."""
    found = set(labels)
    try:
        path = place.file(place.challenge.train, "train")
        found |= set(read_table(path, [place.challenge.target])[place.challenge.target].str.strip())
    except (Broken, ValueError):
        pass  # the train file need not have the column
    found.discard("")
    if {label.lower() for label in found} <= {"true", "false"}:
        return ("0", "1")
    # 1.0 is the label 1, however train file and labels write it
    return tuple(sorted({re.sub(r"^(-?\d+)\.0+$", r"\1", label) for label in found}))


def _all_items(place: Place) -> frozenset[str] | None:
    if place.challenge.items is None:
        return None
    name, column = place.challenge.items
    try:
        path = place.file(name, "items")
    except Broken:
        if place.own:
            raise HarnessError(
                f"agentds: {place.challenge.key}: items: there is no {file_name(name)}"
            ) from None
        return None  # a further modality of a published challenge may be absent
    try:
        return frozenset(plain_item(item.strip()) for item in read_table(path, [column])[column])
    except ValueError as error:
        raise HarnessError(
            f"agentds: {place.challenge.key}: items, {file_name(name)}: {error}"
        ) from None


def plain_label(label: str, classes: Sequence[str]) -> str:
    """*label* as one of *classes* writes it: ``1.0`` is ``1``, ``True`` is ``1`` among 0 and 1."""
    if label in classes:
        return label
    head, dot, tail = label.partition(".")
    if dot and head in classes and tail and not tail.strip("0"):
        return head
    if set(classes) == {"0", "1"} and label.lower() in ("true", "false"):
        return "1" if label.lower() == "true" else "0"
    return label
