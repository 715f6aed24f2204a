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
import socket
import stat
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_agentbench.errors import ConfigError, HarnessError
from pytest_agentbench.sandbox.client import Server
from pytest_agentbench.sandbox.staging import WorkspaceTooLarge, lay_back, stage
from pytest_agentbench.text import one_line
from pytest_agentbench.workspace import remove_tree

__all__ = [
    "Criterion",
    "GraderEnded",
    "GraderResult",
    "Isolation",
    "Sandbox",
    "WorkspaceTooLarge",
    "starts_processes",
]

#: Seconds for a grader; one that starts processes waits for them.
WALL_S = 30.0
WALL_PROCESSES_S = 60.0
MEMORY_MIB = 1024
TREE_MIB = 1024
FILE_MIB = 16
DISK_MIB = 256
PROCESSES = 64
#: Bytes that the name of a socket may have.
MAX_SOCKET = 100
#: Characters of a criterion's name that are kept.
MAX_NAME = 200
#: The exit status of a child that could not tell its result (``_child.NO_RESULT``).
NO_RESULT = 70
#: Seconds that the server may take beyond the grader's own time.
GRACE_S = 15.0

_STARTS = re.compile(
    r"\b(subprocess|popen\w*|system\s*\(|from\s+os\s+import|posix_spawn\w*|spawn[lv]\w*"
    r"|multiprocessing|pty\b|concurrent\.futures\.process|ProcessPoolExecutor|create_subprocess_\w+)",
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
        self._server: Server | None = None
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
            if self.mode == "strict" and server.missing:
                raise HarnessError(f"the sandbox lacks {', '.join(server.missing)}, and is strict")
            answer, message = self._run(server, code, transcript, workspace, processes, wall)
        return _result(answer, message, processes, wall)

    def command(self, command: str, workspace: Path, wall: float) -> str:
        """Run the shell *command* on a copy of *workspace*, which is then laid back.

        Gives its status and what it printed.  What stops it (time, memory, what the sandbox
        refuses) is told in that text, and leaves the workspace as it was.

        Raises
        ------
        HarnessError
            The sandbox lacks a layer, and is strict.
        """
        with self._lock:
            server = self._start()
            if self.mode == "strict" and server.missing:
                raise HarnessError(f"the sandbox lacks {', '.join(server.missing)}, and is strict")
            given = [{"command": command}]
            try:
                answer, message = self._run(
                    server, _COMMAND, given, workspace, True, wall, take_back=workspace
                )
            except WorkspaceTooLarge as error:
                return f"error: {error}; the workspace is as it was before"
        try:
            result = _result(answer, message, True, wall)
        except GraderEnded as error:
            told = str(error).removeprefix("the grader ")
            return f"error: the command {told}; the workspace is as it was before"
        if result.raised is not None:
            return f"error: {result.raised}"
        status = int(result.criteria[0].score)
        return f"status {status}\n{result.output}"

    def isolation(self) -> Isolation:
        """What holds here: tried out by graders that attack, not told from version numbers."""
        if self.mode == "off":
            return Isolation((), ("everything (--bench-sandbox=off)",))
        with self._lock:
            server = self._start()
            with tempfile.TemporaryDirectory(prefix="agentbench-probe-") as place:
                broken = self._probe(server, Path(place))
        worked = (f"{outbreak} (tried: it works)" for outbreak in broken)
        return Isolation(server.layers, (*server.missing, *worked))

    def check(self) -> Isolation:
        """:meth:`isolation`; in strict mode a missing layer is refused.

        Raises
        ------
        ConfigError
            Naming ``--bench-sandbox``.
        """
        try:
            found = self.isolation()
        except (HarnessError, OSError) as error:
            raise ConfigError(f"--bench-sandbox: it cannot be tried: {error}") from error
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

    def _start(self) -> Server:
        if self._server is None:
            self._server = Server(self._base(), isolated=self.mode != "off")
        return self._server

    def _base(self) -> Path:
        """Where copies are made: if graders are another user, where that one gets through."""
        if self.base is not None:
            self.base.mkdir(mode=0o711, parents=True, exist_ok=True)
        wanted = Path(self.base or tempfile.gettempdir())
        if os.geteuid() != 0:
            return wanted
        return next(filter(_passable, (wanted, Path("/tmp"), Path("/var/tmp"))), wanted)

    def _run(
        self,
        server: Server,
        code: str,
        transcript: Sequence[Any],
        workspace: Path | None,
        processes: bool,
        wall: float,
        take_back: Path | None = None,
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        directory = Path(tempfile.mkdtemp(prefix="agentbench-grade-", dir=self._base()))
        directory.chmod(0o755)
        try:
            size, entries = stage(workspace, directory / "workspace", server.user)
            (directory / "tmp").mkdir()
            if server.user is not None:
                os.chown(directory / "tmp", server.user, server.user)
            # where pytest stops looking for a configuration; a workspace's own comes before it
            (directory / "pytest.ini").write_text("[pytest]\ncache_dir = tmp/.pytest_cache\n")
            given = {"code": code, "transcript": list(transcript)}
            (directory / "job.json").touch(0o600)
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
                "entries": entries,
                "process_limit": PROCESSES,
            }
            try:
                answer, result = server.ask(job, wall + GRACE_S)
                if take_back is not None and answer["whole"] and not answer["why"]:
                    lay_back(directory / "workspace", take_back)
            except OSError as error:
                self.close()
                raise GraderEnded(f"the grading server ended: {error}") from error
        finally:
            remove_tree(directory)
        if answer["why"] == "left":
            self.close()  # what it could not kill, its own end may
        if not answer["whole"]:
            return answer, None
        try:
            return answer, _checked(json.loads(result))
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise GraderEnded(f"the grader's result cannot be read: {error}") from None

    def _probe(self, server: Server, place: Path) -> list[str]:
        """What graders that attack came through with, in both profiles."""
        secret = place / "secret"
        secret.write_text("secret")
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
        ):
            address = str(place / "d")
            if len(os.fsencode(address)) < MAX_SOCKET:
                datagrams.bind(address)
            given = {
                "datagrams": address,
                "port": listener.getsockname()[1],
                "secret": str(secret),
                "write": str(place / "written"),
                "parent": os.getpid(),
            }
            broken: dict[str, None] = {}
            for processes in (False, True):
                _, message = self._run(server, _PROBE, [given], None, processes, WALL_S)
                if message is None or message["kind"] != "graded":
                    raise HarnessError(f"the sandbox cannot run a grader: {message}")
                broken |= dict.fromkeys(name for name, hit, _ in message["scores"] if hit)
        return list(broken)


def _passable(directory: Path) -> bool:
    """Whether every user can reach what is in *directory*."""
    real = directory.resolve()
    try:
        return all(place.stat().st_mode & stat.S_IXOTH for place in (real, *real.parents))
    except OSError:
        return False


#: A "grader" that runs a command; processes that stay behind are ended with it.
_COMMAND = """
import subprocess

def grade(transcript, workspace):
    done = subprocess.run(
        ["/bin/sh", "-c", transcript[0]["command"]], cwd=workspace, stdin=subprocess.DEVNULL
    )
    return {"status": done.returncode}
"""

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

def datagram(path):
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b"x", path)

def grade(transcript, workspace):
    given = transcript[0]
    write(workspace + "/own")
    return {
        "reading outside": attempt(lambda: open(given["secret"]).close()),
        "writing outside": attempt(lambda: write(given["write"])),
        "network": attempt(lambda: connect(given["port"])),
        "signals": attempt(lambda: os.kill(given["parent"], 0)),
        "datagrams": attempt(lambda: datagram(given["datagrams"])),
    }
"""


# -- results --------------------------------------------------------------------------------------


def _checked(message: Any) -> dict[str, Any]:
    """*message* with values of the types that it should have: a grader may have forged it."""
    kind = str(message["kind"])
    if kind == "graded":
        return {
            "kind": kind,
            "returned": str(message["returned"])[:200],
            "mean": float(message["mean"]),
            "scores": [
                (str(name)[:MAX_NAME], float(score), bool(counts))
                for name, score, counts in message["scores"]
            ],
        }
    if kind == "raised":
        names = ("type", "message", "exit", "filename")
        texts = {name: None if message[name] is None else str(message[name]) for name in names}
        flags = {name: bool(message[name]) for name in ("ordinary", "memory", "permission")}
        errno = message["errno"]
        return {"kind": kind, "errno": errno if type(errno) is int else None, **texts, **flags}
    return {"kind": kind, "reason": str(message.get("reason", ""))[:2000]}


_LIMITS = {
    "time": "was not done in {wall:g} s",
    "memory": "took more than {tree} MiB of memory with its processes",
    "processes": "started too many processes",
    "disk": "wrote more than {disk} MiB",
    "files": "made more files, or deeper directories, than can be watched",
    "result": "returned more than 1 MiB",
    "left": "left processes that could not be killed",
}


def _result(
    answer: dict[str, Any], message: dict[str, Any] | None, processes: bool, wall: float
) -> GraderResult:
    output = answer["output"]
    if message is None:
        raise GraderEnded(f"the grader {_how_it_ended(answer, wall)}{_said(output)}")
    layers = tuple(answer["layers"].split())
    kind = message["kind"]
    if kind == "graded":
        return GraderResult(
            tuple(Criterion(*score) for score in message["scores"]),
            message["mean"],
            message["returned"],
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
    raise GraderEnded(f"the sandbox could not be set up: {message['reason']}")


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
    why = answer["why"]
    if why in _LIMITS:
        return _LIMITS[why].format(wall=wall, tree=TREE_MIB, disk=DISK_MIB)
    if why:
        return f"could not be watched: {why}"
    status = answer["status"]
    if status is not None and status < 0:
        from signal import Signals

        with contextlib.suppress(ValueError):
            name = Signals(-status).name
            return f"was ended by {name}" + (" (CPU time)" if name == "SIGXCPU" else "")
        return f"was ended by signal {-status}"
    if status == NO_RESULT:
        return "could not send its result"
    return f"exited with status {status} before grade() returned"


def _said(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return f": {one_line(lines[-1], 160)}" if lines else ""
