"""What becomes of an object between the request and the store: the create and update strategies.

Source: ``k8s.io/apiserver/pkg/registry/rest`` and the strategies in ``pkg/registry`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any
from uuid import UUID

from steersman.testing.apiserver import failures
from steersman.testing.apiserver.defaults import apply_defaults, carry_over, complete_new
from steersman.testing.apiserver.failures import FieldError
from steersman.testing.apiserver.immutability import check_unchanged
from steersman.testing.apiserver.kinds import Kind
from steersman.testing.apiserver.names import check_finalizers, check_metadata
from steersman.testing.apiserver.schema import fill_defaults, prune, validate
from steersman.testing.apiserver.values import MISSING, JsonObject, clone, is_map, metadata, without_nulls

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


def prepare_create(kind: Kind, obj: JsonObject, *, now: str, random: Random, strict: bool) -> JsonObject:
    """The object to store for the sent ``obj``, whose name and namespace are decided.

    Raises:
        ApiError: 400 (with ``strict``: unknown field), 422.
    """
    result = _conform(kind, obj, strict=strict)
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
    if not kind.custom:
        complete_new(kind.resource.kind, result, random)
    _refuse(kind, result, [*check_metadata(kind.resource.kind, meta), *_schema_errors(kind, result, MISSING)])
    return result


def prepare_update(kind: Kind, old: JsonObject, obj: JsonObject, subresource: str, *, strict: bool) -> JsonObject:
    """The object to store in place of ``old`` for the sent ``obj``, written to ``subresource`` (empty: the object).

    Equal to ``old`` where nothing changes. Raises as ``prepare_create``.
    """
    result = _conform(kind, obj, strict=strict)
    if subresource == "status":
        result = _with_status_of(old, result)
    elif kind.has_status:
        result.pop("status", None)
        if "status" in old:
            result["status"] = old["status"]
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
    _refuse(kind, result, _update_errors(kind, old, result))
    return result


def _conform(kind: Kind, obj: JsonObject, *, strict: bool) -> JsonObject:
    """A copy in the stored version, pruned by the schema."""
    if kind.schema is None:
        result: JsonObject = without_nulls(obj)
    else:
        result, unknown = prune(obj, kind.schema)
        if unknown and strict:
            listed = ", ".join(f'unknown field "{path}"' for path in unknown)
            raise failures.bad_request(f"strict decoding error: {listed}")
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


def _update_errors(kind: Kind, old: JsonObject, new: JsonObject) -> Iterator[FieldError]:
    yield from check_metadata(kind.resource.kind, new["metadata"])
    yield from check_finalizers(old["metadata"], new["metadata"])
    yield from _schema_errors(kind, new, old)
    if not kind.custom:
        yield from check_unchanged(kind.resource.kind, old, new)


def _schema_errors(kind: Kind, obj: JsonObject, old: Any) -> list[FieldError]:
    return validate(obj, old, kind.schema) if kind.schema is not None else []


def _refuse(kind: Kind, obj: JsonObject, errors: Any) -> None:
    found = list(errors)
    if found:
        raise failures.invalid(kind.resource, obj["metadata"].get("name", ""), found)


def check_body(kind: Kind, body: Any, *, name: str, namespace: str) -> JsonObject:
    """``body`` as an object of ``kind``, its metadata completed from the URL.

    Raises:
        ApiError: 400, it is of another kind, or names another object than the URL.
    """
    if not is_map(body):
        raise failures.bad_request("the object provided is unrecognized: it is not a JSON object")
    expected = kind.resource.api_version
    found = body.get("apiVersion", expected)
    if found != expected:
        raise failures.bad_request(
            f"the API version in the data ({found}) does not match the expected API version ({expected})"
        )
    named = body.get("kind", kind.resource.kind)
    if named != kind.resource.kind:
        raise failures.bad_request(
            f'{named} in version "{kind.resource.version}" cannot be handled as a {kind.resource.kind}'
        )
    result = {**body, "metadata": dict(metadata(body))}
    _complete_from_url(result["metadata"], name, namespace)
    return result


def _complete_from_url(meta: JsonObject, name: str, namespace: str) -> None:
    sent = meta.get("name") or ""
    if name and sent and sent != name:
        raise failures.bad_request(f"the name of the object ({sent}) does not match the name on the URL ({name})")
    if name:
        meta["name"] = name
    if (meta.get("namespace") or namespace) != namespace:
        raise failures.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if namespace:
        meta["namespace"] = namespace
