"""Where a model is reached: its name, a base URL, and a key that comes from the environment only.

The judge's key is ``AGENTBENCH_JUDGE_API_KEY``, the built-in agent's ``AGENTBENCH_AGENT_API_KEY``,
and ``OPENAI_API_KEY`` where these are not set.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pytest_agentbench.errors import ConfigError

__all__ = ["OPENAI", "Endpoint", "judge_endpoint", "split_model", "withheld"]

OPENAI = "https://api.openai.com/v1"
_SHARED_KEY = "OPENAI_API_KEY"
#: Where each role's key is looked for, in order.
KEYS = {
    "judge": ("AGENTBENCH_JUDGE_API_KEY", _SHARED_KEY),
    "agent": ("AGENTBENCH_AGENT_API_KEY", _SHARED_KEY),
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model at an OpenAI-compatible server.  ``key`` is never shown."""

    model: str
    base_url: str
    key: str = field(repr=False)

    def __str__(self) -> str:
        return self.model if self.base_url == OPENAI else f"{self.model} at {self.base_url}"

    @classmethod
    def make(cls, role: str, model: str, base_url: str | None, where: str) -> Endpoint:
        """The endpoint of *role* (``judge`` or ``agent``), with the key out of the environment.

        *where* is what names the model, for messages.

        Raises
        ------
        ConfigError
            The URL is none, holds a password, or there is no key for a server of OpenAI's.
        """
        given = base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI
        url = given.strip().rstrip("/")
        try:
            parts = urlsplit(url)
            there = parts.scheme in ("http", "https") and bool(parts.hostname)
            _ = parts.port
        except ValueError:
            parts, there = urlsplit(""), False
        if parts.username or parts.password:
            raise ConfigError(
                f"{where}: a URL with a user or password in it; keys come from the environment "
                f"({' or '.join(KEYS[role])})"
            )
        if not there or parts.query or parts.fragment:
            raise ConfigError(f"{where}: expected a base URL like {OPENAI}, got {given!r}")
        key = next(filter(None, (os.environ.get(name, "").strip() for name in KEYS[role])), "")
        if not key and (parts.hostname or "").endswith("openai.com"):
            raise ConfigError(f"{where}: {url} needs a key in {' or '.join(KEYS[role])}")
        return cls(model, url, key)


def split_model(text: str) -> tuple[str, str | None]:
    """``MODEL@URL`` as model and URL; a model's own ``@`` stays in its name."""
    for mark in ("@http://", "@https://"):
        model, found, rest = text.partition(mark)
        if found:
            return model.strip(), mark[1:] + rest.strip()
    return text.strip(), None


def judge_endpoint(spec: str, base_url: str | None) -> Endpoint | None:
    """The endpoint that a ``--bench-judge`` value names; ``None`` for judges of other kinds.

    Raises
    ------
    ConfigError
        As :meth:`Endpoint.make`, or no model is named.
    """
    kind, _, rest = spec.partition(":")
    if kind != "openai":
        return None
    model, url = split_model(rest)
    if not model:
        raise ConfigError(f"--bench-judge: expected openai:MODEL, got {spec!r}")
    where = "--bench-judge" if url or not base_url else "--bench-judge-base-url"
    return Endpoint.make("judge", model, url or base_url, where)


def withheld(judge: Endpoint | None, environ: Mapping[str, str] | None = None) -> frozenset[str]:
    """Names of environment variables with the judge's key in them: no agent gets those."""
    if judge is None or not judge.key:
        return frozenset()
    env = os.environ if environ is None else environ
    return frozenset(name for name, value in env.items() if judge.key in value)
