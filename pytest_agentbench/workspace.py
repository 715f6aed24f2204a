"""Workspaces: one fresh directory per trial, outside any rootdir.

Nothing in a workspace is followed, imported or collected: it is listed with ``lstat``, read without
following links, and only regular files count.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

__all__ = ["GONE", "Diff", "FileState", "Workspace", "keep", "read_regular", "remove_tree", "walk"]

#: File in a trial's directory that lists what the agent deleted.
GONE = "deleted.json"
#: More files or bytes than this are not kept as evidence.
MAX_KEPT_FILES = 10_000
MAX_KEPT_BYTES = 256 * 1024 * 1024
MAX_KEPT_DEPTH, MAX_KEPT_NAME = 100, 2048


@dataclass(frozen=True, slots=True)
class FileState:
    """What a snapshot remembers of an entry: kind (``file``, ``link``, ``special`` or ``dir``),
    size, time, content hash (regular files) and whether its owner may run it."""

    kind: str
    size: int
    mtime_ns: int
    sha256: str
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Diff:
    """Names of the files that an agent created, changed and deleted, and of directories that it
    made and removed.

    Bytes that are no UTF-8 are surrogates in them, as :func:`os.fsdecode` has it.
    """

    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any((self.created, self.changed, self.deleted, self.made, self.removed))


class Workspace:
    """A temporary directory with a snapshot to compare with.

    It is made in *base*, or where temporary files go.  Use it as a context manager; leaving it
    removes the directory, whatever its modes.
    """

    def __init__(self, base: Path | None = None) -> None:
        if base is not None:
            # what is in it is private; a grader that is another user has to get through
            base.mkdir(mode=0o711, parents=True, exist_ok=True)
        self._root = Path(tempfile.mkdtemp(prefix="agentbench-", dir=base))
        #: Where the agent works.
        self.path = self._root / "workspace"
        #: Where a command agent leaves its transcript; not part of the workspace.
        self.output = self._root / "output"
        self.path.mkdir()
        self.output.mkdir()
        self._seeded: Mapping[str, FileState] = {}
        self._outputs: set[Path] = set()

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def output_of(self, session: int) -> Path:
        """The output directory of a session, from 1; made when first asked for."""
        if session == 1:
            return self.output
        path = self._root / f"output-{session}"
        if path not in self._outputs:
            remove_tree(path)  # whatever an earlier session put in its place
            path.mkdir()
            self._outputs.add(path)
        return path

    def seal(self) -> None:
        """Remember the present state as the seeded one."""
        self._seeded = dict(snapshot(self.path))

    def diff(self) -> Diff:
        """What differs from the seeded state now."""
        now = dict(snapshot(self.path))
        before = self._seeded

        def names(found: Mapping[str, FileState], other: Mapping[str, FileState]) -> list[str]:
            return [
                name
                for name in sorted(found)
                if name not in other or (found[name].kind == "dir") != (other[name].kind == "dir")
            ]

        new, gone = names(now, before), names(before, now)
        return Diff(
            created=tuple(name for name in new if now[name].kind != "dir"),
            deleted=tuple(name for name in gone if before[name].kind != "dir"),
            changed=tuple(
                name
                for name in sorted(now.keys() & before.keys())
                if name not in new and _differ(now[name], before[name])
            ),
            made=tuple(name for name in new if now[name].kind == "dir"),
            removed=tuple(name for name in gone if before[name].kind == "dir"),
        )

    def settle(self) -> None:
        """After the agent: directories that it replaced by links or files are empty ones again."""
        for path in (self.path, self.output):
            if path.is_symlink() or not path.is_dir():
                path.unlink(missing_ok=True)
                self._root.mkdir(exist_ok=True)
                path.mkdir()

    def remove(self) -> None:
        """Delete the directory; modes that the agent set do not hinder it."""
        remove_tree(self._root)


def _differ(one: FileState, other: FileState) -> bool:
    return (one.kind, one.sha256, one.executable) != (other.kind, other.sha256, other.executable)


def remove_tree(root: Path) -> None:
    """Delete *root* and all in it, whatever the modes; a missing one is no error."""
    top = os.fspath(root)
    if os.path.islink(top):
        root.unlink()
    elif root.exists():
        with contextlib.suppress(RecursionError):
            shutil.rmtree(root, ignore_errors=True)
        if root.exists():
            _unlock(top)
            # deeper than Python goes
            subprocess.run(["rm", "-rf", "--", top], check=False, capture_output=True)


def _unlock(top: str) -> None:
    """Make every directory from *top* down one that can be listed and emptied.

    Nothing above *top* is touched: it is not ours.
    """
    pending = [top]
    while pending:
        place = pending.pop()
        with contextlib.suppress(OSError):
            os.chmod(place, 0o700)
            with os.scandir(place) as entries:
                pending += [e.path for e in entries if e.is_dir(follow_symlinks=False)]


def snapshot(root: Path) -> Iterator[tuple[str, FileState]]:
    """Every entry below *root* with its state, by name as of :func:`walk`."""
    for name, info in walk(root):
        if stat.S_ISDIR(info.st_mode):
            yield name, FileState("dir", 0, 0, "")
        else:
            yield name, _state(root / name, info)


def walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Every entry below *root*, links unfollowed, by POSIX-style name."""
    pending = [root]
    while pending:
        directory = pending.pop()
        try:
            entries = list(os.scandir(directory))
        except OSError:
            continue
        for entry in entries:
            try:
                info = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # something still deletes, or the name is too long
            if stat.S_ISDIR(info.st_mode):
                pending.append(Path(entry.path))
            yield Path(entry.path).relative_to(root).as_posix(), info


def _state(path: Path, info: os.stat_result) -> FileState:
    if stat.S_ISREG(info.st_mode):
        digest = hashlib.sha256()
        with contextlib.suppress(OSError), _open_regular(path) as file:
            # sparse files say they are huge; what they occupy is what counts
            if info.st_blocks * 512 <= MAX_KEPT_BYTES:
                for block in iter(lambda: file.read(1 << 20), b""):
                    digest.update(block)
                    if file.tell() > MAX_KEPT_BYTES:
                        break
        run = bool(info.st_mode & stat.S_IXUSR)
        return FileState("file", info.st_size, info.st_mtime_ns, digest.hexdigest(), run)
    if stat.S_ISLNK(info.st_mode):
        target = os.fsencode(os.readlink(path))
        return FileState("link", 0, info.st_mtime_ns, hashlib.sha256(target).hexdigest())
    return FileState("special", 0, info.st_mtime_ns, "")


def read_regular(path: Path, limit: int) -> bytes | None:
    """Up to *limit* bytes of a regular file; ``None`` for a link, a device, a pipe or nothing."""
    try:
        with _open_regular(path) as file:
            return file.read(limit)
    except OSError:
        return None


@contextlib.contextmanager
def _open_regular(path: Path) -> Iterator[BinaryIO]:
    flags = os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0)
    fd = os.open(path, flags)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"{path} is not a regular file")
        yield file


def _shallow(name: str) -> bool:
    """Whether other programs can cope with *name*: they recurse, and paths have a length."""
    return name.count("/") < MAX_KEPT_DEPTH and len(os.fsencode(name)) < MAX_KEPT_NAME


def keep(workspace: Path, diff: Diff, destination: Path) -> list[str]:
    """Copy the created and changed regular files of *workspace*, and new directories, below
    *destination*.

    Returns
    -------
    list of str
        Names that were not kept: links, special files, and what is over the size limits.
    """
    left_out, total = [], 0
    for name in diff.made[:MAX_KEPT_FILES]:
        if _shallow(name):
            (destination / name).mkdir(parents=True, exist_ok=True)
    for count, name in enumerate((*diff.created, *diff.changed)):
        data = None
        if count < MAX_KEPT_FILES and total < MAX_KEPT_BYTES and _shallow(name):
            data = read_regular(workspace / name, MAX_KEPT_BYTES - total + 1)
        if data is None or total + len(data) > MAX_KEPT_BYTES:
            left_out.append(name)
            continue
        total += len(data)
        target = destination / PurePosixPath(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        with contextlib.suppress(OSError):
            if (workspace / name).lstat().st_mode & stat.S_IXUSR:
                target.chmod(0o755)
    return left_out
