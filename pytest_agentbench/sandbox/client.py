"""The grading server seen from the harness: its process, its environment, what it may read."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import site
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import weakref
from pathlib import Path
from typing import Any

from pytest_agentbench.errors import HarnessError
from pytest_agentbench.process import kill_marked
from pytest_agentbench.workspace import remove_tree

__all__ = ["Server"]

_SERVER = Path(__file__).with_name("_server.py")


class Server:
    """The running server process, and what it said it can do."""

    def __init__(self, base: Path | None, *, isolated: bool) -> None:
        self._cookie = secrets.token_hex(16)
        self._python = _own_python(base)
        # also when nobody closes it: the interpreter's end is the last chance
        self._forget = weakref.finalize(self, remove_tree, self._python.parent)
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
        self._forget()


def _layers(ready: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Layers to apply, and those that are missing here."""
    held, missing = ["limits"], list[str]()
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
        f'#!/bin/sh\nPYTEST_DISABLE_PLUGIN_AUTOLOAD=1 exec {shlex.quote(sys.executable)} "$@"\n',
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
