"""pytest-agentbench: agent benchmarks as pytest items.

The public names of the core.  Importing this package imports neither pytest, nor Playwright, nor
pandas; each name below is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "AgentBenchError": "errors",
    "AgentTask": "model",
    "Attempt": "model",
    "Benchmark": "benchmark",
    "Check": "model",
    "GradeFailed": "errors",
    "Grade": "model",
    "HarnessError": "errors",
    "RowError": "errors",
    "SkipTrial": "errors",
    "Task": "model",
    "Tool": "model",
    "Transcript": "transcripts",
    "TrialRecord": "model",
    "pass_at_k": "scoring",
    "pass_hat_k": "scoring",
}

__all__ = ["__version__", *_HOME]

if TYPE_CHECKING:
    from pytest_agentbench.benchmark import Benchmark as Benchmark
    from pytest_agentbench.errors import AgentBenchError as AgentBenchError
    from pytest_agentbench.errors import GradeFailed as GradeFailed
    from pytest_agentbench.errors import HarnessError as HarnessError
    from pytest_agentbench.errors import RowError as RowError
    from pytest_agentbench.errors import SkipTrial as SkipTrial
    from pytest_agentbench.model import AgentTask as AgentTask
    from pytest_agentbench.model import Attempt as Attempt
    from pytest_agentbench.model import Check as Check
    from pytest_agentbench.model import Grade as Grade
    from pytest_agentbench.model import Task as Task
    from pytest_agentbench.model import Tool as Tool
    from pytest_agentbench.model import TrialRecord as TrialRecord
    from pytest_agentbench.scoring import pass_at_k as pass_at_k
    from pytest_agentbench.scoring import pass_hat_k as pass_hat_k
    from pytest_agentbench.transcripts import Transcript as Transcript


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
