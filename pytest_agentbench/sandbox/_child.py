"""The child of the grading server: applies the layers to itself, then calls ``grade()``.

Loaded by :mod:`_server` by its path; standard library only.
"""

import json
import os
import resource
import sys
from typing import Any

Job = dict[str, Any]
Answer = dict[str, Any]

#: Criteria that a result may have.
CRITERIA_LIMIT = 1000
#: Exit status of a child that could not tell its result.
NO_RESULT = 70


def work(
    layers: Any, job: Job, config: Job, result_write: int, output_write: int, held_write: int
) -> None:
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
        protect(layers, job, config, workspace, home, held)
    except Exception as error:
        tell({"kind": "refused", "reason": f"{type(error).__name__}: {error}"})
    os.write(layers_told, " ".join(held).encode("ascii"))
    os.close(layers_told)  # told before the grader can say anything
    try:
        message = grade(given["code"], given["transcript"], workspace)
    except BaseException as error:
        message = failure(error)
    tell(message)


def protect(layers: Any, job: Job, config: Job, workspace: str, home: str, held: list[str]) -> None:
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
