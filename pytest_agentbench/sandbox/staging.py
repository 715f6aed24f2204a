"""The throwaway copy of a workspace that a grader sees."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

__all__ = ["WorkspaceTooLarge", "stage"]

#: A workspace larger than this is not copied.
MAX_COPY_FILES = 100_000
MAX_COPY_BYTES = 2 << 30


def stage(source: Path | None, target: Path, user: int | None) -> int:
    """Copy the regular files, directories and links of *source*; give the bytes copied.

    Raises
    ------
    WorkspaceTooLarge
        There is more than is ever copied.
    """
    target.mkdir()
    total = files = 0
    made = [os.fspath(target)]
    pending = [(os.fspath(source), os.fspath(target))] if source is not None else []
    while pending:
        here, there = pending.pop()
        try:
            entries = list(os.scandir(here))
        except OSError:
            continue
        for entry in entries:
            path = f"{there}/{entry.name}"
            try:
                info = entry.stat(follow_symlinks=False)
                files += 1
                if stat.S_ISDIR(info.st_mode):
                    os.mkdir(path, stat.S_IMODE(info.st_mode) | 0o700)
                    pending.append((entry.path, path))
                elif stat.S_ISLNK(info.st_mode):
                    os.symlink(os.readlink(entry.path), path)
                elif stat.S_ISREG(info.st_mode):
                    total += info.st_blocks * 512
                    if total <= MAX_COPY_BYTES:
                        _copy(entry.path, path, info)
                else:
                    continue  # pipes, sockets and devices
            except OSError:
                continue  # unreadable to us, or gone
            made.append(path)
            if files > MAX_COPY_FILES or total > MAX_COPY_BYTES:
                raise WorkspaceTooLarge(
                    f"the workspace holds more than {MAX_COPY_FILES} files or "
                    f"{MAX_COPY_BYTES >> 30} GiB"
                )
    if user is not None:
        for item in made:
            os.lchown(item, user, user)
    return total


class WorkspaceTooLarge(Exception):
    """The agent left more than is graded."""


def _copy(source: str, target: str, info: os.stat_result) -> None:
    fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IMODE(info.st_mode))
        try:
            if info.st_blocks * 512 >= info.st_size:
                while data := os.read(fd, 1 << 20):
                    os.write(out, data)
            else:
                with os.fdopen(os.dup(fd), "rb") as reader, os.fdopen(os.dup(out), "wb") as writer:
                    _copy_sparse(reader, writer, info.st_size)
            os.utime(out, ns=(info.st_atime_ns, info.st_mtime_ns))
        finally:
            os.close(out)
    finally:
        os.close(fd)


def _copy_sparse(reader: BinaryIO, writer: BinaryIO, size: int) -> None:
    position = 0
    writer.truncate(size)
    while position < size:
        try:
            start = os.lseek(reader.fileno(), position, os.SEEK_DATA)
        except OSError:
            return  # a hole until the end
        end = os.lseek(reader.fileno(), start, os.SEEK_HOLE)
        os.lseek(reader.fileno(), start, os.SEEK_SET)
        os.lseek(writer.fileno(), start, os.SEEK_SET)
        left = end - start
        while left:
            data = os.read(reader.fileno(), min(left, 1 << 20))
            if not data:
                return
            os.write(writer.fileno(), data)
            left -= len(data)
        position = end
