"""What tokens cost: a file of prices in USD per million tokens.

JSON or TOML, a table per model::

    ["gpt-x"]
    input = 0.25
    output = 2.0
    cached_input = 0.025   # the same as input where it is left out
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.model import Usage

__all__ = ["Price", "read_prices"]

_NAMES = frozenset({"input", "output", "cached_input"})


@dataclass(frozen=True, slots=True)
class Price:
    """USD per million tokens."""

    input: float
    output: float
    cached_input: float

    def of(self, usage: Usage) -> float | None:
        """What *usage* costs in USD; ``None`` where the tokens are not known."""
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        cached = min(usage.cache_read_tokens or 0, usage.input_tokens)
        return (
            (usage.input_tokens - cached) * self.input
            + cached * self.cached_input
            + usage.output_tokens * self.output
        ) / 1e6


def read_prices(path: str | None) -> dict[str, Price]:
    """Prices by model out of *path*; none without one.

    Raises
    ------
    ConfigError
        The file cannot be read, or an entry is no price.
    """
    if path is None:
        return {}
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
        data: Any = tomllib.loads(text) if path.endswith(".toml") else json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"--bench-prices: cannot read {path!r}: {error}") from None
    if not isinstance(data, Mapping):
        raise ConfigError(f"--bench-prices: {path!r}: expected a table of models")
    return {str(model): _price(entry, f"{path!r}, {model!r}") for model, entry in data.items()}


def _price(entry: Any, where: str) -> Price:
    if not isinstance(entry, Mapping) or not {"input", "output"} <= entry.keys():
        raise ConfigError(f"--bench-prices: {where}: expected input and output (USD per million)")
    unknown = entry.keys() - _NAMES
    if unknown:
        raise ConfigError(
            f"--bench-prices: {where}: {sorted(map(str, unknown))[0]!r} is none of "
            f"{', '.join(sorted(_NAMES))}"
        )
    for name, value in entry.items():
        fine = isinstance(value, int | float) and not isinstance(value, bool)
        if not fine or not math.isfinite(value) or value < 0:
            raise ConfigError(f"--bench-prices: {where}: {name} is no amount: {value!r}")
    return Price(
        float(entry["input"]),
        float(entry["output"]),
        float(entry.get("cached_input", entry["input"])),
    )
