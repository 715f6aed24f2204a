"""What all processes of a run must agree on: the run's id, its directory, where rows are shared.

Plain values, handed to the workers by xdist.  Nothing is created here.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import threading
import time
from typing import Any

import pytest

__all__ = ["KEY", "end_with_parent", "remember", "worker_input"]

#: Key in xdist's worker input.
KEY = "agentbench"
_SHARED: pytest.StashKey[dict[str, Any]] = pytest.StashKey()


def worker_input(config: pytest.Config) -> dict[str, Any]:
    """The values of this run: in a worker as they came, in the controller made on first use."""
    given = getattr(config, "workerinput", {}).get(KEY)
    if given is not None:
        return {**given, "worker": True}
    if _SHARED not in config.stash:
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        config.stash[_SHARED] = {
            "worker": False,
            "run_id": f"{stamp}-{os.getpid()}-{secrets.token_hex(2)}",
            "out": None,
            "select": [],
            # apart from each other: an agent's surroundings must not hold the rows
            "spool": f"{tempfile.gettempdir()}/agentbench-rows-{secrets.token_hex(8)}",
            "work": f"{tempfile.gettempdir()}/agentbench-work-{secrets.token_hex(8)}",
        }
    return config.stash[_SHARED]


def remember(config: pytest.Config, **values: Any) -> None:
    """Add to what the workers will be told."""
    worker_input(config).update(values)


def end_with_parent() -> None:
    """End this worker when the controller is killed: nobody would read its results.

    What it has running ends with it, as the other ends of their pipes are closed.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, name="agentbench-parent", daemon=True).start()
