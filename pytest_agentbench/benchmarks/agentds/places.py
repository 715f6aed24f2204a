"""Where the files of challenges are, and which of them an agent gets.

Two layouts are known and may be mixed: domain folders as published (``Commerce/…``, whatever their
case and blanks), and directories with a ``challenge.toml``.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_agentbench.benchmarks.agentds.challenge import (
    FILE,
    Broken,
    Challenge,
    published,
    read_toml,
)
from pytest_agentbench.text import file_name, one_line

__all__ = [
    "Place",
    "agent_files",
    "find_challenges",
    "header_of",
    "materialize",
    "names_of",
    "plain",
]

#: How deep below the directory a challenge may lie.
MAX_DEPTH = 4
_TABLES = (".csv", ".tsv", ".parquet")
_PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".pdf")
#: Files that may tell what is to be predicted, unless a challenge names them.
_SECRET = re.compile(r"label|solution|answer|truth|leaderboard|submission|pool", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Place:
    """A challenge and its directory.

    ``root`` is the directory that the user named, out of which no link may lead; ``own`` says
    whether a ``challenge.toml`` describes it.
    """

    challenge: Challenge
    directory: Path
    root: Path
    own: bool

    def file(self, name: str, key: str) -> Path:
        """The file called *name*, in one of the two ways in which the domains write it.

        Raises
        ------
        Broken
            There is none; *key* says what it was for.
        """
        wanted = [name] if self.own else names_of(name)
        present = {entry.name.lower(): entry for entry in sorted(self.directory.iterdir())}
        for candidate in wanted:
            found = self.directory / candidate
            if not found.is_file() and not self.own:
                found = present.get(candidate.lower(), found)
            if found.is_file():
                return self.checked(found, key)
        raise Broken(key, f"there is no {' or '.join(wanted)} in {file_name(str(self.directory))}")

    def checked(self, path: Path, key: str) -> Path:
        """*path*, if no link leads out of the directory that the user named.

        Raises
        ------
        Broken
            One does.
        """
        root = self.root.resolve()
        # the Hub's cache keeps a snapshot as links to the files beside it
        roots = [root, root.parents[1]] if root.parent.name == "snapshots" else [root]
        real = path.resolve()
        if not any(real.is_relative_to(base) for base in roots):
            raise Broken(key, f"{file_name(path.name)} is a link that leads out of {root}")
        return path


def names_of(name: str) -> list[str]:
    """*name* and the other way of writing it: ``claims_train.csv``, ``train_claims.csv``."""
    stem, _, suffix = name.partition(".")
    for part in ("train", "test"):
        if stem.endswith(f"_{part}"):
            return [name, f"{part}_{stem.removesuffix(f'_{part}')}.{suffix}"]
        if stem.startswith(f"{part}_"):
            return [name, f"{stem.removeprefix(f'{part}_')}_{part}.{suffix}"]
    return [name]


def plain(name: str) -> str:
    """A folder's or a domain's name without what differs between the ways to write it."""
    return re.sub(r"[^a-z0-9]", "", name.lower()).removeprefix("agentds")


def find_challenges(root: Path) -> list[dict[str, Any]]:
    """The rows of *root*: the published challenges in their order, then one's own by their keys."""
    directories = [root, *_directories(root, MAX_DEPTH)]
    rows = []
    for spec in published():
        found = _domain(spec, directories, root)
        if found is not None:
            rows.append(_row(root, found, spec, own=False))
    own = [_own_row(root, place) for place in directories if (place / FILE).is_file()]
    return rows + sorted(own, key=lambda row: str(row["challenge_id"]))


def _own_row(root: Path, directory: Path) -> dict[str, Any]:
    try:
        return _row(root, directory, read_toml(directory / FILE), own=True)
    except Broken as broken:
        return _row(root, directory, {"key": directory.name}, own=True, problem=broken)


def _directories(root: Path, depth: int) -> Iterator[Path]:
    if depth:
        for entry in sorted(os.scandir(root), key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                yield Path(entry.path)
                yield from _directories(Path(entry.path), depth - 1)


def _domain(spec: Mapping[str, Any], directories: Sequence[Path], root: Path) -> Path | None:
    """The folder of the challenge's domain: the one that has its files, or else its name."""
    named = [d for d in directories if d != root and plain(d.name) == plain(spec["domain"])]
    wanted = {n.lower() for key in ("train", "test") for n in names_of(spec[key])}
    for directory in [*named, root]:
        present = {entry.name.lower() for entry in os.scandir(directory)}
        if len(present & wanted) >= (1 if directory != root else 2):
            return directory
    return named[0] if named else None


def _row(
    root: Path,
    directory: Path,
    spec: Mapping[str, Any],
    *,
    own: bool,
    problem: Broken | None = None,
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "challenge_id": spec.get("key") or directory.name,
        "domain": spec.get("domain", "Own"),
        "metric": spec.get("metric", ""),
        "title": spec.get("title", ""),
        "directory": directory.relative_to(root).as_posix(),
        "own": own,
        "spec": json.dumps(spec, default=str),
        "problem": [problem.key, problem.reason] if problem is not None else None,
        "files_sha256": "",
    }
    if problem is None:
        try:
            place = Place(Challenge.parse(spec), directory, root, own)
            row["metric"] = place.challenge.metric.name
            row["files_sha256"] = _fingerprint(place)
        except Broken as broken:
            row["problem"] = [broken.key, broken.reason]
        except (OSError, ValueError) as error:  # a name that no system takes, say
            row["problem"] = ["files", one_line(str(error), 200)]
    return row


def _fingerprint(place: Place) -> str:
    """SHA-256 over train and test file, and the names and sizes of all others."""
    total = hashlib.sha256()
    for key in ("train", "test"):
        path = place.file(getattr(place.challenge, key), key)
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    for name, path in agent_files(place):
        total.update(f"{name}\0{path.stat().st_size}\n".encode("utf-8", "surrogateescape"))
    return total.hexdigest()


# -- what an agent gets -------------------------------------------------------------------------


def agent_files(place: Place, hidden: Path | None = None) -> list[tuple[str, Path]]:
    """Names and paths of what the agent of *place* gets, sorted: never a label, nor anything in the
    directory *hidden*.

    A published challenge gets its train and test file, its further modalities, and what no
    challenge of its domain names (tables to join, pictures, descriptions), if it can be looked into
    and does not tell the truth.  One's own challenge gets what its ``challenge.toml`` names.

    Raises
    ------
    Broken
        A file is missing or leads out of the directory.
    """
    challenge = place.challenge
    files = {}
    for key in ("train", "test"):
        path = place.file(getattr(challenge, key), key)
        files[path.relative_to(place.directory).as_posix()] = path
    chosen = _named_files(place) if place.own else _published_files(place)
    for path in chosen:
        name = path.relative_to(place.directory).as_posix()
        if hidden is None or not path.resolve().is_relative_to(hidden):
            files[name] = place.checked(path, "files")
    if place.own:
        secret = {(place.directory / name).resolve() for name in (FILE, challenge.labels) if name}
        tables = {(place.directory / n).resolve() for n in (challenge.train, challenge.test)}
        files = {
            name: path
            for name, path in files.items()
            if path.resolve() not in secret
            # nor other names of the tables, of which a split would rewrite but one
            and (path.resolve() not in tables or name in (challenge.train, challenge.test))
            and not _of_another(path, place.directory)
        }
    return sorted(files.items())


def _of_another(path: Path, directory: Path) -> bool:
    """Whether *path* belongs to a challenge below the one in *directory*."""
    between = [parent for parent in path.parents if directory in parent.parents]
    return any((parent / FILE).is_file() for parent in between)


def _walk(directory: Path) -> Iterator[Path]:
    """All regular files (and links to such) below *directory*, hidden ones left out."""
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path))
        elif entry.is_file():
            yield Path(entry.path)


def _named_files(place: Place) -> Iterator[Path]:
    for pattern in place.challenge.files:
        try:
            found = sorted(place.directory.glob(pattern))
        except (OSError, ValueError, IndexError, NotImplementedError) as error:
            raise Broken("files", f"{one_line(pattern, 60)!r} is no pattern: {error}") from None
        if not found:
            raise Broken(
                "files", f"{pattern!r} matches nothing in {file_name(str(place.directory))}"
            )
        for path in found:
            if path.is_dir() and not path.is_symlink():
                yield from _walk(path)
            elif path.is_file():
                yield path


def _published_files(place: Place) -> Iterator[Path]:
    domain = plain(place.challenge.domain)
    specs = [spec for spec in published() if plain(spec["domain"]) == domain]
    mine: set[str] = set()
    claimed: set[str] = set()
    truths: set[frozenset[str]] = set()
    for spec in specs:
        names = {
            name.lower()
            for file in (spec["train"], spec["test"], *spec["files"])
            for name in names_of(file)
        }
        claimed |= names
        if spec["key"] == place.challenge.key:
            mine = names
        parsed = Challenge.parse(spec)
        truths.add(frozenset(parsed.predictions if not parsed.ranking else _ranked(parsed)))
        if not parsed.ranking:
            truths.add(frozenset([parsed.target]))
    challenge = place.challenge
    tables = {n.lower() for t in (challenge.train, challenge.test) for n in names_of(t)}
    for path in _walk(place.directory):
        top = path.relative_to(place.directory).parts[0].lower()
        if top in claimed:
            # of a train or test file in two spellings only the one that is used, which is there
            if top in mine and top not in tables:
                yield path
        elif _harmless(path, path.relative_to(place.directory), place.challenge, truths):
            yield path


def _ranked(challenge: Challenge) -> tuple[str, ...]:
    """Columns which, together, tell what was ranked."""
    return (*challenge.ids, challenge.item)


def _harmless(path: Path, name: Path, challenge: Challenge, truths: set[frozenset[str]]) -> bool:
    """Whether a file that no challenge names can be shown: it must not tell what is predicted.

    Tables are known by their columns, texts by the words in them; what cannot be looked into
    (archives, pickles, …) is not shown.
    """
    suffix = path.suffix.lower()
    if suffix in _TABLES:
        header = set(header_of(path) if suffix != ".parquet" else _parquet_names(path))
        if "sample" in path.name.lower():
            return header == set(challenge.header)
        told = not header or any(truth <= header for truth in truths)
        return not (told or any(_SECRET.search(part) for part in name.parts))
    if any(_SECRET.search(part) for part in name.parts):
        return False
    if suffix in _PICTURES or suffix == ".md":
        return True
    if suffix not in (".json", ".jsonl", ".txt"):
        return False
    words = {word for truth in truths if len(truth) == 1 for word in truth}
    try:
        text = path.read_bytes()
    except OSError:
        return False
    return not any(word.encode("utf-8") in text for word in words)


def _parquet_names(path: Path) -> list[str]:
    from pyarrow import parquet

    try:
        return list(parquet.read_schema(path).names)
    except Exception:  # whatever it is, it cannot be looked into
        return []


def header_of(path: Path) -> list[str]:
    """The names in the first line of a CSV file; none if it is not text."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            line = file.readline(1 << 16)
        return next(csv.reader([line]), [])
    except (OSError, ValueError, csv.Error):
        return []


def materialize(
    files: Iterable[tuple[str, Path]], workspace: Path, replaced: Mapping[str, bytes]
) -> None:
    """Copy *files* into *workspace*, those *replaced* with other content; then what else is new.

    Copies, not hard links: what an agent does to its files must not reach the next trial's.
    """
    for name, path in files:
        target = workspace / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if name not in replaced:
            shutil.copyfile(path, target)
    for name, data in replaced.items():
        target = workspace / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
