"""Agents that misbehave: the trial fails, nothing is left behind, the others complete."""

from __future__ import annotations

import os
import shlex
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Run

Bench = Callable[..., Run]
Rows = Callable[..., str]


@pytest.fixture
def command() -> Callable[[str], str]:
    """Writes an agent's script; gives the option that runs it."""

    def write(script: str) -> str:
        path = Path("agent.py")
        path.write_text("import sys, os, time, json\n" + textwrap.dedent(script))
        return f"--bench-agent=cmd:{shlex.quote(sys.executable)} {path}"

    return write


def test_a_command_answers_on_standard_output(
    bench: Bench, rows: Rows, command: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = command(
        """
        task = json.load(open(os.environ["AGENTBENCH_TASK_FILE"]))
        assert sys.stdin.read() == task["prompt"] == "Say hello."
        assert os.getcwd() != os.environ["PWD_OF_TEST"]
        print("hello", os.environ["AGENTBENCH_TRIAL"])
        """
    )
    monkeypatch.setenv("PWD_OF_TEST", os.getcwd())
    run = bench("--bench=genui", rows("Say hello."), agent, "--bench-trials=2", "-n2")
    assert run.outcomes == {"passed": 2}
    answers = {
        r.trial: (Path(r.details["directory"]) / "response.txt").read_text() for r in run.records
    }
    assert answers == {1: "hello 1", 2: "hello 2"}


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("print('hello'); sys.exit(3)", "the agent exited with status 3"),
        ("print('hello', flush=True); os.kill(os.getpid(), 9)", "SIGKILL"),
        ("print('hello', flush=True); time.sleep(99)", "was not done in"),
        ("sys.stdout.buffer.write(b'bye \\xff\\xfe\\x00')", "not found in the answer"),
        ("sys.stdout.write('x' * 100_000_000)", "not found in the answer"),
        ("", "not found in the answer"),
        ("os.close(1); os.close(2); time.sleep(99)", "was not done in"),
        (
            "open(os.environ['AGENTBENCH_OUTPUT_DIR'] + '/transcript.jsonl', 'w').write('{broken')",
            "not found in the answer",
        ),
    ],
)
def test_a_command_that_fails_is_a_failure(
    bench: Bench, rows: Rows, command: Callable[[str], str], script: str, reason: str
) -> None:
    data = rows({"task_id": "bad", "user_prompt": "x"})
    run = bench("--bench=genui", data, command(script), "--bench-timeout-scale=0.005")
    assert run.outcomes == {"failed": 1}, run.text
    assert reason in run.records[0].reason, run.records[0].reason
    assert sum(f.stat().st_size for f in run.out.rglob("*") if f.is_file()) < 50_000_000


def test_nothing_survives_an_agent(
    bench: Bench, rows: Rows, command: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = command(
        """
        for _ in range(3):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    open(os.environ["PIDS"], "a").write(f"{os.getpid()}\\n")
                    time.sleep(300)
                os._exit(0)
        open("left.txt", "w").write("x")
        time.sleep(300)
        """
    )
    pids = Path("pids").resolve()
    monkeypatch.setenv("PIDS", str(pids))
    temporary = Path("temporary").resolve()
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    run = bench("--bench=genui", rows("x"), agent, "--bench-timeout-scale=0.005", fresh=True)
    assert run.outcomes == {"failed": 1}
    assert "was not done in 3 s" in run.records[0].reason
    started = [int(line) for line in pids.read_text().split()]
    assert len(started) == 3
    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert list(temporary.iterdir()) == []
    assert (run.out / "agent/genui/t1/1/workspace/left.txt").read_text() == "x"


def test_names_in_the_output_cannot_leave_the_trial(
    bench: Bench, rows: Rows, command: Callable[[str], str]
) -> None:
    agent = command(
        """
        out = os.environ["AGENTBENCH_OUTPUT_DIR"]
        os.symlink("/etc/passwd", "link")
        os.symlink("/etc", "tree")
        os.makedirs("deep/er"); open("deep/er/note.txt", "w").write("kept")
        os.symlink("/etc/passwd", out + "/response.txt")
        os.symlink("/etc/passwd", out + "/transcript.jsonl")
        print("hello")
        """
    )
    run = bench("--bench=genui", rows("x"), agent, "--bench-artifacts=all")
    kept = {p: p.read_bytes() for p in run.out.rglob("*") if p.is_file()}
    assert not any(b"root:" in data for data in kept.values())
    assert any(p.name == "note.txt" for p in kept)
    assert not any(p.is_symlink() for p in run.out.rglob("*"))


def test_links_in_place_of_directories_are_not_followed(
    bench: Bench, rows: Rows, command: Callable[[str], str], pytester: pytest.Pytester
) -> None:
    secret = pytester.mkdir("secret")
    (secret / "transcript.jsonl").write_text(
        '{"message": {"role": "assistant", "content": "hello"}}'
    )
    agent = command(
        f"""
        import shutil
        for place in (os.getcwd(), os.environ["AGENTBENCH_OUTPUT_DIR"]):
            shutil.rmtree(place)
            os.symlink({str(secret)!r}, place)
        """
    )
    run = bench("--bench=genui", rows("x"), agent, "--bench-artifacts=all")
    assert run.verdicts == {"t1/1": "fail"}
    assert not any(b"assistant" in p.read_bytes() for p in run.out.rglob("workspace/*"))
    assert (secret / "transcript.jsonl").exists()


def test_what_lies_above_the_workspace_keeps_its_mode(
    bench: Bench, rows: Rows, command: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = Path("temporary").resolve()
    temporary.mkdir()
    temporary.chmod(0o755)
    monkeypatch.setenv("TMPDIR", str(temporary))
    agent = command(
        """
        import shutil
        deep = os.getcwd()
        for _ in range(1500):
            os.mkdir("d"); os.chdir("d")
        os.chmod(deep, 0)
        shutil.rmtree(os.environ["AGENTBENCH_OUTPUT_DIR"])
        print("hello")
        """
    )
    run = bench("--bench=genui", rows("x"), agent, fresh=True)
    assert run.outcomes == {"passed": 1}
    assert temporary.stat().st_mode & 0o777 == 0o755
    assert list(temporary.iterdir()) == []


def test_a_response_file_is_the_answer(
    bench: Bench, rows: Rows, command: Callable[[str], str]
) -> None:
    agent = command(
        """
        print("thinking aloud")
        open(os.environ["AGENTBENCH_OUTPUT_DIR"] + "/response.txt", "w").write("hello")
        """
    )
    assert bench("--bench=genui", rows("x"), agent).outcomes == {"passed": 1}


def test_numbers_that_are_none_in_a_transcript(
    bench: Bench, rows: Rows, command: Callable[[str], str]
) -> None:
    agent = command(
        """
        usage = '{"input": NaN, "output": 1e400, "cost": {"total": -1}}'
        open(os.environ["AGENTBENCH_OUTPUT_DIR"] + "/transcript.jsonl", "w").write(
            '{"type": "message", "message": {"role": "assistant", "content": "hello", "usage": '
            + usage + "}}"
        )
        """
    )
    run = bench("--bench=genui", rows("x"), agent)
    assert run.outcomes == {"passed": 1}
    assert run.records[0].usage.input_tokens is None


def test_a_prompt_is_handed_over_as_it_is(
    bench: Bench, rows: Rows, pytester: pytest.Pytester
) -> None:
    data = rows("hello {workspace} \ud800")
    run = bench("--bench=genui", data, "--bench-agent=cmd:echo {prompt}")
    assert run.outcomes == {"passed": 1}
    answer = Path(run.records[0].details["directory"], "response.txt").read_text()
    assert answer == "hello {workspace} ?"


def test_a_python_agent_cannot_take_the_run_with_it(
    bench: Bench, rows: Rows, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(
        myagents="""
        import os, sys, asyncio

        def agent(task, workspace):
            if task.prompt == "exit":
                sys.exit(0)
            if task.prompt == "die":
                os._exit(1)
            if task.prompt == "loop":
                while True:
                    pass
            if task.prompt == "raise":
                raise KeyboardInterrupt
            return "hello"
        """
    )
    data = rows("hello", "exit", "die", "loop", "raise", "hello")
    run = bench(
        "--bench=genui", data, "--bench-agent=py:myagents:agent", "--bench-timeout-scale=0.005"
    )
    assert run.outcomes == {"passed": 2, "failed": 4}
    assert run.verdicts["t6/1"] == "pass"


def test_an_interrupt_keeps_what_is_known(
    bench: Bench, rows: Rows, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(
        """
        import os, signal, pytest

        @pytest.fixture(scope="session")
        def bench_agent():
            def agent(task, workspace):
                if task.id == "t2":
                    os.kill(os.getpid(), signal.SIGINT)
                return "hello"
            return agent
        """
    )
    run = bench("--bench=genui", rows("a", "b", "c"), fresh=True)
    assert run.ret == pytest.ExitCode.INTERRUPTED
    assert run.verdicts["t1/1"] == "pass"
    assert run.summary["complete"] is False
    assert "not run" in run.text
