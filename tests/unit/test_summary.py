from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence

import pytest

from pytest_agentbench.model import Check, TrialRecord, Verdict
from pytest_agentbench.report.junit import suite_properties
from pytest_agentbench.report.terminal import brief_line, summary_lines
from pytest_agentbench.summary import Expected, SuiteSummary, summarize


def run(
    verdicts: dict[str, Sequence[Verdict | None]],
    ks: Callable[[int], tuple[int, ...]] = lambda n: tuple(sorted({1, n})),
    agent: str = "me",
    scores: dict[Verdict, float] | None = None,
) -> SuiteSummary:
    """The summary of tasks with these verdicts by trial; ``None`` is a trial that was not run."""
    expected, records = [], {}
    for task, trials in verdicts.items():
        for number, verdict in enumerate(trials, 1):
            trial = Expected("s", "b", task, agent, number, (("kind", task[:1]),))
            expected.append(trial)
            if verdict is not None:
                score = (scores or {"pass": 1.0, "fail": 0.0}).get(verdict)
                checks = (Check("c", "dom", verdict == "pass", score, "broken"),)
                records[trial] = TrialRecord("b", task, number, agent, verdict, score, checks)
    (summary,) = summarize(expected, records, ks=ks, extras=lambda name, found: {})
    return summary


def test_three_of_five_on_every_task() -> None:
    three: Sequence[Verdict] = ("pass", "pass", "pass", "fail", "fail")

    summary = run({"a": three, "b": three}, ks=lambda n: (1, 2, 5))

    assert summary.metric("pass@1").value == pytest.approx(0.6)
    assert summary.metric("pass@2").value == pytest.approx(0.9)
    assert summary.metric("pass^2").value == pytest.approx(0.3)
    assert summary.metric("pass@5").value == 1.0
    assert summary.metric("pass^5").value == 0.0


def test_an_error_is_no_zero_and_leaves_bounds() -> None:
    summary = run({"a": ("pass",), "b": ("fail",), "c": ("error",), "d": ("skip",), "e": (None,)})

    metric = summary.metric("pass@1")

    assert metric.value == 0.5
    assert metric.bounds == (0.2, 0.8)
    assert (metric.tasks, metric.of) == (2, 5)
    assert (summary.scored, summary.selected) == (2, 5)
    assert dict(summary.counts) == {"pass": 1, "fail": 1, "error": 1, "skip": 1, "not run": 1}


def test_fewer_scored_than_k_is_undefined_not_one() -> None:
    summary = run({"a": ("pass", "pass", "error")})

    assert math.isnan(summary.metric("pass^3").value)
    assert summary.metric("pass^3").bounds == (0.0, 1.0)
    assert summary.metric("pass@1").value == 1.0


def test_k_beyond_the_trials_is_projected_and_labelled() -> None:
    summary = run({"a": ("pass", "fail")}, ks=lambda n: (4,))

    metric = summary.metric("pass^4")

    assert metric.projected
    assert metric.value == pytest.approx(0.5**4)
    assert any("projected" in line for line in summary_lines(summary, verbose=False, judge="off"))


def test_all_errors_give_a_dash() -> None:
    summary = run({"a": ("error",), "b": ("error",)})

    assert math.isnan(summary.metric("pass@1").value)
    assert "pass@1 –" in brief_line(summary)


def test_tasks_that_all_agree_leave_doubt() -> None:
    summary = run(dict.fromkeys("abcdefghij", ("pass",)))

    low, high = summary.metric("pass@1").interval

    assert low == pytest.approx(0.7225, abs=1e-4)
    assert high == 1.0


def test_groups_average_their_own_tasks() -> None:
    summary = run({"x1": ("pass",), "x2": ("fail",), "y1": ("pass",)})

    values = {name: metrics[0].value for name, metrics in summary.groups["kind"].items()}

    assert values == {"x": 0.5, "y": 1.0}


def test_lines_fit_80_columns_and_name_the_essentials() -> None:
    summary = run(
        {f"a_rather_long_task_name_{i}": ("pass", "fail", "error") for i in range(3)},
        agent="reference",
    )

    lines = list(summary_lines(summary, verbose=True, judge="off"))

    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert "3 passed, 3 failed, 3 errors, 0 skipped; scored 6 of 9" in text
    assert "unscored fail" in text
    assert "calibration: 0 of 3 references pass their own checks" in text
    assert "c: broken" in text


def test_summary_json_is_plain_and_undefined_is_null() -> None:
    data = run({"a": ("error",)}).to_json()

    assert json.loads(json.dumps(data)) == data
    assert data["metrics"]["pass@1"]["value"] is None


def test_suite_properties_are_prefixed_only_when_there_are_several() -> None:
    summary = run({"a": ("pass",)})

    assert dict(suite_properties([summary]))["pass@1"] == "1"
    several = dict(suite_properties([summary, run({"a": ("error",)}, agent="other")]))
    assert several["s/me/pass@1"] == "1"
    assert several["s/other/pass@1"] == "nan"
