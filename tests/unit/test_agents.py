from __future__ import annotations

import asyncio
import json
import shlex
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_agentbench.agents import Agent, Call, resolve
from pytest_agentbench.agents.replay import overlay
from pytest_agentbench.errors import ConfigError, HarnessError, SkipTrial
from pytest_agentbench.model import AgentTask, Session
from pytest_agentbench.transcripts import Transcript, user
from pytest_agentbench.workspace import Workspace

TASK = AgentTask("bench", "t/1", "Say hello.", (Session("Say hello."),), (), 10.0, 2, 7)
MakeCall = Callable[..., Call]


@pytest.fixture
def call() -> Iterator[MakeCall]:
    with Workspace() as workspace:

        def make(limit: float = 10.0) -> Call:
            return Call(
                task=TASK,
                slug="t_1",
                time_limit_s=limit,
                solution=lambda: Transcript.from_answer("Say hello.", "solution"),
                place=lambda: workspace,
            )

        yield make


def command(script: str) -> Agent:
    return resolve(f"cmd:{sys.executable} -c {shlex.quote(textwrap.dedent(script))}")


def test_reference_and_noop(call: MakeCall) -> None:
    assert resolve("reference").run(call()).transcript.final_text() == "solution"
    assert resolve("noop").run(call()).transcript.events == (user("Say hello."),)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("npoo", r"unknown agent 'npoo'.*Did you mean 'noop'"),
        ("cmd:", "unknown agent 'cmd:'"),
        ("cmd:no_such_command_x", "neither on PATH"),
        ("cmd:'unbalanced", "No closing quotation"),
        ("py:module", "expected py:MODULE:ATTR"),
        ("py:no_such_module_x:agent", "ModuleNotFoundError"),
        ("py:json:no_such", "AttributeError"),
        ("py:json:__name__", "not a callable"),
        ("replay:/no/such/dir", "is not a directory"),
        (5, "a callable or a text, not int"),
    ],
)
def test_a_wrong_agent_is_told_at_once(spec: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(spec)


def test_a_command_gets_the_prompt_its_files_and_its_place(call: MakeCall) -> None:
    agent = command(
        """
        import json, os, sys
        task = json.load(open(os.environ["AGENTBENCH_TASK_FILE"]))
        print(sys.stdin.read(), task["id"], os.environ["AGENTBENCH_TRIAL"],
              os.environ["AGENTBENCH_SEED"], os.getcwd() == os.environ["AGENTBENCH_WORKSPACE"])
        open("made.txt", "w").write("x")
        """
    )
    made = call()

    run = agent.run(made)

    assert run.problem is None
    assert run.transcript.final_text() == "Say hello. t/1 2 7 True"
    assert (made.workspace / "made.txt").exists()


def test_place_holders_are_filled_and_other_braces_stay(call: MakeCall) -> None:
    run = resolve("cmd:echo '{prompt}' '{x}' '{task_file}'").run(call())

    assert run.transcript.final_text().startswith("Say hello. {x} /")


def test_a_script_beside_the_caller_is_found(
    call: MakeCall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_agent.py").write_text("print('mine')", encoding="ascii")
    monkeypatch.chdir(tmp_path)

    agent = resolve(f"cmd:{sys.executable} my_agent.py")

    assert agent.name == "my_agent"
    assert agent.run(call()).transcript.final_text() == "mine"


def test_a_transcript_file_comes_before_standard_output(call: MakeCall) -> None:
    event = {"type": "message", "message": {"role": "assistant", "content": "from the file"}}
    agent = command(
        f"""
        import os
        print("from stdout")
        open(os.environ["AGENTBENCH_OUTPUT_DIR"] + "/transcript.jsonl", "w").write({json.dumps(event)!r})
        """
    )

    assert agent.run(call()).transcript.final_text() == "from the file"


def test_an_app_file_is_a_render_call(call: MakeCall) -> None:
    agent = command(
        """
        import os
        open(os.environ["AGENTBENCH_OUTPUT_DIR"] + "/app.html", "w").write("<p>app</p>")
        print("here it is")
        """
    )

    transcript = agent.run(call()).transcript

    assert transcript.tool_calls("render_micro_app")[0].arguments == {"html": "<p>app</p>"}
    assert transcript.final_text() == "here it is"


def test_exit_status_is_the_agents_problem_and_output_is_kept(call: MakeCall) -> None:
    run = command("import sys; print('so far'); sys.exit('it broke')").run(call())

    assert run.problem == "the agent exited with status 1: it broke"
    assert run.transcript.final_text() == "so far"


def test_out_of_time_is_the_agents_problem(call: MakeCall) -> None:
    begin = time.monotonic()
    run = command("import time; print('so far', flush=True); time.sleep(60)").run(call(0.5))

    assert run.problem == "the agent was not done in 0.5 s"
    assert run.transcript.final_text() == "so far"
    assert time.monotonic() - begin < 5


def test_output_that_is_no_utf8(call: MakeCall) -> None:
    run = command(r"import sys; sys.stdout.buffer.write(b'ok \xff\xfe')").run(call())

    assert run.transcript.final_text() == "ok \ufffd\ufffd"


def test_a_command_that_vanished_is_the_harness_trouble(call: MakeCall, tmp_path: Path) -> None:
    script = tmp_path / "agent.sh"
    script.write_text("#!/bin/sh\necho hi\n", encoding="ascii")
    script.chmod(0o755)
    agent = resolve(f"cmd:{script}")
    script.unlink()

    with pytest.raises(HarnessError, match="could not be started"):
        agent.run(call())


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = f"agents_of_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(
        textwrap.dedent(
            """
            import asyncio, os, time
            def plain(task, workspace):
                (workspace / "made.txt").write_text(task.id)
                return f"plain {task.trial} {os.getpid()}"
            async def coroutine(task, workspace):
                await asyncio.sleep(0.01)
                return [{"type": "message", "message": {"role": "assistant", "content": "async"}}]
            class Stateful:
                def __call__(self, task, workspace):
                    return "instance"
            def slow(task, workspace):
                time.sleep(60)
            def broken(task, workspace):
                raise ValueError("broken agent")
            def exits(task, workspace):
                os._exit(0)
            def wrong(task, workspace):
                return 5
            """
        ),
        encoding="ascii",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    sys.modules.pop(name, None)


def test_a_python_function_runs_in_a_process_of_its_own(call: MakeCall, module: str) -> None:
    made = call()

    text = resolve(f"py:{module}:plain").run(made).transcript.final_text()

    assert text.startswith("plain 2 ")
    assert int(text.split()[-1]) != __import__("os").getpid()
    assert (made.workspace / "made.txt").read_text(encoding="ascii") == "t/1"


def test_coroutines_and_classes(call: MakeCall, module: str) -> None:
    assert resolve(f"py:{module}:coroutine").run(call()).transcript.final_text() == "async"
    assert resolve(f"py:{module}:Stateful").run(call()).transcript.final_text() == "instance"


def test_python_agents_fail_as_commands_do(call: MakeCall, module: str) -> None:
    assert "broken agent" in str(resolve(f"py:{module}:broken").run(call()).problem)
    assert "not int" in str(resolve(f"py:{module}:wrong").run(call()).problem)
    assert resolve(f"py:{module}:slow").run(call(1.0)).problem == "the agent was not done in 1 s"


def test_an_agent_that_ends_its_process_ends_nothing_else(call: MakeCall, module: str) -> None:
    assert resolve(f"py:{module}:exits").run(call()).transcript.final_text() == ""


def test_a_callable_runs_in_a_thread(call: MakeCall) -> None:
    async def coroutine(task: AgentTask, workspace: Path) -> str:
        await asyncio.sleep(0.01)
        return f"async {task.trial}"

    def raising(task: AgentTask, workspace: Path) -> str:
        raise SystemExit("enough")

    async def slow(task: AgentTask, workspace: Path) -> str:
        await asyncio.sleep(60)
        return "never"

    assert resolve(coroutine).run(call()).transcript.final_text() == "async 2"
    assert resolve(raising).run(call()).problem == "the agent raised SystemExit: enough"
    assert resolve(slow).run(call(0.2)).problem == "the agent was not done in 0.2 s"


def test_replay_reads_what_was_recorded(call: MakeCall, tmp_path: Path) -> None:
    trial = tmp_path / "me" / "bench" / "t_1" / "2"
    (trial / "workspace" / "sub").mkdir(parents=True)
    (trial / "workspace" / "sub" / "file.txt").write_text("recorded", encoding="ascii")
    (trial / "workspace" / "link").symlink_to("/etc/passwd")
    (trial / "response.txt").write_text("the answer", encoding="ascii")
    made = call()

    agent = resolve(f"replay:{tmp_path / 'me'}")
    transcript = agent.run(made).transcript

    assert agent.name == "me"
    assert transcript.final_text() == "the answer"
    assert (made.workspace / "sub" / "file.txt").read_text(encoding="ascii") == "recorded"
    assert not (made.workspace / "link").exists()


def test_replay_misses_no_file_in_silence(
    call: MakeCall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "run" / "made_up" / "task" / "1" / "workspace"
    place.mkdir(parents=True)
    (place / "answer.txt").write_text("42")
    monkeypatch.setattr("pytest_agentbench.agents.replay.read_regular", lambda *_: None)

    with pytest.raises(HarnessError, match=r"answer\.txt cannot be read"):
        overlay(place, call().workspace)


def test_replay_skips_what_was_not_recorded(call: MakeCall, tmp_path: Path) -> None:
    (tmp_path / "me").mkdir()

    with pytest.raises(SkipTrial, match=r"trial 2 of 't/1' was not recorded"):
        resolve(f"replay:{tmp_path / 'me'}").run(call())
