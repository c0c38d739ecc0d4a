"""Interface of a system under test."""

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
    """State of a settled system.

    Attributes:
        state: normalized objects, see ``normalize_state``.
        object: the object under test in wire form, or None.
        warnings: Warning Events about it since the last observation, as ``Reason: note``.
        writes: writes of the operator that changed something since the last observation, without Leases and Events.
        failing: error that the operator retries, if observable. Empty if there is none.
        crashed: exit reason of the operator process. Empty while it runs.
        settled: False if objects still changed at the timeout.
    """

    state: ObservedState = field(default_factory=dict[str, JsonObject])
    object: JsonObject | None = None
    warnings: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    failing: str = ""
    crashed: str = ""
    settled: bool = True


class SystemUnderTest(Protocol):
    """One object, its operator and the cluster of both."""

    async def apply(self, document: Mapping[str, object], validation: FieldValidation = "Strict") -> None:
        """Create the object, or replace its desired state. Status and metadata remain.

        Args:
            document: content: ``{"spec": …}``.
            validation: handling of unknown fields.

        Raises:
            ApiError: if the API server rejects the content.
        """
        ...

    async def delete(self) -> None:
        """Request the deletion of the object, which ends before ``settle`` returns. Raises ApiError."""
        ...

    async def resync(self) -> None:
        """Make the operator reconcile the unchanged object."""
        ...

    async def settle(self) -> Observation:
        """Wait until nothing changes, and return the observation."""
        ...


SystemFactory = Callable[[], AbstractAsyncContextManager[SystemUnderTest]]
"""Creates a system without objects, in its own namespace or server. Random values, such as passwords, should differ
between systems, so that comparisons recognise them."""
