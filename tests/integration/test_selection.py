"""Trials are items like any other: selecting, ordering and stopping are pytest's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Run

pytestmark = pytest.mark.usefixtures("obedient")
Bench = Callable[..., Run]
Rows = Callable[..., str]

CAPABILITY = {"suite_type": "capability", "category": "topic_study", "user_prompt": "hello"}


@pytest.fixture
def data(rows: Rows) -> str:
    return rows("hello", CAPABILITY, "bye")


def test_node_ids_and_markers(bench: Bench, data: str) -> None:
    run = bench("--bench=genui", data, "--co", "-q", "--bench-trials=2")
    run.result.stdout.fnmatch_lines(
        ["genui::t1?trial1?", "genui::t1?trial2?", "genui::t2?trial1?", "genui::t2?trial2?"]
    )
    assert "6 tests collected" in run.text
    assert not run.out.exists(), "collecting alone must not make a run directory"


def test_several_agents_have_their_names_in_the_ids(bench: Bench, data: str) -> None:
    run = bench(
        "--bench=genui", data, "--co", "-q", "--bench-agent=noop", "--bench-agent=reference"
    )
    assert "genui::t1[noop-trial1]" in run.text and "genui::t1[reference-trial1]" in run.text
    run = bench("--bench=genui", data, "--bench-agent=noop", "--bench-agent=reference")
    assert run.outcomes == {"passed": 3, "failed": 3}
    assert [suite["agent"] for suite in run.summary["suites"]] == ["noop", "reference"]


@pytest.mark.parametrize(
    ("options", "selected"),
    [
        (["-k", "t2"], {"t2/1", "t2/2"}),
        (["-k", "trial2 and not t3"], {"t1/2", "t2/2"}),
        (["-m", "capability"], {"t2/1", "t2/2"}),
        (["-m", "genui and not topic_study and implicit_intent"], {"t1/1", "t1/2", "t3/1", "t3/2"}),
        (["--deselect", "genui::t1[trial1]", "--deselect", "genui::t3"], {"t1/2", "t2/1", "t2/2"}),
        (["genui::t1[trial2]"], {"t1/2"}),
        (["genui::t2", "genui::t1[trial1]"], {"t1/1", "t2/1", "t2/2"}),
        (["genui"], {"t1/1", "t1/2", "t2/1", "t2/2", "t3/1", "t3/2"}),
        (["--bench-limit=1"], {"t1/1", "t1/2"}),
    ],
)
@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_selecting(
    bench: Bench, data: str, options: list[str], selected: set[str], workers: str
) -> None:
    run = bench("--bench=genui", data, "--bench-trials=2", workers, *options)
    assert run.verdicts.keys() == selected
    assert run.summary["expected"] == len(selected), "only what was selected is in a denominator"


def test_an_unknown_node_id_is_no_silent_success(bench: Bench, data: str) -> None:
    run = bench("--bench=genui", data, "genui::nothing", out=None)
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert "not found: genui::nothing" in run.errors


def test_last_failed_runs_only_the_failed(bench: Bench, data: str) -> None:
    assert bench("--bench=genui", data).outcomes == {"passed": 2, "failed": 1}
    again = bench("--bench=genui", data, "--lf", out="again")
    assert again.verdicts == {"t3/1": "fail"}
    assert bench("--bench=genui", data, "--ff", out="ff").records[0].task_id == "t3"


@pytest.mark.parametrize("stop", ["-x", "--maxfail=1"])
def test_stopping_early_counts_what_was_not_run(bench: Bench, rows: Rows, stop: str) -> None:
    run = bench("--bench=genui", rows("bye", "hello", "hello"), stop)
    assert run.outcomes == {"failed": 1}
    assert run.summary["suites"][0]["counts"]["not run"] == 2
    assert run.summary["complete"] is False
    assert "2 not run; scored 1 of 3" in run.text
    assert "1 of 3 tasks have a value; unscored fail 0.000, pass 0.667" in run.text


@pytest.mark.parametrize("dist", ["loadgroup", "worksteal", "loadscope", "loadfile", "load"])
def test_every_distribution_runs_each_trial_once(bench: Bench, data: str, dist: str) -> None:
    run = bench("--bench=genui", data, "--bench-trials=3", "-n2", f"--dist={dist}")
    assert run.outcomes == {"passed": 6, "failed": 3}
    assert len(run.verdicts) == 9


def test_groups_of_loadgroup_stay_out_of_the_records(
    bench: Bench, data: str, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(
        grouping="""
        import pytest

        @pytest.hookimpl(tryfirst=True)
        def pytest_collection_modifyitems(items):
            for item in items:
                item.add_marker(pytest.mark.xdist_group("one"))
        """
    )
    run = bench("--bench=genui", data, "-n2", "--dist=loadgroup", "-p", "grouping")
    assert run.verdicts == {"t1/1": "pass", "t2/1": "pass", "t3/1": "fail"}
    assert run.summary["expected"] == 3


def test_only_benchmark_items_without_paths(
    bench: Bench, data: str, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(test_other="def test_other(): pass")
    assert bench("--bench=genui", data).outcomes == {"passed": 2, "failed": 1}
    both = bench("--bench=genui", data, "test_other.py", out="both")
    assert both.outcomes == {"passed": 3, "failed": 1}


def test_the_debugger_starts_at_a_failure(
    pytester: pytest.Pytester, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = rows("bye")
    child = pytester.spawn_pytest(f"--bench=genui {data} --pdb --bench-out=run")
    child.expect("not found in the answer")
    child.expect("Pdb")
    child.sendline("q")
    child.expect("1 failed")
    child.wait()


def test_the_run_directory_is_never_collected(
    bench: Bench, data: str, pytester: pytest.Pytester
) -> None:
    bench("--bench=genui", data, out=None)
    hidden = next((pytester.path / ".agentbench").iterdir())
    (hidden / "test_planted.py").write_text("def test_planted(): raise SystemExit")
    assert (hidden / ".gitignore").read_text() == "*\n"
    result = pytester.runpytest_inprocess("-p", "no:playwright", ".")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_setup_plan_runs_no_agent(bench: Bench, data: str) -> None:
    run = bench("--bench=genui", data, "--setup-plan")
    assert run.ret == pytest.ExitCode.OK
    assert not run.out.exists() or run.records == []
