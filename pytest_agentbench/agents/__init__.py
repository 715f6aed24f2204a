"""Agents under test: the protocol, and how a ``--bench-agent`` value becomes one.

To a user an agent is a callable ``agent(task: AgentTask, workspace: Path) -> Transcript | str``,
sync or async.  Inside, every kind of agent is an :class:`Agent` that runs one :class:`Call`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.model import AgentRun, AgentTask
from pytest_agentbench.sandbox import Sandbox
from pytest_agentbench.settings import Settings
from pytest_agentbench.text import did_you_mean
from pytest_agentbench.transcripts import Transcript, assistant, tool_call
from pytest_agentbench.workspace import Workspace, read_regular

__all__ = ["Agent", "Call", "read_transcript", "resolve"]

#: Kinds of ``--bench-agent`` values.
KINDS = ("reference", "wrong", "noop", "cmd:", "py:", "replay:", "openai:")
#: A transcript file larger than this is not read whole.
MAX_TRANSCRIPT = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Call:
    """One trial as an agent sees it, and where it may leave things.

    ``solution`` gives the reference transcript, ``wrong`` that of a wrong answer (or ``None``);
    only the agents of these names use them.  ``slug`` is the task's directory name in a run
    directory.  The directories are made when first asked for: an agent that needs none costs none.
    ``withheld`` are environment variables that it does not get.
    """

    task: AgentTask
    slug: str
    time_limit_s: float
    solution: Callable[[], Transcript]
    place: Callable[[], Workspace]
    wrong: Callable[[], Transcript | None] = lambda: None
    withheld: frozenset[str] = frozenset()
    #: Runs the commands of an agent that has no process of its own.
    sandbox: Sandbox | None = None
    #: Told what a request cost, in USD, as soon as it is known.
    spend: Callable[[float | None], None] = lambda amount: None

    @property
    def workspace(self) -> Path:
        """The prepared workspace."""
        return self.place().path

    @property
    def output(self) -> Path:
        """Where a transcript may be left, one per session; outside the workspace."""
        return self.place().output_of(self.task.session)


class Agent(ABC):
    """Runs trials.  ``name`` identifies it in records, node ids and paths.

    ``live`` says whether it does the tasks now, and so needs what they declare as prerequisites.
    """

    name: str
    live: bool = True
    #: Whether the next trials may run while the judge thinks: not where they share this process.
    apart: bool = True
    #: Whether what it does must pass (or must not), so that the judge can be measured with it.
    calibrates: bool | None = None
    #: Whether it books its requests' cost itself, as they are made.
    books: bool = False

    def configure(self, settings: Settings) -> None:  # noqa: B027
        """Take what the options say; called once, before the first trial.

        Raises
        ------
        ConfigError
            What they say cannot be done.
        """

    def close(self) -> None:  # noqa: B027  (nothing is right)
        """Give back what it holds; called when this process runs no more trials."""

    @abstractmethod
    def run(self, call: Call) -> AgentRun:
        """Run one trial.

        What the agent does wrong is told in :attr:`AgentRun.problem`; an exception is the
        harness's trouble (:class:`~pytest_agentbench.errors.SkipTrial` skips the trial).
        """


def resolve(spec: Any) -> Agent:
    """The agent that *spec* names, or wraps when it is a callable.

    Raises
    ------
    ConfigError
        *spec* is unknown, or what it names is not there.
    """
    from pytest_agentbench.agents import builtin, command, openai, python, replay

    if isinstance(spec, Agent):
        return spec
    if callable(spec):
        return python.InProcessAgent(spec)
    if not isinstance(spec, str):
        raise ConfigError(f"an agent is a callable or a text, not {type(spec).__name__}")
    kind, sep, rest = spec.partition(":")
    match kind, sep, rest.strip():
        case "reference", "", "":
            return builtin.ReferenceAgent()
        case "noop", "", "":
            return builtin.NoopAgent()
        case "wrong", "", "":
            return builtin.WrongAgent()
        case "openai", ":", rest if rest:
            return openai.OpenAIAgent(rest)
        case "cmd", ":", rest if rest:
            return command.CommandAgent.parse(rest)
        case "py", ":", rest if rest:
            return python.python_agent(rest)
        case "replay", ":", rest if rest:
            return replay.ReplayAgent(Path(rest))
    third_party = _entry_point(spec)
    if third_party is not None:
        return third_party
    known = ", ".join(KINDS)
    raise ConfigError(
        f"--bench-agent: unknown agent {spec!r}. Expected one of {known}."
        f"{did_you_mean(kind + sep, KINDS)}"
    )


def _entry_point(spec: str) -> Agent | None:
    from importlib.metadata import entry_points

    name, _, rest = spec.partition(":")
    for entry in entry_points(group="pytest_agentbench.agents", name=name):
        try:
            return resolve(entry.load()(rest))
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(
                f"--bench-agent: the agent {name!r} of {entry.value} cannot be loaded: "
                f"{type(error).__name__}: {error}"
            ) from error
    return None


def read_transcript(directory: Path, prompt: str, answer: str | None) -> Transcript:
    """What an agent left in *directory*: ``transcript.jsonl``, else ``app.html`` with *answer*.

    Without either, *answer* (or ``response.txt``) is the agent's text.
    """

    def text(name: str) -> str | None:
        if directory.is_symlink():
            return None
        data = read_regular(directory / name, MAX_TRANSCRIPT)
        return None if data is None else data.decode("utf-8", "replace")

    written = text("transcript.jsonl")
    if written is not None:
        return Transcript.from_jsonl(written)
    transcript = Transcript.from_answer(prompt, text("response.txt") or answer or "")
    app = text("app.html")
    if app is None:
        return transcript
    question, *rest = transcript.events
    shown = assistant(tool_call("render_micro_app", {"html": app}))
    return Transcript((question, shown, *rest))
