"""agentds: data-science challenges, graded by their own metric and by quantile in a pool.

17 published challenges of six domains (Luo et al. 2026, arXiv:2603.19005), or one's own.  The
public data hold no labels of the test sets: without labels a trial is skipped, never 0.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.benchmark import Benchmark, Tools
from pytest_agentbench.benchmarks.agentds.baselines import solve
from pytest_agentbench.benchmarks.agentds.board import board_lines
from pytest_agentbench.benchmarks.agentds.challenge import FILE, Broken, Challenge, published
from pytest_agentbench.benchmarks.agentds.labels import Truth, given_truth
from pytest_agentbench.benchmarks.agentds.numbers import (
    board_of,
    challenge_rows,
    overall_quantile,
    quantile_table,
    report_lines,
)
from pytest_agentbench.benchmarks.agentds.places import (
    Place,
    agent_files,
    find_challenges,
    materialize,
)
from pytest_agentbench.benchmarks.agentds.pool import Pool, read_pool
from pytest_agentbench.benchmarks.agentds.prompt import (
    ABOUT,
    DESCRIPTION,
    about,
    description,
    prompt,
)
from pytest_agentbench.benchmarks.agentds.split import Cut, cut_from_train, table_bytes, told_share
from pytest_agentbench.benchmarks.agentds.submission import read_submission
from pytest_agentbench.datasets import Dataset, Row, directories
from pytest_agentbench.errors import ConfigError, DataError, HarnessError, RowError
from pytest_agentbench.model import Attempt, Check, Grade, Task, TaskRef, TrialRecord
from pytest_agentbench.text import file_name, one_line, score_text
from pytest_agentbench.transcripts import Transcript, assistant, text_part, user

if TYPE_CHECKING:
    from pytest_agentbench.settings import Settings
    from pytest_agentbench.summary import SuiteSummary

__all__ = ["AgentDS"]

#: Six datasets on the Hub, one for each domain.
PUBLISHED = ",".join(
    f"lainmn/AgentDS-{domain}"
    for domain in (
        "Commerce",
        "FoodProduction",
        "Healthcare",
        "Insurance",
        "Manufacturing",
        "RetailBanking",
    )
)
#: Share of the train file that a local split holds out.
SHARE = 0.2
_LABELS = "--bench-agentds-labels"


@dataclass(frozen=True, slots=True)
class Rules:
    """How this run scores: from the options."""

    labels: Path | None = None
    share: float | None = None
    pool: Path | None = None
    ties: str = "min"
    max_bytes: int = 10_000_000
    seed: int = 0

    @property
    def told(self) -> str:
        """Where labels come from."""
        if self.share is not None:
            return told_share(self.share, self.seed)
        return "the challenges' own, if any" if self.labels is None else str(self.labels)


class AgentDS(Benchmark):
    """The agentds benchmark (17 published challenges, in six datasets ``lainmn/AgentDS-…``)."""

    name = "agentds"
    published = PUBLISHED
    columns = ("challenge_id", "domain", "metric", "directory", "spec")
    id_column = "challenge_id"
    group_columns = ("domain", "metric")
    #: Any valid submission passes.
    pass_score = 0.0

    def __init__(self) -> None:
        self._rules = Rules()
        self._source = "bundled"
        self._roots: Sequence[Path] = ()
        self._truths: dict[str, Truth] = {}
        self._cut: tuple[str, Cut] | None = None
        self._pools: dict[Path, Pool] = {}

    # -- options and rows -----------------------------------------------------------------------

    def configure(self, settings: Settings, source: str) -> None:
        self._source, self._roots = source, ()
        self._truths, self._cut = {}, None
        labels, share = settings.agentds_labels, None
        if labels is not None and labels.partition(":")[0] == "split":
            share, labels = _share(labels), None
        if labels is not None and not Path(labels).expanduser().is_dir():
            raise ConfigError(
                f"{_LABELS}: {labels!r} is not a directory; expected one, or split[:SHARE]"
            )
        pool = settings.agentds_pool
        if pool is not None and not Path(pool).expanduser().is_file():
            raise ConfigError(f"--bench-agentds-pool: {pool!r} is not a file")
        self._rules = Rules(
            labels=None if labels is None else Path(labels).expanduser().resolve(),
            share=share,
            pool=None if pool is None else Path(pool).expanduser().resolve(),
            ties=settings.agentds_ties,
            max_bytes=round(settings.agentds_max_mb * 1e6),
            seed=settings.seed,
        )

    @property
    def largest_pass_score(self) -> float:  # type: ignore[override]
        """Without a pool it is compared with the metric, which may be in euros."""
        return 1.0 if self._pool_path() is not None else math.inf

    @property
    def headline(self) -> str:  # type: ignore[override]
        """The mean quantile; without a pool there is no score that is one for all metrics."""
        return "mean_score" if self._pool_path() is not None else ""

    def rows(self, source: str) -> Iterable[Mapping[str, Any]]:
        """The challenges of *source*: a directory, or Hub ids separated by commas."""
        found = []
        for number, root in enumerate(self._find_roots(source)):
            found += [{**row, "root": number} for row in find_challenges(root)]
        if not found:
            raise DataError(
                f"--bench-data: agentds: no challenge in {source}; expected domain folders such "
                "as Commerce with the published files, or directories with a challenge.toml"
            )
        return found

    def facts(self) -> Mapping[str, str]:
        rules, path = self._rules, self._pool_path()
        pool = "none" if path is None else f"{_relative(path)}, ties {rules.ties}"
        return {"labels": rules.told, "pool": pool}

    def solvable(self, dataset: Dataset) -> bool:
        return dataset.source == "bundled"

    def tags(self, row: Row) -> Sequence[str]:
        return [tag.lower() for tag in super().tags(row)]

    def task(self, ref: TaskRef, row: Row) -> Task:
        cells = row.cells
        file = f"; {cells['directory']}/{FILE}" if cells["own"] else ""
        where = f"{row.index + 1} ({one_line(ref.id + file, 120)})"
        try:
            if cells.get("problem"):
                raise Broken(*cells["problem"])
            challenge = Challenge.parse(json.loads(cells["spec"]))
            root = self._find_roots(self._source)[cells["root"]]
            place = Place(challenge, root / cells["directory"], root, bool(cells["own"]))
            text = prompt(place)
        except Broken as broken:
            raise self._row_error(where, broken) from None
        except OSError as error:
            raise self._row_error(where, Broken("files", one_line(str(error), 200))) from None
        return Task(ref, text, place, challenge.time_limit_s)

    def _row_error(self, where: str, broken: Broken) -> RowError:
        return RowError(self.name, where, broken.key, broken.reason)

    def _find_roots(self, source: str) -> Sequence[Path]:
        if not self._roots:
            self._roots = [_bundled()] if source == "bundled" else directories(source)
        return self._roots

    # -- a trial --------------------------------------------------------------------------------

    def check_gradable(self, task: Task) -> None:
        """Skip without labels; an error where labels or pool cannot be read."""
        self._truth(task.spec)
        pool, key = self._pool(), task.spec.challenge.key
        if pool and key not in pool.entries:
            known = one_line(", ".join(pool.entries), 200)
            raise HarnessError(
                f"agentds: the pool {file_name(pool.source)} has no participant in {key}; it has "
                f"{known}. Name another one (--bench-agentds-pool)"
            )

    def prepare(self, task: Task, workspace: Path) -> None:
        place: Place = task.spec
        try:
            found = agent_files(place, hidden=self._rules.labels)
            if self._rules.share is not None:  # samples have the ids of the published test set
                found = [pair for pair in found if "sample" not in pair[0].lower()]
            found = [pair for pair in found if pair[0] not in (ABOUT, DESCRIPTION)]
            more = {ABOUT: about(place), DESCRIPTION: description(place)}
            new = {name: text.encode() for name, text in more.items()}
            cut = self._cut_of(place)
            if cut is not None:
                challenge = place.challenge
                for key, frame in (("train", cut.train), ("test", cut.test)):
                    path = place.file(getattr(challenge, key), key)
                    name = path.relative_to(place.directory).as_posix()
                    new[name] = table_bytes(frame, name)
            materialize(found, workspace, new)
        except Broken as broken:
            raise self._row_error(task.ref.id, broken) from None

    def reference(self, task: Task, place: Callable[[], Path]) -> Transcript:
        solve(place())
        return Transcript((user(task.prompt), assistant(text_part("Wrote submission.csv."))))

    def grade(self, attempt: Attempt, tools: Tools) -> Grade:
        place: Place = attempt.task.spec
        challenge, truth, pool = place.challenge, self._truth(place), self._pool()
        submission = read_submission(
            attempt.workspace,
            challenge,
            truth,
            max_bytes=self._rules.max_bytes,
            headers=_headers(),
            changed=attempt.changed,
        )
        details: dict[str, Any] = {
            "challenge": challenge.key,
            "metric": challenge.metric.name,
            "higher": challenge.metric.higher,
            "labels": self._rules.told,
            "labels_sha256": truth.sha256,
            "rows": submission.rows,
            "metric_value": None,
        }
        if submission.values is None and not submission.problems:
            submission.wrong("format", "it cannot be read")
        if not submission.problems:
            value = challenge.metric.function(truth.values, submission.values)
            if not math.isfinite(value):
                name = challenge.predictions[0]
                submission.wrong(
                    "overflow", f"{name}: so far off that {details['metric']} overflows"
                )
        metric = challenge.metric
        if not pool and not metric.bounded:
            details["no_score"] = True  # an error in euros is none, and a missing one no 0
        if submission.problems:
            checks = tuple(
                Check(problem.kind, "metric", False, None, problem.message)
                for problem in submission.problems
            )
            first = submission.problems[0]
            more = f" (+{len(checks) - 1} more)" if len(checks) > 1 else ""
            reason = f"{first.kind}: {first.message}{more}"
            score = None if "no_score" in details else 0.0
            return Grade(checks, score, {"agentds": details}, reason=reason, passed=False)
        details["metric_value"] = value
        details["submitted_at"] = attempt.finished_at
        if submission.warnings:
            details["warnings"] = submission.warnings
        return self._scored(attempt, challenge, value, pool, details, tools.pass_score)

    def _scored(
        self,
        attempt: Attempt,
        challenge: Challenge,
        value: float,
        pool: Pool,
        details: dict[str, Any],
        least: float | None,
    ) -> Grade:
        """The grade of a valid submission: its quantile, or without a pool its own metric."""
        metric = challenge.metric
        text = f"{metric.name} {value:.6g}"
        if pool:
            standing = pool.standing(
                challenge.key,
                attempt.agent,
                value,
                higher=metric.higher,
                ties=self._rules.ties,
            )
            low, high = standing.moves
            details |= {
                "quantile": standing.quantile,
                "rank": standing.rank,
                "n": standing.n,
                "quantile_moves": [low, high],
                "ties": self._rules.ties,
                "pool_sha256": pool.sha256,
            }
            alone = "; nobody else in the pool took part" if standing.n == 1 else ""
            message = (
                f"{text}: quantile {score_text(standing.quantile)}, rank {standing.rank:g} of "
                f"{standing.n}; one participant more or less: {low:.3f} to {high:.3f}{alone}"
            )
            score: float | None = standing.quantile
            reached = least is None or standing.quantile >= least - 1e-12
        else:
            message = f"{text} (no pool, so no quantile)"
            score = min(1.0, max(0.0, value)) if metric.bounded else None
            reached = least is None or (value >= least if metric.higher else value <= least)
        checks = (
            Check("valid_submission", "metric", True, 1.0, f"{details['rows']} rows"),
            Check("metric", "metric", reached, score, message),
        )
        reason = "" if reached else f"{message}; --bench-pass-score is {least:g}"
        return Grade(checks, score, {"agentds": details}, reason=reason, passed=reached)

    # -- labels and pool ------------------------------------------------------------------------

    def _truth(self, place: Place) -> Truth:
        key = place.challenge.key
        if key not in self._truths:
            cut = self._cut_of(place)
            self._truths[key] = given_truth(place, self._rules.labels) if cut is None else cut.truth
        return self._truths[key]

    def _cut_of(self, place: Place) -> Cut | None:
        """The local split of a challenge; the last one is kept: trials of a task come together."""
        if self._rules.share is None:
            return None
        key = place.challenge.key
        if self._cut is None or self._cut[0] != key:
            self._cut = key, cut_from_train(place, self._rules.share, self._rules.seed)
        return self._cut[1]

    def _pool_path(self) -> Path | None:
        """The pool that was named, or that beside the challenges.

        The latter holds results on the published test sets: it tells nothing of a local split.
        """
        if self._rules.pool is not None or self._rules.share is not None:
            return self._rules.pool
        beside = [root / f"pool{s}" for root in self._find_roots(self._source) for s in _SUFFIXES]
        return next((path for path in beside if path.is_file()), None)

    def _pool(self) -> Pool:
        path = self._pool_path()
        if path is None:
            return Pool()
        if path not in self._pools:
            self._pools[path] = read_pool(path)
        return self._pools[path]

    # -- numbers --------------------------------------------------------------------------------

    def headlines(self, records: Sequence[TrialRecord]) -> Mapping[str, float]:
        """The quantile score, from challenge to domain to overall (none without a pool)."""
        return {"quantile": overall_quantile(records)} if records and self._pool() else {}

    def report(self, summary: SuiteSummary, records: Sequence[TrialRecord]) -> Mapping[str, Any]:
        """A row per challenge, and the quantiles of the domains."""
        found = {
            "covers": ["domain", "metric", "quantile"],
            "labels": self._rules.told,
            "split": self._rules.share is not None,
            "challenges": challenge_rows(records),
        }
        if summary.scored and self._pool():
            found["quantile"] = quantile_table(summary.tasks, self._rules.seed)
        return found

    def report_lines(self, report: Mapping[str, Any]) -> Iterable[str]:
        return report_lines(report)

    def leaderboard(
        self, records: Mapping[str, Sequence[TrialRecord]], tasks: int
    ) -> Mapping[str, Any] | None:
        """All agents of the run among the participants of the pool."""
        if not any(record.scored for found in records.values() for record in found):
            return None
        pool, rules = self._pool(), self._rules
        if not pool and len(records) < 2:
            return None
        board = board_of(records, pool, ties=rules.ties, seed=rules.seed)
        return {**board, "selected": tasks, "labels": rules.told}

    def leaderboard_lines(self, board: Mapping[str, Any]) -> Iterable[str]:
        return board_lines(board)


_SUFFIXES = (".csv", ".parquet")


def _share(text: str) -> float:
    share = text.partition(":")[2]
    try:
        number = float(share) if ":" in text else SHARE
    except ValueError:
        number = math.nan
    if not 0 < number < 1:
        raise ConfigError(f"{_LABELS}: expected split or split:SHARE, 0 < SHARE < 1, got {text!r}")
    return number


def _bundled() -> Path:
    return Path(str(files("pytest_agentbench.benchmarks").joinpath("data", "agentds")))


def _relative(path: Path) -> str:
    return "the bundled pool" if path.parent == _bundled() else str(path)


@lru_cache(maxsize=1)
def _headers() -> Mapping[str, Sequence[str]]:
    """The headers of the published challenges, to tell mixed-up submissions."""
    challenges = [Challenge.parse(spec) for spec in published()]
    return {challenge.key: challenge.header for challenge in challenges}
