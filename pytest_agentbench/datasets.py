"""Rows of a dataset, wherever they are: bundled, on the Hub, or in files.

A row is a mapping of column to cell.  Each row has a SHA-256 of its canonical JSON; the dataset's
fingerprint is the SHA-256 over those in order, so the same rows have the same fingerprint whatever
file format they came in.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pytest_agentbench.errors import DataError
from pytest_agentbench.text import first_line

__all__ = ["Dataset", "Row", "directories", "load", "read_json", "spooled"]

#: File types by suffix; a directory may hold files of one of them.
SUFFIXES = (".parquet", ".jsonl", ".json", ".csv")

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?")


@dataclass(frozen=True, slots=True)
class Row:
    """One dataset row: its position, its cells and the SHA-256 of them."""

    index: int
    cells: Mapping[str, Any]
    sha256: str


@dataclass(frozen=True, slots=True)
class Dataset:
    """All rows of a source, with their common fingerprint (64 hex digits)."""

    source: str
    rows: tuple[Row, ...]
    fingerprint: str

    @classmethod
    def build(cls, source: str, cells: Iterable[Mapping[str, Any]]) -> Dataset:
        """Number and hash the rows of *source*."""
        total = hashlib.sha256()
        rows = []
        for index, row in enumerate(cells):
            digest = _sha256(row)
            total.update(digest.encode())
            rows.append(Row(index, row, digest))
        return cls(source, tuple(rows), total.hexdigest())

    @property
    def columns(self) -> frozenset[str]:
        """Names of the columns that any row has."""
        return frozenset(name for row in self.rows for name in row.cells)


def load(
    source: str,
    *,
    bundled: Callable[[], Iterable[Mapping[str, Any]]],
    layout: Callable[[Path], Iterable[Mapping[str, Any]] | None] = lambda path: None,
) -> Dataset:
    """Resolve a ``--bench-data`` value.

    Parameters
    ----------
    source
        ``bundled``, a path, or a Hub id ``org/name[@revision]``.
    bundled
        Gives the rows that come with the benchmark.
    layout
        Gives the rows of a directory in the benchmark's own layout, or ``None``.

    Raises
    ------
    DataError
        The source cannot be read; the message says what was tried and what to do.
    """
    if source == "bundled":
        return Dataset.build(source, bundled())
    path = Path(source).expanduser()
    if path.exists():
        own = layout(path) if path.is_dir() else None
        return Dataset.build(source, _files(path) if own is None else own)
    if path.suffix.lower() in SUFFIXES or not _HUB_ID.fullmatch(source):
        raise DataError(
            f"--bench-data: {source!r} is not there. Expected 'bundled', an existing "
            "parquet, jsonl, json or csv file or directory, or a Hub id org/name[@revision]."
        )
    return Dataset.build(source, _hub(source))


def directories(source: str) -> list[Path]:
    """The directories that *source* names: a path, or Hub ids (or paths) separated by commas.

    A dataset of the Hub is a snapshot of all its files in the local cache.

    Raises
    ------
    DataError
        One is no directory, or cannot be fetched.
    """
    if Path(source).expanduser().exists():
        parts = [source]
    else:
        parts = [part.strip() for part in source.split(",") if part.strip()]
    for part in parts:
        path = Path(part).expanduser()
        if not path.is_dir() and (path.exists() or not _HUB_ID.fullmatch(part)):
            raise DataError(
                f"--bench-data: {part!r} is no directory. Expected 'bundled', a directory, or Hub "
                "ids org/name[@revision] separated by commas."
            )
    paths = {part: Path(part).expanduser() for part in parts}
    return [path.resolve() if path.is_dir() else _snapshot(part) for part, path in paths.items()]


def spooled(directory: Path, key: str, make: Callable[[], Dataset]) -> Dataset:
    """*make()*, once for all processes that share *directory*.

    The first process resolves the source and writes the rows to *directory*; the others wait for
    the file and read it, so that a dataset is fetched once however many workers there are.
    """
    name = hashlib.sha256(key.encode()).hexdigest()[:16]
    spool = directory / f"{name}.jsonl"
    lock = directory / f"{name}.lock"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    while not spool.exists():
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            time.sleep(0.02)
            if _stale(lock):
                lock.unlink(missing_ok=True)
            continue
        try:
            dataset = make()
            _write_spool(spool, dataset)
            return dataset
        finally:
            lock.unlink(missing_ok=True)
    return _read_spool(spool)


def read_json(text: str) -> Any:
    """Parse JSON strictly: no NaN, no duplicate keys, no runaway nesting.

    Raises
    ------
    ValueError
        With a reason that fits behind "is not JSON: ".
    """

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(items)
        if len(result) != len(items):
            keys = [key for key, _ in items]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(f"the key {twice!r} stands twice in one object")
        return result

    def constant(name: str) -> Any:
        raise ValueError(f"{name} is not a JSON value")

    try:
        return json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _sha256(cells: Mapping[str, Any]) -> str:
    text = json.dumps(cells, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _stale(lock: Path) -> bool:
    """Whether the process that took *lock* must have died: nothing holds it for ten minutes."""
    with contextlib.suppress(FileNotFoundError):
        return time.time() - lock.stat().st_mtime > 600
    return False


def _write_spool(spool: Path, dataset: Dataset) -> None:
    partial = spool.with_suffix(".partial")
    with partial.open("w", encoding="ascii") as file:
        file.write(json.dumps([dataset.source, dataset.fingerprint]) + "\n")
        for row in dataset.rows:
            file.write(json.dumps([row.sha256, row.cells], default=str) + "\n")
    partial.rename(spool)


def _read_spool(spool: Path) -> Dataset:
    with spool.open(encoding="ascii") as file:
        source, fingerprint = json.loads(next(file))
        rows = tuple(
            Row(index, cells, digest)
            for index, (digest, cells) in enumerate(json.loads(line) for line in file)
        )
    return Dataset(source, rows, fingerprint)


# -- files --------------------------------------------------------------------------------------


def _files(path: Path) -> Iterator[Mapping[str, Any]]:
    if path.is_file():
        yield from _file(path)
        return
    found = sorted(p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
    kinds = sorted({p.suffix.lower() for p in found})
    if not found:
        raise DataError(f"--bench-data: no {', '.join(SUFFIXES)} file in {str(path)!r}")
    if len(kinds) > 1:
        raise DataError(
            f"--bench-data: {str(path)!r} holds files of several kinds ({', '.join(kinds)}); "
            "name one file, or a directory with one kind"
        )
    for file in found:
        yield from _file(file)


def _file(path: Path) -> Iterator[Mapping[str, Any]]:
    reader = {
        ".parquet": _parquet,
        ".jsonl": _jsonl,
        ".json": _json,
        ".csv": _csv,
    }.get(path.suffix.lower())
    if reader is None:
        raise DataError(
            f"--bench-data: {str(path)!r} has an unknown type; expected {', '.join(SUFFIXES)}"
        )
    try:
        yield from reader(path)
    except DataError:
        raise
    except Exception as error:  # whatever a parser makes of a broken file is one clear error
        raise DataError(
            f"--bench-data: cannot read {str(path)!r}: {type(error).__name__}: {error}"
        ) from error


def _parquet(path: Path) -> Iterator[Mapping[str, Any]]:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=64):
            yield from batch.to_pylist()


def _jsonl(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(
                    f"--bench-data: {str(path)!r}, line {number} is not JSON: {error}"
                ) from None
            if not isinstance(row, dict):
                raise DataError(
                    f"--bench-data: {str(path)!r}, line {number}: expected an object, "
                    f"got {type(row).__name__}"
                )
            yield row


def _json(path: Path) -> Iterator[Mapping[str, Any]]:
    rows = json.loads(path.read_text(encoding="utf-8-sig"))
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"--bench-data: {str(path)!r}: expected a list of objects")
    yield from rows


def _csv(path: Path) -> Iterator[Mapping[str, Any]]:
    import pandas as pd

    # every cell is text as written: no guessed numbers, no "NA" turned into a missing value
    frame = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    columns: Sequence[str] = [str(name) for name in frame.columns]
    for values in frame.itertuples(index=False, name=None):
        yield dict(zip(columns, values, strict=True))


# -- the Hub ------------------------------------------------------------------------------------


def _hub(source: str) -> Iterator[Mapping[str, Any]]:
    name, _, revision = source.partition("@")
    with _offline_without_network():
        import datasets

        datasets.disable_progress_bars()
        try:
            splits = datasets.load_dataset(name, revision=revision or None)
        except Exception as error:  # the library raises a dozen unrelated types here
            raise _unreachable(source, error) from error
    for split in splits:
        yield from splits[split]


def _snapshot(source: str) -> Path:
    name, _, revision = source.partition("@")
    with _offline_without_network():
        from huggingface_hub import snapshot_download

        try:
            place = snapshot_download(name, repo_type="dataset", revision=revision or None)
        except Exception as error:  # the library raises a dozen unrelated types here
            raise _unreachable(source, error) from error
    return Path(place)


def _unreachable(source: str, error: Exception) -> DataError:
    return DataError(
        f"--bench-data: the dataset {source!r} is neither reachable on the Hub nor in the local "
        f"cache ({type(error).__name__}: {first_line(error)}). Connect once to cache it, or name "
        "a local copy (--bench-data=PATH) or the suite in the package (--bench-data=bundled)."
    )


@contextlib.contextmanager
def _offline_without_network() -> Iterator[None]:
    """Switch the Hub client to its cache when the Hub does not answer.

    Asked first, because the client itself retries for half a minute before it looks at its cache.
    """
    before = os.environ.get("HF_HUB_OFFLINE")
    proxied = any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"))
    if (
        before is None
        and not proxied
        and not _answers(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    ):
        os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("HF_HUB_OFFLINE", None)


def _answers(endpoint: str) -> bool:
    url = urlsplit(endpoint)
    port = url.port or (80 if url.scheme == "http" else 443)
    try:
        socket.create_connection((url.hostname or "", port), timeout=5).close()
    except OSError:
        return False
    return True
