"""Rows are matched by id: texts as written, in one column or several, in any order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Ids", "told"]

#: Longer ids are not worth a hash of their own.
MAX_WIDTH = 64
#: So many texts are hashed or compared at a time: what is made of them is large.
PART = 1 << 14
#: Ids of several columns are looked up in a table of all combinations, if it has at most so many
#: cells for each row.
CELLS = 4
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


class Ids:
    """The ids of a test set: unique, a tuple of texts per row.

    Attributes
    ----------
    names
        Names of the id columns.
    columns
        An arrow array of texts per column, all of one length.
    """

    def __init__(self, names: Sequence[str], columns: Sequence[pa.Array]) -> None:
        self.names = tuple(names)
        self.columns = tuple(columns)
        self._grid = _Grid.of(self.columns)
        self._sorted: tuple[Any, Any] | None = None
        self._index: pd.Index[Any] | None = None

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Ids:
        """The ids in a frame of texts."""
        columns = [pa.array(frame[name].to_numpy(), pa.string()) for name in frame.columns]
        return cls([str(name) for name in frame.columns], columns)

    def __len__(self) -> int:
        return len(self.columns[0])

    def text(self, row: int) -> str:
        """The id of a row, for messages."""
        return told(self.columns, row)

    def match(self, columns: Sequence[pa.Array]) -> Any:
        """For each row of *columns* the row here that has the same id, or -1.

        Of ids that are whole numbers here, ``7.0`` is ``7``.

        Returns
        -------
        numpy.ndarray
            Integers, shape (rows,).
        """
        if len(columns[0]) == len(self):
            if all(a.equals(b) for a, b in zip(self.columns, columns, strict=True)):
                return np.arange(len(self))
            found = self._permutation(columns) if self._grid is None else None
            if found is not None:
                return found
        if self._grid is not None:
            return self._grid.match(columns)
        given = [_plain(mine, theirs) for mine, theirs in zip(self.columns, columns, strict=True)]
        if self._index is None:
            self._index = _index(self.columns)
        return self._index.get_indexer(_index(given))

    def _permutation(self, columns: Sequence[pa.Array]) -> Any:
        """:meth:`match` where *columns* hold exactly the ids here in another order, or ``None``.

        Sorting by a hash and comparing is several times faster than looking up each id.
        """
        theirs = _hashes(columns)
        if theirs is None:
            return None
        if self._sorted is None:
            mine = _hashes(self.columns)
            if mine is None:
                return None
            order = np.argsort(mine)
            self._sorted = order, mine[order]
        order, mine = self._sorted
        their_order = np.argsort(theirs)
        if not np.array_equal(theirs[their_order], mine):
            return None
        rows = np.empty(len(order), dtype=np.int64)
        rows[their_order] = order
        for start in range(0, len(rows), PART):
            here = pa.array(rows[start : start + PART])
            for ours, given in zip(self.columns, columns, strict=True):
                if not ours.take(here).equals(given.slice(start, PART)):
                    return None
        return rows


class _Grid:
    """Ids of several columns whose texts repeat, such as days and machines: a row number for each
    combination."""

    def __init__(self, packed: Sequence[pa.Array]) -> None:
        self._known = [column.dictionary for column in packed]
        cells = math.prod(map(len, self._known))
        self._rows = np.full(cells + 1, -1, dtype=np.int32)
        key = self._key([column.indices.to_numpy() for column in packed])
        self._rows[key] = np.arange(len(key))

    @classmethod
    def of(cls, columns: Sequence[pa.Array]) -> _Grid | None:
        """The grid of *columns*, or ``None`` where it would be too large to be worth it."""
        if len(columns) < 2:
            return None
        packed = [column.dictionary_encode() for column in columns]
        cells = math.prod(len(column.dictionary) for column in packed)
        return cls(packed) if cells <= CELLS * len(columns[0]) else None

    def match(self, columns: Sequence[pa.Array]) -> Any:
        """For each row of *columns* the row of its combination, or -1."""
        codes = []
        for known, column in zip(self._known, columns, strict=True):
            packed = column.dictionary_encode()
            found = pc.index_in(_plain(known, packed.dictionary), value_set=known)
            codes.append(found.fill_null(-1).to_numpy()[packed.indices.to_numpy()])
        return self._rows[self._key(codes)].astype(np.int64)

    def _key(self, codes: Sequence[Any]) -> Any:
        """The cell of each combination; -1, the last one, where a code is -1."""
        key = np.zeros(len(codes[0]), dtype=np.int64)
        unknown = np.zeros(len(codes[0]), dtype=bool)
        for known, code in zip(self._known, codes, strict=True):
            key = key * len(known) + code
            unknown |= code < 0
        key[unknown] = -1
        return key


def told(columns: Sequence[pa.Array], row: int) -> str:
    """An id as messages show it, its parts separated by a slash."""
    return "/".join(column[row].as_py() for column in columns)


def _plain(mine: pa.Array, theirs: pa.Array) -> pa.Array:
    """*theirs* without the ``.0`` of whole numbers that became floats, if *mine* are such."""
    whole = pc.match_substring_regex(mine, r"^-?\d+$")
    if not pc.all(whole).as_py():
        return theirs
    return pc.replace_substring_regex(theirs, r"^(-?\d+)\.0+$", r"\1")


def _index(columns: Sequence[pa.Array]) -> pd.Index[Any]:
    import pandas as pd

    arrays = [column.to_numpy(zero_copy_only=False) for column in columns]
    if len(arrays) == 1:
        single: pd.Index[Any] = pd.Index(arrays[0], dtype=object)
        return single
    several: pd.Index[Any] = pd.MultiIndex.from_arrays(arrays)
    return several


def _hashes(columns: Sequence[pa.Array]) -> Any:
    """A 64-bit hash of each row, or ``None`` where texts are too long for it to be worth it."""
    result = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        parts = [_text_hashes(column.slice(at, PART)) for at in range(0, len(column), PART)]
        if column.null_count or any(part is None for part in parts):
            return None
        result = (result ^ np.concatenate(parts)) * _FACTOR
        result ^= result >> _SHIFT
    return result


def _text_hashes(column: pa.Array) -> Any:
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    lengths = np.diff(starts)
    longest = int(lengths.max(initial=0))
    if longest > MAX_WIDTH:
        return None
    texts = np.frombuffer(data or b"", np.uint8)[starts[0] : starts[-1]]
    width = max(8, -(-longest // 8) * 8)
    if longest == width == lengths.min(initial=longest):
        padded = texts.reshape(len(column), width)
    else:
        padded = np.zeros((len(column), width), np.uint8)
        if longest == lengths.min(initial=longest):
            padded[:, :longest] = texts.reshape(len(column), longest)
        else:
            padded[np.arange(width) < lengths[:, None]] = texts
    result = lengths.astype(np.uint64)
    for word in padded.view(np.uint64).T:
        result = (result ^ word) * _FACTOR
        result ^= result >> _SHIFT
    return result
