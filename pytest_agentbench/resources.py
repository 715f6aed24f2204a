"""What the trials of one process share: the browser, the sandbox, the judge and the budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytest_agentbench.browser import BrowserEngine
from pytest_agentbench.budget import Budget
from pytest_agentbench.endpoints import judge_endpoint, withheld
from pytest_agentbench.judge import LIMIT_S
from pytest_agentbench.llmjudge import LLMJudge, load_judge
from pytest_agentbench.panel import Panel
from pytest_agentbench.sandbox import Sandbox
from pytest_agentbench.settings import Settings

__all__ = ["Resources"]

#: Votes at a time of a model; of any other judge one, since it need not be made for threads.
JUDGE_CONCURRENCY = 8


class Resources:
    """Made when first needed.

    *base* is where workspaces are made (``None``: where temporary files are), *rootdir* where the
    judge's answers are kept, *ledger* the file in which the processes of the run add up its cost.
    """

    def __init__(
        self,
        settings: Settings,
        base: Path | None = None,
        rootdir: Path | None = None,
        ledger: Path | None = None,
    ) -> None:
        self._settings = settings
        self.base = base
        self._rootdir = rootdir or Path.cwd()
        #: Gives further arguments for starting the browser; asked when it is started.
        self.launch: Callable[[], Mapping[str, Any]] = dict
        self.sandbox = Sandbox(settings.sandbox, base)
        self.budget = Budget(settings.max_cost, ledger)
        self._engine: BrowserEngine | None = None
        self._panel: list[Panel | None] = []
        self._withheld: frozenset[str] | None = None

    def browser(self) -> BrowserEngine:
        """This process's browser engine."""
        if self._engine is None:
            libraries = {
                host: Path(file).read_text(encoding="utf-8", errors="replace")
                for host, file in self._settings.libraries
            }
            self._engine = BrowserEngine(libraries, self.launch(), self.withheld)
        return self._engine

    @property
    def panel(self) -> Panel | None:
        """The judge with its votes, or ``None`` when it is off."""
        if not self._panel:
            judge = load_judge(self._settings, self._rootdir, self.budget)
            self._panel.append(None if judge is None else self._make_panel(judge))
        return self._panel[0]

    def _make_panel(self, judge: Any) -> Panel:
        model = isinstance(judge, LLMJudge)
        limit = LIMIT_S * self._settings.timeout_scale
        return Panel(
            judge,
            votes=self._settings.judge_votes,
            concurrency=self._settings.judge_concurrency or (JUDGE_CONCURRENCY if model else 1),
            # a model's client keeps the time itself, and may ask twice
            limit_s=2 * limit + 5.0 if model else limit,
        )

    @property
    def withheld(self) -> frozenset[str]:
        """Environment variables that neither an agent nor a browser gets."""
        if self._withheld is None:
            endpoint = judge_endpoint(self._settings.judge, self._settings.judge_base_url)
            self._withheld = withheld(endpoint)
        return self._withheld

    def close(self) -> None:
        """End the browser and the grading server if there are."""
        self.sandbox.close()
        if self._engine is not None:
            self._engine.close()
            self._engine = None
        panel = self._panel[0] if self._panel else None
        if panel is not None:
            panel.close()
            if isinstance(panel.judge, LLMJudge):
                panel.judge.client.close()
