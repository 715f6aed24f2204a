"""The grading server: forks one sandboxed child per job (a program, not a module to import).

``python -I -S -X utf8 _server.py CONTROL CONFIG``.  CONTROL is a socket.  Each line that comes in
is a job (JSON, as :class:`pytest_agentbench.sandbox.Sandbox` makes it); each is answered with a
line of JSON and the bytes that it announces.  The server itself holds nothing of a job: code and
transcript are read by the child, so that no grader finds another one's.

The child applies the layers to itself, calls ``grade()`` and writes one framed message to a
descriptor of its own.  Whatever ends it otherwise is no result.  The server is a subreaper: when
the job is over, every process that it left behind is killed.  When CONTROL reaches its end (the
harness is gone), everything is.
"""

import gc
import importlib.util
import json
import os
import select
import signal
import sys
import time
from typing import Any

Job = dict[str, Any]
Answer = dict[str, Any]

#: What graders import: loaded once here, and there in each child.
WARM = (
    "ast base64 calendar collections copy csv dataclasses datetime decimal difflib enum fractions "
    "functools glob hashlib html io itertools math operator pathlib random re shutil statistics "
    "string subprocess tempfile textwrap traceback typing unicodedata urllib.parse xml.etree."
    "ElementTree yaml zipfile"
).split()

#: The descriptor of the harness's socket.
CONTROL = 3
RESULT_LIMIT = 1 << 20
OUTPUT_LIMIT = 1 << 16


def load(name: str) -> Any:
    """A module of the package by its file: nothing else of the package gets on the path."""
    directory = os.path.dirname(os.path.abspath(__file__))
    path = os.path.normpath(os.path.join(directory, name + ".py"))
    spec = importlib.util.spec_from_file_location("agentbench_" + os.path.basename(name), path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


layers, watching, grading = load("_layers"), load("_watch"), load("_child")
supervisor = load("../_supervisor") if sys.platform == "linux" else None


def main() -> int:
    given = int(sys.argv[1])
    config = json.loads(sys.argv[2])
    sys.path.extend(config["site"])
    if given != CONTROL:
        os.dup2(given, CONTROL, inheritable=False)
    os.closerange(CONTROL + 1, max(given + 1, 4096))
    if supervisor is not None:
        layers.be_subreaper()
    for name in WARM:
        try:
            importlib.import_module(name)
        except ImportError:
            pass
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the harness, which closes CONTROL
    gc.collect()
    gc.freeze()
    try:
        send(abilities())
        serve(config)
    finally:
        kill_rest()
    return 0


def serve(config: Job) -> None:
    buffer = b""
    while True:
        line, end, buffer = buffer.partition(b"\n")
        if not end:
            more = os.read(CONTROL, 1 << 16)
            if not more:
                return
            buffer = line + more
            continue
        answer, result = run(json.loads(line), config)
        send(answer, result)


def abilities() -> Answer:
    """What this machine offers; whether namespaces do is tried out."""
    root = os.geteuid() == 0
    return {
        "root": root,
        "landlock": layers.landlock_abi(),
        "seccomp": layers.has_seccomp(),
        "user": layers.may_change_user(),
        "namespace": not root and sys.platform == "linux" and tries_namespace(),
    }


def tries_namespace() -> bool:
    child = os.fork()
    if child == 0:
        try:
            layers.own_namespace(os.path.realpath(os.environ.get("TMPDIR", "/tmp")))
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def send(answer: Answer, result: bytes = b"") -> None:
    answer["size"] = len(result)
    data = memoryview(json.dumps(answer).encode("ascii") + b"\n" + result)
    while data:
        data = data[os.write(CONTROL, data) :]


# -- the server's side of a job -------------------------------------------------------------------


def run(job: Job, config: Job) -> tuple[Answer, bytes]:
    started = time.monotonic()
    # result, output, and the layers that were applied before the grader ran
    pipes = [os.pipe() for _ in range(3)]
    child = os.fork()
    if child == 0:
        try:
            grading.work(layers, job, config, *(write for _, write in pipes))
        finally:
            os._exit(grading.NO_RESULT)
    result, output, held = (Stream(*pipe, limit) for pipe, limit in zip(pipes, LIMITS, strict=True))
    why, status = "", None
    try:
        why, status = attend(job, child, started, (result, output, held))
    except Exception as error:  # whatever it is, nothing of the job stays
        why = f"{type(error).__name__}: {error}"
    try:
        if status is None:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        left = kill_rest(child) if job["processes"] else False
    finally:
        for stream in (result, output, held):
            stream.close()
    frame = job["nonce"].encode("ascii")
    data = bytes(result.data)
    whole = framed(data, frame) and not why and not left
    answer = {
        "whole": whole,
        "why": why or ("left" if left else ""),
        "status": os.waitstatus_to_exitcode(status),
        "output": bytes(output.data).decode("utf-8", "replace"),
        "layers": bytes(held.data).decode("ascii", "replace"),
        "seconds": round(time.monotonic() - started, 4),
    }
    return answer, data[len(frame) : -len(frame)] if whole else b""


LIMITS = (RESULT_LIMIT + 1, OUTPUT_LIMIT, 1 << 10)


class Stream:
    """The read end of a pipe from a child, read without waiting, kept up to a limit."""

    def __init__(self, read: int, write: int, limit: int) -> None:
        os.close(write)
        os.set_blocking(read, False)
        self.fd, self.limit = read, limit
        self.data = bytearray()
        self.ended = False

    def drain(self) -> None:
        for _ in range(64):  # not for ever: a flood must not keep the clock from being looked at
            if self.ended:
                return
            try:
                data = os.read(self.fd, 1 << 16)
            except BlockingIOError:
                return
            self.ended = not data
            self.data += data[: max(0, self.limit - len(self.data))]

    def close(self) -> None:
        self.drain()
        os.close(self.fd)


def framed(data: "bytes | bytearray", frame: bytes) -> bool:
    return len(data) > 2 * len(frame) and data.startswith(frame) and data.endswith(frame)


def attend(
    job: Job, child: int, started: float, streams: "tuple[Stream, ...]"
) -> "tuple[str, int | None]":
    """Wait for a result or an end; why it was cut short, and the child's status if it ended."""
    try:
        ended = os.pidfd_open(child)
    except (AttributeError, OSError):
        ended = -1
    frame = job["nonce"].encode("ascii")
    watch = watching.Watch(supervisor, job, child)
    poll = select.poll()
    try:
        for fd in (CONTROL, ended, *(stream.fd for stream in streams)):
            if fd >= 0:
                poll.register(fd, select.POLLIN)
        while True:
            left = started + job["wall_s"] - time.monotonic()
            if left <= 0:
                return "time", None
            ready = {fd for fd, _ in poll.poll(1000 * min(left, watching.POLL_S))}
            if CONTROL in ready and not os.read(CONTROL, 1):
                os.kill(child, signal.SIGKILL)
                kill_rest(child)
                os._exit(0)
            for stream in streams:
                stream.drain()
                if stream.ended and stream.fd in ready:
                    poll.unregister(stream.fd)
            if len(streams[0].data) > RESULT_LIMIT:
                return "result", None
            if framed(streams[0].data, frame):
                return "", None
            if ended in ready or ended < 0:
                pid, status = os.waitpid(child, os.WNOHANG)
                if pid:
                    return "", status
            why = watch.exceeded()
            if why:
                return why, None
    finally:
        if ended >= 0:
            os.close(ended)


def kill_rest(child: "int | None" = None) -> bool:
    """Kill whatever descends from this process; whether something is left all the same.

    Where descendants cannot be listed (not Linux), those in the session of *child*.
    """
    if supervisor is not None:
        return not supervisor.kill_descendants()
    if child is not None:
        try:
            os.killpg(child, signal.SIGKILL)
        except OSError:
            pass  # there are none
    return False


if __name__ == "__main__":
    sys.exit(main())
