"""What an agent is told of a challenge: in its prompt, and in files of its workspace."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pytest_agentbench.benchmarks.agentds.challenge import Broken, Challenge
from pytest_agentbench.benchmarks.agentds.places import Place
from pytest_agentbench.benchmarks.agentds.problems import NAME

__all__ = ["ABOUT", "DESCRIPTION", "about", "description", "prompt"]

#: Files of the workspace: the challenge for programs, and for readers.
ABOUT, DESCRIPTION = "challenge.json", "description.md"

_METRICS = {
    "Macro-F1": "the mean of the F1 of each class",
    "Macro-Recall": "the mean of the recall of each class",
    "Accuracy": "the share of right labels",
    "RMSE": "the root of the mean squared error",
    "MSE": "the mean squared error",
    "MAE": "the mean absolute error",
    "MAPE": "the mean absolute error relative to the true value",
    "Normalized Gini": "how well the order of the predictions is that of the true values",
    "NDCG@10": "how far up the relevant items stand in each ranking",
}


def about(place: Place) -> str:
    """The challenge as JSON: all that is needed to read its tables and to write a submission."""
    challenge = place.challenge
    facts: dict[str, Any] = {
        "key": challenge.key,
        "domain": challenge.domain,
        "title": challenge.title,
        "metric": challenge.metric.name,
        "direction": _direction(challenge),
        "train": place.file(challenge.train, "train").name,
        "test": place.file(challenge.test, "test").name,
        "target_column": challenge.target,
        "id_columns": list(challenge.ids),
        "prediction_columns": list(challenge.predictions),
        "submission": NAME,
    }
    if place.own:  # in a directory of their own they may lie deeper
        facts |= {"train": challenge.train, "test": challenge.test}
    if challenge.values:
        facts["values"] = list(challenge.values)
    if challenge.items is not None:
        facts["items"] = {"file": challenge.items[0], "column": challenge.items[1]}
    return json.dumps(facts, indent=1) + "\n"


def _direction(challenge: Challenge) -> str:
    return "higher is better" if challenge.metric.higher else "lower is better"


def description(place: Place) -> str:
    """The challenge in words, as Markdown."""
    challenge = place.challenge
    told = challenge.description
    if place.own and told.endswith((".md", ".txt")):
        path = place.directory / told
        if path.is_file():
            told = place.checked(path, "description").read_text(encoding="utf-8", errors="replace")
    lines = [f"# {challenge.title}", "", f"Domain: {challenge.domain}.", ""]
    if told:
        lines += [told.strip(), ""]
    more = place.directory / DESCRIPTION
    if told != challenge.description or not more.is_file():
        return "\n".join([*lines, *_rules(place)]) + "\n"
    # that of the data, which may be one for all challenges of the domain
    words = place.checked(more, "description").read_text(encoding="utf-8", errors="replace")
    return "\n".join([*lines, *_rules(place), "", "## From the data", "", words.strip()]) + "\n"


def _rules(place: Place) -> Sequence[str]:
    challenge = place.challenge
    try:
        train = place.file(challenge.train, "train").relative_to(place.directory).as_posix()
        test = place.file(challenge.test, "test").relative_to(place.directory).as_posix()
    except Broken:
        train, test = challenge.train, challenge.test
    ids = "/".join(challenge.ids)
    lines = [
        f"Learn from `{train}` and predict for each {ids} of `{test}`. The other files of the "
        "working directory may help: look at all of them.",
        "",
        f"Write `{NAME}` into the working directory: UTF-8, commas, this header, and one row for "
        f"each different {ids} of `{test}` in any order, ids written as there:",
        "",
        f"    {','.join(challenge.header)}",
        "",
    ]
    if challenge.ranking:
        lines += [
            f"Each row names {len(challenge.predictions)} different {challenge.item} values, the "
            "best first.",
            "",
        ]
    elif challenge.metric.wants == "labels":
        allowed = f": {', '.join(challenge.values)}" if challenge.values else " of the train file"
        lines += [f"`{challenge.predictions[0]}` is one of the labels{allowed}.", ""]
    else:
        lines += [f"`{challenge.predictions[0]}` is a finite number.", ""]
    name = challenge.metric.name
    lines.append(f"Scored by {name}: {_METRICS[name]} ({_direction(challenge)}).")
    return lines


def prompt(place: Place) -> str:
    """The prompt: the description, and where it is written down."""
    return description(place) + (
        f"\nThe same is in `{DESCRIPTION}`, and for programs in `{ABOUT}`. Nobody will answer "
        f"questions: work until `{NAME}` is written.\n"
    )
