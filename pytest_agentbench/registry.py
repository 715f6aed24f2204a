"""Benchmarks by name, loaded when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import entry_points

from pytest_agentbench.benchmark import Benchmark
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.text import did_you_mean

__all__ = ["GROUP", "Registry"]

GROUP = "pytest_agentbench.benchmarks"


class Registry:
    """Name to benchmark: those given by hooks, then those behind the entry point group.

    Parameters
    ----------
    given
        Benchmark objects or classes, from the hook ``pytest_agentbench_benchmarks``.
    before_load
        Called with the name of a module just before it is imported.
    """

    def __init__(
        self,
        given: Iterable[Benchmark | type[Benchmark]] = (),
        before_load: Callable[[str], object] = lambda module: None,
    ) -> None:
        self._before_load = before_load
        self._known: dict[str, Benchmark] = {}
        for benchmark in given:
            instance = _instance(benchmark, "pytest_agentbench_benchmarks")
            self._known[instance.name] = instance

    def names(self) -> list[str]:
        """All known names, sorted."""
        return sorted({*self._known, *(entry.name for entry in entry_points(group=GROUP))})

    def check(self, name: str, option: str) -> None:
        """Refuse a *name* that no benchmark has, without loading any.

        Raises
        ------
        ConfigError
            Naming *option*.
        """
        known = self.names()
        if name not in known:
            raise ConfigError(
                f"{option}: unknown benchmark {name!r}. Known are {', '.join(known)}."
                f"{did_you_mean(name, known)}"
            )

    def get(self, name: str) -> Benchmark:
        """The benchmark called *name*; one broken entry point does not touch the others.

        Raises
        ------
        ConfigError
            There is none, or it cannot be loaded.
        """
        if name not in self._known:
            self.check(name, "--bench")
            entry = next(iter(entry_points(group=GROUP, name=name)))
            self._before_load(entry.module)
            try:
                loaded = entry.load()
            except Exception as error:
                raise ConfigError(
                    f"--bench: the benchmark {name!r} ({entry.value}) cannot be loaded: "
                    f"{type(error).__name__}: {error}"
                ) from error
            self._known[name] = _instance(loaded, entry.value)
        return self._known[name]


def _instance(benchmark: object, where: str) -> Benchmark:
    if isinstance(benchmark, type) and issubclass(benchmark, Benchmark):
        benchmark = benchmark()
    if not isinstance(benchmark, Benchmark):
        raise ConfigError(f"{where}: expected a Benchmark, got {benchmark!r}")
    if not benchmark.name.isidentifier():
        raise ConfigError(f"{where}: the benchmark's name {benchmark.name!r} is not an identifier")
    return benchmark
