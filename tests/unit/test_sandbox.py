"""Graders that nobody vouches for: what they can do, and what becomes of it."""

from __future__ import annotations

import ctypes
import errno
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests_support import WITHOUT_LANDLOCK

import pytest_agentbench
from pytest_agentbench import sandbox as sandbox_module
from pytest_agentbench.process import agent_environment
from pytest_agentbench.sandbox import (
    GraderEnded,
    GraderResult,
    Sandbox,
    WorkspaceTooLarge,
    starts_processes,
)

linux = pytest.mark.skipif(sys.platform != "linux", reason="the layers are Linux's")
ALLOWED = "# subprocess: a word that lets a grader start processes\n"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("base")


@pytest.fixture(scope="module")
def box(base: Path) -> Iterator[Sandbox]:
    box = Sandbox(base=base)
    yield box
    box.close()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "workspace"
    place.mkdir()
    (place / "a.txt").write_text("hello")
    return place


def values(result: GraderResult) -> dict[str, float]:
    return {criterion.name: criterion.score for criterion in result.criteria}


# -- results --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("returned", "mean", "scores"),
    [
        ("{'a': 1.0, 'b': 0.5}", 0.75, {"a": 1.0, "b": 0.5}),
        ("{'a': True, 'b': False}", 0.5, {"a": 1.0, "b": 0.0}),
        ("{'a': 1.0, 'b': '0.5', 'c': None, 'd': [1]}", 1.0, {"a": 1.0, "b": 0.5}),
        ("{1: 1.0, '1': 0.0}", 0.5, {"1": 0.0}),
        ("{}", 0.0, {}),
        ("None", 0.0, {}),
        ("0.7", 0.0, {}),
        ("__import__('decimal').Decimal('1')", 0.0, {}),
    ],
)
def test_what_grade_returns(
    box: Sandbox, workspace: Path, returned: str, mean: float, scores: dict[str, float]
) -> None:
    result = box.grade(f"def grade(t, w): return {returned}", [], workspace)

    assert result.mean == mean
    assert values(result) == scores
    assert result.raised is None


def test_the_grader_gets_a_list_and_a_path_and_a_copy(box: Sandbox, workspace: Path) -> None:
    code = """
def grade(transcript, workspace):
    import os
    with open(workspace + "/a.txt", "a") as file:
        file.write("!")
    os.unlink(workspace + "/a.txt")
    return {"list": type(transcript) is list and transcript[0]["x"] == 1,
            "text": type(workspace) is str, "name": __name__ == "builtins"}
"""
    result = box.grade(code, [{"x": 1}], workspace)

    assert values(result) == {"list": 1.0, "text": 1.0, "name": 1.0}
    assert (workspace / "a.txt").read_text() == "hello"


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        ("def grade(t, w): return 1/0", "ZeroDivisionError: division by zero"),
        ("raise RuntimeError('boom')", "RuntimeError: boom"),
        ("def grade(t, w)\n  pass", "SyntaxError: expected ':' (<string>, line 1)"),
        ("def grade(t): pass", "TypeError: grade() takes 1 positional argument but 2 were given"),
        ("def grade(t, w): open(w + '/no')", "FileNotFoundError: [Errno 2] *"),
        ("def grade(t, w): return {'a': 10**400}", "OverflowError: *"),
        ("def grade(t, w): grade(t, w)", "RecursionError: *"),
    ],
)
def test_an_ordinary_exception_is_told(
    box: Sandbox, workspace: Path, code: str, raised: str
) -> None:
    result = box.grade(code, [], workspace)

    assert result.raised is not None
    assert result.raised == raised or (
        raised.endswith("*") and result.raised.startswith(raised.rstrip("*"))
    )


def test_code_without_grade(box: Sandbox, workspace: Path) -> None:
    assert box.grade("x = 1", [], workspace).missing
    assert box.grade("grade = {'a': 1.0}", [], workspace).missing


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise SystemExit(0)", r"called sys.exit\(0\)"),
        ("raise KeyboardInterrupt", "no ordinary exception"),
        ("import os; os._exit(0)", "exited with status 0 before"),
        ("import os; os._exit(3)", "exited with status 3 before"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
        ("x = bytearray(2 << 30)", "MiB of memory"),
        ("open(w + '/big', 'wb').write(b'x' * (17 << 20))", "more than 16 MiB"),
        ("return {str(n): 1.0 for n in range(2000)}", "more than 1000 criteria"),
        ("import threading\n  for _ in range(2000): threading.Thread(target=__import__('time')."
         "sleep, args=(5,), daemon=True).start()", "threads|memory"),
    ],
)  # fmt: skip
def test_what_is_no_result(box: Sandbox, workspace: Path, body: str, reason: str) -> None:
    with pytest.raises(GraderEnded, match=reason):
        box.grade(f"def grade(t, w):\n  {body}", [], workspace)


@pytest.mark.parametrize(
    "body",
    [
        "while True: pass",
        "import re; re.match('(a+)+$', 'a' * 40 + 'b')",
        "import time\n  while True:\n    try: time.sleep(9)\n    except BaseException: pass",
        "import os\n  while True: os.write(1, b'x' * 65536)",
    ],
)
def test_a_grader_without_end_is_ended(
    box: Sandbox, workspace: Path, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_module, "WALL_S", 1.0)
    begin = time.monotonic()

    with pytest.raises(GraderEnded, match="was not done in 1 s"):
        box.grade(f"def grade(t, w):\n  {body}", [], workspace)

    assert time.monotonic() - begin < 20  # it was ended, not waited for


def test_nan_and_infinity_come_through_for_the_benchmark_to_refuse(
    box: Sandbox, workspace: Path
) -> None:
    result = box.grade("def grade(t, w): return {'a': float('nan')}", [], workspace)

    assert math.isnan(result.mean)


def test_a_forged_result_is_none(box: Sandbox, workspace: Path) -> None:
    code = """
def grade(t, w):
    import os
    fake = b'{"kind": "graded", "scores": [["a", 1.0, true]], "mean": 1.0, "returned": "dict"}'
    for fd in range(3, 1024):
        try: os.write(fd, fake)
        except OSError: pass
    os._exit(0)
"""
    with pytest.raises(GraderEnded):
        box.grade(code, [], workspace)


@pytest.mark.parametrize(
    "message",
    [
        {"kind": "graded"},
        {"kind": "graded", "returned": "dict", "mean": 1.0, "scores": [["a", "x", True]]},
        {"kind": "graded", "returned": "dict", "mean": 1.0, "scores": [["a", 1.0]]},
        {"kind": "graded", "returned": "dict", "mean": 10**400, "scores": []},
        {"kind": "raised"},
        {"kind": "new"},
        [1],
        None,
    ],
)
def test_a_forged_frame_is_no_traceback(box: Sandbox, workspace: Path, message: Any) -> None:
    code = f"""
import json, os, sys
def grade(t, w):
    frame = sys._getframe()
    while frame.f_code.co_name != "work": frame = frame.f_back
    mark, fd = frame.f_locals["frame"], frame.f_locals["result"]
    os.write(fd, mark + json.dumps({message!r}).encode() + mark)
    os._exit(0)
"""
    with pytest.raises(GraderEnded):
        box.grade(code, [], workspace)


def test_layers_are_told_before_the_grader_can_speak(box: Sandbox, workspace: Path) -> None:
    code = """
import json, os, sys
def grade(t, w):
    frame = sys._getframe()
    while frame.f_code.co_name != "work": frame = frame.f_back
    told = frame.f_locals["layers_told"]
    try: os.write(told, b" invented")
    except OSError: return {"closed": 1.0}
    return {"closed": 0.0}
"""
    result = box.grade(code, [], workspace)

    assert result.mean == 1.0
    assert "invented" not in result.layers


def test_what_a_grader_prints_is_kept(box: Sandbox, workspace: Path) -> None:
    result = box.grade("def grade(t, w): print('a hint'); return {}", [], workspace)

    assert result.output == "a hint\n"


def test_one_grader_leaves_nothing_for_the_next(box: Sandbox, workspace: Path) -> None:
    first = """
import builtins, json, os, sys, tempfile
def grade(t, w):
    builtins.float = lambda x: 1.0
    json.dumps = None
    os.environ["LEFT"] = "x"
    sys.modules["left"] = json
    open(tempfile.gettempdir() + "/left", "w").close()
    return {"a": 1.0}
"""
    second = """
import builtins, json, os, sys, tempfile
def grade(t, w):
    clean = float("0.5") == 0.5 and json.dumps and "LEFT" not in os.environ
    return {"a": bool(clean and "left" not in sys.modules and not os.listdir(tempfile.gettempdir()))}
"""
    box.grade(first, [], workspace)

    assert box.grade(second, [], workspace).mean == 1.0


# -- surroundings ---------------------------------------------------------------------------------


def test_the_environment_is_built_from_nothing(
    box: Sandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "PYTEST_ADDOPTS", "PYTHONPATH", "MY_SECRET"):
        monkeypatch.setenv(name, "secret")
    code = """
def grade(t, w):
    import os, sys
    home = os.environ["HOME"]
    return {
        "no_secrets": not [k for k in os.environ if k.startswith(("PYTEST_", "PYTHON", "OPENAI", "MY_"))],
        "own_home": home == os.environ["TMPDIR"] == os.getcwd() and not home.startswith(w),
        "utf8": open(w + "/utf8.txt").read() == "\\u2192" and sys.flags.utf8_mode == 1,
    }
"""
    (workspace / "utf8.txt").write_bytes("→".encode())

    assert box.grade(code, [], workspace).mean == 1.0


def test_nothing_is_imported_from_a_workspace(box: Sandbox, workspace: Path) -> None:
    for name in ("yaml", "csv", "sitecustomize"):
        (workspace / f"{name}.py").write_text("raise SystemExit('from the workspace')\n")
    code = "import csv, yaml\ndef grade(t, w): return {'yaml': yaml.safe_load('a: 1') == {'a': 1}}"

    assert box.grade(code, [], workspace).mean == 1.0


def test_programs_that_graders_need(box: Sandbox, workspace: Path) -> None:
    (workspace / "test_it.py").write_text("def test_it(tmp_path): assert tmp_path.is_dir()\n")
    (workspace / "conftest.py").write_text("")
    code = """
import subprocess, sys
def grade(t, w):
    def run(*argv, **more):
        return subprocess.run(argv, capture_output=True, text=True, timeout=30, cwd=w, **more)
    tested = run(sys.executable, "-m", "pytest", "-q", "test_it.py")
    shell = run("/bin/bash", "-c", "diff <(echo a) <(echo a) && printf x > s.sh && chmod +x s.sh && test -x s.sh")
    git = run("/bin/bash", "-c", "git init -q . && git config user.name x && git config user.email x@y"
              " && git add -A && git commit -qm x && git log --oneline | wc -l")
    return {"pytest": "1 passed" in tested.stdout, "bash": shell.returncode == 0, "git": git.stdout.strip() == "1"}
"""
    result = box.grade(code, [], workspace)

    assert values(result) == {"pytest": 1.0, "bash": 1.0, "git": 1.0}
    assert result.processes


@pytest.mark.parametrize(
    ("code", "needed"),
    [
        ("import subprocess", True),
        ("os.system('x')", True),
        ("o.system ('x')", True),
        ("from os import system as run", True),
        ("log = 'system error'", False),
        ("from os import popen", True),
        ("os.posix_spawn('x')", True),
        ("import multiprocessing as mp", True),
        ("import re, json", False),
        ("operating_system = 1", False),
    ],
)
def test_which_graders_may_start_processes(code: str, needed: bool) -> None:
    assert starts_processes(code) is needed


# -- attacks --------------------------------------------------------------------------------------


_libc = ctypes.CDLL(None)


def scheduling(pid: int) -> tuple[set[int], int, int]:
    return os.sched_getaffinity(pid), os.getpriority(0, pid), os.sched_getscheduler(pid)


class Victims:
    """What attacks aim at: files, sockets, a process and a secret."""

    def __init__(self, place: Path) -> None:
        self.canary = place / "canary"
        self.canary.mkdir()
        (self.canary / "keep").write_text("keep")
        self.ssh = place / "ssh" / "id"
        self.ssh.parent.mkdir()
        self.ssh.write_text("DECOY")
        self.before = self.ssh.stat()
        self.process = subprocess.Popen(["sleep", "600"])
        self.sockets = [socket.create_server(("127.0.0.1", 0))]
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.path = f"{place}/s"
        self.abstract = f"agentbench-{os.getpid()}-{threading.get_ident()}"
        for address in (self.path, f"\0{self.abstract}"):
            unix = socket.socket(socket.AF_UNIX)
            unix.bind(address)
            unix.listen()
            self.sockets.append(unix)
        self.datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.datagrams.bind(f"{place}/d")
        self.shared = _libc.shmget(0, 4096, 0o1666)
        self.scheduling = scheduling(os.getpid())
        self.given: dict[str, Any] = {
            "dgram": f"{place}/d",
            "shm": self.shared,
            "ppid": os.getpid(),
            "port": self.sockets[0].getsockname()[1],
            "uport": self.udp.getsockname()[1],
            "usock": self.path,
            "asock": self.abstract,
            "ssh": str(self.ssh),
            "canary_dir": str(self.canary),
            "victim": self.process.pid,
        }

    def check(self) -> None:
        assert os.listdir(self.canary) == ["keep"]
        assert (self.canary / "keep").read_text() == "keep"
        assert self.ssh.read_text() == "DECOY"
        after = self.ssh.stat()
        assert (after.st_mode, after.st_mtime_ns) == (self.before.st_mode, self.before.st_mtime_ns)
        assert self.process.poll() is None
        for each in self.sockets:
            each.settimeout(0)
            with pytest.raises(BlockingIOError):
                each.accept()
        for each in (self.udp, self.datagrams):
            each.settimeout(0)
            with pytest.raises(BlockingIOError):
                each.recv(10)
        assert scheduling(os.getpid()) == self.scheduling

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for each in (*self.sockets, self.udp, self.datagrams):
            each.close()
        _libc.shmctl(self.shared, 0, None)


@pytest.fixture
def victims(tmp_path: Path) -> Iterator[Victims]:
    place = Path("/tmp") / f"agentbench-victims-{os.getpid()}-{time.monotonic_ns()}"
    place.mkdir()  # a path short enough for a socket
    victims = Victims(place)
    yield victims
    victims.close()
    subprocess.run(["rm", "-rf", str(place)], check=True)


ATTACKS = {
    "read": "open(t['ssh']).read()",
    "list": "__import__('os').listdir(t['canary_dir'])",
    "write": "open(t['canary_dir'] + '/pwned', 'w').write('x')",
    "unlink": "__import__('os').unlink(t['canary_dir'] + '/keep')",
    "rename": "__import__('os').rename(t['ssh'], w + '/stolen')",
    "hard link": "__import__('os').link(t['ssh'], w + '/stolen')",
    "symlink": "(__import__('os').symlink(t['ssh'], w + '/s'), open(w + '/s').read())",
    "truncate": "__import__('os').truncate(t['canary_dir'] + '/keep', 0)",
    "passwd": "open('/etc/passwd').read()",
    "environ": "open('/proc/%d/environ' % t['ppid'], 'rb').read()",
    "memory": "open('/proc/%d/mem' % t['ppid'], 'rb')",
    "processes": "__import__('os').listdir('/proc')",
    "tcp": "__import__('socket').create_connection(('127.0.0.1', t['port']), 2)",
    "udp": "__import__('socket').socket(2, 2).sendto(b'x', ('127.0.0.1', t['uport']))",
    "unix": "__import__('socket').socket(1).connect(t['usock'])",
    "abstract": "__import__('socket').socket(1).connect('\\0' + t['asock'])",
    "kill": "__import__('os').kill(t['victim'], 9)",
    "signal": "__import__('os').kill(t['ppid'], 0)",
    "limits": "__import__('resource').prlimit(t['ppid'], 7, (64, 64))",
    "raise": "__import__('resource').setrlimit(9, (-1, -1))",
    "shm": "open('/dev/shm/agentbench_x', 'w')",
    "datagram": "__import__('socket').socketpair(1, 2)[0].sendto(b'x', t['dgram'])",
    "affinity": "__import__('os').sched_setaffinity(t['ppid'], [0])",
    "priority": "__import__('os').setpriority(0, t['ppid'], 19)",
    "scheduler": "__import__('os').sched_setscheduler(t['ppid'], 5, "
    "__import__('os').sched_param(0))",
    "memfd": "__import__('os').memfd_create('x')",
    "sysv": "__import__('ctypes').CDLL(None).shmat(t['shm'], 0, 0) != -1 or 1 / 0",
    "inotify": "__import__('ctypes').CDLL(None).inotify_init1(0) != -1 or 1 / 0",
    "root": "(__import__('os').setuid(0), open(t['ssh']).read())",
}


def attacks(prefix: str) -> str:
    """A grader that tries each attack, and scores those that worked."""
    tries = "\n".join(f"    attempt({name!r}, lambda: {code})" for name, code in ATTACKS.items())
    return f"""{prefix}
def grade(transcript, w):
    t, scores = transcript[0], {{}}
    def attempt(name, attack):
        try:
            attack()
            scores[name] = 1.0
        except Exception:
            scores[name] = 0.0
{tries}
    return scores
"""


@linux
@pytest.mark.parametrize("prefix", ["", ALLOWED], ids=["no processes", "processes"])
def test_attacks_are_refused(box: Sandbox, workspace: Path, victims: Victims, prefix: str) -> None:
    code = attacks(prefix)
    result = box.grade(code, [victims.given], workspace)

    assert {name for name, score in values(result).items() if score} == set()
    assert len(result.criteria) == len(ATTACKS)
    victims.check()


AS_A_USER = """
import json, pathlib, sys
from pytest_agentbench.sandbox import Sandbox
code, given, place = json.load(sys.stdin)
box = Sandbox(base=pathlib.Path(place) / "base")
print(box.isolation())
result = box.grade(code, [given], pathlib.Path(place) / "workspace")
print(json.dumps({c.name: c.score for c in result.criteria} or result.raised))
box.close()
"""


@linux
@pytest.mark.parametrize("prefix", ["", ALLOWED], ids=["no processes", "processes"])
def test_attacks_are_refused_to_a_plain_user_too(victims: Victims, prefix: str) -> None:
    """The same with the rights of somebody who is not root, by Debian's own Python."""
    python = Path("/usr/bin/python3")
    ready = [str(python), "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
    if os.geteuid() != 0 or not python.exists() or subprocess.run(ready, check=False).returncode:
        pytest.skip("needs root, and a Python 3.11 that every user can read")
    place = victims.canary.parent
    place.chmod(0o755)
    shutil.copytree(Path(pytest_agentbench.__file__).parent, place / "lib/pytest_agentbench")
    own = place / "own"
    (own / "workspace").mkdir(parents=True)
    for path in (own, own / "workspace"):
        os.chown(path, 4242, 4242)
    code = attacks(prefix)
    (victims.ssh.parent).chmod(0o777)  # what the user may do, the grader may not
    victims.ssh.chmod(0o666)
    victims.canary.chmod(0o777)
    victims.before = victims.ssh.stat()
    done = subprocess.run(
        ["setpriv", "--reuid=4242", "--regid=4242", "--clear-groups", str(python), "-c", AS_A_USER],
        input=json.dumps([code, victims.given, str(own)]),
        env=agent_environment({"PYTHONPATH": str(place / "lib")}),
        capture_output=True,
        text=True,
        check=True,
    )

    isolation, scores = done.stdout.splitlines()
    if "degraded" in isolation:
        pytest.skip(f"a plain user has no full sandbox here: {isolation}")
    assert {name for name, score in json.loads(scores).items() if score} == set()
    victims.check()


@linux
@pytest.mark.parametrize("prefix", ["", ALLOWED], ids=["no processes", "processes"])
@pytest.mark.parametrize("call", ["os.chmod(p, 0o600)", "os.utime(p, (1, 1))"])
def test_modes_and_times_outside_stay(
    box: Sandbox, workspace: Path, victims: Victims, prefix: str, call: str
) -> None:
    code = f"""{prefix}
import os
def grade(t, w):
    p = t[0]["ssh"]
    try: {call}
    except OSError: pass
    return {{}}
"""
    box.grade(code, [victims.given], workspace)

    victims.check()


def alive(mark: str) -> int:
    """Processes whose command line holds *mark*."""
    found = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                found += mark.encode() in (entry / "cmdline").read_bytes()
            except OSError:
                continue
    return found


@linux
@pytest.mark.parametrize("ending", ["return {'a': 1.0}", "os._exit(0)", "time.sleep(99)"])
def test_no_process_is_left(
    box: Sandbox, workspace: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_module, "WALL_PROCESSES_S", 2.0)
    mark = f"agentbench-daemon-{os.getpid()}-{time.monotonic_ns()}"
    code = f"""
import os, subprocess, sys, time
def grade(t, w):
    script = "import os, time\\nif os.fork() == 0:\\n  os.setsid()\\n  if os.fork() == 0: time.sleep(300)\\n  os._exit(0)"
    subprocess.Popen([sys.executable, "-c", script, {mark!r}], start_new_session=True).wait()
    {ending}
"""
    try:
        box.grade(code, [], workspace)
    except GraderEnded:
        assert "return" not in ending

    assert alive(mark) == 0


@linux
def test_forks_without_end(box: Sandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_module, "WALL_PROCESSES_S", 10.0)
    counts = []
    for prefix in ("", ALLOWED):
        code = f"""{prefix}
import os, time
def grade(t, w):
    n = 0
    try:
        for _ in range(500):
            if os.fork() == 0:
                time.sleep(20)
                os._exit(0)
            n += 1
    except OSError:
        pass
    return {{"n": n / 1000}}
"""
        counts.append(round(box.grade(code, [], workspace).mean * 1000))

    assert counts[0] == 0
    assert 0 < counts[1] < 100


@linux
@pytest.mark.parametrize(
    "memory", ["bytearray(400 << 20)", "mmap.mmap(-1, 400 << 20)"], ids=["own", "shared"]
)
def test_memory_of_all_processes_together(box: Sandbox, workspace: Path, memory: str) -> None:
    code = f"""{ALLOWED}
import mmap, os, time
def grade(t, w):
    for _ in range(8):
        if os.fork() == 0:
            x = {memory}
            for n in range(0, len(x), 4096): x[n] = 1
            time.sleep(20)
            os._exit(0)
    time.sleep(20)
"""
    with pytest.raises(GraderEnded, match="MiB of memory with its processes"):
        box.grade(code, [], workspace)


FILLERS = {
    "unlinked": (
        "for n in range(40): "
        "(f.append(open(w + '/x', 'wb')), f[-1].write(b'x' * (10 << 20)), f[-1].flush(), "
        "os.unlink(w + '/x'))",
        "wrote more than 256 MiB",
    ),
    "many": ("for n in range(60000): os.mkdir(f'{w}/{n}')", "more files, or deeper directories"),
    "deep": (
        "os.chdir(w)\n  for n in range(3000): (os.mkdir('d' * 200), os.chdir('d' * 200))",
        "more files, or deeper directories",
    ),
    "closed": (
        "os.mkdir(w + '/c')\n"
        "  for n in range(40): open(f'{w}/c/{n}', 'wb').write(b'x' * (10 << 20))\n"
        "  os.chmod(w + '/c', 0o300)",
        "wrote more than 256 MiB",
    ),
}


@linux
@pytest.mark.parametrize("filler", FILLERS)
def test_ways_to_fill_a_disk(box: Sandbox, workspace: Path, filler: str) -> None:
    body, reason = FILLERS[filler]
    code = f"import os, time\nf = []\ndef grade(t, w):\n  {body}\n  time.sleep(20)"
    begin = time.monotonic()

    with pytest.raises(GraderEnded, match=reason):
        box.grade(code, [], workspace)

    assert time.monotonic() - begin < 28  # before its time was over


def test_the_disk_is_watched(box: Sandbox, workspace: Path) -> None:
    code = """
import time
def grade(t, w):
    for n in range(40):
        open(f"{w}/{n}", "wb").write(b"x" * (10 << 20))
    time.sleep(20)
"""
    with pytest.raises(GraderEnded, match="wrote more than 256 MiB"):
        box.grade(code, [], workspace)


def test_the_handed_attacks(
    box: Sandbox,
    workspace: Path,
    victims: Victims,
    shared_data: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AB_SECRET", "1")
    # names of paths can be told apart, and calls that change modes say yes and do nothing
    harmless = {"stat_out", "chmod_out", "utime_out"}
    meant = {"many_files", "exec_sh", "write_tmp", "write_ws"}
    endless = {"cpu_loop", "hang_at_import"}
    hits, ended = set(), set()
    for path in sorted((shared_data / "hostile/graders").glob("*.py")):
        code = path.read_text(encoding="utf-8").lstrip("\ufeff")
        if "from __future__" not in code:
            code += "\n_inner = grade\ndef grade(t, w): return _inner(t[0], w)\n"
        # short for those that never end; others may be slow: filling memory takes its time
        monkeypatch.setattr(sandbox_module, "WALL_S", 3.0 if path.stem in endless else 18.0)
        begin = time.monotonic()
        try:
            if values(box.grade(code, [victims.given], workspace)).get("hit"):
                hits.add(path.stem)
        except GraderEnded:
            ended.add(path.stem)
        assert time.monotonic() - begin < 30, path.stem

    assert hits - harmless == meant
    assert ended == endless | {
        *("exit_zero_os", "os_exit", "segv", "sysexit"),
        *("raise_baseexception", "raise_keyboardinterrupt", "thread_bomb", "write_result_fd"),
    }
    victims.check()
    assert [path.name for path in workspace.iterdir()] == ["a.txt"]


# -- workspaces -----------------------------------------------------------------------------------


def test_a_workspace_of_odd_things(box: Sandbox, workspace: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (workspace / "out").symlink_to(secret)
    (workspace / "in").symlink_to("a.txt")
    os.mkfifo(workspace / "pipe")
    (workspace / os.fsdecode(b"caf\xe9")).write_text("x")
    (workspace / "deep").mkdir()
    (workspace / "deep").chmod(0)
    with open(workspace / "sparse", "wb") as file:
        file.truncate(1 << 40)
    code = """
def grade(t, w):
    import os
    names = set(os.listdir(os.fsencode(w)))
    return {
        "link_inside": open(w + "/in").read() == "hello",
        "no_pipe": b"pipe" not in names,
        "not_utf8": b"caf\\xe9" in names,
        "sparse": os.stat(w + "/sparse").st_size == 1 << 40,
    }
"""
    result = box.grade(code, [], workspace)
    reads = box.grade("def grade(t, w): open(w + '/out').read()", [], workspace)
    (workspace / "deep").chmod(0o700)

    assert values(result) == {"link_inside": 1.0, "no_pipe": 1.0, "not_utf8": 1.0, "sparse": 1.0}
    assert reads.raised is not None
    assert "PermissionError" in reads.raised


def test_a_full_disk_is_no_missing_file(
    box: Sandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "answer.txt").write_text("42")
    real = os.open

    def full(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if str(path).endswith("answer.txt") and flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr("pytest_agentbench.sandbox.staging.os.open", full)

    with pytest.raises(OSError, match="No space left"):
        box.grade("import os\ndef grade(t, w): return {'n': len(os.listdir(w))}", [], workspace)


def test_a_workspace_that_is_too_large(
    box: Sandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_agentbench.sandbox.staging.MAX_COPY_FILES", 3)
    for number in range(5):
        (workspace / str(number)).touch()

    with pytest.raises(WorkspaceTooLarge, match="more than 3 files"):
        box.grade("def grade(t, w): return {}", [], workspace)


def test_what_the_sandbox_refused_is_no_verdict(box: Sandbox, workspace: Path) -> None:
    with pytest.raises(GraderEnded, match="the sandbox refused what the grader did: Permission"):
        box.grade("def grade(t, w): open('/etc/shadow')", [], workspace)


# -- the server -----------------------------------------------------------------------------------


@linux
def test_a_killed_server_is_started_again(base: Path, workspace: Path) -> None:
    box = Sandbox(base=base)
    code = "def grade(t, w): return {'a': 1.0}"
    box.grade(code, [], workspace)
    assert box._server is not None
    box._server._process.kill()
    box._server._process.wait()

    with pytest.raises(GraderEnded, match="the grading server ended"):
        box.grade(code, [], workspace)
    assert box.grade(code, [], workspace).mean == 1.0
    box.close()


@linux
def test_a_harness_with_many_descriptors(base: Path, workspace: Path) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip("this process may not have that many")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    box = Sandbox(base=base)
    try:
        assert box.grade("def grade(t, w): return {'a': 1.0}", [], workspace).mean == 1.0
    finally:
        box.close()
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@linux
def test_nothing_is_left_when_the_harness_is_killed(tmp_path: Path) -> None:
    mark = f"agentbench-orphan-{os.getpid()}-{time.monotonic_ns()}"
    script = f"""
import pathlib, sys
from pytest_agentbench.sandbox import Sandbox
code = '''
import subprocess, sys
def grade(t, w):
    subprocess.run([sys.executable, "-c", "import time; print(1, flush=True); time.sleep(300)", {mark!r}])
'''
Sandbox(base=pathlib.Path({str(tmp_path)!r})).grade(code, [], pathlib.Path({str(tmp_path)!r}))
"""
    package = str(Path(pytest_agentbench.__file__).parents[1])
    env = agent_environment({"PYTHONPATH": package})
    harness = subprocess.Popen([sys.executable, "-c", script], env=env)
    until(lambda: alive(mark) > 0)
    harness.kill()
    harness.wait()

    until(lambda: alive(mark) == 0)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.05)


def test_off_is_no_isolation_and_says_so(base: Path, workspace: Path) -> None:
    box = Sandbox("off", base=base)
    result = box.grade("def grade(t, w): return {'a': open('/etc/passwd') is None}", [], workspace)

    assert result.layers == ()
    assert "--bench-sandbox=off" in str(box.check())
    box.close()


@linux
def test_a_machine_without_landlock(tmp_path: Path) -> None:
    script = f"""{WITHOUT_LANDLOCK}
import pathlib
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.sandbox import Sandbox
place = pathlib.Path({str(tmp_path)!r})
auto = Sandbox(base=place)
print(auto.check())
print(auto.grade("def grade(t, w): return {{'a': 1.0}}", [], place).layers)
auto.close()
try:
    Sandbox("strict", base=place).check()
except ConfigError as error:
    print(error)
"""
    package = str(Path(pytest_agentbench.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=agent_environment({"PYTHONPATH": package}),
        capture_output=True,
        text=True,
        check=True,
    )

    told, layers, refused = done.stdout.splitlines()
    assert told.startswith("degraded: ")
    assert "missing: landlock" in told
    assert "seccomp" in layers
    assert refused.startswith("--bench-sandbox: strict, but this machine lacks landlock")


@linux
def test_strict_and_auto_agree_where_everything_holds(box: Sandbox) -> None:
    found = box.isolation()
    if not found.full:
        pytest.skip(f"this machine has no full sandbox: {found}")
    strict = Sandbox("strict", base=box.base)

    assert strict.check() == found
    strict.close()
