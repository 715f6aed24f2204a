"""A challenge: what is to be predicted, from which files, and by which metric it is scored.

The 17 published challenges are in ``published.toml``; a challenge of one's own is a directory with
a ``challenge.toml``, which has the same keys for a single challenge.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any

from pytest_agentbench.metrics import METRICS, Metric, by_name
from pytest_agentbench.text import did_you_mean, one_line

__all__ = ["FILE", "PACKAGE", "Broken", "Challenge", "published", "read_toml"]

#: What describes a challenge of one's own.
FILE = "challenge.toml"
PACKAGE = "pytest_agentbench.benchmarks.agentds"
#: A ranking of more places than NDCG@10 looks at makes no sense.
MAX_RANKS = 10


class Broken(Exception):
    """A challenge that cannot be used: the key that is wrong, and why."""

    def __init__(self, key: str, reason: str) -> None:
        self.key = key
        self.reason = reason
        super().__init__(f"{key}: {reason}")


@dataclass(frozen=True, slots=True)
class Challenge:
    """One challenge.

    ``ids`` and ``predictions`` are the columns of a submission, in that order.  ``target`` is the
    train file's column with the truth; where it is ``shifted``, the truth of a row is the value of
    the next row in the order of ``split_by``.  ``values`` are the labels there are (none: those of
    the train file and the truth).  ``items`` are file and column of what may be ranked.  ``files``
    are what the agent gets besides train and test file.
    """

    key: str
    domain: str
    title: str
    metric: Metric
    ids: tuple[str, ...]
    predictions: tuple[str, ...]
    train: str
    test: str
    target: str
    shifted: bool = False
    split_by: str = ""
    values: tuple[str, ...] = ()
    items: tuple[str, str] | None = None
    files: tuple[str, ...] = ()
    labels: str = ""
    description: str = ""
    time_limit_s: float = 3600.0

    @property
    def header(self) -> tuple[str, ...]:
        """The columns of a submission."""
        return (*self.ids, *self.predictions)

    @property
    def item(self) -> str:
        """What a ranking is of: ``sku_id`` for the columns ``sku_id_1`` to ``sku_id_10``."""
        return re.sub(r"_?1$", "", self.predictions[0])

    @property
    def ranking(self) -> bool:
        """Whether a row of a submission is a ranking."""
        return self.metric.wants == "ranking"

    @classmethod
    def parse(cls, spec: Mapping[str, Any]) -> Challenge:
        """Check *spec*, key by key.

        Raises
        ------
        Broken
            Naming the key.
        """
        for key in spec:
            if key not in _KEYS:
                raise Broken(key, f"unknown key.{did_you_mean(key, _KEYS)}")
        values = {
            name: _value(spec, key, kind, name)
            for key, (name, kind) in _KEYS.items()
            if key in spec
        }
        for key in ("key", "metric", "id", "prediction", "train", "test"):
            if key not in spec:
                raise Broken(key, "is missing")
        metric: Metric = values["metric"]
        direction = values.pop("direction", None)
        if direction is not None and direction != ("higher" if metric.higher else "lower"):
            raise Broken("direction", f"{metric.name} is better {_way(metric)}, not {direction}")
        predictions: tuple[str, ...] = values["predictions"]
        if metric.wants != "ranking" and len(predictions) != 1:
            raise Broken("prediction", f"{metric.name} takes one column, found {len(predictions)}")
        if len(predictions) > MAX_RANKS:
            raise Broken("prediction", f"at most {MAX_RANKS} columns, found {len(predictions)}")
        header = (*values["ids"], *predictions)
        if len(set(header)) != len(header):
            raise Broken("prediction", "a column stands twice among ids and predictions")
        values.setdefault("domain", "Own")
        values.setdefault("title", values["key"])
        values.setdefault("target", predictions[0])
        challenge = cls(**values)
        if challenge.ranking and "target" not in spec:
            values["target"] = challenge.item
            challenge = cls(**values)
        if challenge.shifted and challenge.split_by not in challenge.ids:
            raise Broken("split_by", "a shifted target needs the id column that orders the rows")
        if challenge.split_by and challenge.split_by not in challenge.ids:
            raise Broken("split_by", f"is none of the id columns {', '.join(challenge.ids)}")
        return challenge


def _way(metric: Metric) -> str:
    return "the higher it is" if metric.higher else "the lower it is"


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a text")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts:
        raise ValueError("a list of texts")
    return tuple(_text(text) for text in texts)


def _columns(value: Any) -> tuple[str, ...]:
    """Column names; ``"sku_1..sku_10"`` stands for ten of them."""
    if isinstance(value, str):
        match = re.fullmatch(r"(.*?)(\d+)\.\.\1(\d+)", value)
        if match:
            first, last = int(match[2]), int(match[3])
            if not first <= last < first + 1000:
                raise ValueError("columns such as 'item_1..item_10'")
            return tuple(f"{match[1]}{number}" for number in range(first, last + 1))
    return _texts(value)


def _inside(value: Any) -> str:
    """A path, or a pattern, that stays in the challenge's directory."""
    path = PurePosixPath(_text(value))
    if path.is_absolute() or ".." in path.parts or "\0" in str(path):
        raise ValueError("a path inside the challenge's directory")
    return str(path)


def _patterns(value: Any) -> tuple[str, ...]:
    return tuple(map(_inside, value)) if value == [] else tuple(map(_inside, _texts(value)))


def _items(value: Any) -> tuple[str, str]:
    if not isinstance(value, dict) or set(value) != {"file", "column"}:
        raise ValueError('a table such as {file = "books.csv", column = "book_id"}')
    return _inside(value["file"]), _text(value["column"])


def _metric(value: Any) -> Metric:
    try:
        return by_name(_text(value))
    except KeyError:
        known = ", ".join(METRICS)
        raise ValueError(f"one of {known}{did_you_mean(value, METRICS)}") from None


def _direction(value: Any) -> str:
    if value not in ("higher", "lower"):
        raise ValueError("higher or lower")
    return str(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise ValueError("a number above 0")
    return float(value)


#: Key of the TOML to the attribute, and the reader that says what it expects.
_KEYS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "key": ("key", _text),
    "domain": ("domain", _text),
    "title": ("title", _text),
    "metric": ("metric", _metric),
    "direction": ("direction", _direction),
    "id": ("ids", _texts),
    "prediction": ("predictions", _columns),
    "train": ("train", _inside),
    "test": ("test", _inside),
    "target": ("target", _text),
    "shifted": ("shifted", _flag),
    "split_by": ("split_by", _text),
    "values": ("values", _texts),
    "items": ("items", _items),
    "files": ("files", _patterns),
    "labels": ("labels", _inside),
    "description": ("description", _text),
    "time_limit_s": ("time_limit_s", _seconds),
}


def _value(spec: Mapping[str, Any], key: str, kind: Callable[[Any], Any], name: str) -> Any:
    try:
        return kind(spec[key])
    except ValueError as error:
        given = one_line(repr(spec[key]), 60)
        raise Broken(key, f"expected {error}, found {given}") from None


def published() -> Sequence[Mapping[str, Any]]:
    """The specifications of the 17 published challenges, in their order."""
    text = files(PACKAGE).joinpath("published.toml").read_text(encoding="utf-8")
    challenges: Sequence[Mapping[str, Any]] = tomllib.loads(text)["challenge"]
    return challenges


def read_toml(path: Path) -> Mapping[str, Any]:
    """What *path* says, unchecked.

    Raises
    ------
    Broken
        It is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise Broken(FILE, f"cannot be read: {error}") from None
