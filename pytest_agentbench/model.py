"""What the harness speaks of: tasks, trials, transcripts, checks, grades and records.

Frozen dataclasses of plain values.  What crosses a process (:class:`TrialRecord`,
:class:`AgentTask`) converts to JSON and back without loss.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

__all__ = [
    "AgentRun",
    "AgentTask",
    "Attempt",
    "Check",
    "Grade",
    "Session",
    "Task",
    "TaskRef",
    "Tool",
    "TrialRecord",
    "Usage",
    "Verdict",
]

Verdict = Literal["pass", "fail", "error", "skip"]
Tier = Literal["transcript", "dom", "callback", "code", "judge", "metric"]

#: Version of the record format written to ``trials.jsonl`` and ``record.json``.
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class TaskRef:
    """A task as collection knows it: enough to name, select and count it.

    ``id`` is the dataset's own identifier, ``slug`` the safe form of it that node ids and paths
    use.  ``groups`` are the columns that reports are broken down by.
    """

    benchmark: str
    id: str
    slug: str
    index: int
    row_sha256: str
    tags: tuple[str, ...] = ()
    groups: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """A parsed row: what is asked, how long it may take, and the benchmark's own grading *spec*."""

    ref: TaskRef
    prompt: str
    spec: Any
    time_limit_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Session:
    """One prompt of a task; most tasks have a single one.

    With ``new_session`` the conversation starts anew (the workspace stays); else it goes on.
    """

    prompt: str
    new_session: bool = False
    id: str = ""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the agent may call.

    ``calls`` are recorded calls (``{"args": …, "output": …}``): a tool of that name should answer
    with the recorded output.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    calls: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class AgentTask:
    """All that an agent may see of a task.  Never a reference, a check, a rubric or a label.

    In a task of several sessions an agent is called once for each: ``session`` is its number from
    1, ``prompt`` its prompt, ``sessions`` are those so far, and ``history`` are the events of the
    present conversation before it (none if it is a new one).
    """

    benchmark: str
    id: str
    prompt: str
    sessions: tuple[Session, ...]
    tools: tuple[Tool, ...]
    time_limit_s: float
    trial: int
    seed: int
    session: int = 1
    history: tuple[Mapping[str, Any], ...] = ()

    @property
    def new_session(self) -> bool:
        """Whether this session starts a new conversation."""
        return self.session == 1 or self.sessions[self.session - 1].new_session

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary, as written to ``AGENTBENCH_TASK_FILE``."""
        data = {name: getattr(self, name) for name in self.__slots__}
        data["sessions"] = [_fields(session) for session in self.sessions]
        data["tools"] = [{**_fields(t), "calls": [dict(c) for c in t.calls]} for t in self.tools]
        data["history"] = [dict(event) for event in self.history]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AgentTask:
        """The inverse of :meth:`to_json`."""
        return cls(
            **{
                **data,
                "sessions": tuple(Session(**s) for s in data["sessions"]),
                "tools": tuple(Tool(**{**t, "calls": tuple(t["calls"])}) for t in data["tools"]),
                "history": tuple(data.get("history", ())),
            }
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """What a trial consumed; ``None`` means unknown, never zero.

    ``requests`` are the messages that report a usage; ``total_tokens`` includes what was read from
    and written to a cache.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    requests: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    total_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class AgentRun:
    """What came back from an agent.

    ``problem`` is set when the agent itself failed (out of time, exit status, exception): the
    transcript so far is graded all the same, the verdict is fail.
    """

    transcript: Any
    problem: str | None = None
    log: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One named assertion or criterion.

    ``passed`` is ``None`` when it was not scored (no judge); it then decides nothing.
    """

    name: str
    tier: Tier
    passed: bool | None
    score: float | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Grade:
    """The grader's answer.

    ``score`` in [0, 1], or ``None`` when nothing could be scored.  ``passed`` is the grader's own
    verdict; without it the score is compared with the pass mark.  ``files`` are evidence to keep,
    relative path to content.  ``skip`` makes the trial a skip for that reason; ``reason`` is why a
    trial fails where no check tells it.  ``error`` makes it an error that keeps its checks.
    """

    checks: tuple[Check, ...]
    score: float | None
    details: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    skip: str | None = None
    reason: str = ""
    error: str | None = None
    passed: bool | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a grader gets: the task, the transcript and the outcome.

    ``place()`` is the workspace as the agent left it; ``agent`` is the agent's name; ``changed``
    are the names of the files that it created or changed.
    """

    task: Task
    trial: int
    transcript: Any
    place: Callable[[], Path]
    agent: str = ""
    changed: tuple[str, ...] = ()
    #: When the agent was done (ISO 8601, UTC).
    finished_at: str = ""

    @property
    def workspace(self) -> Path:
        """The workspace as the agent left it."""
        return self.place()


@dataclass(frozen=True, slots=True, repr=False)
class TrialRecord:
    """The result of one trial, as stored in ``trials.jsonl``."""

    benchmark: str
    task_id: str
    trial: int
    agent: str
    verdict: Verdict
    score: float | None = None
    checks: tuple[Check, ...] = ()
    reason: str = ""
    tags: tuple[str, ...] = ()
    started_at: str = ""
    duration_s: float = 0.0
    agent_s: float = 0.0
    grade_s: float = 0.0
    usage: Usage = field(default_factory=Usage)
    row_sha256: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether the verdict is pass."""
        return self.verdict == "pass"

    @property
    def scored(self) -> bool:
        """Whether the harness could tell: pass or fail."""
        return self.verdict in ("pass", "fail")

    @property
    def identity(self) -> tuple[str, str, str, int]:
        """Benchmark, task, agent and trial."""
        return (self.benchmark, self.task_id, self.agent, self.trial)

    def __repr__(self) -> str:
        why = f": {self.reason.splitlines()[0]}" if self.reason else ""
        return f"<{self.benchmark}::{self.task_id} trial {self.trial} {self.verdict}{why}>"

    def replace(self, **changes: Any) -> TrialRecord:
        """A copy with *changes*."""
        return type(self)(**{**_fields(self), **changes})

    def to_json(self) -> dict[str, Any]:
        """A dictionary of plain JSON values (non-finite numbers become ``None``)."""
        data: dict[str, Any] = {"schema": SCHEMA}
        for name in self.__slots__:
            value = getattr(self, name)
            if name == "checks":
                value = [_fields(check) for check in value]
            elif name == "usage":
                value = _fields(value)
            data[name] = plain(value)
        return data

    def to_text(self) -> str:
        """One line of ASCII JSON."""
        return json.dumps(self.to_json())

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TrialRecord:
        """The inverse of :meth:`to_json`.

        Raises
        ------
        ValueError
            The record was written by an unknown version of the format.
        """
        if data.get("schema") != SCHEMA:
            raise ValueError(f"unknown record schema {data.get('schema')!r}, expected {SCHEMA}")
        fields = {name: data[name] for name in cls.__slots__ if name in data}
        fields["checks"] = tuple(Check(**check) for check in fields.get("checks", ()))
        fields["usage"] = Usage(**fields.get("usage", {}))
        fields["tags"] = tuple(fields.get("tags", ()))
        return cls(**fields)


def _fields(value: Any) -> dict[str, Any]:
    """Fields of a flat dataclass (``dataclasses.asdict`` would copy deeply, at twenty times the
    cost)."""
    return {name: getattr(value, name) for name in value.__slots__}


def plain(value: Any) -> Any:
    """*value* as JSON carries it: containers copied, non-finite floats ``None``, the rest text."""
    if value is None or type(value) in (str, int, bool):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(item) for item in value]
    if isinstance(value, bool | int | float):
        # subclasses (numpy.float64, IntEnum) would not survive every serialiser
        return plain(float(value)) if isinstance(value, float) else int(value)
    convert = getattr(value, "tolist", None)  # numpy's scalars and arrays
    return plain(convert()) if callable(convert) else str(value)
