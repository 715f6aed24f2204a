from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.scoring import TIES
from pytest_agentbench.settings import CHOICES, OPTIONS, Settings


def read(
    options: dict[str, Any] | None = None,
    ini: dict[str, Any] | None = None,
    env: dict[str, str] | None = None,
) -> Settings:
    return Settings.read((options or {}).get, lambda dest: (ini or {}).get(dest, ""), env or {})


def test_defaults() -> None:
    settings = read()

    assert settings.agents == ("reference",)
    assert not settings.agent_given
    assert settings.report_ks(5) == (1, 5)
    assert settings.report_ks(1) == (1,)


def test_command_line_before_environment_before_ini() -> None:
    ini, env = {"bench_trials": "2"}, {"AGENTBENCH_TRIALS": "3"}

    assert read(ini=ini).trials == 2
    assert read(ini=ini, env=env).trials == 3
    assert read({"bench_trials": "4"}, ini, env).trials == 4


def test_every_option_has_its_three_names() -> None:
    names = {(o.flag, o.dest, o.env) for o in OPTIONS}

    assert ("--bench", "bench", "AGENTBENCH_BENCH") in names
    assert ("--bench-pass-score", "bench_pass_score", "AGENTBENCH_PASS_SCORE") in names
    assert len({dest for _, dest, _ in names}) == len(OPTIONS)


def test_data_for_one_benchmark_or_for_all() -> None:
    settings = read({"bench_data": ["bundled", "genui=rows.jsonl"]})

    assert settings.source("genui") == "rows.jsonl"
    assert settings.source("other") == "bundled"
    assert read().source("genui") is None


def test_an_equals_sign_in_a_path_is_no_name() -> None:
    assert read({"bench_data": ["dir/a=b.jsonl"]}).source("genui") == "dir/a=b.jsonl"


def test_repeatable_options_by_line_in_the_environment() -> None:
    settings = read(env={"AGENTBENCH_AGENT": "noop\ncmd:echo a,b"})

    assert settings.agents == ("noop", "cmd:echo a,b")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bench_trials": "none"}, "--bench-trials: expected a whole number"),
        ({"bench_trials": "0"}, "at least 1"),
        ({"bench_k": "1,x"}, "--bench-k: expected whole numbers"),
        ({"bench_k": "0"}, "at least 1"),
        ({"bench_pass_score": "-0.5"}, "between 0 and"),
        ({"bench_pass_score": "nan"}, "between 0 and"),
        ({"bench_timeout_scale": "0"}, "between 0.001 and 1000"),
        ({"bench_artifacts": "fialed"}, "Did you mean 'failed'"),
        ({"bench": " , "}, "benchmark names"),
        ({"bench_library": ["x.test"]}, "expected HOST=FILE"),
        ({"bench_library": ["x.test=/no/such/file.js"]}, "is not a file"),
    ],
)
def test_wrong_values_name_the_option_and_what_it_accepts(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        read(options)


def test_a_wrong_value_names_where_it_came_from() -> None:
    with pytest.raises(ConfigError, match="^AGENTBENCH_TRIALS: "):
        read(env={"AGENTBENCH_TRIALS": "x"})
    with pytest.raises(ConfigError, match="^bench_trials: "):
        read(ini={"bench_trials": "x"})


def test_libraries_are_resolved(tmp_path: Path) -> None:
    file = tmp_path / "lib.js"
    file.write_text("", encoding="ascii")

    settings = read({"bench_library": [f"CDN.Example={file}"]})

    assert settings.libraries == (("cdn.example", str(file.resolve())),)


def test_tie_rules_are_those_of_the_scores() -> None:
    assert CHOICES["agentds-ties"] == TIES
