"""What an exhibit of the gallery consists of.

An exhibit is a small operator with a bug that was found in a real one, and its corrected twin. Both get the same
world, the same users and the same faults; one of them does harm.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from steersman.manager import Manager
from steersman.meta import Object
from steersman_testing.simulation import World
from steersman_testing.transitions import Hints

W = TypeVar("W")
Detector = Literal["simulation", "transitions"]
"""``steersman_testing.simulate``, or ``steersman_testing.transitions.explore``."""


class NoExternalSystem:
    """The world outside Kubernetes, where there is none."""


@dataclass(frozen=True, kw_only=True)
class BugCase(Generic[W]):
    """A faulty operator, its twin, and what shows the difference.

    Attributes:
        faulty: gives a manager the operator with the bug.
        corrected: gives it the twin.
        kinds: the custom kinds that both need.
        scenario: what users do.
        check: raises AssertionError unless the world has come to what the users asked for.
        outside: makes the world outside Kubernetes.
        found_by: what finds the bug by itself.
        story: parts of the shortest story of it, in their order.
        actors: what runs beside the operator, such as a stand-in for the kubelet.
        invariants: what must hold at any time; each raises AssertionError.
        hints: what transitions cannot know of the first kind.
        cluster: gives the manager of an explored operator the controllers that stand in for the actors.
    """

    faulty: Callable[[Manager, W], None]
    corrected: Callable[[Manager, W], None]
    kinds: tuple[type[Object], ...]
    scenario: Callable[[World[W]], Awaitable[None]]
    check: Callable[[World[W]], None]
    outside: Callable[[], W]
    detector: Detector
    report_excerpts: tuple[str, ...]
    actors: tuple[Callable[[World[W]], Awaitable[None]], ...] = ()
    invariants: tuple[Callable[[World[W]], None], ...] = ()
    hints: Hints | None = None
    cluster_controllers: tuple[Callable[[Manager], object], ...] = ()
