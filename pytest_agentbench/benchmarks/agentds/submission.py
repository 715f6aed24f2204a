"""Reading a submission: every problem is collected, named and explained; nothing raises.

A submission is right when it has the header that was asked for and one valid prediction for each id
of the test set, in any order.
"""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from pytest_agentbench.benchmarks.agentds.challenge import Challenge
from pytest_agentbench.benchmarks.agentds.ids import Ids
from pytest_agentbench.benchmarks.agentds.labels import Truth
from pytest_agentbench.benchmarks.agentds.predictions import read_predictions
from pytest_agentbench.benchmarks.agentds.problems import MISSING, NAME, NAMED, Submission, named
from pytest_agentbench.text import count, file_name, one_line
from pytest_agentbench.workspace import read_regular

__all__ = ["read_submission"]

#: Bytes that are read at a time.
PART = 1 << 18
#: Of rows beyond the test set so many are looked into.
MANY = 100_000


def read_submission(
    workspace: Path,
    challenge: Challenge,
    truth: Truth,
    *,
    max_bytes: int,
    headers: Mapping[str, Sequence[str]],
    changed: Sequence[str] = (),
) -> Submission:
    """Read ``submission.csv`` in *workspace* and check it against the ids of *truth*.

    Parameters
    ----------
    headers
        The headers of other challenges, by key: a mix-up is then told.
    changed
        Files that the agent wrote: a likely one is named when ``submission.csv`` is missing.
    """
    result = Submission()
    data = _bytes(workspace, max_bytes, changed, result)
    data = _utf8(data, result) if data is not None else None
    if data is None:
        return result
    header = _record(data)
    second = _record(data, _line_end(data))
    wrong = _header_problem(header, second, challenge, truth, headers)
    if wrong:
        result.wrong("header", wrong)
        return result
    columns = _columns(data, len(header), result)
    del data  # which is large
    if columns is None:
        return result
    ids, predictions = columns[: len(challenge.ids)], columns[len(challenge.ids) :]
    rows = _match(ids, truth.ids, challenge, result)
    if result.rows > 10 * len(truth.ids) + MANY:
        return result  # so many that what is wrong with each is no help
    values = read_predictions(ids, predictions, challenge, truth, result)
    if not result.problems:
        if challenge.ranking:
            aligned: list[Any] = [()] * len(rows)
            for row, value in zip(rows.tolist(), values, strict=True):
                aligned[row] = value
            result.values = aligned
        else:
            result.values = np.empty(len(rows), dtype=values.dtype)
            result.values[rows] = values
    return result


# -- the file -----------------------------------------------------------------------------------


def _bytes(
    workspace: Path, max_bytes: int, changed: Sequence[str], result: Submission
) -> bytes | None:
    data = read_regular(workspace / NAME, max_bytes + 1)
    if data is None:
        result.wrong("submission", _why_missing(workspace, changed))
        return None
    if len(data) > max_bytes:
        result.wrong(
            "size", f"{NAME} is larger than {max_bytes / 1e6:g} MB (--bench-agentds-max-mb)"
        )
        return None
    if not data or data.isspace():
        result.wrong("empty", f"{NAME} is empty")
        return None
    return data


def _why_missing(workspace: Path, changed: Sequence[str]) -> str:
    path = workspace / NAME
    if path.is_symlink():
        return f"{NAME} is a link, which is not followed; it must be a file"
    if path.exists():
        return f"{NAME} is no regular file, or cannot be read"
    likely = [
        name
        for name in changed
        if re.search(r"\.(csv|tsv)(\.(gz|zip))?$|submission", name, re.IGNORECASE)
    ]
    found = ", ".join(map(file_name, likely[:3]))
    return f"there is no {NAME}" + (f"; found {found}: was that meant?" if likely else "")


_PACKED = {b"\x1f\x8b": "gzip", b"PK": "zip (or an Excel workbook)", b"PAR1": "parquet"}


def _utf8(data: bytes, result: Submission) -> bytes | None:
    """*data* as UTF-8 without a byte order mark, with line feeds."""
    for magic, kind in _PACKED.items():
        if data.startswith(magic):
            result.wrong("encoding", f"{NAME} is {kind}, not text; write plain CSV")
            return None
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        result.wrong("encoding", f"{NAME} is UTF-16; write it as UTF-8")
        return None
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        result.wrong("encoding", f"{NAME} is not UTF-8 text: line {line}, {error.reason}")
        return None
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        result.wrong("encoding", f"{NAME} holds a zero byte in line {line}: is it UTF-16?")
        return None
    if b"\r" in data and b"\n" not in data:
        data = data.replace(b"\r", b"\n")
    stripped = data.lstrip(b"\r\n")
    result.lead = data.count(b"\n", 0, len(data) - len(stripped))
    return stripped


def _line_end(data: bytes, start: int = 0) -> int:
    end = data.find(b"\n", start)
    return len(data) if end < 0 else end + 1


def _record(data: bytes, start: int = 0) -> list[str]:
    """The fields of the line at *start*."""
    line = data[start : _line_end(data, start)].decode("utf-8", "replace")
    try:
        return next(csv.reader([line.rstrip("\r\n")]), [])
    except csv.Error:
        return [line]


# -- the header ---------------------------------------------------------------------------------


def _header_problem(
    header: Sequence[str],
    second: Sequence[str],
    challenge: Challenge,
    truth: Truth,
    headers: Mapping[str, Sequence[str]],
) -> str:
    """What is wrong with the header, in one message: what follows from it is not told."""
    expected = challenge.header
    if tuple(header) == expected:
        return ""
    shown = ", ".join(repr(name) for name in header[:12]) + (", …" if len(header) > 12 else "")
    hint = _header_hint(header, second, challenge, truth, headers)
    wanted = ", ".join(expected)
    return f"expected the columns {wanted}; found {one_line(shown, 200)}" + (hint and f" ({hint})")


def _header_hint(
    header: Sequence[str],
    second: Sequence[str],
    challenge: Challenge,
    truth: Truth,
    headers: Mapping[str, Sequence[str]],
) -> str:
    expected = challenge.header
    for mark, name in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if len(header) == 1 and mark in header[0]:
            return f"the fields are separated by {name}; use commas"
    if header[:1] in ([""], ["Unnamed: 0"], ["index"]) and tuple(header[1:]) == expected:
        return "the index of a data frame was written: to_csv(index=False)"
    for key, other in headers.items():
        if tuple(header) == tuple(other):
            return f"that is the header of {key}"
    twice = next((name for name, times in Counter(header).items() if times > 1), None)
    if twice is not None:
        return f"{one_line(repr(twice), 40)} stands twice"
    if sorted(header) == sorted(expected):
        return "the columns are in another order"
    if [name.strip() for name in header] == list(expected):
        return "there are blanks around a name"
    if [name.strip().lower() for name in header] == [name.lower() for name in expected]:
        return "the names differ in case"
    firsts = truth.ids.columns[0]
    if header and pc.index(firsts, header[0]).as_py() >= 0:
        return "the first line looks like data: is the header missing?"
    if challenge.ranking and set(challenge.ids) <= set(header) and len(header) == 2:
        return (
            f"one row per {'/'.join(challenge.ids)} with {len(challenge.predictions)} columns is "
            f"wanted, the best {challenge.item} first"
        )
    missing = [name for name in expected if name not in header]
    extra = [name for name in header if name not in expected]
    told = [f"without {', '.join(missing)}"] if missing else []
    told += [f"with {', '.join(map(repr, extra[:5]))} besides"] if extra else []
    return one_line("; ".join(told), 200)


# -- rows ---------------------------------------------------------------------------------------


def _columns(data: bytes, width: int, result: Submission) -> list[pa.Array] | None:
    """The columns of the rows below the header, each cell as text as written."""
    names = [str(number) for number in range(width)]
    body = memoryview(data)[_line_end(data) :]
    if not len(body) or (bytes(body[:4096]).isspace() and bytes(body).isspace()):
        result.wrong("empty", f"{NAME} has a header and no rows")
        return None
    convert = arrow_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
    )
    # in parts, for the memory's sake; a row that is longer than one needs the whole at once
    for size in (PART, len(body) + 1):
        ragged = _Ragged()
        try:
            table = arrow_csv.read_csv(
                pa.py_buffer(body),
                arrow_csv.ReadOptions(use_threads=False, block_size=size, column_names=names),
                arrow_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=ragged),
                convert,
            )
            break
        except pa.ArrowException as error:
            problem = one_line(str(error))
    else:
        result.wrong("format", f"{NAME} is not CSV: {problem}")
        return None
    result.rows = table.num_rows + ragged.count
    if ragged.count:
        result.wrong("ragged_rows", ragged.told(data, width, result.lead, table.num_rows == 0))
    if not table.num_rows:
        if not ragged.count:  # blank lines of another alphabet
            result.wrong("empty", f"{NAME} has a header and no rows")
        return None
    parted, whole = table.columns, []
    del table
    while parted:  # one by one, so that not all are there twice
        whole.append(_one(parted.pop(0)))
    return whole


def _one(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


class _Ragged:
    """Rows with another number of fields than the header: what is known of them all."""

    def __init__(self) -> None:
        self.count = 0
        self._sizes: set[int] = set()
        self._comma = self._quote = True

    def __call__(self, row: Any) -> str:
        """Note a row, as the reader's handler of such rows."""
        text = row.text.rstrip("\r\n")
        if text.strip():
            self.count += 1
            self._sizes.add(row.actual_columns)
            self._comma &= text.endswith(",")
            self._quote &= '"' in text
        return "skip"

    def told(self, data: bytes, width: int, lead: int, every: bool) -> str:
        """Where the first ones are, and what may have happened.

        *lead* is the number of lines before *data*; *every* says whether no row is as it should be.
        """
        lines = []
        reader = csv.reader(io.StringIO(data.decode("utf-8"), newline=""))
        try:
            for fields in reader:
                if fields and len(fields) != width and "".join(fields).strip():
                    lines.append(f"line {lead + reader.line_num} has {len(fields)}")
                    if len(lines) == NAMED:
                        break
        except csv.Error:
            pass  # a field of more than 128 KiB
        text = f"{count(self.count, 'row')} without {count(width, 'field')}"
        if lines:
            text += f": {', '.join(lines)}"
        if self._sizes == {width + 1} and self._comma:
            return f"{text} (the lines end with a comma)"
        if self._sizes == {width + 1} and every:
            return f"{text} (was the index of a data frame written? to_csv(index=False))"
        return f"{text} (is a quote never closed?)" if self._quote else text


def _match(ids: Sequence[pa.Array], truth: Ids, challenge: Challenge, result: Submission) -> Any:
    """The row of the test set for each row; wrong ids are problems."""
    ragged = any(problem.kind == "ragged_rows" for problem in result.problems)
    rows = truth.match(ids)
    times = np.bincount(rows[rows >= 0], minlength=len(truth))
    what = ", ".join(challenge.ids)
    if result.rows != len(truth):
        result.wrong("row_count", f"{count(result.rows, 'row')} where {len(truth)} are expected")
    unknown = np.flatnonzero(rows < 0)
    blank = unknown[_blank(ids, unknown)] if len(unknown) else unknown
    if len(blank):
        result.wrong("blank_ids", f"{count(len(blank), 'row')} with a blank {what}")
        unknown = np.setdiff1d(unknown, blank)
    if len(unknown):
        hint = _id_hint(ids, unknown, truth)
        result.wrong(
            "unknown_ids",
            f"{what}: not in the test file: {named(ids, unknown)}" + (hint and f" ({hint})"),
        )
    repeated = np.flatnonzero(times > 1)
    if len(repeated):
        more = " (one row per id is wanted)" if challenge.ranking else ""
        result.wrong(
            "duplicate_ids", f"{what}: more than once: {named(truth.columns, repeated)}{more}"
        )
    missing = np.flatnonzero(times == 0)
    if len(missing) and not ragged:
        result.wrong("missing_ids", f"{what}: no row for {named(truth.columns, missing)}")
    return rows


def _blank(ids: Sequence[pa.Array], rows: Any) -> Any:
    """Which of *rows* have a part of their id that is blank."""
    found = np.zeros(len(rows), dtype=bool)
    for column in ids:
        texts = pc.utf8_trim_whitespace(column.take(pa.array(rows)))
        found |= pc.equal(texts, "").to_numpy(zero_copy_only=False)
    return found


def _id_hint(ids: Sequence[pa.Array], unknown: Any, truth: Ids) -> str:
    """Why ids may be unknown, judged by the first few of them."""
    for given, known in zip(ids, truth.columns, strict=True):
        texts = [given[int(row)].as_py() for row in unknown[:NAMED]]
        have = set(known.to_pylist())
        strange = [text for text in texts if text not in have]
        if strange:
            return next((hint for hint, cause in _causes(have) if all(map(cause, strange))), "")
    return ""


def _causes(have: set[str]) -> Iterator[tuple[str, Callable[[str], bool]]]:
    """Hints, and whether one explains why an id is none of *have*."""
    yield (
        "an id became a missing value: read ids as text, keep_default_na=False",
        lambda text: bool(text) and text.lower() in MISSING,
    )
    yield "there are blanks around them", lambda text: text.strip() in have
    lowered = {known.lower() for known in have}
    yield "they differ in case", lambda text: text.lower() in lowered
    short = {known.lstrip("0") for known in have}
    yield (
        "leading zeros are lost: read ids as text, dtype=str",
        lambda text: text in short,
    )
    yield (
        "they are in scientific notation: read ids as text, dtype=str",
        lambda text: bool(re.fullmatch(r"[+-]?\d+(\.\d+)?e[+-]?\d+", text, re.IGNORECASE)),
    )
    yield (
        "dates were written in another format: keep them as text, as in the test file",
        lambda text: _same_time(text, have),
    )


def _same_time(text: str, have: Iterable[str]) -> bool:
    import pandas as pd

    if not re.search(r"\d[-/:.]\d", text):
        return False
    with warnings.catch_warnings():  # on formats that it has to guess
        warnings.simplefilter("ignore")
        known = pd.to_datetime(pd.Series(list(have)), errors="coerce", utc=True, format="ISO8601")
        own = pd.to_datetime(pd.Series([text]), errors="coerce", utc=True, format="mixed")
    return not own.isna().any() and bool(known.isin(own).any())
