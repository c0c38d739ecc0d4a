"""Scenarios: the load on an operator and the metrics taken."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from benchmarks.environment import BenchmarkApiServer, BenchmarkConfig
from benchmarks.measurement import Figure
from benchmarks.peers import Peer


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario of the comparison.

    Attributes:
        letter: group on the command line.
        title: name in the results.
        measure: function that measures one run of one peer.
        serve: context manager for the API server with its initial objects.
        shared: True if all runs use one API server. Otherwise each run starts a new one.
    """

    letter: str
    title: str
    measure: Callable[[BenchmarkApiServer, Peer], Awaitable[list[Figure]]]
    serve: Callable[[BenchmarkConfig], AbstractAsyncContextManager[BenchmarkApiServer]]
    shared: bool = False

    def matches(self, selector: str) -> bool:
        """Return True if the selector is the letter or matches the title."""
        return selector == self.letter or (len(selector) > 1 and selector in self.title)
