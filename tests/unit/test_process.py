from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from pytest_agentbench.process import STDOUT_LIMIT, Completed, agent_environment, run

PYTHON = sys.executable


def sh(script: str, *, timeout: float = 20.0, stdin: bytes = b"", cwd: Path = Path()) -> Completed:
    return run(["sh", "-c", script], cwd=cwd, env=dict(os.environ), stdin=stdin, timeout=timeout)


#: A process whose name is not UTF-8, as long French ones are when they are cut at 15 bytes.
NAMED = (
    "import ctypes, time; ctypes.CDLL(None).prctl(15, b'\\xff\\xfe', 0, 0, 0);"
    "print(1, flush=True); time.sleep(60)"
)


@pytest.mark.skipif(sys.platform != "linux", reason="names of processes are Linux's")
def test_other_processes_may_be_called_anything() -> None:
    with subprocess.Popen([sys.executable, "-c", NAMED], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        done = sh("echo hi")
        other.kill()

    assert (done.returncode, done.stdout) == (0, b"hi\n")


def alive(mark: str) -> list[str]:
    """Command lines of running processes that contain *mark*."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if mark in line:
                found.append(line)
    return found


def test_output_status_and_stdin() -> None:
    done = sh("cat; echo oops >&2; exit 3", stdin=b"hello" * 50_000)

    assert done.stdout == b"hello" * 50_000
    assert done.stderr == b"oops\n"
    assert (done.returncode, done.timed_out, done.truncated) == (3, False, False)


def test_a_signal_is_a_negative_status() -> None:
    assert sh("kill -TERM $$").returncode == -signal.SIGTERM


def test_a_command_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        run(["/no/such/command"], cwd=Path(), env={}, timeout=5)
    with pytest.raises(PermissionError):
        run(["/etc/passwd"], cwd=Path(), env={}, timeout=5)


def test_output_without_end_is_cut() -> None:
    done = sh(f"head -c {STDOUT_LIMIT + 5_000_000} /dev/zero")

    assert len(done.stdout) == STDOUT_LIMIT
    assert done.truncated


def test_stdin_that_nobody_reads() -> None:
    assert sh("exit 0", stdin=b"x" * 1_000_000).returncode == 0


def test_out_of_time_keeps_what_was_written() -> None:
    begin = time.monotonic()
    done = sh("echo before; sleep 331.7", timeout=0.5)

    assert done.timed_out
    assert done.stdout == b"before\n"
    assert time.monotonic() - begin < 5


def test_closed_output_is_not_the_end() -> None:
    assert sh("exec >&- 2>&-; sleep 0.3; exit 5").returncode == 5


@pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper")
@pytest.mark.parametrize(
    "script",
    [
        "setsid sleep {n} & exit 0",
        "(setsid sh -c 'sleep {n} & sleep {n}' &) ; exit 0",
        "nohup sleep {n} >/dev/null 2>&1 & exit 0",
        "sleep {n} & kill -9 $PPID; sleep {n}",
        "setsid sleep {n} & kill -9 $PPID; sleep {n}",
    ],
)
def test_no_descendant_is_left(script: str) -> None:
    number = f"331.{abs(hash(script)) % 10**6}"

    sh(script.format(n=number), timeout=1.0)

    time.sleep(0.1)
    assert alive(f"sleep {number}") == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper")
def test_nothing_is_left_when_the_harness_is_killed(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import os
        from pathlib import Path
        from pytest_agentbench.process import run
        run(["sh", "-c", "setsid sleep 331.99 & echo up > up; sleep 331.99"],
            cwd=Path(), env=dict(os.environ), timeout=60)
        """
    )
    harness = subprocess.Popen([PYTHON, "-c", script], cwd=tmp_path)
    while not (tmp_path / "up").exists():
        time.sleep(0.02)
    assert alive("sleep 331.99")

    harness.kill()
    harness.wait()

    end = time.monotonic() + 5
    while alive("sleep 331.99") and time.monotonic() < end:
        time.sleep(0.05)
    assert alive("sleep 331.99") == []


def test_the_agents_environment_is_not_pytests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTBENCH_JUDGE", "secret")
    monkeypatch.setenv("SOME_KEY", "kept")

    env = agent_environment({"AGENTBENCH_TRIAL": "1"})

    assert env["SOME_KEY"] == "kept"
    assert env["AGENTBENCH_TRIAL"] == "1"
    assert "AGENTBENCH_JUDGE" not in env
    assert not [name for name in env if name.startswith("PYTEST_")]
