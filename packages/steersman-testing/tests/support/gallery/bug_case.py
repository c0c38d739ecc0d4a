"""Definition of a bug case of the gallery.

A bug case is a small operator with a bug of a real operator, and a corrected twin. Both run with the same objects,
users and faults. Only the faulty one fails the checks.
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
    """External system of operators that need none."""


@dataclass(frozen=True, kw_only=True)
class BugCase(Generic[W]):
    """A faulty operator, its corrected twin, and the checks that distinguish them.

    Attributes:
        faulty: registers the faulty operator with a manager.
        corrected: registers the corrected twin with a manager.
        kinds: the custom kinds of both.
        scenario: the actions of the users.
        check: raises AssertionError unless the final state is the declared one.
        outside: creates the external system.
        detector: the tool that finds the bug.
        report_excerpts: texts that the report contains in this order.
        actors: tasks that run in addition to the operator, such as a fake kubelet.
        invariants: checks that must hold at any time. Each raises AssertionError.
        hints: hints for transitions about the first kind.
        cluster_controllers: register controllers that replace the actors when ``explore`` runs the operator.
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
