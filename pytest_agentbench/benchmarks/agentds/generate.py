"""Makes the bundled suite: six small challenges of three domains, their labels, and a pool.

``python -m pytest_agentbench.benchmarks.agentds.generate DIR`` writes the same files on every
machine: all randomness is Python's seeded generator.  In each challenge the second modality (log,
PDF, notes, images, memos) carries much of what decides the target.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from pytest_agentbench.benchmarks.agentds.writers import (
    Row,
    grey_png,
    one_page_pdf,
    write_bytes,
    write_challenge,
    write_csv,
    write_text,
)
from pytest_agentbench.metrics import by_name

__all__ = ["generate"]

SEED = 2026
PARTICIPANTS = (
    "Alder Ash Aspen Beech Birch Box Cedar Cherry Cypress Elder Elm Fir Hawthorn Hazel Holly "
    "Hornbeam Juniper Larch Lime Maple Oak Osier Pine Plane Poplar Rowan Spruce Walnut Willow Yew"
).split()


def generate(directory: Path) -> None:
    """Write the suite into *directory*, which must not exist."""
    directory.mkdir(parents=True)
    pool: list[Row] = []
    for make in (_turbines, _repairs, _loans, _overdue, _crates, _picking):
        pool += make(directory)
    write_csv(directory / "pool.csv", pool)


def _random(key: str) -> Random:
    return Random(f"{SEED}:{key}")


def _split(random: Random, rows: Sequence[Row], train: int) -> tuple[list[Row], list[Row]]:
    shuffled = random.sample(rows, len(rows))
    return shuffled[:train], shuffled[train:]


# -- Energy -------------------------------------------------------------------------------------


def _turbines(root: Path) -> list[Row]:
    """MSE; composite ids with ISO timestamps; a log of operators' remarks."""
    random = _random("energy-1")
    remarks = {
        0.0: ["all quiet", "routine round, nothing found", "visual check fine"],
        2.5: ["slight vibration at the hub", "oil a little warm", "brake squeals now and then"],
        6.0: ["gearbox grinds under load", "bearing runs hot", "blade edge cracked near the tip"],
    }
    rows, log = [], []
    start = datetime(2025, 1, 6, 6, tzinfo=UTC)
    for turbine in range(1, 13):
        age = random.randint(1, 20)
        for step in range(40):
            at = (start + timedelta(hours=12 * step)).strftime("%Y-%m-%dT%H:%M:%SZ")
            trouble = random.choices((0.0, 2.5, 6.0), (6, 3, 2))[0]
            wind = round(random.gauss(9, 3), 1)
            gust = round(wind + abs(random.gauss(4, 3)), 1)
            hours = 0.12 * age + 0.15 * max(0.0, gust - 12) + trouble + random.gauss(0, 0.8)
            name = f"T{turbine:02d}"
            rows.append(
                {
                    "timestamp": at,
                    "turbine_id": name,
                    "age_years": age,
                    "wind_mean": wind,
                    "gust_max": gust,
                    "downtime_hours": round(max(0.0, hours), 2),
                }
            )
            log.append({"at": at, "turbine": name, "remark": random.choice(remarks[trouble])})
    random.shuffle(log)
    place = root / "Energy" / "turbine-downtime"
    train, test = _split(random, rows, 320)
    write_challenge(
        place,
        {
            "key": "energy-1",
            "domain": "Energy",
            "title": "Turbine downtime",
            "metric": "MSE",
            "id": ["timestamp", "turbine_id"],
            "prediction": ["downtime_hours"],
            "split_by": "timestamp",
            "files": ["operator_log.jsonl"],
            "description": "How many hours will each turbine stand still in the twelve hours after "
            "a round? operator_log.jsonl has what the operators wrote on that round.",
        },
        train,
        test,
    )
    write_text(place / "operator_log.jsonl", "".join(json.dumps(line) + "\n" for line in log))
    return _numbers_pool("energy-1", "MSE", [row["downtime_hours"] for row in test])


def _repairs(root: Path) -> list[Row]:
    """MAE; an invoice per site as a PDF."""
    random = _random("energy-2")
    place = root / "Energy" / "repair-cost"
    rows = []
    for number in range(200):
        site = f"S{random.randint(0, 9)}{number:03d}"
        kind = random.choice(("roof", "field", "barn"))
        panels = random.randint(8, 60)
        lines = [f"Invoice for site {site}", "Work of the past year, amounts in EUR"]
        total = 0.0
        for part in random.sample(
            ("Inverter", "Cable run", "Panel swap", "Mounting", "Fuse box", "Labour"),
            random.randint(1, 5),
        ):
            amount = round(random.lognormvariate(5.2, 0.7), 2)
            total += amount
            lines.append(f"{part}: {amount:.2f}")
        cost = 0.75 * total + 6 * panels + {"roof": 150, "field": 0, "barn": 60}[kind]
        rows.append(
            {
                "site_id": site,
                "kind": kind,
                "panels": panels,
                "installed": random.randint(2008, 2023),
                "cost_next_year_eur": round(max(0.0, cost + random.gauss(0, 90)), 2),
            }
        )
        write_bytes(place / "invoices" / f"invoice_{site}.pdf", one_page_pdf(lines))
    train, test = _split(random, rows, 130)
    write_challenge(
        place,
        {
            "key": "energy-2",
            "domain": "Energy",
            "title": "Repair cost of solar sites",
            "metric": "MAE",
            "id": ["site_id"],
            "prediction": ["cost_next_year_eur"],
            "files": ["invoices"],
            "description": "What will the repairs of each site cost next year, in EUR? "
            "invoices/invoice_<site_id>.pdf is the invoice of the past year.",
        },
        train,
        test,
    )
    return _numbers_pool("energy-2", "MAE", [row["cost_next_year_eur"] for row in test])


# -- Library ------------------------------------------------------------------------------------

_THEMES = ("sea", "stars", "gardens", "trains", "kings", "cooking", "crime", "birds")


def _loans(root: Path) -> list[Row]:
    """NDCG@10; a wide ranking file; notes of the desk on what members like."""
    random = _random("library-1")
    place = root / "Library" / "next-loans"
    books: list[Row] = [
        {
            "book_id": f"B{number:03d}",
            "year": random.randint(1950, 2024),
            "theme": random.choice(_THEMES),
            "pull": round(random.lognormvariate(0, 0.6), 3),
        }
        for number in range(1, 121)
    ]
    notes, history, truth = {}, [], []
    for number in range(1, 121):
        member = f"M{number:04d}"
        old, new = random.sample(_THEMES, 2)
        notes[member] = random.choice(
            ("asked at the desk for more about {}", "now reads everything on {}", "wants {} next")
        ).format(new)
        for week, theme, times in ((1, old, 4), (2, None, 3)):
            for book in _draw(random, books, theme, times):
                history.append({"member_id": member, "book_id": book, "week": week})
        for book in _draw(random, books, new, random.randint(3, 6)):
            truth.append({"member_id": member, "book_id": book})
    members = sorted(notes)
    tested = set(random.sample(members, 60))
    # of the others the next loans are known
    history += [{**row, "week": 3} for row in truth if row["member_id"] not in tested]
    random.shuffle(history)
    names = [f"book_id_{rank}" for rank in range(1, 11)]
    labels = [row for row in truth if row["member_id"] in tested]
    write_challenge(
        place,
        {
            "key": "library-1",
            "domain": "Library",
            "title": "What members borrow next",
            "metric": "NDCG@10",
            "id": ["member_id"],
            "prediction": names,
            "items": {"file": "books.csv", "column": "book_id"},
            "files": ["books.csv", "desk_notes.json"],
            "description": "Which ten books of books.csv is each member most likely to borrow in "
            "week 3? train.csv has the loans so far, desk_notes.json what the desk noted down.",
        },
        history,
        [{"member_id": member} for member in sorted(tested)],
        labels=labels,
    )
    shown = [{name: book[name] for name in ("book_id", "year", "theme")} for book in books]
    write_csv(place / "books.csv", shown)
    write_text(place / "desk_notes.json", json.dumps(notes, indent=0) + "\n")
    relevant = [
        frozenset(row["book_id"] for row in labels if row["member_id"] == member)
        for member in sorted(tested)
    ]
    return _ranking_pool("library-1", relevant, [book["book_id"] for book in books])


def _draw(random: Random, books: Sequence[Row], theme: str | None, times: int) -> list[str]:
    """Different books, most of them on *theme*, by how much each attracts."""
    chosen: list[str] = []
    while len(chosen) < times:
        inside = (
            [b for b in books if theme in (None, b["theme"])] if random.random() < 0.8 else books
        )
        book = random.choices(inside, [b["pull"] for b in inside])[0]["book_id"]
        if book not in chosen:
            chosen.append(book)
    return chosen


def _overdue(root: Path) -> list[Row]:
    """Macro-F1; a note per loan as JSON."""
    random = _random("library-2")
    place = root / "Library" / "overdue"
    late = ["going abroad for a month", "has lost the card before", "asked about the fines"]
    fine = ["reads it on the train", "comes by every week", "renewed online", "first visit"]
    rows, notes = [], {}
    for number in range(1, 421):
        loan = f"{number:05d}"
        days = random.choice((14, 21, 28))
        before = random.choices((0, 1, 2, 3), (6, 3, 2, 1))[0]
        risky = random.random() < 0.35
        notes[loan] = {"note": random.choice(late if risky else fine), "desk": random.randint(1, 3)}
        odds = -2.2 + 0.5 * before + 2.9 * risky + 0.02 * days + random.gauss(0, 0.5)
        rows.append(
            {
                "loan_id": loan,
                "days": days,
                "overdue_before": before,
                "branch": random.choice(("north", "south", "mobile")),
                "overdue": int(random.random() < 1 / (1 + math.exp(-odds))),
            }
        )
    train, test = _split(random, rows, 280)
    write_challenge(
        place,
        {
            "key": "library-2",
            "domain": "Library",
            "title": "Loans that will be overdue",
            "metric": "Macro-F1",
            "id": ["loan_id"],
            "prediction": ["overdue"],
            "values": ["0", "1"],
            "files": ["loan_notes.json"],
            "description": "Which loans will be overdue (1) and which not (0)? loan_notes.json has "
            "what the desk noted down with each. Ids have leading zeros.",
        },
        train,
        test,
    )
    write_text(place / "loan_notes.json", json.dumps(notes, indent=0) + "\n")
    return _labels_pool("library-2", [str(row["overdue"]) for row in test])


# -- Orchard ------------------------------------------------------------------------------------


def _crates(root: Path) -> list[Row]:
    """Normalized Gini; a picture of each crate."""
    random = _random("orchard-1")
    place = root / "Orchard" / "crate-loss"
    rows = []
    for number in range(1, 221):
        crate = f"C{number:04d}"
        stored = random.randint(1, 60)
        spots = random.choices((0, 1, 3, 6, 10), (8, 4, 3, 2, 1))[0]
        write_bytes(place / "images" / f"crate_{crate}.png", _picture(random, spots))
        chance = min(0.95, 0.05 + 0.085 * spots)
        loss = random.lognormvariate(1.6, 0.4) * (1 + spots) if random.random() < chance else 0.0
        rows.append(
            {
                "crate_id": crate,
                "variety": random.choice(("Boskoop", "Elstar", "Topaz")),
                "weight_kg": round(random.gauss(18, 2), 1),
                "days_stored": stored,
                "loss_eur": round(loss * (1 + stored / 100), 2),
            }
        )
    train, test = _split(random, rows, 140)
    write_challenge(
        place,
        {
            "key": "orchard-1",
            "domain": "Orchard",
            "title": "Loss per crate",
            "metric": "Normalized Gini",
            "id": ["crate_id"],
            "prediction": ["loss_eur"],
            "files": ["images"],
            "description": "Which crates will lose most? Only the order of the predictions counts. "
            "images/crate_<crate_id>.png is a picture of each; bruises are dark.",
        },
        train,
        test,
    )
    return _order_pool("orchard-1", [row["loss_eur"] for row in test])


def _picture(random: Random, spots: int) -> bytes:
    """A grey crate of 20 x 20 points with dark spots."""
    size = 20
    points = [[random.randint(165, 185) for _ in range(size)] for _ in range(size)]
    for _ in range(spots):
        y, x = random.randrange(size - 2), random.randrange(size - 2)
        for dy in range(2):
            for dx in range(2):
                points[y + dy][x + dx] = random.randint(30, 60)
    return grey_png(points)


def _picking(root: Path) -> list[Row]:
    """RMSE; a memo per week."""
    random = _random("orchard-2")
    place = root / "Orchard" / "picking-demand"
    memos = {
        0: ["ordinary week", "nothing special", "usual deliveries"],
        40: ["harvest fair in town", "school holidays begin", "big order from the juice press"],
        -35: ["road to the orchard closed", "storm expected", "half of the pickers away"],
    }
    effect, texts = {}, []
    for week in range(1, 41):
        effect[week] = random.choices((0, 40, -35), (4, 2, 2))[0]
        texts.append({"week": week, "memo": random.choice(memos[effect[week]])})
    rows = []
    for plot in range(1, 13):
        trees = random.randint(20, 90)
        for week in random.sample(range(1, 41), 28):
            boxes = 1.4 * trees + effect[week] + 12 * math.sin(week / 6) + random.gauss(0, 9)
            rows.append(
                {
                    "order_id": f"{plot:02d}-{week:02d}",
                    "plot": plot,
                    "week": week,
                    "trees": trees,
                    "boxes_needed": round(max(0.0, boxes), 1),
                }
            )
    train, test = _split(random, rows, 220)
    write_challenge(
        place,
        {
            "key": "orchard-2",
            "domain": "Orchard",
            "title": "Boxes needed for picking",
            "metric": "RMSE",
            "id": ["order_id"],
            "prediction": ["boxes_needed"],
            "files": ["memos.csv"],
            "description": "How many boxes will each plot need in a week? memos.csv has the "
            "foreman's memo of each week.",
        },
        train,
        test,
    )
    write_csv(place / "memos.csv", texts)
    return _numbers_pool("orchard-2", "RMSE", [row["boxes_needed"] for row in test])


# -- the pool -----------------------------------------------------------------------------------


def _pool(key: str, value: Callable[[float, Random], float]) -> list[Row]:
    """A row per participant: *value* of a participant of some skill, from 0 to 1."""
    random = _random(f"pool:{key}")
    rows = []
    for number, name in enumerate(PARTICIPANTS):
        skill = min(1.0, max(0.0, number / len(PARTICIPANTS) + random.gauss(0, 0.12)))
        made = random.randint(1, 12)
        at = datetime(2025, 10, 18, tzinfo=UTC) + timedelta(minutes=random.randrange(14_000))
        missed = random.random() < 0.1
        rows.append(
            {
                "version": 1,
                "challenge": key,
                "participant": name,
                "metric_value": "" if missed else f"{value(skill, random):.6f}",
                "submissions": 0 if missed else made,
                "submitted_at": "" if missed else at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
        )
    return rows


def _numbers_pool(key: str, metric: str, truth: Sequence[float]) -> list[Row]:
    mean = sum(truth) / len(truth)
    spread = math.sqrt(sum((t - mean) ** 2 for t in truth) / len(truth))

    def value(skill: float, random: Random) -> float:
        """Predictions between the mean and the truth, with errors that skill makes smaller."""
        known = 0.05 + 0.85 * skill
        wrong = spread * (0.15 + 0.35 * (1 - skill))
        made = [mean + known * (t - mean) + random.gauss(0, wrong) for t in truth]
        return by_name(metric).function(truth, made)

    return _pool(key, value)


def _order_pool(key: str, truth: Sequence[float]) -> list[Row]:
    ordered = sorted(truth)

    def value(skill: float, random: Random) -> float:
        made = [
            (0.6 * skill) * ordered.index(t) / len(truth) + (1 - 0.6 * skill) * random.random()
            for t in truth
        ]
        return by_name("Normalized Gini").function(truth, made)

    return _pool(key, value)


def _labels_pool(key: str, truth: Sequence[str]) -> list[Row]:
    def value(skill: float, random: Random) -> float:
        right = 0.5 + 0.36 * skill
        made = [t if random.random() < right else random.choice("01") for t in truth]
        return by_name("Macro-F1").function(truth, made)

    return _pool(key, value)


def _ranking_pool(key: str, relevant: Sequence[frozenset[str]], items: Sequence[str]) -> list[Row]:
    def value(skill: float, random: Random) -> float:
        made = []
        for wanted in relevant:
            found = [item for item in sorted(wanted) if random.random() < 0.55 * skill]
            others = [item for item in random.sample(items, 30) if item not in found]
            ranking = found + others[: 10 - len(found)]
            # what is found does not always come first
            ranking.sort(key=lambda item: random.random() - (0.5 if item in found else 0))
            made.append(ranking)
        return by_name("NDCG@10").function(relevant, made)

    return _pool(key, value)


if __name__ == "__main__":
    generate(Path(sys.argv[1]))
