"""The status of a definition: which of its names it may have beside others, and how far its deletion has come.

Source: ``pkg/controller/status/naming_controller.go``, ``pkg/controller/finalizer/crd_finalizer.go``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steersman_testing.apiserver.definitions.approval import approval_condition
from steersman_testing.apiserver.values import JsonObject, list_at, map_at

CRD_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_KINDS = ("kind", "listKind")


def accepted_status(definition: JsonObject, others: Iterable[JsonObject], now: str) -> JsonObject:
    """The status of ``definition`` beside the ``others`` of its group."""
    status: JsonObject = dict(map_at(definition, "status"))
    wanted: JsonObject = map_at(map_at(definition, "spec"), "names")
    if wanted != status.get("acceptedNames"):
        names, refusal = _accept(wanted, map_at(status, "acceptedNames"), list(others))
        status["acceptedNames"] = names
        accepted = {
            "type": "NamesAccepted",
            "status": "True",
            "reason": "NoConflicts",
            "message": "no conflicts found",
        }
        if refusal:
            reason, message = refusal
            accepted = {"type": "NamesAccepted", "status": "False", "reason": reason, "message": message}
        status = with_condition(status, accepted, now)
        status = with_condition(status, _established(status, accepted), now)
    if (approval := approval_condition(definition)) is not None:
        status = with_condition(status, approval, now)
    return status


def _established(status: JsonObject, accepted: JsonObject) -> JsonObject:
    former = next((c for c in list_at(status, "conditions") if c.get("type") == "Established"), None)
    if former is not None and (former["status"] == "True" or accepted["status"] != "True"):
        return former
    if accepted["status"] == "True":
        reason, message = "InitialNamesAccepted", "the initial names have been accepted"
        return {"type": "Established", "status": "True", "reason": reason, "message": message}
    message = "not all names are accepted"
    return {"type": "Established", "status": "False", "reason": "NotAccepted", "message": message}


def _accept(
    wanted: JsonObject, accepted: JsonObject, others: list[JsonObject]
) -> tuple[JsonObject, tuple[str, str] | None]:
    """The names that are free, or had before, and why others are not; the last refusal counts."""
    taken = [map_at(map_at(o, "status"), "acceptedNames") for o in others]
    resources = {n for names in (*taken, accepted) for n in _resources(names)}
    kinds = {names.get(f, "") for names in (*taken, accepted) for f in _KINDS}
    result: JsonObject = dict(accepted)
    refusal: tuple[str, str] | None = None
    for field, used in (("plural", resources), ("singular", resources)):
        refusal = _one(field, wanted, accepted, used, result) or refusal
    refusal = _short_names(wanted, accepted, resources, result) or refusal
    for field in _KINDS:
        refusal = _one(field, wanted, accepted, kinds, result) or refusal
    result.pop("categories", None)
    if "categories" in wanted:
        result["categories"] = wanted["categories"]
    return result, refusal


def _resources(names: JsonObject) -> list[str]:
    return [names.get("plural", ""), names.get("singular", ""), *list_at(names, "shortNames")]


def _one(
    field: str, wanted: JsonObject, accepted: JsonObject, used: set[str], result: JsonObject
) -> tuple[str, str] | None:
    name: str = wanted.get(field, "")
    if name != accepted.get(field, "") and name in used:
        return f"{field[0].upper()}{field[1:]}Conflict", f'"{name}" is already in use'
    result[field] = name
    return None


def _short_names(
    wanted: JsonObject, accepted: JsonObject, used: set[str], result: JsonObject
) -> tuple[str, str] | None:
    names: list[str] = list_at(wanted, "shortNames")
    had: list[str] = list_at(accepted, "shortNames")
    refused = [f'"{n}" is already in use' for n in names if n not in had and n in used]
    if refused:
        return "ShortNamesConflict", refused[0] if len(refused) == 1 else f"[{', '.join(refused)}]"
    result.pop("shortNames", None)
    if names:
        result["shortNames"] = names
    return None


def with_condition(status: JsonObject, condition: JsonObject, now: str) -> JsonObject:
    """``status`` with ``condition`` in place of the one of its type, whose time stays where it says the same."""
    conditions: list[Any] = list_at(status, "conditions")
    former = next((c for c in conditions if c.get("type") == condition["type"]), None)
    if former is None:
        return {**status, "conditions": [*conditions, {"lastTransitionTime": now, **condition}]}
    since = former["lastTransitionTime"] if former["status"] == condition["status"] else now
    told = {**condition, "lastTransitionTime": since}
    return {**status, "conditions": [told if c is former else c for c in conditions]}


def terminating(status: str, reason: str, message: str) -> JsonObject:
    """The condition that tells how far the deletion of a definition has come."""
    return {"type": "Terminating", "status": status, "reason": reason, "message": message}


PENDING = terminating(
    "True",
    "InstanceDeletionPending",
    "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
)
IN_PROGRESS = terminating("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
COMPLETED = terminating("False", "InstanceDeletionCompleted", "removed all instances")
NEVER_ESTABLISHED = terminating("False", "NeverEstablished", "resource was never established")


def marked_for_deletion(definition: JsonObject, now: str) -> JsonObject:
    """``definition`` after it was deleted, while its objects are still there."""
    meta: JsonObject = dict(definition["metadata"])
    finalizers = list_at(meta, "finalizers")
    if CRD_CLEANUP not in finalizers:
        meta["finalizers"] = [*finalizers, CRD_CLEANUP]
    meta["deletionTimestamp"] = now
    return {**definition, "metadata": meta, "status": with_condition(map_at(definition, "status"), PENDING, now)}
