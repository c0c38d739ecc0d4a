"""Oracles: checks of a settled system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from steersman_testing.apiserver.values import JsonObject, get_array, get_object, is_map
from steersman_testing.transitions.hints import Hints
from steersman_testing.transitions.observed_state import StateDifference
from steersman_testing.transitions.system_under_test import Observation

Oracle = Literal[
    "convergence", "idempotence", "rollback", "silence", "refusal", "generation", "settling", "crash", "deletion"
]
"""Names of the checks. The how-to guide on spec changes describes them."""

# Conditions whose status True is an error (kstatus, cluster-api, the core kinds).
_NEGATIVE_CONDITIONS = ("Degraded", "Error", "Failed", "Failing", "Failure", "ReplicaFailure", "Stalled")
# Conditions that must be True on a healthy first object.
_POSITIVE_CONDITIONS = ("Ready", "Available", "Healthy", "Succeeded", "Synced")


class OracleFinding(NamedTuple):
    """A violated check: oracle, message and differences between states."""

    oracle: Oracle
    text: str
    differences: tuple[StateDifference, ...] = ()

    @property
    def signature(self) -> tuple[object, ...]:
        """Equal for findings that probably have the same cause."""
        places = frozenset(d.location for d in self.differences)
        return self.oracle, places or self.text.partition(":")[0]


class ErrorState(NamedTuple):
    """Errors of an object that its user can see.

    Attributes:
        reasons: reasons of unhealthy conditions that have a reason and a message.
        unexplained: unhealthy conditions without reason or message, and missing conditions if there are none at all.
        warnings: Warning Events.
        failed: whether the operator did not reach the desired state.
    """

    reasons: tuple[str, ...] = ()
    unexplained: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    failed: bool = False

    @property
    def is_visible(self) -> bool:
        """Return True if the user can see an error."""
        return bool(self.reasons or self.warnings)


HealthyConditions = Mapping[str, str]
"""Status of each condition type on a healthy object."""


def conditions(obj: JsonObject | None) -> list[JsonObject]:
    """Conditions in the status of ``obj``."""
    return [c for c in get_array(get_object(obj, "status"), "conditions") if is_map(c)]


def _relevant_conditions(obj: JsonObject | None, hints: Hints) -> list[JsonObject]:
    """Conditions of ``obj`` that the hints select."""
    return [c for c in conditions(obj) if not hints.conditions or c.get("type") in hints.conditions]


def healthy_conditions(obj: JsonObject | None, hints: Hints) -> HealthyConditions:
    """Status of each condition of ``obj``, as the healthy baseline."""
    return {c.get("type", ""): c.get("status", "") for c in _relevant_conditions(obj, hints)}


def unhealthy_reasons(observation: Observation, hints: Hints) -> list[str]:
    """Reasons why a first object is not healthy."""
    reasons = [observation.failing] if observation.failing else []
    for condition in _relevant_conditions(observation.object, hints):
        kind, status = condition.get("type", ""), condition.get("status", "")
        if (kind in _POSITIVE_CONDITIONS and status != "True") or (kind in _NEGATIVE_CONDITIONS and status == "True"):
            reasons.append(f"{kind} is {status}: {condition.get('reason')}: {condition.get('message')}")
    return reasons


def error_state(observation: Observation, expected: HealthyConditions, hints: Hints) -> ErrorState:
    """Errors in ``observation`` that its user can see."""
    relevant = _relevant_conditions(observation.object, hints)
    wrong = [c for c in relevant if _is_wrong(c, expected)]
    explained = [c for c in wrong if c.get("reason") and c.get("message")]
    # A single missing condition may be omitted on purpose. Without any condition the object was not reconciled.
    missing = () if relevant or observation.object is None else tuple(f"{kind} is missing" for kind in expected)
    return ErrorState(
        reasons=tuple(c["reason"] for c in explained),
        unexplained=(
            *missing,
            *(f"{c['type']} is {c['status']}, without reason or message" for c in wrong if c not in explained),
        ),
        warnings=observation.warnings,
        # Events count only if there are no conditions.
        failed=bool(wrong or missing or observation.failing or (observation.warnings and not relevant)),
    )


def _is_wrong(condition: JsonObject, expected: HealthyConditions) -> bool:
    kind, status = condition.get("type", ""), condition.get("status", "")
    if kind in expected:
        return status != expected[kind]
    return status == "True" if kind in _NEGATIVE_CONDITIONS else status != "True"


def check_settled(observation: Observation, errors: ErrorState) -> Iterator[OracleFinding]:
    """Yield the findings that need no previous state."""
    if observation.crashed:
        yield OracleFinding("crash", f"the operator process exited: {observation.crashed}")
        return
    if not observation.settled:
        writes = ", ".join(dict.fromkeys(observation.writes[-6:]))
        yield OracleFinding(
            "settling", "the system does not settle" + (f": its last writes are {writes}" if writes else "")
        )
        return
    if not errors.is_visible and (observation.failing or errors.unexplained):
        what = observation.failing or f"condition {errors.unexplained[0]}"
        yield OracleFinding(
            "silence", f"an error is not reported: {what}. There is no condition and no Warning Event"
        )
        return
    yield from _check_generation(observation, errors)


def _check_generation(observation: Observation, errors: ErrorState) -> Iterator[OracleFinding]:
    obj = observation.object
    if obj is None or not (observed := _observed_generations(obj)):
        return
    wanted = get_object(obj, "metadata").get("generation")
    # An operator that fails before it can write the status reports the error by an Event.
    if any(o != wanted for o in observed.values()) and not errors.warnings:
        behind = ", ".join(f"{where} is {value}" for where, value in observed.items() if value != wanted)
        yield OracleFinding("generation", f"the status is outdated: {behind}, metadata.generation is {wanted}")


def _observed_generations(obj: JsonObject) -> dict[str, Any]:
    status = get_object(obj, "status")
    found = {"status.observedGeneration": status["observedGeneration"]} if "observedGeneration" in status else {}
    return found | {
        f"observedGeneration of condition {c.get('type')}": c["observedGeneration"]
        for c in conditions(obj)
        if "observedGeneration" in c
    }
