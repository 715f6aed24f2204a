"""The leaderboard: all participants and all agents of a run, ranked together.

Challenge, domain, overall: each the mean of the one before; without a valid submission a
participant's quantile is 0.  A challenge that the harness could not score for an agent is left out
of that agent's means and told.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_agentbench.benchmarks.agentds.pool import Pool
from pytest_agentbench.scoring import quantile_moves, quantiles, wilson
from pytest_agentbench.text import count, one_line

__all__ = ["Column", "Result", "board_lines", "leaderboard", "overall_means", "three"]

RESAMPLES = 1000
#: Of the pool so many leaders are printed, and so many neighbours of each agent.
LEADERS, NEIGHBOURS = 3, 1
#: So many domains have a column in the terminal.
SHOWN = 7


@dataclass(frozen=True, slots=True)
class Column:
    """A challenge of the board."""

    key: str
    domain: str
    higher: bool


@dataclass(frozen=True, slots=True)
class Result:
    """What an agent reached in one trial: NaN without a valid submission."""

    value: float
    submitted_at: str = ""


def overall_means(
    scores: Any, domains: Sequence[str], *, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[Any, Any, Any]:
    """Domain means, overall means (the mean of the domains) and 95 % intervals of the latter.

    Parameters
    ----------
    scores
        Quantiles, shape (participants, challenges); NaN where there is none.
    domains
        The domain of each challenge.
    resamples, seed
        Of the percentile bootstrap over challenges.

    Returns
    -------
    domain_means, overall, intervals
        Shapes (participants, domains in order of appearance), (participants,) and
        (participants, 2); NaN where nothing is known, intervals also where less than two
        challenges are.  Where all are 0, or all 1, resampling would give an interval without
        width: there it is Wilson's.
    """
    scores = np.asarray(scores, dtype=float)
    names = list(dict.fromkeys(domains))
    member = np.array([[domain == name for name in names] for domain in domains], dtype=float)
    known = ~np.isnan(scores)
    filled = np.where(known, scores, 0.0)

    def means(weights: Any) -> tuple[Any, Any]:
        """Domain means and their mean for challenges counted *weights* times."""
        weighted = member * weights[:, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            by_domain = (filled @ weighted) / (known @ weighted)
            present = ~np.isnan(by_domain)
            return by_domain, np.where(present, by_domain, 0).sum(1) / present.sum(1)

    by_domain, overall = means(np.ones(len(domains)))
    interval = np.full((len(scores), 2), np.nan)
    if len(domains) > 1 and len(scores):
        rng = np.random.default_rng(seed)
        even = np.full(len(domains), 1 / len(domains))
        draws = rng.multinomial(len(domains), even, size=resamples)
        total = np.zeros((len(scores), resamples))
        present = np.zeros((len(scores), resamples))
        with np.errstate(invalid="ignore", divide="ignore"):
            for number in range(len(names)):
                inside = member[:, number].astype(bool)
                weights = draws[:, inside].T.astype(float)
                mean = (filled[:, inside] @ weights) / (known[:, inside] @ weights)
                there = ~np.isnan(mean)
                present += there
                total += np.where(there, mean, 0)
            drawn = np.where(present > 0, total / present, np.nan)
        several = known.sum(1) > 1
        if several.any():
            interval[several] = np.nanquantile(drawn[several], [0.025, 0.975], axis=1).T
        same = (filled == 0).all(1) | ((filled == 1) | ~known).all(1)
        for row in np.flatnonzero(several & same):
            interval[row] = wilson(int(filled[row].sum()), int(known[row].sum()))
    return by_domain, overall, interval


def leaderboard(
    columns: Sequence[Column],
    pool: Pool,
    agents: Mapping[str, Mapping[str, Sequence[Result | None]]],
    *,
    ties: str = "min",
    seed: int = 0,
) -> dict[str, Any]:
    """Rank the participants of *pool* and the *agents* together.

    Parameters
    ----------
    columns
        The challenges, in their order.
    agents
        By agent and challenge a result per trial, ``None`` where the harness could not score.

    Returns
    -------
    dict
        ``rows`` (best first), ``domains``, ``challenges`` with their ``n``, and what was ranked.
        The ``moves`` of an agent are how far its first trial's quantiles move if one participant is
        added or removed.
        Trials are ranked one by one, each agent's first with each other's first, and averaged.
    """
    present = [c for c in columns if any(any(a.get(c.key, ())) for a in agents.values())]
    others = [name for name in pool.participants if name not in agents]
    names = [*others, *agents]
    scores = np.full((len(names), len(present)), np.nan)
    moves: dict[str, dict[str, list[float]]] = {name: {} for name in agents}
    sizes = []
    for number, column in enumerate(present):
        table = pool.entries.get(column.key, {})
        fixed = [table[name].value if name in table else math.nan for name in others]
        trials = max(len(agent.get(column.key, ())) for agent in agents.values())
        found, n = [], []
        for trial in range(trials):
            results = [_trial(agent.get(column.key, ()), trial) for agent in agents.values()]
            values = np.array([*fixed, *(math.nan if r is None else r.value for r in results)])
            ranked = quantiles(values, higher=column.higher, ties=ties)
            for place, result in enumerate(results, len(others)):
                if result is None:
                    ranked[place] = np.nan
                elif trial == 0:
                    found_moves = quantile_moves(values, place, higher=column.higher, ties=ties)
                    moves[names[place]][column.key] = list(found_moves)
            found.append(ranked)
            n.append(int((~np.isnan(values)).sum()))
        stacked = np.array(found)
        known = ~np.isnan(stacked)
        with np.errstate(invalid="ignore"):
            scores[:, number] = np.where(known, stacked, 0).sum(0) / known.sum(0)
        sizes.append(max(n))
    by_domain, overall, interval = overall_means(scores, [c.domain for c in present], seed=seed)
    unknown = np.isnan(scores)
    bounds = [
        overall_means(np.where(unknown, value, scores), [c.domain for c in present], resamples=1)[1]
        for value in (0.0, 1.0)
    ]
    domains = list(dict.fromkeys(c.domain for c in present))
    rows = []
    for place, name in enumerate(names):
        submissions, last = _effort(name, present, pool, agents)
        rows.append(
            {
                "participant": name,
                "agent": name in agents,
                "overall": float(overall[place]),
                "overall_low": float(interval[place, 0]),
                "overall_high": float(interval[place, 1]),
                "if_unscored_0": float(bounds[0][place]),
                "if_unscored_1": float(bounds[1][place]),
                "domains": dict(zip(domains, by_domain[place].tolist(), strict=True)),
                "challenges": {
                    c.key: float(q) for c, q in zip(present, scores[place], strict=True)
                },
                "scored": int((~np.isnan(scores[place])).sum()),
                "submissions": submissions,
                "submitted_at": last,
                **({"moves": moves[name]} if name in agents else {}),
            }
        )
    rows.sort(key=_order)
    for number, row in enumerate(rows):
        tied = number and _order(row)[:3] == _order(rows[number - 1])[:3]
        row["rank"] = rows[number - 1]["rank"] if tied else number + 1
    return {
        "rows": rows,
        "domains": domains,
        "challenges": {c.key: n for c, n in zip(present, sizes, strict=True)},
        "pool": len(pool.participants),
        "agents": list(agents),
        "ties": ties,
    }


def _trial(results: Sequence[Result | None], number: int) -> Result | None:
    return results[number] if number < len(results) else None


def _effort(
    name: str,
    columns: Sequence[Column],
    pool: Pool,
    agents: Mapping[str, Mapping[str, Sequence[Result | None]]],
) -> tuple[float, str]:
    """How many submissions a participant made (NaN: unknown), and the time of the last one."""
    if name in agents:
        valid = [
            [r for r in agents[name].get(c.key, ()) if r is not None and not math.isnan(r.value)]
            for c in columns
        ]
        times = [result.submitted_at for results in valid for result in results]
        return float(sum(bool(results) for results in valid)), max(times, default="")
    entries = [pool.entries[c.key][name] for c in columns if name in pool.entries.get(c.key, {})]
    return (
        math.fsum(entry.submissions for entry in entries),
        max((entry.submitted_at for entry in entries), default=""),
    )


def _order(row: Mapping[str, Any]) -> tuple[float, float, str, str]:
    """Best first: by overall score, then fewer submissions, then the earlier time.

    Whoever made no submission at all comes last among equals.
    """
    overall, submissions = row["overall"], row["submissions"]
    return (
        math.inf if math.isnan(overall) else -round(overall, 12),
        submissions if submissions > 0 else math.inf,  # NaN, if unknown, is not
        row["submitted_at"] or "~",
        row["participant"],
    )


# -- for the terminal ---------------------------------------------------------------------------


def board_lines(board: Mapping[str, Any]) -> Iterator[str]:
    """The board at most 80 columns wide: the leaders, the agents, and their neighbours."""
    rows, domains = board["rows"], board["domains"]
    if not rows or not domains:
        return
    sizes = sorted(set(board["challenges"].values()))
    n = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    ranked, selected = len(board["challenges"]), board["selected"]
    told = (
        count(ranked, "challenge") if ranked == selected else f"{ranked} of {selected} challenges"
    )
    pool = f"pool of {board['pool']}" if board["pool"] else "no pool: the agents among themselves"
    yield (f"  {pool}, {count(len(board['agents']), 'agent')}, {told}, n {n}")
    more = f"  (of {len(domains)} domains)" if len(domains) > SHOWN else ""
    domains = domains[:SHOWN]
    width = max(6, min(10, 42 // len(domains)))
    name_width = min(22, 60 - width * len(domains))
    heads = "".join(f" {one_line(domain, width - 1):>{width - 1}}" for domain in domains)
    yield f"    rank {'participant':<{name_width}} overall{heads}"
    if more:
        yield f"      the first {SHOWN}{more}"
    shown = _shown(rows)
    last = -1
    for number in shown:
        if number > last + 1:
            yield "      …"
        last = number
        row = rows[number]
        cells = "".join(f" {three(row['domains'][domain]):>{width - 1}}" for domain in domains)
        mark = "*" if row["agent"] else " "
        name = one_line(row["participant"], name_width)
        yield f"   {mark}{row['rank']:>4} {name:<{name_width}} {three(row['overall']):>7}{cells}"
    if last < len(rows) - 1:
        yield f"      … {len(rows) - 1 - last} more"
    for row in rows:
        if row["agent"]:
            yield from _agent_lines(row, board)


def _shown(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    wanted = set(range(min(LEADERS, len(rows))))
    for number, row in enumerate(rows):
        if row["agent"]:
            wanted |= {*range(number - NEIGHBOURS, number + NEIGHBOURS + 1)}
    return sorted(wanted & set(range(len(rows))))


def _agent_lines(row: Mapping[str, Any], board: Mapping[str, Any]) -> Iterator[str]:
    line = f": rank {row['rank']} of {len(board['rows'])}, overall {three(row['overall'])}"
    if not math.isnan(row["overall_low"]):
        line += f", 95 % [{three(row['overall_low'])}, {three(row['overall_high'])}]"
    yield f"    {one_line(row['participant'], 76 - len(line))}{line}"
    if row["scored"] < len(board["challenges"]):
        yield (
            f"      {row['scored']} of {len(board['challenges'])} challenges scored; unscored 0 "
            f"{three(row['if_unscored_0'])}, 1 {three(row['if_unscored_1'])}"
        )


def three(value: float) -> str:
    """Three decimals, or a dash for what is undefined."""
    return "–" if math.isnan(value) else f"{value:.3f}"
