"""Without ``--bench`` (and without our marker) the plugin is as good as not there."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("pandas", "datasets", "pyarrow", "playwright", "jsonschema", "numpy", "asyncio")


def test_nothing_is_imported_created_or_printed(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(
        f"""
        import sys

        def test_modules():
            heavy = [name for name in {HEAVY!r} if name in sys.modules]
            assert not heavy
            ours = sorted(name for name in sys.modules if name.startswith("pytest_agentbench"))
            assert ours == {ALLOWED!r}
        """
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "pytest_agentbench.plugin",
        "-W",
        "error",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "agentbench:" not in done.stdout and "= agentbench" not in done.stdout
    made = {path.name for path in pytester.path.iterdir()} - {"__pycache__"}
    assert made == {"test_nothing_is_imported_created_or_printed.py"}


ALLOWED = [
    "pytest_agentbench",
    "pytest_agentbench.errors",
    "pytest_agentbench.fixtures",
    "pytest_agentbench.hookspec",
    "pytest_agentbench.plugin",
    "pytest_agentbench.settings",
]


def test_the_options_are_in_the_help(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("-p", "no:playwright", "--help")
    for line in ("agent benchmarks:", "--bench=NAME*", "--bench-agent=SPEC*", "bench_agent (*"):
        result.stdout.fnmatch_lines([f"*{line}*"])


def test_the_marker_is_registered(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("-p", "no:playwright", "--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.bench(name, trials=K): *"])
    assert "@pytest.mark.regression" not in result.stdout.str()
    result = pytester.runpytest_inprocess(
        "-p", "no:playwright", "--markers", "--bench=genui", "--bench-data=bundled"
    )
    result.stdout.fnmatch_lines(["@pytest.mark.regression: trials of tasks tagged regression"])
