"""Summary of a sweep."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field


class SimulationReport(Struct, frozen=True):
    """Summary of a sweep without failures.

    Attributes:
        tried: number of single faults injected, by kind of fault.
        places: number of possible single faults, by kind of fault.
        random_runs: number of runs with several faults.
        seconds: duration in real time.
    """

    tried: Mapping[str, int] = field(default_factory=dict[str, int])
    places: Mapping[str, int] = field(default_factory=dict[str, int])
    random_runs: int = 0
    seconds: float = 0.0

    @property
    def is_complete(self) -> bool:
        """Return True if every fault was injected at every place."""
        return dict(self.tried) == dict(self.places)

    def __str__(self) -> str:
        lines = [f"{kind:<13} {self.tried.get(kind, 0):>4} of {count:>4}" for kind, count in self.places.items()]
        singles, places = sum(self.tried.values()), sum(self.places.values())
        runs = f"{singles} runs with one fault, {self.random_runs} with several, in {self.seconds:.1f} s"
        return "\n".join(["fault         tried at places", *lines, f"{singles} of {places} places; {runs}"])
