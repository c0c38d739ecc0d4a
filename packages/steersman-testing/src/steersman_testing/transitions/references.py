"""New objects, to which one that was changed is compared."""

from __future__ import annotations

import json
from dataclasses import dataclass

from steersman.errors import ApiError
from steersman_testing.apiserver.values import JsonObject
from steersman_testing.transitions.hints import Hints
from steersman_testing.transitions.oracles import Finding, Healthy, Signs, at_rest, signs
from steersman_testing.transitions.states import Difference, State, differences, ignored
from steersman_testing.transitions.system import Observation, System, Systems

_LONGEST_LIST = 6


@dataclass(frozen=True, slots=True)
class Reference:
    """What became of a new object.

    Attributes:
        observation: at rest.
        signs: of errors.
        again: what applying the same spec once more changed; None for nothing.
    """

    observation: Observation
    signs: Signs
    again: Finding | None


class References:
    """One new object for each content, each in a system of its own, remembered.

    Args:
        systems: gives systems.
        hints: what is not compared.
        healthy: the conditions of an object that is well.
    """

    def __init__(self, systems: Systems, hints: Hints, healthy: Healthy) -> None:
        self._systems = systems
        self._hints = hints
        self.healthy = healthy
        self._known: dict[str, Reference] = {}
        self._compared: set[str] = set()
        self._random: set[tuple[str, tuple[str | int, ...]]] = set()
        self.made = 0

    async def of(self, document: JsonObject) -> Reference:
        """The new object with the content ``document``. Raises ApiError: it is refused."""
        identity = json.dumps(document, sort_keys=True)
        if identity not in self._known:
            self._known[identity] = await self._create(document)
        return self._known[identity]

    async def differences(self, state: State, other: State, document: JsonObject) -> tuple[Difference, ...]:
        """Where ``state`` differs from ``other``, less what differs between any two objects of ``document``."""
        found = self.unlike(state, other)
        identity = json.dumps(document, sort_keys=True)
        if found and identity not in self._compared:
            self._compared.add(identity)
            one, two = await self.of(document), await self._create(document)
            self._random |= {d.place for d in differences(one.observation.state, two.observation.state)}
            found = self.unlike(state, other)
        return found

    def signs(self, observation: Observation) -> Signs:
        """Of errors, in ``observation``."""
        return signs(observation, self.healthy, self._hints)

    def unlike(self, state: State, other: State) -> tuple[Difference, ...]:
        """Where two states differ, but for what is known to be random and what is to be ignored."""
        return tuple(
            d for d in differences(state, other) if d.place not in self._random and not ignored(d, self._hints.ignore)
        )

    async def _create(self, document: JsonObject) -> Reference:
        self.made += 1
        async with self._systems() as system:
            await system.apply(document)
            observation = await system.settle()
            found = self.signs(observation)
            well = not found.failed and not any(at_rest(observation, found))
            again = await self.again(system, document, observation) if well else None
            return Reference(observation, found, again)

    async def again(self, system: System, document: JsonObject, before: Observation) -> Finding | None:
        """Applies ``document`` once more and restarts the operator: nothing may be written."""
        try:
            await system.apply(document)
        except ApiError as error:
            return Finding("idempotence", f"the same spec is refused when it is applied again: {error}")
        await system.look_again()
        after = await system.settle()
        if after.crashed:
            return Finding("crash", f"the operator's process ended: {after.crashed}")
        found = self.unlike(before.state, after.state)
        if found or after.writes:
            listed = ", ".join(dict.fromkeys(after.writes[:_LONGEST_LIST]))
            text = "the same spec, applied again to an operator that starts anew, is not left alone"
            return Finding("idempotence", f"{text}: {listed}" if listed else text, found)
        return None
