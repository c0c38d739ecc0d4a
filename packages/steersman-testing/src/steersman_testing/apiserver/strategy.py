"""Strategies for create and update: preparation and validation before storage.

Source: ``k8s.io/apiserver/pkg/registry/rest`` and the strategies in ``pkg/registry`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any
from uuid import UUID

from steersman_testing.apiserver import failures
from steersman_testing.apiserver.builtin.defaults import apply_defaults, keep_allocated_fields, set_creation_fields
from steersman_testing.apiserver.builtin.resize import resized_pod, validate_pod_resize
from steersman_testing.apiserver.builtin.types import decode_builtin
from steersman_testing.apiserver.builtin.update_validation import validate_immutable_fields
from steersman_testing.apiserver.builtin.validation import validate_content
from steersman_testing.apiserver.builtin.zero_values import nulls_for_empty_lists, set_zero_values, zero_values_of
from steersman_testing.apiserver.definitions.conversion import prune_to_schema
from steersman_testing.apiserver.definitions.crds import (
    CRD,
    decode_definition,
    definition_errors,
    initial_status,
    status_after_update,
)
from steersman_testing.apiserver.definitions.custom_resource_validation import custom_resource_errors
from steersman_testing.apiserver.failures import InvalidFieldError, invalid_value
from steersman_testing.apiserver.fields.managed_fields import FieldScope
from steersman_testing.apiserver.go_values import UnmarshalTypeError
from steersman_testing.apiserver.kinds import ServedKind
from steersman_testing.apiserver.names import finalizer_errors, validate_finalizer_update, validate_metadata
from steersman_testing.apiserver.schemas.schema import fill_defaults
from steersman_testing.apiserver.values import (
    MISSING,
    JsonObject,
    clone,
    ensure_metadata,
    get_array,
    get_object,
    json_equal,
    normalize_numbers,
    without_nulls,
)

_SERVER_SET_METADATA = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
    "managedFields",
    "resourceVersion",
)
_PRESERVED_ON_UPDATE = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_DROPPED_WHEN_EMPTY = ("labels", "annotations", "finalizers", "ownerReferences", "generateName", "namespace")
# Other fields than TypeMeta, ObjectMeta and the status count towards the generation.
_IGNORED_FOR_GENERATION = ("apiVersion", "kind", "metadata", "status")
# Metadata of built-in kinds that a write of the status preserves.
_PRESERVED_BY_STATUS = {"Pod": ("ownerReferences", "deletionTimestamp"), "Deployment": ("labels",)}
_STATUS_PATH = ("f:status",)
_ALL_FIELDS = FieldScope()
_WITHOUT_STATUS = FieldScope(resets=frozenset({_STATUS_PATH}))
_STATUS_ONLY = FieldScope(roots=frozenset({_STATUS_PATH}))
_STATUS_AND_METADATA = FieldScope(roots=frozenset({_STATUS_PATH, ("f:metadata",)}))


def decode_as_kind(kind: ServedKind, obj: JsonObject, *, from_apply: bool = False) -> tuple[JsonObject, list[str]]:
    """Return a decoded copy of ``obj`` and its unknown fields.

    Unknown fields are paths. The metadata is not decoded, and its unknown fields are not reported.

    Args:
        from_apply: whether the object comes from a server-side apply, which keeps nulls of custom resources.

    Raises:
        UnmarshalTypeError: a value of a built-in kind has the wrong type.
    """
    resource = kind.resource
    if kind.schema is not None:
        result, unknown = prune_to_schema(obj, kind.schema, keep_nulls=from_apply)
    elif resource == CRD:
        # Replace the spec by a copy without nulls.
        result = {n: v if n == "spec" else without_nulls(v) for n, v in obj.items() if v is not None}
        unknown = decode_definition(result, keep_nulls=False)
    else:
        result, unknown = decode_builtin(resource, obj)
        if from_apply:
            result["metadata"] = without_nulls(result["metadata"])
    result["apiVersion"], result["kind"] = resource.api_version, resource.kind
    return result, unknown


def redecode(kind: ServedKind, obj: JsonObject, *, from_apply: bool = False) -> JsonObject:
    """Decode an object that the server or a webhook changed, as ``decode_as_kind``.

    Raises:
        ApiError: 400, a value has the wrong type.
    """
    try:
        return decode_as_kind(kind, obj, from_apply=from_apply)[0]
    except UnmarshalTypeError as error:
        kind_name, version = kind.resource.kind, kind.resource.version
        raise failures.bad_request(
            f'{kind_name} in version "{version}" cannot be handled as a {kind_name}: {error}'
        ) from None


def set_defaults(kind: ServedKind, obj: JsonObject) -> JsonObject:
    """Set defaults in the decoded ``obj``, in place, for mutating webhooks."""
    _normalize_metadata(obj)
    _set_defaults(kind, obj)
    return obj


def prepare_for_create(
    kind: ServedKind, obj: JsonObject, *, now: str, random: Random, validate: bool = True
) -> JsonObject:
    """Prepare the decoded ``obj`` for create, in place, and return it.

    Name and namespace are set. ``set_server_fields`` and ``canonicalize`` follow.

    Args:
        validate: whether to validate it.

    Raises:
        ApiError: 422, the object is invalid.
    """
    meta = _normalize_metadata(obj)
    sent_generation = meta.get("generation")
    for name in _SERVER_SET_METADATA:
        meta.pop(name, None)
    meta["uid"] = str(UUID(int=random.getrandbits(128), version=4))
    meta["creationTimestamp"] = now
    if kind.has_generation or kind.is_custom:
        meta["generation"] = 1
    elif sent_generation:
        # The server does not count generations of this kind and keeps the one that was sent.
        meta["generation"] = sent_generation
    if kind.has_status:
        obj.pop("status", None)
    if kind.resource == CRD:
        obj["status"] = initial_status(obj)
    _set_defaults(kind, obj)
    if validate:
        _raise_if_invalid(kind, obj, _creation_errors(kind, obj))
    if kind.is_custom or kind.resource == CRD:
        normalize_numbers(obj)
    return obj


def _creation_errors(kind: ServedKind, obj: JsonObject) -> list[InvalidFieldError]:
    errors = [*validate_metadata(kind.resource.kind, ensure_metadata(obj), custom=kind.is_custom)]
    errors += custom_resource_errors(kind, obj, MISSING, "", errors)
    if not kind.is_custom:
        errors += validate_content(kind.resource.kind, obj)
    if kind.resource == CRD:
        errors += definition_errors(obj)
    return errors


def canonicalize(kind: ServedKind, obj: JsonObject) -> JsonObject:
    """Return ``obj`` in the form that is stored and read."""
    return obj if kind.is_custom else nulls_for_empty_lists(kind.resource, obj)


def set_server_fields(kind: ServedKind, obj: JsonObject) -> None:
    """Set the fields that the server decides at creation, in place. They have no manager."""
    if not kind.is_custom:
        set_creation_fields(kind.resource.kind, obj)


def prepare_for_update(
    kind: ServedKind, old: JsonObject, obj: JsonObject, subresource: str, *, validate: bool = True
) -> JsonObject:
    """Prepare the decoded ``obj`` for update and return the object to store.

    The result equals ``old`` if nothing changes. ``obj`` must not be used afterwards.

    Args:
        subresource: the subresource that is written. Empty for the object itself.
        validate: whether to validate it.

    Raises:
        ApiError: 422, the object is invalid.
    """
    result = obj
    if subresource == "status":
        result = _replace_status(kind, old, obj)
    elif subresource == "resize":
        result = resized_pod(old, obj)
    elif kind.has_status:
        result.pop("status", None)
        if "status" in old:
            result["status"] = clone(old["status"])
        if kind.resource == CRD:
            result["status"] = status_after_update(result, old)
    meta = _normalize_metadata(result)
    before: JsonObject = old["metadata"]
    deletion_errors = list(_deletion_timestamp_errors(before, meta))
    for name in (*_SERVER_SET_METADATA, "name", "namespace"):
        meta.pop(name, None)
    meta |= {n: before[n] for n in (*_PRESERVED_ON_UPDATE, "name", "namespace", "resourceVersion") if n in before}
    _set_defaults(kind, result)
    if not kind.is_custom:
        keep_allocated_fields(kind.resource.kind, clone(old), result, subresource)
    tracks_generation = "generation" in before and (kind.has_generation or kind.is_custom)
    if kind.resource.kind == "PriorityClass" and not kind.is_custom:
        # The real server sets its generation at creation only.
        tracks_generation = False
    if tracks_generation and not json_equal(
        _generation_fields(kind, old), _generation_fields(kind, canonicalize(kind, result))
    ):
        meta["generation"] = before["generation"] + 1
    if validate:
        _raise_if_invalid(kind, result, [*deletion_errors, *_update_errors(kind, old, result, subresource)])
    if kind.is_custom or kind.resource == CRD:
        # Normalize after the comparison: 1.0 in place of a stored 1 is a change in each write.
        normalize_numbers(result)
    return result


def field_scope(kind: ServedKind, subresource: str) -> FieldScope:
    """Return the fields that a write to ``subresource`` can own.

    Args:
        subresource: empty for the object itself.
    """
    if subresource != "status":
        return _WITHOUT_STATUS if kind.has_status else _ALL_FIELDS
    if kind.is_custom:
        return _STATUS_ONLY
    return _STATUS_AND_METADATA._replace(
        resets=frozenset(("f:metadata", f"f:{n}") for n in _PRESERVED_BY_STATUS.get(kind.resource.kind, ()))
    )


def zero_object(kind: ServedKind) -> JsonObject:
    """Return the fields of an empty object of a built-in kind.

    They have no manager.
    """
    if kind.resource == CRD:
        return {"spec": {"names": {}}}
    return {} if kind.is_custom else zero_values_of(kind.resource)


def _replace_status(kind: ServedKind, old: JsonObject, obj: JsonObject) -> JsonObject:
    """Return ``old`` with the status of ``obj``.

    Built-in kinds take the metadata of ``obj`` as well.
    """
    result = {k: clone(v) for k, v in old.items() if k != "status"}
    if "status" in obj:
        result["status"] = obj["status"]
    if not kind.is_custom:
        preserved = {n: result["metadata"].get(n) for n in _PRESERVED_BY_STATUS.get(kind.resource.kind, ())}
        result["metadata"] = {**ensure_metadata(obj), **preserved}
    return result


def _normalize_metadata(obj: JsonObject) -> JsonObject:
    meta = ensure_metadata(obj)
    for name in _DROPPED_WHEN_EMPTY:
        if name in meta and not meta[name]:
            del meta[name]
    if "ownerReferences" in meta:
        owners = meta["ownerReferences"]
        meta["ownerReferences"] = [o for i, o in enumerate(owners) if o not in owners[:i]]
    return meta


def _set_defaults(kind: ServedKind, obj: JsonObject) -> None:
    if kind.schema is not None:
        fill_defaults(obj, kind.schema)
    elif not kind.is_custom:
        apply_defaults(kind.resource.kind, obj)
        set_zero_values(kind.resource, obj)


def _generation_fields(kind: ServedKind, obj: JsonObject) -> JsonObject:
    # Without a status subresource, changes of the field status count as well.
    ignored = _IGNORED_FOR_GENERATION if kind.has_status or not kind.is_custom else _IGNORED_FOR_GENERATION[:3]
    return {k: v for k, v in obj.items() if k not in ignored}


def _deletion_timestamp_errors(before: JsonObject, metadata: JsonObject) -> Iterator[InvalidFieldError]:
    """Reject a deletionTimestamp. Only DELETE sets it."""
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        if name not in before and metadata.get(name) is not None:
            error = invalid_value(f"metadata.{name}", metadata[name], "field is immutable")
            # The real server validates the metadata twice and reports the error twice.
            yield from (error, error)


def _update_errors(
    kind: ServedKind, old: JsonObject, new: JsonObject, subresource: str
) -> Iterator[InvalidFieldError]:
    found = [
        *validate_metadata(kind.resource.kind, new["metadata"], custom=kind.is_custom),
        *validate_finalizer_update(old["metadata"], new["metadata"]),
    ]
    yield from found
    yield from custom_resource_errors(kind, new, old, subresource, found)
    if not kind.is_custom:
        if kind.resource == CRD and not subresource:
            yield from definition_errors(new, old)
        if subresource == "resize":
            yield from validate_pod_resize(old, new)
        else:
            yield from validate_immutable_fields(kind.resource.kind, old, new)
        yield from validate_content(kind.resource.kind, new)
        if subresource == "finalize":
            yield from finalizer_errors(
                get_array(get_object(new, "spec"), "finalizers"), "spec.finalizers", indexed_paths=True
            )


def _raise_if_invalid(kind: ServedKind, obj: JsonObject, errors: Any) -> None:
    found = list(errors)
    if found:
        resource = (
            kind.resource
            if kind.storage_collection is None
            else kind.resource._replace(group=kind.storage_collection.group)
        )
        raise failures.invalid(resource, obj["metadata"].get("name", ""), found)
