"""Reference states: new objects with which changed objects are compared."""

from __future__ import annotations

import json
from dataclasses import dataclass

from steersman.errors import ApiError
from steersman_testing.apiserver.values import JsonObject
from steersman_testing.transitions.hints import Hints
from steersman_testing.transitions.observed_state import ObservedState, StateDifference, differences, is_ignored
from steersman_testing.transitions.oracles import (
    ErrorState,
    HealthyConditions,
    OracleFinding,
    check_settled,
    error_state,
)
from steersman_testing.transitions.system_under_test import Observation, SystemFactory, SystemUnderTest

_MAX_LISTED_WRITES = 6


@dataclass(frozen=True, slots=True)
class ReferenceState:
    """State of a new object.

    Attributes:
        observation: the settled system.
        error_state: visible errors.
        idempotence_finding: changes caused by applying the same spec again, or None.
    """

    observation: Observation
    error_state: ErrorState
    idempotence_finding: OracleFinding | None


class ReferenceStates:
    """Cache of new objects by content, each in its own system.

    Args:
        system_factory: creates systems.
        hints: exclusions from the comparison.
        healthy: conditions of a healthy object.
    """

    def __init__(self, system_factory: SystemFactory, hints: Hints, healthy: HealthyConditions) -> None:
        self._system_factory = system_factory
        self._hints = hints
        self.healthy = healthy
        self._cache: dict[str, ReferenceState] = {}
        self._calibrated: set[str] = set()
        self._random_locations: set[tuple[str, tuple[str | int, ...]]] = set()
        self.created = 0

    async def get(self, document: JsonObject) -> ReferenceState:
        """Return the state of a new object with the content ``document``. Raises ApiError."""
        cache_key = json.dumps(document, sort_keys=True)
        if cache_key not in self._cache:
            self._cache[cache_key] = await self._create(document)
        return self._cache[cache_key]

    async def differences_from(
        self, state: ObservedState, other: ObservedState, document: JsonObject
    ) -> tuple[StateDifference, ...]:
        """Differences between two states, without random values.

        A value is random if it differs between two new objects with the content ``document``.
        """
        found = self.relevant_differences(state, other)
        cache_key = json.dumps(document, sort_keys=True)
        if found and cache_key not in self._calibrated:
            self._calibrated.add(cache_key)
            one, two = await self.get(document), await self._create(document)
            self._random_locations |= {d.location for d in differences(one.observation.state, two.observation.state)}
            found = self.relevant_differences(state, other)
        return found

    def error_state(self, observation: Observation) -> ErrorState:
        """Return the visible errors in ``observation``."""
        return error_state(observation, self.healthy, self._hints)

    def relevant_differences(self, state: ObservedState, other: ObservedState) -> tuple[StateDifference, ...]:
        """Differences between two states, without random and ignored fields."""
        return tuple(
            d
            for d in differences(state, other)
            if d.location not in self._random_locations and not is_ignored(d, self._hints.ignore)
        )

    async def _create(self, document: JsonObject) -> ReferenceState:
        self.created += 1
        async with self._system_factory() as system:
            await system.apply(document)
            observation = await system.settle()
            errors = self.error_state(observation)
            is_healthy = not errors.failed and not any(check_settled(observation, errors))
            idempotence_finding = await self.check_idempotence(system, document, observation) if is_healthy else None
            return ReferenceState(observation, errors, idempotence_finding)

    async def check_idempotence(
        self, system: SystemUnderTest, document: JsonObject, before: Observation
    ) -> OracleFinding | None:
        """Apply ``document`` again and restart the operator, which must not write."""
        try:
            await system.apply(document)
        except ApiError as error:
            return OracleFinding(
                "idempotence", f"the API server rejects the same spec when it is applied again: {error}"
            )
        await system.resync()
        after = await system.settle()
        if after.crashed:
            return OracleFinding("crash", f"the operator process exited: {after.crashed}")
        found = self.relevant_differences(before.state, after.state)
        if found or after.writes:
            listed = ", ".join(dict.fromkeys(after.writes[:_MAX_LISTED_WRITES]))
            text = "the operator writes after a restart although the spec is unchanged"
            return OracleFinding("idempotence", f"{text}: {listed}" if listed else text, found)
        return None
