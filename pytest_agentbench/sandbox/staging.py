"""The throwaway copy of a workspace that a grader sees."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from pytest_agentbench.workspace import remove_tree

__all__ = ["WorkspaceTooLarge", "lay_back", "stage"]

#: A workspace larger than this is not copied.
MAX_COPY_FILES = 100_000
MAX_COPY_BYTES = 2 << 30
#: What the agent may have done to an entry: it is gone, unreadable to us, or its name too long.
_THEIRS = frozenset(
    [
        *(errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO),
        *(errno.EACCES, errno.EPERM, errno.ENAMETOOLONG),
    ]
)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


class WorkspaceTooLarge(Exception):
    """The agent left more than is graded."""


def stage(source: Path | None, target: Path, user: int | None) -> tuple[int, int]:
    """Copy the regular files, directories and links of *source*; the bytes and entries copied.

    *source* is walked by descriptors: a directory that becomes a link meanwhile is not followed.

    Raises
    ------
    WorkspaceTooLarge
        There is more than is ever copied.
    """
    target.mkdir()
    copy = _Copy(os.fspath(target))
    if source is not None:
        root = os.open(source, _DIRECTORY)
        try:
            copy.all(root)
        finally:
            os.close(root)
    if user is not None:
        for path in (os.fspath(target), *copy.made):
            os.lchown(path, user, user)
    return copy.bytes, copy.entries


def lay_back(changed: Path, workspace: Path) -> None:
    """Make *workspace* what *changed* is: a copy of its own that a command has worked on.

    Nothing of it is running any more; what it left is copied as distrustfully as an agent's files.

    Raises
    ------
    WorkspaceTooLarge
        It left more than is ever copied; the workspace is as it was.
    """
    fresh = workspace.with_name(f"{workspace.name}-new")
    remove_tree(fresh)
    stage(changed, fresh, None)
    for entry in list(os.scandir(workspace)):
        if entry.is_dir(follow_symlinks=False):
            remove_tree(Path(entry.path))
        else:
            os.unlink(entry.path)
    for entry in list(os.scandir(fresh)):
        os.rename(entry.path, workspace / entry.name)
    os.rmdir(fresh)


class _Copy:
    def __init__(self, target: str) -> None:
        self.target = target
        self.made: list[str] = []
        self.bytes = 0
        self.entries = 0

    def all(self, root: int) -> None:
        """Copy everything below the open directory *root*."""
        pending: list[tuple[str, ...]] = [()]
        while pending:
            parts = pending.pop()
            try:
                here = _walk(root, parts)
            except OSError:
                continue  # gone, no directory any more, or closed to us
            try:
                with os.scandir(here) as entries:
                    for entry in entries:
                        if self._one(here, entry.name, "/".join((self.target, *parts))):
                            pending.append((*parts, entry.name))
            finally:
                os.close(here)

    def _one(self, here: int, name: str, there: str) -> bool:
        """Copy one entry; whether it is a directory to go into."""
        path = f"{there}/{name}"
        is_dir = False
        try:
            info = os.stat(name, dir_fd=here, follow_symlinks=False)
            self.entries += 1
            if stat.S_ISDIR(info.st_mode):
                os.mkdir(path, stat.S_IMODE(info.st_mode) | 0o700)
                is_dir = True
            elif stat.S_ISLNK(info.st_mode):
                os.symlink(os.readlink(name, dir_fd=here), path)
            elif stat.S_ISREG(info.st_mode):
                self.bytes += info.st_blocks * 512
                if self.bytes <= MAX_COPY_BYTES:
                    _copy(here, name, path)
            else:
                return False  # pipes, sockets and devices
            self.made.append(path)
        except OSError as error:
            if error.errno not in _THEIRS:
                raise  # a full disk, say: a copy that lacks files would be graded in its place
            return False
        if self.entries > MAX_COPY_FILES or self.bytes > MAX_COPY_BYTES:
            raise WorkspaceTooLarge(
                f"the workspace holds more than {MAX_COPY_FILES} files or "
                f"{MAX_COPY_BYTES >> 30} GiB"
            )
        return is_dir


def _walk(root: int, parts: tuple[str, ...]) -> int:
    """The directory *parts* below *root*, opened without following a link."""
    here = os.dup(root)
    for part in parts:
        try:
            below = os.open(part, _DIRECTORY, dir_fd=here)
        finally:
            os.close(here)
        here = below
    return here


def _copy(here: int, name: str, target: str) -> None:
    fd = os.open(name, _FILE, dir_fd=here)
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            return
        out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IMODE(info.st_mode))
        try:
            if info.st_blocks * 512 >= info.st_size:
                while data := os.read(fd, 1 << 20):
                    _write(out, data)
            else:
                _copy_sparse(fd, out, info.st_size)
            os.utime(out, ns=(info.st_atime_ns, info.st_mtime_ns))
        finally:
            os.close(out)
    finally:
        os.close(fd)


def _copy_sparse(fd: int, out: int, size: int) -> None:
    """Copy the data of a file with holes, and leave the holes."""
    os.ftruncate(out, size)
    position = 0
    while position < size:
        try:
            position = os.lseek(fd, position, os.SEEK_DATA)
        except OSError:
            return  # a hole until the end
        end = os.lseek(fd, position, os.SEEK_HOLE)
        os.lseek(out, position, os.SEEK_SET)
        os.lseek(fd, position, os.SEEK_SET)
        while position < end:
            data = os.read(fd, min(end - position, 1 << 20))
            if not data:
                return
            _write(out, data)
            position += len(data)


def _write(out: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(out, left) :]
