"""Status of definitions: accepted names, and the progress of a deletion.

Source: ``pkg/controller/status/naming_controller.go``, ``pkg/controller/finalizer/crd_finalizer.go``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steersman_testing.apiserver.definitions.approval import approval_condition
from steersman_testing.apiserver.values import JsonObject, get_array, get_object

CRD_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_KINDS = ("kind", "listKind")


def definition_status(definition: JsonObject, others: Iterable[JsonObject], now: str) -> JsonObject:
    """Return the status of a definition among the ``others`` of its group."""
    status: JsonObject = dict(get_object(definition, "status"))
    requested: JsonObject = get_object(get_object(definition, "spec"), "names")
    if requested != status.get("acceptedNames"):
        names, conflict = _accept_names(requested, get_object(status, "acceptedNames"), list(others))
        status["acceptedNames"] = names
        names_accepted = {
            "type": "NamesAccepted",
            "status": "True",
            "reason": "NoConflicts",
            "message": "no conflicts found",
        }
        if conflict:
            reason, message = conflict
            names_accepted = {"type": "NamesAccepted", "status": "False", "reason": reason, "message": message}
        status = set_condition(status, names_accepted, now)
        status = set_condition(status, _established_condition(status, names_accepted), now)
    if (approval := approval_condition(definition)) is not None:
        status = set_condition(status, approval, now)
    return status


def _established_condition(status: JsonObject, accepted: JsonObject) -> JsonObject:
    previous = next((c for c in get_array(status, "conditions") if c.get("type") == "Established"), None)
    if previous is not None and (previous["status"] == "True" or accepted["status"] != "True"):
        return previous
    if accepted["status"] == "True":
        reason, message = "InitialNamesAccepted", "the initial names have been accepted"
        return {"type": "Established", "status": "True", "reason": reason, "message": message}
    message = "not all names are accepted"
    return {"type": "Established", "status": "False", "reason": "NotAccepted", "message": message}


def _accept_names(
    requested: JsonObject, accepted: JsonObject, others: list[JsonObject]
) -> tuple[JsonObject, tuple[str, str] | None]:
    """Return the accepted names and the last name conflict, or None.

    Names that were accepted before stay accepted.
    """
    taken = [get_object(get_object(o, "status"), "acceptedNames") for o in others]
    resources = {n for names in (*taken, accepted) for n in _resources(names)}
    kinds = {names.get(f, "") for names in (*taken, accepted) for f in _KINDS}
    result: JsonObject = dict(accepted)
    conflict: tuple[str, str] | None = None
    for field, used in (("plural", resources), ("singular", resources)):
        conflict = _accept_name(field, requested, accepted, used, result) or conflict
    conflict = _accept_short_names(requested, accepted, resources, result) or conflict
    for field in _KINDS:
        conflict = _accept_name(field, requested, accepted, kinds, result) or conflict
    result.pop("categories", None)
    if "categories" in requested:
        result["categories"] = requested["categories"]
    return result, conflict


def _resources(names: JsonObject) -> list[str]:
    return [names.get("plural", ""), names.get("singular", ""), *get_array(names, "shortNames")]


def _accept_name(
    field: str, requested: JsonObject, accepted: JsonObject, used: set[str], result: JsonObject
) -> tuple[str, str] | None:
    name: str = requested.get(field, "")
    if name != accepted.get(field, "") and name in used:
        return f"{field[0].upper()}{field[1:]}Conflict", f'"{name}" is already in use'
    result[field] = name
    return None


def _accept_short_names(
    requested: JsonObject, accepted: JsonObject, used: set[str], result: JsonObject
) -> tuple[str, str] | None:
    names: list[str] = get_array(requested, "shortNames")
    accepted_names: list[str] = get_array(accepted, "shortNames")
    conflicts = [f'"{n}" is already in use' for n in names if n not in accepted_names and n in used]
    if conflicts:
        return "ShortNamesConflict", conflicts[0] if len(conflicts) == 1 else f"[{', '.join(conflicts)}]"
    result.pop("shortNames", None)
    if names:
        result["shortNames"] = names
    return None


def set_condition(status: JsonObject, condition: JsonObject, now: str) -> JsonObject:
    """Return ``status`` with ``condition``.

    The lastTransitionTime changes only with the status of the condition.
    """
    conditions: list[Any] = get_array(status, "conditions")
    previous = next((c for c in conditions if c.get("type") == condition["type"]), None)
    if previous is None:
        return {**status, "conditions": [*conditions, {"lastTransitionTime": now, **condition}]}
    transition_time = previous["lastTransitionTime"] if previous["status"] == condition["status"] else now
    updated = {**condition, "lastTransitionTime": transition_time}
    return {**status, "conditions": [updated if c is previous else c for c in conditions]}


def terminating_condition(status: str, reason: str, message: str) -> JsonObject:
    """Return the condition Terminating, which reports the progress of a deletion."""
    return {"type": "Terminating", "status": status, "reason": reason, "message": message}


DELETION_PENDING = terminating_condition(
    "True",
    "InstanceDeletionPending",
    "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
)
DELETION_IN_PROGRESS = terminating_condition(
    "True", "InstanceDeletionInProgress", "CustomResource deletion is in progress"
)
DELETION_COMPLETED = terminating_condition("False", "InstanceDeletionCompleted", "removed all instances")
NEVER_ESTABLISHED = terminating_condition("False", "NeverEstablished", "resource was never established")


def mark_for_deletion(definition: JsonObject, now: str) -> JsonObject:
    """Return a deleted definition whose custom resources still exist."""
    meta: JsonObject = dict(definition["metadata"])
    finalizers = get_array(meta, "finalizers")
    if CRD_CLEANUP not in finalizers:
        meta["finalizers"] = [*finalizers, CRD_CLEANUP]
    meta["deletionTimestamp"] = now
    return {
        **definition,
        "metadata": meta,
        "status": set_condition(get_object(definition, "status"), DELETION_PENDING, now),
    }
