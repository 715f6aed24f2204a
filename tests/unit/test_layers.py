"""The layers of the package, checked by machine."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_agentbench

PACKAGE = Path(pytest_agentbench.__file__).parent
PYTEST_LAYER = {"plugin", "fixtures", "reporting", "hookspec", "session"}
MODULES = sorted(
    str(path.relative_to(PACKAGE).with_suffix("")).replace("/", ".").removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    # programs and their parts, loaded by path and standard library only
    if path.name not in ("_supervisor.py", "_server.py", "_child.py", "_watch.py", "_layers.py")
    and "data" not in path.relative_to(PACKAGE).parts
    and path != PACKAGE / "__init__.py"
)
CORE = [name for name in MODULES if name.partition(".")[0] not in PYTEST_LAYER]
#: Each layer may import from itself and from those before it.
LAYERS = [
    {"errors", "model", "text", "formats"},
    {
        "assets",
        "sandbox",
        "scoring",
        "metrics",
        "datasets",
        "transcripts",
        "workspace",
        "process",
        "schemas",
        "settings",
        "stage",
        "browser",
        "apppage",
        "microapp",
        "judge",
        "panel",
        "judgecache",
        "endpoints",
        "prices",
        "budget",
        "llm",
        "llmjudge",
    },
    {"agents", "benchmark", "summary", "agreement", "report", "benchmarks"},
    {"resources", "evidence", "registry", "plan", "runner", "runlog"},
    PYTEST_LAYER,
]


def imports(module: str, *, everywhere: bool = False) -> set[str]:
    """Modules of this package that *module* imports at its top level, or in functions too."""
    path = PACKAGE / f"{module.replace('.', '/')}.py"
    if not path.exists():
        path = PACKAGE / module.replace(".", "/") / "__init__.py"
    found = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree) if everywhere else tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pytest_agentbench"):
            rest = (node.module or "").partition(".")[2]
            found |= {rest} if rest else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {
                alias.name.partition(".")[2]
                for alias in node.names
                if alias.name.startswith("pytest_agentbench.")
            }
    return {name for name in found if name}


def layer(module: str) -> int:
    head = module.partition(".")[0]
    return next(number for number, names in enumerate(LAYERS) if head in names)


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_one_way(module: str) -> None:
    upwards = {other for other in imports(module) if layer(other) > layer(module)}

    assert upwards == set()


@pytest.mark.parametrize("module", MODULES)
def test_nobody_imports_a_benchmark(module: str) -> None:
    if not module.startswith("benchmarks"):
        found = imports(module, everywhere=True)
        assert not {name for name in found if name.startswith("benchmarks.")}


#: Benchmarks that live on numbers may load numpy at once, when they are loaded.
WITH_NUMPY = "benchmarks.agentds"


@pytest.mark.parametrize(
    ("names", "heavy"),
    [
        (
            [name for name in CORE if not name.startswith(WITH_NUMPY)],
            {"pytest", "_pytest", "pandas", "datasets", "playwright", "jsonschema", "numpy"},
        ),
        (CORE, {"pytest", "_pytest", "pandas", "datasets", "playwright", "sklearn", "scipy"}),
    ],
    ids=["all but those with numpy", "all"],
)
def test_the_core_imports_nothing_heavy(names: list[str], heavy: set[str]) -> None:
    script = (
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module('pytest_agentbench.' + name)\n"
        f"print(sorted({heavy!r} & set(sys.modules)))"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[]"


def test_every_public_name_resolves() -> None:
    for name in pytest_agentbench.__all__:
        assert getattr(pytest_agentbench, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = pytest_agentbench.no_such_name


@pytest.mark.parametrize("module", MODULES)
def test_dunder_all_is_true(module: str) -> None:
    loaded = importlib.import_module(f"pytest_agentbench.{module}")

    for name in getattr(loaded, "__all__", ()):
        assert hasattr(loaded, name), f"{module}.{name}"
