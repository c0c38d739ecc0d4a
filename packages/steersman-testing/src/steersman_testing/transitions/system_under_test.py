"""What is explored: an operator and a cluster, as something to which specs are applied and which comes to rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from steersman.client import FieldValidation
from steersman_testing.apiserver.values import JsonObject
from steersman_testing.transitions.observed_state import ObservedState


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is seen when a system has come to rest.

    Attributes:
        state: all objects, see ``normalised``.
        object: the object itself in wire form; None where there is none.
        warnings: the Warning Events about it since the last observation, as ``Reason: note``.
        writes: what was written since the last observation, but for Leases, Events and what the tester does; nothing
            where it changed nothing.
        failing: the error that the operator tries again and again, where that can be seen; empty for none.
        crashed: how the operator's process ended; empty while it lives.
        settled: False if things still changed when patience was at its end.
    """

    state: ObservedState = field(default_factory=dict[str, JsonObject])
    object: JsonObject | None = None
    warnings: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    failing: str = ""
    crashed: str = ""
    settled: bool = True


class SystemUnderTest(Protocol):
    """One object, the operator that looks after it, and the cluster that both live in."""

    async def apply(self, document: Mapping[str, object], validation: FieldValidation = "Strict") -> None:
        """Creates the object, or replaces what its user wrote; status and metadata stay.

        Args:
            document: the content: ``{"spec": …}``.
            validation: what becomes of unknown fields.

        Raises:
            ApiError: it is refused.
        """
        ...

    async def delete(self) -> None:
        """Asks for the object's deletion; it may take until it is settled. Raises ApiError."""
        ...

    async def resync(self) -> None:
        """Makes the operator look at the object although nothing was done to it: by a restart, or a touch."""
        ...

    async def settle(self) -> Observation:
        """Waits until nothing changes any more, and says what there is then."""
        ...


SystemFactory = Callable[[], AbstractAsyncContextManager[SystemUnderTest]]
"""Gives a new system, without any object: its own namespace, its own server, as it comes. Random content, such as
passwords, should differ between systems, so that it is recognised as such."""
