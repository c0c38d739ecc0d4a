"""What must hold when a system has come to rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from steersman_testing.apiserver.values import JsonObject, is_map, list_at, map_at
from steersman_testing.transitions.hints import Hints
from steersman_testing.transitions.states import Difference
from steersman_testing.transitions.system import Observation

Oracle = Literal[
    "convergence", "idempotence", "rollback", "silence", "refusal", "generation", "settling", "crash", "deletion"
]
"""What is checked; see ``explore``."""

# Conditions that say by True that something is wrong (kstatus, cluster-api, the core kinds).
_BAD_WHEN_TRUE = ("Degraded", "Error", "Failed", "Failing", "Failure", "ReplicaFailure", "Stalled")
# Those that must be there on a first object that is well.
_GOOD_WHEN_TRUE = ("Ready", "Available", "Healthy", "Succeeded", "Synced")


class Finding(NamedTuple):
    """Something that must not be: which oracle says so, in which words, and where states differ."""

    oracle: Oracle
    text: str
    differences: tuple[Difference, ...] = ()

    @property
    def signature(self) -> tuple[object, ...]:
        """Equal for findings that are likely one bug."""
        places = frozenset(d.place for d in self.differences)
        return self.oracle, places or self.text.partition(":")[0]


class Signs(NamedTuple):
    """How an object shows its user that something is wrong.

    Attributes:
        reasons: of conditions that are not as they should be, and have a reason and a message.
        mute: how such conditions are that have neither; and those that are missing, if there are none at all.
        warnings: Warning Events.
        failed: whether the operator did not do what was wanted.
    """

    reasons: tuple[str, ...] = ()
    mute: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    failed: bool = False

    @property
    def visible(self) -> bool:
        """Whether the user can see an error."""
        return bool(self.reasons or self.warnings)


Healthy = Mapping[str, str]
"""The status of each type of condition on an object that is well."""


def conditions(obj: JsonObject | None) -> list[JsonObject]:
    """Those of the status of ``obj``."""
    return [c for c in list_at(map_at(obj, "status"), "conditions") if is_map(c)]


def _telling(obj: JsonObject | None, hints: Hints) -> list[JsonObject]:
    """The conditions of ``obj`` that tell whether all is well."""
    return [c for c in conditions(obj) if not hints.conditions or c.get("type") in hints.conditions]


def healthy(obj: JsonObject | None, hints: Hints) -> Healthy:
    """What the conditions of ``obj`` are, to be taken as what they should be."""
    return {c.get("type", ""): c.get("status", "") for c in _telling(obj, hints)}


def ailments(observation: Observation, hints: Hints) -> list[str]:
    """Why a first object cannot be taken for one that is well."""
    found = [observation.failing] if observation.failing else []
    for condition in _telling(observation.object, hints):
        kind, status = condition.get("type", ""), condition.get("status", "")
        if (kind in _GOOD_WHEN_TRUE and status != "True") or (kind in _BAD_WHEN_TRUE and status == "True"):
            found.append(f"{kind} is {status}: {condition.get('reason')}: {condition.get('message')}")
    return found


def signs(observation: Observation, expected: Healthy, hints: Hints) -> Signs:
    """What of ``observation`` tells a user that something is wrong."""
    telling = _telling(observation.object, hints)
    wrong = [c for c in telling if _is_wrong(c, expected)]
    told = [c for c in wrong if c.get("reason") and c.get("message")]
    # One that is left out may have nothing to tell; whoever reports none of them does not look at the object.
    absent = () if telling or observation.object is None else tuple(f"{kind} is missing" for kind in expected)
    return Signs(
        reasons=tuple(c["reason"] for c in told),
        mute=(*absent, *(f"{c['type']} is {c['status']}, without reason or message" for c in wrong if c not in told)),
        warnings=observation.warnings,
        # Events count where there are no conditions to tell.
        failed=bool(wrong or absent or observation.failing or (observation.warnings and not telling)),
    )


def _is_wrong(condition: JsonObject, expected: Healthy) -> bool:
    kind, status = condition.get("type", ""), condition.get("status", "")
    if kind in expected:
        return status != expected[kind]
    return status == "True" if kind in _BAD_WHEN_TRUE else status != "True"


def at_rest(observation: Observation, found: Signs) -> Iterator[Finding]:
    """What is wrong whatever was done to the object."""
    if observation.crashed:
        yield Finding("crash", f"the operator's process ended: {observation.crashed}")
        return
    if not observation.settled:
        writes = ", ".join(dict.fromkeys(observation.writes[-6:]))
        yield Finding("settling", "the system does not come to rest" + (f": last it did {writes}" if writes else ""))
        return
    if not found.visible and (observation.failing or found.mute):
        what = observation.failing or f"condition {found.mute[0]}"
        yield Finding("silence", f"the user cannot see an error: {what}; no condition tells, and no Warning Event")
        return
    yield from _generation(observation, found)


def _generation(observation: Observation, found: Signs) -> Iterator[Finding]:
    obj = observation.object
    if obj is None or not (observed := _observed(obj)):
        return
    wanted = map_at(obj, "metadata").get("generation")
    # Who fails before it can write its status has told by an Event.
    if any(o != wanted for o in observed.values()) and not found.warnings:
        behind = ", ".join(f"{where} is {value}" for where, value in observed.items() if value != wanted)
        yield Finding("generation", f"the status is behind: {behind}, metadata.generation is {wanted}")


def _observed(obj: JsonObject) -> dict[str, Any]:
    status = map_at(obj, "status")
    found = {"status.observedGeneration": status["observedGeneration"]} if "observedGeneration" in status else {}
    return found | {
        f"observedGeneration of condition {c.get('type')}": c["observedGeneration"]
        for c in conditions(obj)
        if "observedGeneration" in c
    }
