"""The scenarios: what is done to an operator, and what is measured of it meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from benchmarks.environment import BenchmarkApiServer, BenchmarkConfig
from benchmarks.measurement import Figure
from benchmarks.peers import Peer


@dataclass(frozen=True, slots=True)
class Scenario:
    """One thing that is measured.

    Attributes:
        letter: the group that it belongs to, as on the command line.
        title: as in the results.
        measure: one run of one peer.
        serve: the API server, with what all runs need.
        shared: whether all runs use the same API server; otherwise each has a new one.
    """

    letter: str
    title: str
    measure: Callable[[BenchmarkApiServer, Peer], Awaitable[list[Figure]]]
    serve: Callable[[BenchmarkConfig], AbstractAsyncContextManager[BenchmarkApiServer]]
    shared: bool = False

    def matches(self, selector: str) -> bool:
        """Whether it is meant by its letter, or by words of its title."""
        return selector == self.letter or (len(selector) > 1 and selector in self.title)
