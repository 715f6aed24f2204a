"""Run a command that may misbehave: bounded time, bounded output, no process left behind."""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Completed", "agent_environment", "kill_marked", "run"]

_SUPERVISOR = Path(__file__).with_name("_supervisor.py")
#: Kept of each output stream; the rest is read and dropped.
STDOUT_LIMIT = 8 * 1024 * 1024
STDERR_LIMIT = 256 * 1024
_COOKIE = "AGENTBENCH_PROCESS"


@dataclass(frozen=True, slots=True)
class Completed:
    """How a command ended.  ``returncode`` is negative for a signal."""

    returncode: int
    stdout: bytes
    stderr: bytes
    timed_out: bool
    truncated: bool
    seconds: float


def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: bytes = b"",
    timeout: float,
) -> Completed:
    """Run *argv* and wait until it and all of its descendants are gone.

    On Linux a supervisor process adopts every descendant (daemons with sessions of their own
    included) and kills them when the command ends, when *timeout* seconds are over, or when this
    process dies, however it dies.  Elsewhere the process group is killed.

    Raises
    ------
    OSError
        The command could not be started.
    """
    if sys.platform != "linux":
        return _run_group(argv, cwd=cwd, env=env, stdin=stdin, timeout=timeout)
    cookie = secrets.token_hex(16)
    control_read, control_write = os.pipe()
    status_read, status_write = os.pipe()
    fds: tuple[int, ...] = (control_read, status_write)
    started = time.monotonic()
    try:
        with subprocess.Popen(
            [sys.executable, "-I", "-S", str(_SUPERVISOR), *map(str, fds), *argv],
            cwd=cwd,
            env={**env, _COOKIE: cookie},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=fds,
        ) as process:
            for fd in fds:
                os.close(fd)
            fds = ()
            try:
                streams = _Streams(process, stdin)
                timed_out = not streams.pump(started + timeout, until=status_read)
            finally:
                os.close(control_write)  # ends the supervisor's wait, and with it every descendant
                control_write = -1
            process.wait()
            status = os.read(status_read, 64).decode()
            if not status:
                kill_marked(cookie)
            streams.pump(time.monotonic() + 10)
    finally:
        for fd in (*fds, control_write, status_read):
            if fd >= 0:
                os.close(fd)
    kind, _, number = status.strip().partition(" ")
    if kind == "exec":
        raise OSError(int(number), os.strerror(int(number)), argv[0])
    # without a status the supervisor itself was killed, by whoever it supervised
    code = int(number) if kind == "exit" else -signal.SIGKILL
    return Completed(
        code,
        bytes(streams.out),
        bytes(streams.err),
        timed_out,
        streams.truncated,
        time.monotonic() - started,
    )


def agent_environment(extra: Mapping[str, str], withheld: Collection[str] = ()) -> dict[str, str]:
    """The environment of an agent: ours without pytest's and the harness's own, plus *extra*.

    *withheld* are further variables that it does not get: they hold the judge's key.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "AGENTBENCH_")) and name not in withheld
    }
    return {**kept, **extra}


class _Streams:
    """The pipes of a child, pumped without ever blocking on one of them."""

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes) -> None:
        assert process.stdin is not None and process.stdout is not None
        assert process.stderr is not None
        self.out, self.err = bytearray(), bytearray()
        self.truncated = False
        self._stdin = process.stdin
        self._pending = memoryview(stdin)
        self._selector = selectors.DefaultSelector()
        self._limits = {
            process.stdout.fileno(): (self.out, STDOUT_LIMIT),
            process.stderr.fileno(): (self.err, STDERR_LIMIT),
        }
        for fd in self._limits:
            os.set_blocking(fd, False)
            self._selector.register(fd, selectors.EVENT_READ)
        os.set_blocking(process.stdin.fileno(), False)
        if stdin:
            self._selector.register(process.stdin.fileno(), selectors.EVENT_WRITE)
        else:
            self._close_stdin()

    def pump(self, deadline: float, until: int | None = None) -> bool:
        """Move bytes until the end (true) or until *deadline* is over (false).

        The end is when *until* can be read, or without it when both outputs are closed.
        """
        if until is not None:
            self._selector.register(until, selectors.EVENT_READ)
        try:
            while until is not None or self._limits:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                for key, _ in self._selector.select(min(left, 1.0)):
                    if key.fd in self._limits:
                        self._read(key.fd)
                    elif key.fd == until:
                        return True
                    else:
                        self._write(key.fd)
            return True
        finally:
            if until is not None:
                self._selector.unregister(until)

    def _read(self, fd: int) -> None:
        try:
            data = os.read(fd, 1 << 18)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(fd)
            del self._limits[fd]
            return
        buffer, limit = self._limits[fd]
        room = limit - len(buffer)
        buffer += data[: max(0, room)]
        self.truncated |= len(data) > room

    def _write(self, fd: int) -> None:
        try:
            written = os.write(fd, self._pending[: 1 << 16])
        except BlockingIOError:
            return
        except BrokenPipeError:  # an agent need not read its prompt
            written = len(self._pending)
        self._pending = self._pending[written:]
        if not self._pending:
            self._selector.unregister(fd)
            self._close_stdin()

    def _close_stdin(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()


def kill_marked(cookie: str) -> None:
    """Kill every process that inherited *cookie*: the way out when the supervisor is gone."""
    mark = f"{_COOKIE}={cookie}".encode()
    for _ in range(50):
        found = False
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
                    found = True
        if not found:
            return
        time.sleep(0.01)


def _run_group(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdin: bytes, timeout: float
) -> Completed:
    """The same without a supervisor: kills the process group (systems other than Linux)."""
    started = time.monotonic()
    with subprocess.Popen(
        list(argv),
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        streams = _Streams(process, stdin)
        streams.pump(started + timeout)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, started + timeout - time.monotonic()))
        timed_out = process.poll() is None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        streams.pump(time.monotonic() + 10)
        code = process.wait()
    return Completed(
        code,
        bytes(streams.out),
        bytes(streams.err),
        timed_out,
        streams.truncated,
        time.monotonic() - started,
    )
