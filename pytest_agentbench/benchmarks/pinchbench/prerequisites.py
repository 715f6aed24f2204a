"""What a task needs of the machine: ``cli:gh`` (a command), ``npm:@scope/x`` (a global package)."""

from __future__ import annotations

import os
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path

from pytest_agentbench.process import agent_environment, run

__all__ = ["lacking"]

NPM_LIMIT_S = 20.0


def lacking(prerequisite: str) -> str:
    """Why *prerequisite* is not met, or an empty text."""
    kind, _, name = prerequisite.partition(":")
    name = name.strip()
    if kind == "cli" and name:
        return "" if shutil.which(name) else f"the command {name!r} ({prerequisite})"
    if kind == "npm" and name:
        found = any((root / name / "package.json").is_file() for root in _npm_roots())
        return "" if found else f"the npm package {name!r} ({prerequisite})"
    return f"{prerequisite!r}, of a kind that is not known (known are cli: and npm:)"


@lru_cache(maxsize=1)
def _npm_roots() -> tuple[Path, ...]:
    """Where npm keeps global packages; asked once."""
    roots = [Path(path) for path in os.environ.get("NODE_PATH", "").split(os.pathsep) if path]
    npm = shutil.which("npm")
    if npm is not None:
        try:
            done = run(
                [npm, "root", "--global"],
                cwd=Path(tempfile.gettempdir()),
                env=agent_environment({}),
                timeout=NPM_LIMIT_S,
            )
            if done.returncode == 0 and done.stdout.strip():
                roots.append(Path(done.stdout.decode("utf-8", "replace").strip()))
        except OSError:
            pass  # then there is no npm
    return tuple(roots)
