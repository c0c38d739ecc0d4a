"""What becomes of an object between the request and the store: the create and update strategies.

Source: ``k8s.io/apiserver/pkg/registry/rest`` and the strategies in ``pkg/registry`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any
from uuid import UUID

from steersman.testing.apiserver import failures
from steersman.testing.apiserver.bodies import unknown_metadata
from steersman.testing.apiserver.content import check_content
from steersman.testing.apiserver.defaults import apply_defaults, carry_over, complete_new
from steersman.testing.apiserver.failures import FieldError
from steersman.testing.apiserver.immutability import check_unchanged
from steersman.testing.apiserver.kinds import Kind
from steersman.testing.apiserver.names import check_finalizers, check_metadata
from steersman.testing.apiserver.rules import BLOCKING, NOT_CHECKED, check_rules
from steersman.testing.apiserver.schema import fill_defaults, prune, validate, validate_status
from steersman.testing.apiserver.values import MISSING, JsonObject, clone, metadata, without_nulls

_SET_BY_SERVER = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
    "managedFields",
    "resourceVersion",
)
_KEPT_ON_UPDATE = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_EMPTY_IS_ABSENT = ("labels", "annotations", "finalizers", "ownerReferences", "generateName", "namespace")
# ObjectMeta and TypeMeta aside, what counts as wanted is everything but the status.
_NOT_WANTED = ("apiVersion", "kind", "metadata", "status")


def prepare_create(kind: Kind, obj: JsonObject, *, now: str, random: Random) -> JsonObject:
    """The object to store for the sent ``obj``, whose name and namespace are decided; ``complete`` comes after it.

    Raises:
        ApiError: 422.
    """
    result = _conform(kind, obj)
    meta = _tidy_metadata(result)
    for name in _SET_BY_SERVER:
        meta.pop(name, None)
    meta["uid"] = str(UUID(int=random.getrandbits(128), version=4))
    meta["creationTimestamp"] = now
    if kind.has_generation or kind.custom:
        meta["generation"] = 1
    if kind.has_status:
        result.pop("status", None)
    _fill(kind, result)
    errors = [
        *check_metadata(kind.resource.kind, meta, custom=kind.custom),
        *_schema_errors(kind, result, MISSING, ""),
        *check_content(kind.resource.kind, result),
    ]
    _refuse(kind, result, errors)
    return result


def complete(kind: Kind, obj: JsonObject, random: Random) -> JsonObject:
    """``obj`` with what the server decides at creation, which no manager owns."""
    if kind.custom:
        return obj
    result: JsonObject = clone(obj)
    complete_new(kind.resource.kind, result, random)
    return result


def prepare_update(kind: Kind, old: JsonObject, obj: JsonObject, subresource: str) -> JsonObject:
    """The object to store in place of ``old`` for the sent ``obj``, written to ``subresource`` (empty: the object).

    Equal to ``old`` where nothing changes. Raises as ``prepare_create``.
    """
    result = _conform(kind, obj)
    if subresource == "status":
        result = _with_status_of(old, result)
    elif kind.has_status:
        result.pop("status", None)
        if "status" in old:
            result["status"] = clone(old["status"])
    meta = _tidy_metadata(result)
    before: JsonObject = old["metadata"]
    for name in (*_SET_BY_SERVER, "name", "namespace"):
        meta.pop(name, None)
    meta |= {n: before[n] for n in (*_KEPT_ON_UPDATE, "name", "namespace", "resourceVersion") if n in before}
    _fill(kind, result)
    if not kind.custom:
        carry_over(kind.resource.kind, clone(old), result)
    if "generation" in before and _wanted(kind, old) != _wanted(kind, result):
        meta["generation"] = before["generation"] + 1
    _refuse(kind, result, _update_errors(kind, old, result, subresource))
    return result


def unknown_fields(kind: Kind, obj: JsonObject) -> list[str]:
    """The paths of fields that the kind does not have, as far as its schema is known."""
    unknown = unknown_metadata(obj)
    return unknown if kind.schema is None else [*unknown, *prune(obj, kind.schema)[1]]


def _conform(kind: Kind, obj: JsonObject) -> JsonObject:
    """A copy in the stored version, pruned by the schema."""
    result: JsonObject = without_nulls(obj) if kind.schema is None else prune(obj, kind.schema)[0]
    for path in unknown_metadata(result):
        del result["metadata"][path.removeprefix("metadata.")]
    group = kind.resource.group
    result["apiVersion"] = f"{group}/{kind.storage_version}" if group else kind.storage_version
    result["kind"] = kind.resource.kind
    return result


def _with_status_of(old: JsonObject, obj: JsonObject) -> JsonObject:
    result = {k: clone(v) for k, v in old.items() if k != "status"}
    if "status" in obj:
        result["status"] = obj["status"]
    return result


def _tidy_metadata(obj: JsonObject) -> JsonObject:
    meta = metadata(obj)
    for name in _EMPTY_IS_ABSENT:
        if name in meta and not meta[name]:
            del meta[name]
    return meta


def _fill(kind: Kind, obj: JsonObject) -> None:
    if kind.schema is not None:
        fill_defaults(obj, kind.schema)
    elif not kind.custom:
        apply_defaults(kind.resource.kind, obj)


def _wanted(kind: Kind, obj: JsonObject) -> JsonObject:
    # A custom resource without a status subresource counts changes of its status field, too.
    ignored = _NOT_WANTED if kind.has_status or not kind.custom else _NOT_WANTED[:3]
    return {k: v for k, v in obj.items() if k not in ignored}


def _update_errors(kind: Kind, old: JsonObject, new: JsonObject, subresource: str) -> Iterator[FieldError]:
    yield from check_metadata(kind.resource.kind, new["metadata"], custom=kind.custom)
    yield from check_finalizers(old["metadata"], new["metadata"])
    yield from _schema_errors(kind, new, old, subresource)
    if not kind.custom:
        yield from check_unchanged(kind.resource.kind, old, new)
        yield from check_content(kind.resource.kind, new)


def _schema_errors(kind: Kind, obj: JsonObject, old: Any, subresource: str) -> list[FieldError]:
    if kind.schema is None:
        return []
    check = validate_status if subresource == "status" else validate
    found = check(obj, old, kind.schema)
    if not kind.has_rules:
        return found
    blocked = any(e.reason in BLOCKING for e in found)
    return [*found, NOT_CHECKED] if blocked else [*found, *check_rules(obj, old, kind.schema)]


def _refuse(kind: Kind, obj: JsonObject, errors: Any) -> None:
    found = list(errors)
    if found:
        raise failures.invalid(kind.resource, obj["metadata"].get("name", ""), found)
