"""What limits of one process do not cover, watched from outside: a tree's memory and number, disk.

Loaded by :mod:`_server` by its path; standard library only.
"""

import os
import time
from typing import Any

POLL_S = 0.05
#: More entries than this beyond those of the workspace, or deeper ones, are not watched.
ENTRY_LIMIT = 20_000
DEPTH_LIMIT = 200


class Watch:
    """Looks at a job now and then, and says what it has too much of."""

    def __init__(self, supervisor: Any, job: dict[str, Any], child: int) -> None:
        self.job, self.child = job, child
        self.tree = supervisor if job["processes"] else None
        self.next_tree = time.monotonic() + POLL_S
        self.next_disk = time.monotonic() + 4 * POLL_S

    def exceeded(self) -> str:
        job, now = self.job, time.monotonic()
        tree = self.tree
        if tree is not None and now >= self.next_tree:
            self.next_tree = now + POLL_S
            pids = tree.descendants()
            if len(pids) > 2 * job["process_limit"]:
                return "processes"
            if sum(map(resident, pids)) > job["tree_mib"] << 20:
                return "memory"
        if now >= self.next_disk:
            self.next_disk = now + 4 * POLL_S
            used = disk(job["directory"], ENTRY_LIMIT + job["entries"])
            if used is None:
                return "files"
            for pid in tree.descendants() if tree is not None else [self.child]:
                used += unlinked(pid)
            if used > job["disk_mib"] << 20:
                return "disk"
        return ""


def resident(pid: int) -> int:
    """Bytes of memory that *pid* fills and shares with no file."""
    total = 0
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith((b"RssAnon:", b"RssShmem:")):
                    total += int(line.split()[1]) << 10
    except (OSError, IndexError, ValueError):
        pass
    return total


def unlinked(pid: int) -> int:
    """Bytes of the files that *pid* holds open and that have no name any more."""
    total = 0
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return 0
    for name in names:
        try:
            info = os.stat(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if info.st_nlink == 0 and info.st_mode & 0o170000 == 0o100000:
            total += info.st_blocks * 512
    return total


def disk(directory: str, most: int) -> "int | None":
    """Bytes below *directory*, or ``None`` if there is more, or deeper, than can be looked at."""
    total = count = 0
    pending = [(directory, 0)]
    while pending:
        place, depth = pending.pop()
        try:
            entries = os.scandir(place)
        except PermissionError:
            try:
                os.chmod(place, 0o700)
                entries = os.scandir(place)
            except OSError:
                return None
        except FileNotFoundError:
            continue
        except OSError:
            return None
        with entries:
            for entry in entries:
                count += 1
                try:
                    info = entry.stat(follow_symlinks=False)
                    is_dir = entry.is_dir(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                except OSError:
                    return None
                total += info.st_blocks * 512
                if is_dir:
                    pending.append((entry.path, depth + 1))
        if count > most or depth > DEPTH_LIMIT:
            return None
    return total
