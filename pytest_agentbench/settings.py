"""Options: one table, from which the command line, the ini file and the environment are read.

Order of precedence: command line, environment (``AGENTBENCH_…``), ini file (``bench_…``), default.
This module is imported by every pytest run, so it imports next to nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pytest_agentbench.errors import ConfigError

__all__ = ["OPTIONS", "Option", "Settings", "wanted"]


class Option(NamedTuple):
    """One option: its name after ``--bench-``, its place-holder, whether it repeats, its help."""

    name: str
    metavar: str
    help: str
    many: bool = False

    @property
    def flag(self) -> str:
        """The command line flag."""
        return f"--bench-{self.name}" if self.name else "--bench"

    @property
    def dest(self) -> str:
        """The name of the ini key and of the attribute of the parsed options."""
        return self.flag.lstrip("-").replace("-", "_")

    @property
    def env(self) -> str:
        """The environment variable."""
        return "AGENTBENCH_" + (self.name or "bench").replace("-", "_").upper()


OPTIONS = (
    Option("", "NAME[,NAME]", "benchmarks to run, e.g. genui"),
    Option(
        "data",
        "[NAME=]SRC",
        "dataset: bundled, a Hub id org/name[@revision], or a parquet, jsonl, json or csv file or "
        "a directory of them (default: the benchmark's published dataset)",
        many=True,
    ),
    Option(
        "agent",
        "SPEC",
        "agent under test: reference, wrong, noop, openai:MODEL[@URL], cmd:COMMAND, "
        "py:MODULE:ATTR or replay:DIR (default: reference)",
        many=True,
    ),
    Option("trials", "K", "trials per task (default: 1)"),
    Option("k", "LIST", "the k of pass@k and pass^k to report (default: 1 and the trials)"),
    Option("agent-max-steps", "N", "openai agent: requests to its model per session (default: 50)"),
    Option(
        "agent-max-tokens", "N", "openai agent: tokens that it may write in a trial (default: any)"
    ),
    Option(
        "judge",
        "SPEC",
        "judge: off, openai:MODEL[@URL], py:MODULE:ATTR or replay:FILE (default: off)",
    ),
    Option(
        "judge-base-url",
        "URL",
        "server of an openai judge (default: OPENAI_BASE_URL, else OpenAI's own)",
    ),
    Option("judge-votes", "N", "votes per rubric, an odd number; the majority counts (default: 1)"),
    Option(
        "judge-concurrency",
        "N",
        "votes that a process asks for at a time (default: 8 of a model, 1 of any other judge)",
    ),
    Option(
        "judge-cache",
        "FILE",
        "where a model's answers are kept, or off (default: .agentbench/judge-cache.sqlite)",
    ),
    Option(
        "judge-caps",
        "FILE,ALL",
        "characters of a file, and of all files, that a judge of workspaces is shown "
        "(default: 50000,160000)",
    ),
    Option(
        "judge-compat",
        "HOW",
        "own, or upstream: a judge of workspaces is shown everything (default: own)",
    ),
    Option(
        "judge-min-agreement",
        "X",
        "share of verdicts on the agents reference and wrong that a judge must get right; below "
        "it the run is red",
    ),
    Option("prices", "FILE", "JSON or TOML file with what models cost, for costs and budgets"),
    Option("max-cost", "USD", "begin no more trials when models have cost that much"),
    Option("pass-score", "X", "score in [0, 1] from which a trial passes (default: per benchmark)"),
    Option("out", "DIR", "run directory (default: .agentbench/RUN_ID below the rootdir)"),
    Option("artifacts", "WHICH", "evidence to keep: failed, all or none (default: failed)"),
    Option("timeout-scale", "X", "factor on every time limit (default: 1.0)"),
    Option(
        "missing",
        "HOW",
        "tasks whose prerequisites are absent: skip, run (all the same) or fail (default: skip)",
    ),
    Option(
        "sandbox",
        "MODE",
        "isolation of graders: auto (what there is), strict (refuse to run with less than all) or "
        "off (default: auto)",
    ),
    Option(
        "agentds-labels",
        "DIR",
        "agentds: directory with the labels of the test sets, or split[:SHARE] to cut a test set "
        "from train (default: the challenges' own, if any)",
    ),
    Option("agentds-pool", "FILE", "agentds: CSV or parquet file with the pool of participants"),
    Option("agentds-ties", "RULE", "agentds: rank of equals: min, average or max (default: min)"),
    Option("agentds-max-mb", "N", "agentds: largest submission in MB (default: 10)"),
    Option("limit", "N", "only the first N tasks of each benchmark"),
    Option("seed", "N", "seed handed to agents and used by the statistics (default: 0)"),
    Option(
        "library",
        "HOST=FILE",
        "answer page requests for HOST with a local script instead of blocking them",
        many=True,
    ),
)

#: Options that take one of a few words, and the words.
CHOICES = {
    "agentds-ties": ("min", "average", "max"),
    "artifacts": ("failed", "all", "none"),
    "judge-compat": ("own", "upstream"),
    "missing": ("skip", "run", "fail"),
    "sandbox": ("auto", "strict", "off"),
}


#: Options whose values in the ini file are relative to it.
_PATHS = ("data", "out", "agentds-labels", "agentds-pool", "judge-cache", "prices")
_NOT_EMPTY = (*_PATHS, "agent", "judge", "judge-base-url")
#: Those of the paths that need not be there yet.
_NEW = ("out", "judge-cache")


@dataclass(frozen=True, slots=True)
class Settings:
    """The parsed options of a run: plain values, equal in the controller and in every worker."""

    benchmarks: tuple[str, ...] = ()
    data: tuple[tuple[str, str], ...] = ()
    agents: tuple[str, ...] = ("reference",)
    agent_given: bool = False
    trials: int = 1
    ks: tuple[int, ...] = ()
    judge: str = "off"
    judge_base_url: str | None = None
    judge_votes: int = 1
    judge_concurrency: int | None = None
    judge_cache: str | None = None
    judge_caps: tuple[int, int] = (50_000, 160_000)
    judge_compat: str = "own"
    judge_min_agreement: float | None = None
    agent_max_steps: int = 50
    agent_max_tokens: int | None = None
    prices: str | None = None
    max_cost: float | None = None
    pass_score: float | None = None
    out: str | None = None
    artifacts: str = "failed"
    timeout_scale: float = 1.0
    limit: int | None = None
    missing: str = "skip"
    sandbox: str = "auto"
    seed: int = 0
    libraries: tuple[tuple[str, str], ...] = ()
    agentds_labels: str | None = None
    agentds_pool: str | None = None
    agentds_ties: str = "min"
    agentds_max_mb: float = 10.0

    def source(self, benchmark: str) -> str | None:
        """The ``--bench-data`` value that applies to *benchmark*, or ``None``."""
        general = None
        for name, source in self.data:
            if name == benchmark:
                return source
            if not name:
                general = source
        return general

    @property
    def caps(self) -> tuple[int, int] | None:
        """Characters of a file, and of all, that a judge is shown; ``None`` for everything."""
        return None if self.judge_compat == "upstream" else self.judge_caps

    def report_ks(self, trials: int) -> tuple[int, ...]:
        """The k to report: as asked for, else 1 and the number of trials."""
        return self.ks or tuple(sorted({1, trials}))

    @classmethod
    def read(
        cls,
        option: Callable[[str], Any],
        ini: Callable[[str], Any],
        environ: Mapping[str, str] | None = None,
        base: Path | None = None,
    ) -> Settings:
        """Read every option of :data:`OPTIONS`.

        Parameters
        ----------
        option, ini
            Look up the command line value (``None`` when absent) and the ini value (``""`` or an
            empty list when absent) by :attr:`Option.dest`.
        environ
            Environment; :data:`os.environ` by default.
        base
            The ini file's directory, to which paths in it are relative.

        Raises
        ------
        ConfigError
            A value cannot be used; the message names the option and what it accepts.
        """
        env = os.environ if environ is None else environ
        raw: dict[str, _Value] = {}
        for opt in OPTIONS:
            given = option(opt.dest)
            if given is not None:
                raw[opt.name] = _Value(opt.flag, list(given) if opt.many else [given])
            elif env.get(opt.env):
                raw[opt.name] = _Value(opt.env, _split(env[opt.env], opt.many))
            elif ini(opt.dest):
                value = ini(opt.dest)
                texts = list(value) if opt.many else [value]
                if base is not None and opt.name in _PATHS:
                    texts = [
                        _rebased(text, base, new=opt.name in _NEW and text != "off")
                        for text in texts
                    ]
                raw[opt.name] = _Value(opt.dest, texts)
        return cls(**_parse(raw))


def _rebased(text: str, base: Path, *, new: bool) -> str:
    """A path of the ini file as an absolute one; what is no path there stays as it is."""
    name, source = _named(text)
    path = base / Path(source).expanduser()
    if not (source and (new or path.exists())):
        return text
    return f"{name}={path}" if name else str(path)


class _Value(NamedTuple):
    """Raw texts of an option and where they came from (flag, environment or ini name)."""

    where: str
    texts: Sequence[str]

    @property
    def last(self) -> str:
        return self.texts[-1].strip()

    def bad(self, expected: str) -> ConfigError:
        return ConfigError(f"{self.where}: expected {expected}, got {self.last!r}")

    def choice(self, words: tuple[str, ...]) -> str:
        if self.last not in words:
            from pytest_agentbench.text import did_you_mean

            known = f"{', '.join(words[:-1])} or {words[-1]}"
            raise ConfigError(f"{self.bad(known)}.{did_you_mean(self.last, words)}")
        return self.last

    def integer(self, least: int) -> int:
        try:
            number = int(self.last)
        except ValueError:
            raise self.bad(f"a whole number of at least {least}") from None
        if number < least:
            raise self.bad(f"a whole number of at least {least}")
        return number

    def number(self, low: float, high: float) -> float:
        try:
            number = float(self.last)
        except ValueError:
            raise self.bad(f"a number between {low:g} and {high:g}") from None
        if not low <= number <= high:
            raise self.bad(f"a number between {low:g} and {high:g}")
        return number


def wanted(option: Callable[[str], Any], ini: Callable[[str], Any]) -> bool:
    """Whether any source of options names a benchmark; looks at nothing else."""
    bench = OPTIONS[0]
    return bool(option(bench.dest) or os.environ.get(bench.env) or ini(bench.dest))


def _split(text: str, many: bool) -> list[str]:
    # in the environment, repeatable options are separated by line feeds (commands hold commas)
    return [line for line in text.split("\n") if line.strip()] if many else [text]


def _parse(raw: Mapping[str, _Value]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in raw.items():
        if name == "":
            out["benchmarks"] = _benchmarks(value)
        elif name in _NOT_EMPTY and not all(t.strip() for t in value.texts):
            raise ConfigError(f"{value.where}: expected a value, got nothing")
        elif name == "data":
            out["data"] = tuple(_named(text) for text in value.texts)
        elif name == "agent":
            out["agents"] = tuple(dict.fromkeys(text.strip() for text in value.texts))
            out["agent_given"] = True
        elif name == "trials":
            out["trials"] = value.integer(1)
        elif name == "k":
            out["ks"] = _ks(value)
        elif name == "judge":
            out["judge"] = value.last
        elif name == "judge-votes":
            out["judge_votes"] = value.integer(1)
            if out["judge_votes"] % 2 == 0:
                raise value.bad("an odd number")
        elif name == "judge-caps":
            out["judge_caps"] = _caps(value)
        elif name in ("agent-max-steps", "agent-max-tokens", "judge-concurrency"):
            out[name.replace("-", "_")] = value.integer(1)
        elif name == "judge-min-agreement":
            out["judge_min_agreement"] = value.number(0, 1)
        elif name == "max-cost":
            out["max_cost"] = value.number(0, 1e9)
        elif name == "pass-score":
            out["pass_score"] = value.number(0, 1e12)
        elif name == "out":
            out["out"] = value.last
        elif name in ("agentds-labels", "agentds-pool", "judge-base-url", "judge-cache", "prices"):
            out[name.replace("-", "_")] = value.last
        elif name == "agentds-max-mb":
            out["agentds_max_mb"] = value.number(0.001, 100_000)
        elif name in CHOICES:
            out[name.replace("-", "_")] = value.choice(CHOICES[name])
        elif name == "timeout-scale":
            out["timeout_scale"] = value.number(0.001, 1000)
        elif name == "limit":
            out["limit"] = value.integer(1)
        elif name == "seed":
            out["seed"] = value.integer(0)
        elif name == "library":
            out["libraries"] = tuple(_library(value, text) for text in value.texts)
    return out


def _benchmarks(value: _Value) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in value.last.split(",") if part.strip()))
    if not names:
        raise value.bad("benchmark names separated by commas")
    return names


def _named(text: str) -> tuple[str, str]:
    name, sep, source = text.partition("=")
    return (
        (name.strip(), source.strip())
        if sep and name.strip().isidentifier()
        else ("", text.strip())
    )


def _ks(value: _Value) -> tuple[int, ...]:
    try:
        ks = tuple(sorted({int(part) for part in value.last.split(",") if part.strip()}))
    except ValueError:
        ks = ()
    if not ks or ks[0] < 1:
        raise value.bad("whole numbers of at least 1, separated by commas")
    return ks


def _caps(value: _Value) -> tuple[int, int]:
    try:
        one, both = map(int, value.last.split(","))
    except ValueError:
        one = both = 0
    if one < 1 or both < 1:
        raise value.bad("two whole numbers of at least 1, separated by a comma")
    return one, both


def _library(value: _Value, text: str) -> tuple[str, str]:
    host, sep, file = text.partition("=")
    path = Path(file.strip()).expanduser()
    if not sep or not host.strip() or not file.strip():
        raise ConfigError(f"{value.where}: expected HOST=FILE, got {text!r}")
    if not path.is_file():
        raise ConfigError(f"{value.where}: {file.strip()!r} (for {host.strip()}) is not a file")
    return host.strip().lower(), str(path.resolve())
