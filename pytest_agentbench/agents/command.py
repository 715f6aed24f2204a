"""``cmd:COMMAND``: any program as an agent."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_agentbench.agents import Agent, Call, read_transcript
from pytest_agentbench.agents.sessions import by_session
from pytest_agentbench.errors import ConfigError, HarnessError
from pytest_agentbench.model import AgentRun
from pytest_agentbench.process import Completed, agent_environment, run
from pytest_agentbench.text import clean, one_line, slug

__all__ = ["CommandAgent", "run_command"]

_PLACE = re.compile(r"\{(prompt|task_file|output_dir|workspace)\}")


class CommandAgent(Agent):
    """Runs a command in the workspace, with the prompt on standard input.

    ``{prompt}``, ``{task_file}``, ``{output_dir}`` and ``{workspace}`` in its words are filled in.
    A word that names an existing file, seen from where pytest was started, is made absolute, since
    the command runs elsewhere.
    """

    def __init__(self, argv: Sequence[str], name: str) -> None:
        self.argv = tuple(argv)
        self.name = name

    @classmethod
    def parse(cls, command: str) -> CommandAgent:
        """Split *command* as a shell would and find its program.

        Raises
        ------
        ConfigError
            The quotes do not match, or the program is not there.
        """
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise ConfigError(f"--bench-agent: cmd:{command}: {error}") from None
        if not words:
            raise ConfigError("--bench-agent: cmd: names no command")
        argv = [_absolute(word) for word in words]
        program = shutil.which(argv[0])
        if program is None:
            raise ConfigError(
                f"--bench-agent: cmd:{command}: the command {words[0]!r} is neither on PATH nor a "
                "file that may be executed"
            )
        argv[0] = program
        return cls(argv, _name(words))

    def run(self, call: Call) -> AgentRun:
        return by_session(call, lambda part: run_command(self.argv, part))


def run_command(
    argv: Sequence[str], call: Call, extra_env: Mapping[str, str] | None = None
) -> AgentRun:
    """Run *argv* for *call* and read what it left."""
    task_file = call.output.parent / "task.json"
    task_file.unlink(missing_ok=True)  # a session before may have made a link of it
    task_file.write_text(json.dumps(call.task.to_json()), encoding="ascii")
    # a lone surrogate in a dataset has no encoding
    prompt = call.task.prompt.encode("utf-8", "replace").decode()
    values = {
        "prompt": prompt.replace("\0", ""),
        "task_file": str(task_file),
        "output_dir": str(call.output),
        "workspace": str(call.workspace),
    }
    env = agent_environment(
        {
            "AGENTBENCH_TASK_FILE": str(task_file),
            "AGENTBENCH_OUTPUT_DIR": str(call.output),
            "AGENTBENCH_WORKSPACE": str(call.workspace),
            "AGENTBENCH_TRIAL": str(call.task.trial),
            "AGENTBENCH_SEED": str(call.task.seed),
            "AGENTBENCH_SESSION": str(call.task.session),
            "AGENTBENCH_NEW_SESSION": str(int(call.task.new_session)),
            **(extra_env or {}),
        },
        call.withheld,
    )
    try:
        done = run(
            [_fill(word, values) for word in argv],
            cwd=call.workspace,
            env=env,
            stdin=prompt.encode(),
            timeout=call.time_limit_s,
        )
    except OSError as error:
        raise HarnessError(f"the agent's command could not be started: {error}") from error
    answer = done.stdout.decode("utf-8", "replace")
    log = done.stderr.decode("utf-8", "replace")
    transcript = read_transcript(call.output, call.task.prompt, answer.strip("\n"))
    if done.truncated:
        log += "\n[agentbench: what the agent printed was too long; the rest was dropped]"
    return AgentRun(transcript, _problem(done, call.time_limit_s), log)


def _problem(done: Completed, limit: float) -> str | None:
    if done.timed_out:
        return f"the agent was not done in {limit:g} s"
    if done.returncode == 0:
        return None
    how = (
        f"was ended by {_signal_name(-done.returncode)}"
        if done.returncode < 0
        else f"exited with status {done.returncode}"
    )
    lines = clean(done.stderr.decode("utf-8", "replace")).strip().splitlines()
    return f"the agent {how}" + (f": {one_line(lines[-1], 160)}" if lines else "")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _fill(word: str, values: Mapping[str, str]) -> str:
    # not str.format: a command's own braces stay as they are; in one go: so do the prompt's
    return _PLACE.sub(lambda match: values[match[1]], word)


def _absolute(word: str) -> str:
    if len(word) > 1000 or "\n" in word:  # a script, not a path
        return word
    path = Path(word).expanduser()
    is_local = not path.is_absolute() and (os.sep in word or path.suffix) and path.is_file()
    return str(path.absolute()) if is_local or word.startswith("~") else word


def _name(words: Sequence[str]) -> str:
    """A short name: the script if there is one, else the program."""
    scripts = [word for word in words if Path(word).suffix in (".py", ".sh", ".js", ".ts", ".rb")]
    return slug(Path(scripts[0] if scripts else words[0]).stem)
