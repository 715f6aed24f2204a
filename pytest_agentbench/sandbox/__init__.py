"""Run a grader that came with a dataset: under limits, and never in this process.

A server process (started once per worker) forks a child per grader.  The child sees a throwaway
copy of the workspace, has a home and a temporary directory of its own, and gives up what it can do
before it runs a line of the grader:

========== =====================================================================================
limits     memory, CPU time, file size, descriptors, core files; wall time, disk and output besides
landlock   reads Python, programs and libraries, writes its own directories; no TCP, no signals out
seccomp    no sockets, no debugging, no mounts, no keys, and unless needed no new processes
user       (root) a user number that owns nothing, so that modes and processes are limited too
namespace  (not root, graders that start processes) everything else is mounted read-only
========== =====================================================================================

The sandbox guards the host, the other trials and the secrets.  It does not vouch for the score: a
grader may return what it likes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shlex
import site
import socket
import stat
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_agentbench.errors import ConfigError, HarnessError
from pytest_agentbench.process import kill_marked
from pytest_agentbench.text import one_line
from pytest_agentbench.workspace import remove_tree

__all__ = ["Criterion", "GraderEnded", "GraderResult", "Isolation", "Sandbox", "starts_processes"]

_SERVER = Path(__file__).with_name("_server.py")
#: Seconds for a grader; one that starts processes waits for them.
WALL_S = 30.0
WALL_PROCESSES_S = 60.0
MEMORY_MIB = 1024
TREE_MIB = 1024
FILE_MIB = 16
DISK_MIB = 256
PROCESSES = 64
#: A workspace larger than this is not copied.
MAX_COPY_FILES = 100_000
MAX_COPY_BYTES = 2 << 30
#: Seconds that the server may take beyond the grader's own time.
GRACE_S = 15.0

_STARTS = re.compile(
    r"\b(subprocess|popen\w*|os\s*\.\s*system|posix_spawn\w*|spawn[lv]\w*|multiprocessing|pty"
    r"|concurrent\.futures\.process|ProcessPoolExecutor|create_subprocess_\w+)\b",
    re.IGNORECASE,
)


class GraderEnded(HarnessError):
    """The grader came to no result: it exited, was killed, or ran into a limit."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """A value that ``grade()`` returned; ``counts`` says whether it is in the mean."""

    name: str
    score: float
    counts: bool


@dataclass(frozen=True, slots=True)
class GraderResult:
    """What ``grade()`` came to.

    ``raised`` is an ordinary exception as ``Type: message`` (then there are no criteria);
    ``missing`` is set when the code defines no callable ``grade``; ``returned`` is the type's name
    of what was returned.
    """

    criteria: tuple[Criterion, ...] = ()
    mean: float = 0.0
    returned: str = "dict"
    raised: str | None = None
    missing: bool = False
    layers: tuple[str, ...] = ()
    processes: bool = False
    output: str = ""


@dataclass(frozen=True, slots=True)
class Isolation:
    """Which layers hold on this machine, and which are missing."""

    held: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def full(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing

    def __str__(self) -> str:
        held = ", ".join(self.held) or "nothing holds"
        return held if self.full else f"degraded: {held}; missing: {', '.join(self.missing)}"


def starts_processes(code: str) -> bool:
    """Whether *code* speaks of starting processes, and so has to be allowed to."""
    return _STARTS.search(code) is not None


class Sandbox:
    """Runs graders, one at a time.  ``mode`` is ``auto``, ``strict`` or ``off``.

    *base* is where copies of workspaces are made (by default where temporary files are).
    """

    def __init__(self, mode: str = "auto", base: Path | None = None) -> None:
        self.mode = mode
        self.base = base
        self._server: _Server | None = None
        self._lock = threading.Lock()

    def grade(
        self, code: str, transcript: Sequence[Any], workspace: Path, *, scale: float = 1.0
    ) -> GraderResult:
        """Call ``grade(transcript, workspace)`` of *code* on a copy of *workspace*.

        Raises
        ------
        GraderEnded
            There is no result: exit, signal, limit, or something that the sandbox refused.
        """
        processes = starts_processes(code)
        wall = (WALL_PROCESSES_S if processes else WALL_S) * scale
        with self._lock:
            server = self._start()
            answer, message = self._run(server, code, transcript, workspace, processes, wall)
        return _result(answer, message, processes, wall)

    def isolation(self) -> Isolation:
        """What holds here: tried out by graders that attack, not told from version numbers."""
        if self.mode == "off":
            return Isolation((), ("everything (--bench-sandbox=off)",))
        with self._lock:
            server = self._server or _Server(self._base(), isolated=True)
            self._server = server
        held, missing = list(server.layers), list(server.missing)
        with tempfile.TemporaryDirectory(prefix="agentbench-probe-") as place:
            for outbreak in self._probe(Path(place)):
                missing.append(f"{outbreak} (tried: it works)")
        return Isolation(tuple(held), tuple(missing))

    def check(self) -> Isolation:
        """:meth:`isolation`; in strict mode a missing layer is refused.

        Raises
        ------
        ConfigError
            Naming ``--bench-sandbox``.
        """
        try:
            found = self.isolation()
        except HarnessError as error:
            raise ConfigError(f"--bench-sandbox: {error}") from error
        if self.mode == "strict" and not found.full:
            raise ConfigError(
                f"--bench-sandbox: strict, but this machine lacks {', '.join(found.missing)}. "
                "Use --bench-sandbox=auto to run graders with what there is."
            )
        return found

    def close(self) -> None:
        """End the server."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _start(self) -> _Server:
        if self._server is None:
            self._server = _Server(self._base(), isolated=self.mode != "off")
            if self.mode == "strict" and self._server.missing:
                missing = ", ".join(self._server.missing)
                raise HarnessError(f"the sandbox lacks {missing}, and is to be strict")
        return self._server

    def _base(self) -> Path | None:
        if self.base is not None:
            self.base.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self.base

    def _run(
        self,
        server: _Server,
        code: str,
        transcript: Sequence[Any],
        workspace: Path | None,
        processes: bool,
        wall: float,
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        directory = Path(tempfile.mkdtemp(prefix="agentbench-grade-", dir=self._base()))
        try:
            size = _stage(workspace, directory / "workspace", server.user)
            (directory / "tmp").mkdir()
            if server.user is not None:
                os.chown(directory / "tmp", server.user, server.user)
            given = {"code": code, "transcript": list(transcript)}
            (directory / "job.json").write_text(json.dumps(given, default=str), encoding="ascii")
            job = {
                "directory": os.fspath(directory),
                "nonce": secrets.token_hex(16),
                "processes": processes,
                "layers": [name for name in server.layers if processes or name != "namespace"],
                "user": server.user,
                "wall_s": wall,
                "memory_mib": MEMORY_MIB,
                "tree_mib": TREE_MIB,
                "file_mib": FILE_MIB,
                "disk_mib": DISK_MIB + (size >> 20),
                "process_limit": PROCESSES,
            }
            try:
                answer, result = server.ask(job, wall + GRACE_S)
            except OSError as error:
                self.close()
                raise GraderEnded(f"the grading server ended: {error}") from error
        finally:
            remove_tree(directory)
        if not answer["whole"]:
            return answer, None
        try:
            message = json.loads(result)
            if not isinstance(message, dict):
                raise ValueError("it is no object")
        except (ValueError, RecursionError) as error:
            raise GraderEnded(f"the grader's result cannot be read: {error}") from None
        return answer, message

    def _probe(self, place: Path) -> list[str]:
        """Names of the layers that do not hold although they are there."""
        secret = place / "secret"
        secret.write_text("secret")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            given = {
                "port": listener.getsockname()[1],
                "secret": str(secret),
                "write": str(place / "written"),
                "parent": os.getpid(),
            }
            broken: dict[str, None] = {}
            for processes in (False, True):
                with self._lock:
                    _, message = self._run(self._start(), _PROBE, [given], None, processes, WALL_S)
                if message is None or message["kind"] != "graded":
                    raise HarnessError(f"the sandbox cannot run a grader: {message}")
                broken |= dict.fromkeys(name for name, hit, _ in message["scores"] if hit)
        return list(broken)


_PROBE = """
import os, socket

def attempt(attack):
    try:
        attack()
        return 1.0
    except Exception:
        return 0.0

def connect(port):
    with socket.socket() as s:
        s.settimeout(2)
        s.connect(("127.0.0.1", port))

def write(path):
    with open(path, "w") as file:
        file.write("x")

def grade(transcript, workspace):
    given = transcript[0]
    write(workspace + "/own")
    return {
        "reading outside": attempt(lambda: open(given["secret"]).close()),
        "writing outside": attempt(lambda: write(given["write"])),
        "network": attempt(lambda: connect(given["port"])),
        "signals": attempt(lambda: os.kill(given["parent"], 0)),
    }
"""


# -- results --------------------------------------------------------------------------------------

_LIMITS = {
    "time": "was not done in {wall:g} s",
    "memory": "took more than {tree} MiB of memory with its processes",
    "processes": "started too many processes",
    "disk": "wrote more than {disk} MiB",
    "result": "returned more than 1 MiB",
}


def _result(
    answer: dict[str, Any], message: dict[str, Any] | None, processes: bool, wall: float
) -> GraderResult:
    output = answer["output"]
    if message is None:
        raise GraderEnded(f"the grader {_how_it_ended(answer, wall)}{_said(output)}")
    layers = tuple(message.get("layers", ()))
    kind = message.get("kind")
    if kind == "graded":
        criteria = tuple(
            Criterion(str(name), float(score), bool(counts))
            for name, score, counts in message["scores"]
        )
        return GraderResult(
            criteria,
            float(message["mean"]),
            str(message["returned"]),
            layers=layers,
            processes=processes,
            output=output,
        )
    if kind == "missing":
        return GraderResult(missing=True, layers=layers, processes=processes, output=output)
    if kind == "raised":
        what = f"{message['type']}: {message['message']}".strip().removesuffix(":")
        trouble = _not_ordinary(message, what)
        if trouble:
            raise GraderEnded(trouble)
        return GraderResult(raised=what, layers=layers, processes=processes, output=output)
    if kind == "large":
        raise GraderEnded("the grader returned more than 1000 criteria")
    raise GraderEnded(f"the sandbox could not be set up: {message.get('reason', message)}")


def _not_ordinary(message: dict[str, Any], what: str) -> str:
    """Why an exception is not the verdict that the grader's author meant, if so."""
    if message.get("exit") is not None:
        return f"the grader called sys.exit({message['exit']})"
    if not message["ordinary"]:
        return f"the grader raised {what}, which is no ordinary exception"
    if message["memory"]:
        return f"the grader took more than {MEMORY_MIB} MiB of memory"
    if what == "RuntimeError: can't start new thread":
        return "the grader started too many threads"
    if message["errno"] == 27:
        return f"the grader wrote a file of more than {FILE_MIB} MiB"
    name = message["filename"]
    if message["permission"] and not (name and "/agentbench-grade-" in name):
        return f"the sandbox refused what the grader did: {what}"
    return ""


def _how_it_ended(answer: dict[str, Any], wall: float) -> str:
    if answer["why"]:
        return _LIMITS[answer["why"]].format(wall=wall, tree=TREE_MIB, disk=DISK_MIB)
    status = answer["status"]
    if status is not None and status < 0:
        from signal import Signals

        with contextlib.suppress(ValueError):
            name = Signals(-status).name
            return f"was ended by {name}" + (" (CPU time)" if name == "SIGXCPU" else "")
        return f"was ended by signal {-status}"
    return f"exited with status {status} before grade() returned"


def _said(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return f": {one_line(lines[-1], 160)}" if lines else ""


# -- the copy of the workspace --------------------------------------------------------------------


def _stage(source: Path | None, target: Path, user: int | None) -> int:
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


def _copy_sparse(reader: Any, writer: Any, size: int) -> None:
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


# -- the server -----------------------------------------------------------------------------------


class _Server:
    """The running server process, and what it said it can do."""

    def __init__(self, base: Path | None, *, isolated: bool) -> None:
        self._cookie = secrets.token_hex(16)
        self._python = _own_python(base)
        ours, theirs = socket.socketpair()
        self._socket = ours
        self._buffer = b""
        environment = _environment(self._cookie, self._python.parent)
        config = {
            "site": _site_directories(),
            "environment": environment,
            "python": str(self._python),
            **_readable(self._python.parent),
        }
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", "-X", "utf8"),
                    *(str(_SERVER), str(theirs.fileno()), json.dumps(config)),
                ],
                cwd="/",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        try:
            ready, _ = self._answer(60.0)
        except OSError as error:
            self.close()
            raise HarnessError(f"the grading server did not start: {error}") from error
        self.layers, self.missing = _layers(ready) if isolated else ((), ())
        self.user = _spare_user() if "user" in self.layers else None

    def ask(self, job: dict[str, Any], timeout: float) -> tuple[dict[str, Any], bytes]:
        """Send *job*; the answer and the result's bytes."""
        self._socket.settimeout(timeout)
        self._socket.sendall(json.dumps(job).encode("ascii") + b"\n")
        return self._answer(timeout)

    def _answer(self, timeout: float) -> tuple[dict[str, Any], bytes]:
        deadline = time.monotonic() + timeout
        while b"\n" not in self._buffer:
            self._receive(deadline)
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer = json.loads(line)
        while len(self._buffer) < answer["size"]:
            self._receive(deadline)
        result, self._buffer = self._buffer[: answer["size"]], self._buffer[answer["size"] :]
        return answer, result

    def _receive(self, deadline: float) -> None:
        self._socket.settimeout(max(0.01, deadline - time.monotonic()))
        data = self._socket.recv(1 << 18)
        if not data:
            raise ConnectionError("it closed the connection")
        self._buffer += data

    def close(self) -> None:
        """Close the connection, at which the server kills what it started and exits."""
        self._socket.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.returncode != 0:
            kill_marked(self._cookie)
        remove_tree(self._python.parent)


def _layers(ready: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Layers to apply, and those that are missing here."""
    held, missing = ["limits"], []
    for name, there in (("landlock", ready["landlock"] > 0), ("seccomp", ready["seccomp"])):
        (held if there else missing).append(name)
    if ready["root"]:
        there = ready["user"] and ready["landlock"] > 0
        (held if there else missing).append("user")
    else:
        (held if ready["namespace"] else missing).append("namespace")
    return tuple(held), tuple(missing)


def _spare_user() -> int:
    """A user number that nobody else has, this process's own."""
    with open("/proc/self/uid_map", encoding="ascii") as file:
        ranges = [tuple(map(int, line.split())) for line in file]
    start, _, length = max(ranges, key=lambda item: item[2])
    if length > 2_000_000_000:
        return 1_500_000_000 + os.getpid()
    return start + length - 2 - os.getpid() % max(1, min(1000, length // 4))


def _site_directories() -> list[str]:
    names = ("site-packages", "dist-packages")
    found = [path for path in sys.path if path.endswith(names) and Path(path).is_dir()]
    return list(dict.fromkeys(found))


def _own_python(base: Path | None) -> Path:
    """A program that starts this Python for graders, without what its user has installed as pytest
    plugins: their doings (sockets, caches, options) are not part of any task."""
    path = Path(tempfile.mkdtemp(prefix="agentbench-python-", dir=base)) / "python"
    path.parent.chmod(0o755)
    path.write_text(
        "#!/bin/sh\nPYTEST_DISABLE_PLUGIN_AUTOLOAD=1 "
        f'exec {shlex.quote(sys.executable)} "$@"\n',
        encoding="utf-8",
    )
    path.chmod(0o755)
    for name in ("python3", f"python3.{sys.version_info.minor}"):
        (path.parent / name).symlink_to("python")
    return path


def _environment(cookie: str, python: Path) -> dict[str, str]:
    """What a grader's environment is: built from nothing."""
    programs = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
    return {
        "PATH": os.pathsep.join((str(python), str(Path(sys.executable).parent), *programs)),
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TZ": os.environ.get("TZ", ""),
        "USER": "grader",
        "LOGNAME": "grader",
        "SHELL": "/bin/sh",
        "TERM": "dumb",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "AGENTBENCH_PROCESS": cookie,
    }


def _readable(python: Path) -> dict[str, list[str]]:
    """What graders may read: Python, its packages, programs and libraries."""
    roots = [
        str(python),
        *(sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix),
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *_site_directories(),
        *("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt/homebrew", "/nix/store"),
        *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives"),
        *("/etc/localtime", "/etc/timezone", "/etc/mime.types", "/etc/magic"),
    ]
    if site.ENABLE_USER_SITE:
        roots.append(site.getusersitepackages())
    return {"read": list(dict.fromkeys(os.path.realpath(root) for root in roots if root != "/"))}
