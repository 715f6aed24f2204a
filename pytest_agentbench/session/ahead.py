"""Running the next trials while the judge thinks about this one.

Items are set up and reported one after the other, in pytest's order, whatever happens here: a trial
that was begun ahead only waits for its turn.  What a marker may keep from running is not begun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pytest_agentbench.session.trial import Bench

__all__ = ["Ahead"]

#: Trials of a process that may have begun and not ended.
MOST = 16


class Ahead:
    """The trials of one process that have begun before their turn, by node id."""

    def __init__(self) -> None:
        #: The item that follows, as pytest says when an item's turn begins.
        self.following: pytest.Item | None = None
        self._begun: dict[str, Bench] = {}
        self._places: dict[str, int] = {}

    def take(self, item: pytest.Item) -> Bench | None:
        """The trial of *item*, if it was begun ahead."""
        return self._begun.pop(item.nodeid, None)

    def meanwhile(
        self, item: pytest.Item, bench: Bench, make: Callable[[pytest.Item], Bench | None]
    ) -> None:
        """Begin the trials after *item* until the judge has answered *bench*.

        *make* gives the trial of an item, or ``None`` for one that must not be begun ahead.
        """
        if not (bench.waiting and bench.agent.apart):
            return
        for other in self._upcoming(item):
            if not bench.waiting or len(self._begun) >= MOST - 1:
                return
            if other.nodeid in self._begun:
                continue
            ahead = make(other) if _will_run(other) else None
            if ahead is None:
                return
            self._begun[other.nodeid] = ahead
            ahead.begin()

    def _upcoming(self, item: pytest.Item) -> Iterator[pytest.Item]:
        """The items that follow *item* in this process, as far as is known: a worker knows one."""
        items = item.session.items
        if hasattr(item.config, "workerinput"):
            yield from filter(None, (self.following,))
            return
        if not self._places:
            self._places = {other.nodeid: place for place, other in enumerate(items)}
        place = self._places.get(item.nodeid, len(items))
        if self.following is not None and items[place + 1 : place + 2] == [self.following]:
            yield from items[place + 1 :]

    def close(self) -> None:
        """Give up what was begun and will not have its turn."""
        for bench in self._begun.values():
            bench.cancel()
            bench.close()
        self._begun.clear()


def _will_run(item: pytest.Item) -> bool:
    return not any(item.get_closest_marker(name) for name in ("skip", "skipif", "xfail"))
