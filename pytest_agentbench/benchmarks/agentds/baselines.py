"""Two agents for the bundled challenges: a decent one, and one that looks at nothing.

Both see what any agent sees, a workspace: ``challenge.json``, train and test file, the rest.
``reference`` fits a gradient boosting model (scikit-learn) on the tables and on what it reads out
of the second modality; ``naive`` answers with the median, the mean, the commonest label or the most
popular items, and works for every challenge.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.benchmarks.agentds.labels import read_table
from pytest_agentbench.benchmarks.agentds.problems import NAME

if TYPE_CHECKING:
    import pandas as pd

    from pytest_agentbench.model import AgentTask

__all__ = ["naive", "reference", "solve"]


def naive(task: AgentTask, workspace: Path) -> str:
    """Answer the same for every row."""
    about = json.loads((workspace / "challenge.json").read_text(encoding="utf-8"))
    train = read_table(workspace / about["train"])
    test = read_table(workspace / about["test"], about["id_columns"])
    target = train[about["target_column"]]
    predictions = about["prediction_columns"]
    match about["metric"]:
        case "NDCG@10":
            counts = Counter(target)
            if about.get("items"):  # what nobody has taken so far comes last
                where = about["items"]
                counts.update(
                    dict.fromkeys(read_table(workspace / where["file"])[where["column"]], 0)
                )
            answer = [item for item, _ in counts.most_common(len(predictions))]
            test = test.drop_duplicates()
        case "Macro-F1" | "Macro-Recall" | "Accuracy":
            answer = [Counter(target).most_common(1)[0][0]]
        case "MAE" | "MAPE":
            answer = [target.astype(float).median()]
        case _:
            answer = [target.astype(float).mean()]
    _write(workspace, test.assign(**dict(zip(predictions, answer, strict=True))))
    return f"Wrote {NAME}: the same answer for each of {len(test)} rows."


def reference(task: AgentTask, workspace: Path) -> str:
    """Solve a bundled challenge."""
    solve(workspace)
    return f"Wrote {NAME} with the predictions of a gradient boosting model."


def solve(workspace: Path, *, modality: bool = True) -> None:
    """Write ``submission.csv``; without *modality* from the tables alone."""
    about = json.loads((workspace / "challenge.json").read_text(encoding="utf-8"))
    train, test = (read_table(workspace / about[name]) for name in ("train", "test"))
    if about["metric"] == "NDCG@10":
        _write(workspace, _rank(workspace, about, train, test, modality))
        return
    target = about["target_column"]
    both = _features(train, test, about, _READERS[about["key"]](workspace) if modality else None)
    seen, unseen = both.iloc[: len(train)], both.iloc[len(train) :]
    answer = test[about["id_columns"]].copy()
    column = about["prediction_columns"][0]
    if about["metric"] == "Macro-F1":
        from sklearn.ensemble import GradientBoostingClassifier

        model: Any = GradientBoostingClassifier(n_estimators=60, max_depth=2, random_state=0)
        answer[column] = model.fit(seen, train[target]).predict(unseen)
    else:
        from sklearn.ensemble import GradientBoostingRegressor

        loss = "absolute_error" if about["metric"] == "MAE" else "squared_error"
        model = GradientBoostingRegressor(loss=loss, n_estimators=150, max_depth=3, random_state=0)
        answer[column] = model.fit(seen, train[target].astype(float)).predict(unseen).round(4)
    _write(workspace, answer)


def _write(workspace: Path, answer: pd.DataFrame) -> None:
    answer.to_csv(workspace / NAME, index=False, lineterminator="\n")


def _features(
    train: pd.DataFrame,
    test: pd.DataFrame,
    about: Mapping[str, Any],
    more: Callable[[Mapping[str, str]], Mapping[str, float]] | None,
) -> pd.DataFrame:
    """Numbers as they are, words one-hot, and what *more* knows of each row."""
    import pandas as pd

    both = pd.concat([train.drop(columns=about["target_column"]), test], ignore_index=True)
    told = [more(row) for row in both.to_dict("records")] if more is not None else []
    tables = []
    for name in both.columns:
        numbers = pd.to_numeric(both[name], errors="coerce")
        if numbers.notna().all() and both[name].nunique() < len(both):
            tables.append(numbers.rename(name))
        elif both[name].nunique() <= 20:
            tables.append(pd.get_dummies(both[name], prefix=name, dtype=float))
    frame = pd.concat([*tables, *([pd.DataFrame(told)] if told else [])], axis=1)
    filled: pd.DataFrame = frame.fillna(0.0).astype(float)
    return filled


# -- second modalities --------------------------------------------------------------------------


def _words(text: str) -> dict[str, float]:
    return {f"word {word}": 1.0 for word in re.findall(r"[a-z]+", text.lower())}


def _log(workspace: Path) -> Callable[[Mapping[str, str]], Mapping[str, float]]:
    lines = (workspace / "operator_log.jsonl").read_text(encoding="utf-8").splitlines()
    remarks = {(line["at"], line["turbine"]): line["remark"] for line in map(json.loads, lines)}
    return lambda row: _words(remarks[row["timestamp"], row["turbine_id"]])


def _invoices(workspace: Path) -> Callable[[Mapping[str, str]], Mapping[str, float]]:
    def read(row: Mapping[str, str]) -> Mapping[str, float]:
        data = (workspace / "invoices" / f"invoice_{row['site_id']}.pdf").read_bytes()
        lines = re.findall(r"\((.*?)\) Tj", data.decode("latin-1"))
        amounts = [float(line.rpartition(": ")[2]) for line in lines if re.search(r": \d", line)]
        return {"invoiced": sum(amounts), "items": float(len(amounts))}

    return read


def _notes(workspace: Path) -> Callable[[Mapping[str, str]], Mapping[str, float]]:
    notes = json.loads((workspace / "loan_notes.json").read_text(encoding="utf-8"))
    return lambda row: _words(notes[row["loan_id"]]["note"])


def _images(workspace: Path) -> Callable[[Mapping[str, str]], Mapping[str, float]]:
    def read(row: Mapping[str, str]) -> Mapping[str, float]:
        points = _grey(workspace / "images" / f"crate_{row['crate_id']}.png")
        dark = sum(point < 100 for point in points)
        return {"dark": dark / len(points), "mean": sum(points) / len(points)}

    return read


def _grey(path: Path) -> bytes:
    """The points of an 8-bit grey PNG whose rows are unfiltered, as the bundled ones are."""
    data = path.read_bytes()
    width = int.from_bytes(data[16:20], "big")
    start = data.index(b"IDAT") + 4
    size = int.from_bytes(data[start - 8 : start - 4], "big")
    raw = zlib.decompress(data[start : start + size])
    rows = [raw[at + 1 : at + 1 + width] for at in range(0, len(raw), width + 1)]
    return b"".join(rows)


def _memos(workspace: Path) -> Callable[[Mapping[str, str]], Mapping[str, float]]:
    table = read_table(workspace / "memos.csv")
    memos = dict(zip(table["week"], table["memo"], strict=True))
    return lambda row: _words(memos[row["week"]])


_READERS = {
    "energy-1": _log,
    "energy-2": _invoices,
    "library-2": _notes,
    "orchard-1": _images,
    "orchard-2": _memos,
}


def _rank(
    workspace: Path,
    about: Mapping[str, Any],
    train: pd.DataFrame,
    test: pd.DataFrame,
    modality: bool,
) -> pd.DataFrame:
    """Books by how often they were borrowed, those on a theme that the member likes first."""
    books = read_table(workspace / "books.csv")
    theme = dict(zip(books["book_id"], books["theme"], strict=True))
    notes = json.loads((workspace / "desk_notes.json").read_text(encoding="utf-8"))
    counts = Counter(train["book_id"])
    history: dict[str, list[str]] = {}
    for member, book in zip(train["member_id"], train["book_id"], strict=True):
        history.setdefault(member, []).append(book)
    answer: pd.DataFrame = test[about["id_columns"]].copy()

    def best(member: str) -> Sequence[str]:
        liked: Iterable[str] = (
            set(re.findall(r"[a-z]+", notes[member].lower()))
            if modality
            else [theme[book] for book in history.get(member, ())]
        )
        weight = Counter(liked)

        def order(book: str) -> tuple[int, int, str]:
            return (-weight[theme[book]], -counts[book], book)

        return sorted(theme, key=order)[: len(about["prediction_columns"])]

    ranked = [best(member) for member in test["member_id"]]
    for place, name in enumerate(about["prediction_columns"]):
        answer[name] = [books[place] for books in ranked]
    return answer
