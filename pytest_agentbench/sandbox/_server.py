"""The grading server: forks one sandboxed child per job (a program, not a module to import).

``python -I -S -X utf8 _server.py CONTROL CONFIG``.  CONTROL is a socket.  Each line that comes in
is a job (JSON, see :class:`pytest_agentbench.sandbox.Job`); each job is answered with a line of
JSON and the bytes that it announces.  The server itself holds nothing of a job: code and
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
import resource
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

RESULT_LIMIT = 1 << 20
OUTPUT_LIMIT = 1 << 16
#: Criteria that a result may have.
CRITERIA_LIMIT = 1000
POLL_S = 0.05


def load(name: str) -> Any:
    """A module of the package by its file: nothing else of the package gets on the path."""
    directory = os.path.dirname(os.path.abspath(__file__))
    path = os.path.normpath(os.path.join(directory, name + ".py"))
    spec = importlib.util.spec_from_file_location("agentbench_" + os.path.basename(name), path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


layers = load("_layers")
supervisor = load("../_supervisor") if sys.platform == "linux" else None


def main() -> int:
    control = int(sys.argv[1])
    config = json.loads(sys.argv[2])
    sys.path.extend(config["site"])
    os.closerange(3, control)
    os.closerange(control + 1, 1024)
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
    send(control, abilities())
    buffer = b""
    while True:
        line, end, buffer = buffer.partition(b"\n")
        if not end:
            more = os.read(control, 1 << 16)
            if not more:
                return 0
            buffer = line + more
            continue
        answer, result = run(json.loads(line), config, control)
        send(control, answer, result)


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


def send(control: int, answer: Answer, result: bytes = b"") -> None:
    answer["size"] = len(result)
    data = memoryview(json.dumps(answer).encode("ascii") + b"\n" + result)
    while data:
        data = data[os.write(control, data) :]


# -- the server's side of a job -------------------------------------------------------------------


def run(job: Job, config: Job, control: int) -> tuple[Answer, bytes]:
    started = time.monotonic()
    result_read, result_write = os.pipe()
    output_read, output_write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work(job, config, result_write, output_write)
        finally:
            os._exit(70)
    os.close(result_write)
    os.close(output_write)
    for fd in (result_read, output_read):
        os.set_blocking(fd, False)
    try:
        ended = os.pidfd_open(child)
    except (AttributeError, OSError):
        ended = -1
    result, output = bytearray(), bytearray()
    frame = job["nonce"].encode("ascii")
    why, status = "", None
    watch = Watch(job)
    open_fds = {result_read, output_read}
    try:
        while True:
            fds = [*open_fds, control] + ([ended] if ended >= 0 else [])
            left = started + job["wall_s"] - time.monotonic()
            if left <= 0:
                why = "time"
                break
            ready, _, _ = select.select(fds, [], [], min(left, POLL_S))
            if control in ready and not os.read(control, 1):
                kill(child, job)
                os._exit(0)
            drain(ready, open_fds, result_read, result, RESULT_LIMIT + 1)
            drain(ready, open_fds, output_read, output, OUTPUT_LIMIT)
            if len(result) > RESULT_LIMIT:
                why = "result"
                break
            if result.endswith(frame) and result.startswith(frame) and len(result) > len(frame):
                break
            if ended in ready or ended < 0:
                pid, status = os.waitpid(child, os.WNOHANG)
                if pid:
                    break
                status = None
            why = watch.exceeded()
            if why:
                break
        if status is None:
            status = kill(child, job)
        elif job["processes"]:
            kill(None, job)
        drain([result_read], open_fds, result_read, result, RESULT_LIMIT + 1)
        drain([output_read], open_fds, output_read, output, OUTPUT_LIMIT)
    finally:
        for fd in (result_read, output_read, ended):
            if fd >= 0:
                os.close(fd)
    whole = (
        not why
        and len(result) > 2 * len(frame)
        and result.startswith(frame)
        and result.endswith(frame)
    )
    answer = {
        "whole": whole,
        "why": why,
        "status": os.waitstatus_to_exitcode(status) if status is not None else None,
        "output": bytes(output).decode("utf-8", "replace"),
        "seconds": round(time.monotonic() - started, 4),
    }
    return answer, bytes(result[len(frame) : -len(frame)]) if whole else b""


def drain(ready: list[int], open_fds: set[int], fd: int, buffer: bytearray, limit: int) -> None:
    if fd not in ready or fd not in open_fds:
        return
    for _ in range(64):  # not for ever: a flood must not keep the clock from being looked at
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            open_fds.discard(fd)
            return
        buffer += data[: max(0, limit - len(buffer))]


def kill(child: int | None, job: Job) -> int | None:
    """Kill *child*, and all that it left; its status."""
    status: int | None = None
    if child is not None:
        os.kill(child, signal.SIGKILL)
        if supervisor is None:
            try:
                os.killpg(child, signal.SIGKILL)
            except OSError:
                pass
        _, status = os.waitpid(child, 0)
    if job["processes"] and supervisor is not None:
        supervisor._kill_descendants()
    return status


class Watch:
    """What limits of one process do not cover: the tree's memory and number, the disk."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.next_tree = time.monotonic() + POLL_S
        self.next_disk = time.monotonic() + 4 * POLL_S
        self.page_mib = resource.getpagesize() / (1 << 20)

    def exceeded(self) -> str:
        job, now = self.job, time.monotonic()
        if job["processes"] and supervisor is not None and now >= self.next_tree:
            self.next_tree = now + POLL_S
            pids = supervisor._descendants()
            if len(pids) > 2 * job["process_limit"]:
                return "processes"
            if sum(map(self.resident, pids)) > job["tree_mib"]:
                return "memory"
        if now >= self.next_disk:
            self.next_disk = now + 4 * POLL_S
            if disk(job["directory"]) > job["disk_mib"] << 20:
                return "disk"
        return ""

    def resident(self, pid: int) -> float:
        try:
            with open(f"/proc/{pid}/statm") as file:
                fields = file.read().split()
            # without what is shared (the code, and what a fork has not written to)
            return (int(fields[1]) - int(fields[2])) * self.page_mib
        except (OSError, IndexError, ValueError):
            return 0


def disk(directory: str) -> int:
    total, pending = 0, [directory]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    try:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)
                    except OSError:
                        pass
        except OSError:
            pass
    return total


# -- the child's side of a job --------------------------------------------------------------------


def work(job: Job, config: Job, result_write: int, output_write: int) -> None:
    """Never returns: writes a message, or ends without one."""
    os.setsid()
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    result = min(soft, 1024) - 1  # out of the way of code that closes or writes what it finds
    os.dup2(result_write, result, inheritable=False)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (output_write, 1), (output_write, 2)):
        os.dup2(source, target)
    os.closerange(3, result)
    frame = job["nonce"].encode("ascii")
    dumps, write, leave = json.dumps, os.write, os._exit

    def tell(message: Answer) -> None:
        data = memoryview(frame + dumps(message).encode("ascii") + frame)
        while data:
            data = data[write(result, data) :]
        leave(0)

    path = os.path.join(job["directory"], "job.json")
    with open(path, encoding="ascii") as file:
        given = json.load(file)
    os.unlink(path)
    workspace = os.path.join(job["directory"], "workspace")
    home = os.path.join(job["directory"], "tmp")
    os.chdir(home)
    os.environ.clear()
    os.environ.update(config["environment"])
    for name in ("HOME", "TMPDIR", "TMP", "TEMP"):
        os.environ[name] = home
    sys.argv[:] = [""]
    sys.executable = config["python"]
    sys.stdin, sys.stdout, sys.stderr = (
        open(fd, mode, errors="backslashreplace", closefd=False)
        for fd, mode in ((0, "r"), (1, "w"), (2, "w"))
    )
    import tempfile

    tempfile.tempdir = None
    held: list[str] = []
    try:
        protect(job, config, workspace, home, held)
    except Exception as error:
        tell({"kind": "refused", "reason": f"{type(error).__name__}: {error}", "layers": held})
    try:
        message = grade(given["code"], given["transcript"], workspace)
    except BaseException as error:
        message = failure(error)
    message["layers"] = held
    tell(message)


def protect(job: Job, config: Job, workspace: str, home: str, held: list[str]) -> None:
    """Apply the wanted layers to this process; their names are added to *held*."""
    wanted = set(job["layers"])
    processes = job["processes"]
    if sys.platform == "linux":
        layers.die_with_parent()
    modes = False
    if "user" in wanted and job["user"] is not None:
        layers.become(job["user"])
        layers.die_with_parent()  # changing users forgets it
        held.append("user")
        modes = True
    elif "namespace" in wanted and processes:
        layers.own_namespace(job["directory"])
        held.append("namespace")
        modes = True
    if "limits" in wanted:
        count = job["process_limit"] if {"user", "namespace"} & set(held) else None
        layers.limit(
            memory_mib=job["memory_mib"],
            cpu_s=job["wall_s"],
            file_mib=job["file_mib"],
            processes=count,
        )
        held.append("limits")
    if "user" not in held and sys.platform == "linux" and "limits" in wanted:
        layers.drop_capabilities()
    if "landlock" in wanted:
        layers.landlock(
            read=config["read"],
            write=(workspace, home),
            execute=processes,
        )
        held.append("landlock")
    if "seccomp" in wanted:
        layers.seccomp(processes=processes, modes=modes)
        held.append("seccomp")


def grade(code: str, transcript: list[Any], workspace: str) -> Answer:
    # bound now: the grader shares this interpreter and may change what it likes in it
    as_float, is_a, items, text = float, isinstance, dict.items, str
    number, limit = (int, float), CRITERIA_LIMIT
    names: dict[str, Any] = {}
    exec(compile(code, "<string>", "exec", dont_inherit=True), names)
    function = names.get("grade")
    if not callable(function):
        return {"kind": "missing"}
    value = function(transcript, workspace)
    if not is_a(value, dict):
        return {"kind": "graded", "returned": type(value).__name__, "scores": [], "mean": 0.0}
    counted: list[int | float] = []
    scores: dict[str, list[Any]] = {}
    for key, given in list(items(value)):
        counts = is_a(given, number)
        if counts:
            counted.append(int(given) if is_a(given, int) else as_float(given))
        try:
            scores[text(key)] = [as_float(given), counts]
        except (TypeError, ValueError):
            pass  # text, None, containers: in neither mean nor breakdown
        if len(scores) > limit:
            return {"kind": "large"}
    mean = sum(counted) / len(counted) if counted else 0.0
    return {
        "kind": "graded",
        "returned": "dict",
        "scores": [[key, *pair] for key, pair in scores.items()],
        "mean": as_float(mean),
    }


def failure(error: BaseException) -> Answer:
    """What is known of an exception, without trusting any of its methods."""
    try:
        message = str(error)
    except BaseException:
        message = "(it cannot be printed)"
    name = getattr(error, "filename", None) if isinstance(error, OSError) else None
    return {
        "kind": "raised",
        "type": type(error).__name__,
        "ordinary": isinstance(error, Exception),
        "message": message[:2000],
        "memory": isinstance(error, MemoryError),
        "permission": isinstance(error, PermissionError),
        "errno": error.errno if isinstance(error, OSError) and type(error.errno) is int else None,
        "filename": os.fsdecode(name)[:4096] if isinstance(name, (str, bytes)) else None,
        "exit": repr(error.code)[:100] if isinstance(error, SystemExit) else None,
    }


if __name__ == "__main__":
    sys.exit(main())
