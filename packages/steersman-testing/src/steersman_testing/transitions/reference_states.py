"""New objects, to which one that was changed is compared."""

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
    """What became of a new object.

    Attributes:
        observation: at rest.
        signs: of errors.
        again: what applying the same spec once more changed; None for nothing.
    """

    observation: Observation
    error_state: ErrorState
    idempotence_finding: OracleFinding | None


class ReferenceStates:
    """One new object for each content, each in a system of its own, remembered.

    Args:
        systems: gives systems.
        hints: what is not compared.
        healthy: the conditions of an object that is well.
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
        """The new object with the content ``document``. Raises ApiError: it is refused."""
        cache_key = json.dumps(document, sort_keys=True)
        if cache_key not in self._cache:
            self._cache[cache_key] = await self._create(document)
        return self._cache[cache_key]

    async def differences_from(
        self, state: ObservedState, other: ObservedState, document: JsonObject
    ) -> tuple[StateDifference, ...]:
        """Where ``state`` differs from ``other``, less what differs between any two objects of ``document``."""
        found = self.relevant_differences(state, other)
        cache_key = json.dumps(document, sort_keys=True)
        if found and cache_key not in self._calibrated:
            self._calibrated.add(cache_key)
            one, two = await self.get(document), await self._create(document)
            self._random_locations |= {d.location for d in differences(one.observation.state, two.observation.state)}
            found = self.relevant_differences(state, other)
        return found

    def error_state(self, observation: Observation) -> ErrorState:
        """Of errors, in ``observation``."""
        return error_state(observation, self.healthy, self._hints)

    def relevant_differences(self, state: ObservedState, other: ObservedState) -> tuple[StateDifference, ...]:
        """Where two states differ, but for what is known to be random and what is to be ignored."""
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
        """Applies ``document`` once more and restarts the operator: nothing may be written."""
        try:
            await system.apply(document)
        except ApiError as error:
            return OracleFinding("idempotence", f"the same spec is refused when it is applied again: {error}")
        await system.resync()
        after = await system.settle()
        if after.crashed:
            return OracleFinding("crash", f"the operator's process ended: {after.crashed}")
        found = self.relevant_differences(before.state, after.state)
        if found or after.writes:
            listed = ", ".join(dict.fromkeys(after.writes[:_MAX_LISTED_WRITES]))
            text = "the same spec, applied again to an operator that starts anew, is not left alone"
            return OracleFinding("idempotence", f"{text}: {listed}" if listed else text, found)
        return None
