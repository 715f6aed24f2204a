"""What a run may cost: one ledger for all of its processes.

Each amount is a line that is appended to a file they share, so that no process waits for another.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

__all__ = ["Budget"]


class Budget:
    """Adds up what is spent.  ``limit`` is in USD, ``None`` for no limit.

    *ledger* is the file that the processes of the run share; ``None`` for a single process.
    """

    def __init__(self, limit: float | None, ledger: Path | None = None) -> None:
        self.limit = limit
        self._ledger = ledger
        self._spent = 0.0
        self._read = 0
        self._lock = threading.Lock()

    def add(self, amount: float | None) -> None:
        """Book *amount* USD; what is not known is not booked."""
        if not amount or self.limit is None:
            return
        with self._lock:
            if self._ledger is None:
                self._spent += amount
                return
            self._ledger.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            fd = os.open(self._ledger, flags, 0o600)
            try:
                os.write(fd, f"{amount!r}\n".encode("ascii"))
            finally:
                os.close(fd)

    @property
    def spent(self) -> float:
        """USD spent so far, by all processes."""
        with self._lock:
            if self._ledger is not None and self.limit is not None:
                self._catch_up(self._ledger)
            return self._spent

    def _catch_up(self, ledger: Path) -> None:
        try:
            with ledger.open("rb") as file:
                file.seek(self._read)
                data = file.read()
        except FileNotFoundError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        self._spent += sum(float(line) for line in whole.split())

    @property
    def reached(self) -> str | None:
        """Why nothing more is begun, or ``None`` while there is something left."""
        if self.limit is None or self.spent < self.limit:
            return None
        return f"the budget is spent: ${self.spent:.4g} of ${self.limit:.4g} (--bench-max-cost)"
