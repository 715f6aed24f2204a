"""Rows and programs that several tests need."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_agentbench.benchmarks.agentds.challenge import Challenge, published


def grader(body: str) -> str:
    """The cell of a grader that returns *body*."""
    return f"```python\ndef grade(t, w):\n    return {body}\n```"


def pinch_row(task_id: str = "task_x", **changes: Any) -> dict[str, Any]:
    """A row with an automated grader that gives full marks, unless changed."""
    return {
        "task_id": task_id,
        "name": "X",
        "category": "alpha",
        "grading_type": "automated",
        "timeout_seconds": 60,
        "prompt": "Do it.",
        "expected_behavior": "It is done.",
        "automated_checks": grader("{'done': 1.0}"),
        "llm_judge_rubric": "",
        "grading_criteria": "- [ ] Done",
        "grading_weights": "{}",
        "multi_session": False,
        "sessions": "[]",
        "prerequisites": "[]",
        "workspace_files": "[]",
        "asset_paths": "[]",
        "assets_tar": "",
        "task_md": "",
        **changes,
    }


#: Makes the calling process, and all that it starts, see a kernel without Landlock.
WITHOUT_LANDLOCK = """
import ctypes, struct, sys, platform
numbers = (444, 445, 446)
say = lambda code, yes, no, value: struct.pack("=HBBI", code, yes, no, value)
program = [say(0x20, 0, 0, 0)]
for number in numbers:
    program += [say(0x15, 0, 1, number), say(0x06, 0, 0, 0x00050000 | 38)]
program.append(say(0x06, 0, 0, 0x7FFF0000))
code = ctypes.create_string_buffer(b"".join(program), 8 * len(program))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
libc = ctypes.CDLL(None)
libc.prctl(38, 1, 0, 0, 0)
assert libc.prctl(22, 2, ctypes.byref(Program(len(program), ctypes.addressof(code))), 0, 0) == 0
"""


# -- agentds ------------------------------------------------------------------------------------


def handed_challenges(path: Path) -> list[dict[str, Any]]:
    """The facts of the handed table of challenges, as :func:`publish` takes them."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        {
            "key": row["key"],
            "train": row["train_file"],
            "test": row["test_file"],
            "ids": row["id_columns"].split("|"),
            "header": row["submission_header"].split(","),
            "labels": row["label_values"].partition(" ")[0].split("|")
            if "|" in row["label_values"]
            else [],
            "metric": row["metric"],
        }
        for row in rows
    ]


def known_challenges() -> list[dict[str, Any]]:
    """The same from the package's own table."""
    parsed = [Challenge.parse(spec) for spec in published()]
    return [
        {
            "key": c.key,
            "train": f"{c.domain.replace(' ', '')}/{c.train}",
            "test": f"{c.domain.replace(' ', '')}/{c.test}",
            "ids": list(c.ids),
            "header": list(c.header),
            "labels": list(c.values),
            "metric": c.metric.name,
        }
        for c in parsed
    ]


def publish(root: Path, challenges: Sequence[Mapping[str, Any]], labels: Path | None) -> None:
    """Lay out tiny made-up data for *challenges* as they are published; labels into *labels*."""
    files: dict[str, list[dict[str, Any]]] = {}
    for challenge in challenges:
        truth = []
        for part, count in (("train", 20), ("test", 8)):
            rows = files.setdefault(challenge[part], [{} for _ in range(count)])
            for number, row in enumerate(rows):
                row |= {name: _id(name, number, part) for name in challenge["ids"]}
                row.setdefault("feature", number % 5)
                answer = _answer(challenge, number)
                if part == "train":
                    row |= answer
                    row.setdefault("units_sold", number)  # what one challenge predicts from
                elif labels is not None:
                    truth.append({**{name: row[name] for name in challenge["ids"]}, **answer})
        if labels is not None:
            _write(labels / f"{challenge['key']}.csv", truth)
    for name, rows in files.items():
        _write(root / name, rows)
    for name, content in _MODALITIES.items():
        path = root / name
        if (root / path.relative_to(root).parts[0]).is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)


def _id(name: str, number: int, part: str) -> str:
    if name in ("timestamp", "date"):
        return f"2025-0{1 if part == 'train' else 2}-{number + 1:02d}T00:00:00Z"
    if name.lower() == "week":
        return str(number + (1 if part == "train" else 50))
    return (
        f"{name}-{number % 4 if name != 'machine_id' else 1}"
        if name in _REPEATED
        else (f"{part[1].upper()}{number:04d}")
    )


_REPEATED = ("sku_id", "region_id", "CustomerID", "shift", "machine_id")


def _answer(challenge: Mapping[str, Any], number: int) -> dict[str, Any]:
    if challenge["metric"] == "NDCG@10":
        return {"sku_id": number % 3}
    name = challenge["header"][-1]
    labels = challenge["labels"]
    return {name: labels[number % len(labels)] if labels else number % 7}


_MODALITIES = {
    "Commerce/store_events.csv": "store,week,event\n1,1,fair\n",
    "Commerce/products_sub.csv": "sku_id,price\n" + "".join(f"{n},1\n" for n in range(30)),
    "Commerce/customers.csv": "customer_id,age\n1,30\n",
    "Commerce/images/1.png": "picture",
    "Commerce/session_events.json": "[]",
    "FoodProduction/storage_timeseries.json": "[]",
    "FoodProduction/lab_plates/plate_1.png": "picture",
    "FoodProduction/market_memos.csv": "week,memo\n1,none\n",
    "Healthcare/discharge_notes.json": "{}",
    "Healthcare/receipts_pdf/receipt_1.pdf": "%PDF",
    "Healthcare/vitals_timeseries.json": "{}",
    "Insurance/invoices/train/invoice_1.pdf": "%PDF",
    "Insurance/vehicle_images/test/1.jpg": "picture",
    "Manufacturing/operator_logs.json": "[]",
    "Manufacturing/production_logs.json": "[]",
    "Manufacturing/inspection_images/IMG_1.png": "picture",
    "RetailBanking/device_sessions_all.json": "[]",
    "RetailBanking/customers.csv": "CustomerID,age\nC,30\n",
}


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
