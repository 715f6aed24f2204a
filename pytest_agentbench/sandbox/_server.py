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

#: The descriptor of the harness's socket.
CONTROL = 3
RESULT_LIMIT = 1 << 20
#: More entries than this beyond those of the workspace, or deeper ones, are not watched.
ENTRY_LIMIT = 20_000
DEPTH_LIMIT = 200
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
            work(job, config, *(write for _, write in pipes))
        finally:
            os._exit(70)
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
        left = kill_rest() if job["processes"] else False
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


def framed(data: bytes, frame: bytes) -> bool:
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
    watch = Watch(job, child)
    poll = select.poll()
    try:
        for fd in (CONTROL, ended, *(stream.fd for stream in streams)):
            if fd >= 0:
                poll.register(fd, select.POLLIN)
        while True:
            left = started + job["wall_s"] - time.monotonic()
            if left <= 0:
                return "time", None
            ready = {fd for fd, _ in poll.poll(1000 * min(left, POLL_S))}
            if CONTROL in ready and not os.read(CONTROL, 1):
                os.kill(child, signal.SIGKILL)
                kill_rest()
                os._exit(0)
            for stream in streams:
                stream.drain()
                if stream.ended and stream.fd in ready:
                    poll.unregister(stream.fd)
            if len(streams[0].data) > RESULT_LIMIT:
                return "result", None
            if framed(bytes(streams[0].data), frame):
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


def kill_rest() -> bool:
    """Kill whatever descends from this process; whether something is left all the same."""
    if supervisor is None:
        return False
    return not supervisor.kill_descendants()


class Watch:
    """What limits of one process do not cover: the tree's memory and number, the disk."""

    def __init__(self, job: Job, child: int) -> None:
        self.job, self.child = job, child
        self.next_tree = time.monotonic() + POLL_S
        self.next_disk = time.monotonic() + 4 * POLL_S

    def exceeded(self) -> str:
        job, now = self.job, time.monotonic()
        tree = supervisor if job["processes"] else None
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


# -- the child's side of a job --------------------------------------------------------------------


def work(job: Job, config: Job, result_write: int, output_write: int, held_write: int) -> None:
    """Never returns: writes a message, or ends without one."""
    os.setsid()
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    result = min(soft, 1024) - 1  # out of the way of code that closes or writes what it finds
    layers_told = result - 1
    os.dup2(result_write, result, inheritable=False)
    os.dup2(held_write, layers_told, inheritable=False)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (output_write, 1), (output_write, 2)):
        os.dup2(source, target)
    os.closerange(3, layers_told)
    frame = job["nonce"].encode("ascii")
    dumps, write, leave = json.dumps, os.write, os._exit

    def tell(message: Answer) -> None:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except BaseException:
                pass
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
        tell({"kind": "refused", "reason": f"{type(error).__name__}: {error}"})
    os.write(layers_told, " ".join(held).encode("ascii"))
    os.close(layers_told)  # told before the grader can say anything
    try:
        message = grade(given["code"], given["transcript"], workspace)
    except BaseException as error:
        message = failure(error)
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
            read=(*config["read"], job["directory"]),
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
