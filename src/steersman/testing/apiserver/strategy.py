"""What becomes of an object between the request and the store: the create and update strategies.

Source: ``k8s.io/apiserver/pkg/registry/rest`` and the strategies in ``pkg/registry`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any
from uuid import UUID

from steersman.testing.apiserver import failures
from steersman.testing.apiserver.builtin.content import check_content
from steersman.testing.apiserver.builtin.defaults import apply_defaults, carry_over, complete_new
from steersman.testing.apiserver.builtin.immutability import check_unchanged
from steersman.testing.apiserver.builtin.types import as_stored, blank_of, conform_builtin, fill_blanks
from steersman.testing.apiserver.definitions.conversion import conform
from steersman.testing.apiserver.definitions.crds import (
    CRD,
    complete_definition,
    definition_errors,
    first_status,
    kept_status,
)
from steersman.testing.apiserver.definitions.customresources import custom_errors
from steersman.testing.apiserver.failures import FieldError, invalid_value
from steersman.testing.apiserver.fields.ownership import Reach
from steersman.testing.apiserver.go_values import WrongType
from steersman.testing.apiserver.kinds import Kind
from steersman.testing.apiserver.names import check_finalizers, check_metadata, finalizer_errors
from steersman.testing.apiserver.schemas.embedded import embeds, tidy_metadata
from steersman.testing.apiserver.schemas.schema import fill_defaults, prune
from steersman.testing.apiserver.values import (
    MISSING,
    JsonObject,
    clone,
    list_at,
    map_at,
    metadata,
    same,
    without_nulls,
    write_whole_numbers,
)

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
# The metadata of built-in kinds that a write of the status leaves as it is.
_KEPT_BY_STATUS = {"Pod": ("ownerReferences", "deletionTimestamp"), "Deployment": ("labels",)}
_STATUS_ROOT = ("f:status",)
_ALL = Reach()
_ALL_BUT_STATUS = Reach(resets=frozenset({_STATUS_ROOT}))
_STATUS = Reach(roots=frozenset({_STATUS_ROOT}))
_STATUS_AND_METADATA = Reach(roots=frozenset({_STATUS_ROOT, ("f:metadata",)}))


def decoded(kind: Kind, obj: JsonObject, *, applied: bool = False) -> JsonObject:
    """The sent ``obj`` as mutating webhooks see it: pruned, and with the defaults; for ``applied`` see below."""
    result = _conform(kind, obj, keep_nulls=applied)
    _tidy_metadata(result)
    _fill(kind, result)
    return result


def prepare_create(
    kind: Kind, obj: JsonObject, *, now: str, random: Random, check: bool = True, applied: bool = False
) -> JsonObject:
    """The object to store for the sent ``obj``, whose name and namespace are decided; ``complete`` comes after it.

    Args:
        check: whether to validate it.
        applied: whether it comes of an apply, whose nulls are nowhere dropped.

    Raises:
        ApiError: 422.
    """
    result = _conform(kind, obj, keep_nulls=applied)
    meta = _tidy_metadata(result)
    sent_generation = meta.get("generation")
    for name in _SET_BY_SERVER:
        meta.pop(name, None)
    meta["uid"] = str(UUID(int=random.getrandbits(128), version=4))
    meta["creationTimestamp"] = now
    if kind.has_generation or kind.custom:
        meta["generation"] = 1
    elif sent_generation:
        # Nobody counts it, nobody takes it away.
        meta["generation"] = sent_generation
    if kind.has_status:
        result.pop("status", None)
    if kind.resource == CRD:
        result["status"] = first_status(result)
    _fill(kind, result)
    if check:
        _refuse(kind, result, _creation_errors(kind, result))
    if kind.custom or kind.resource == CRD:
        write_whole_numbers(result)
    return result


def _creation_errors(kind: Kind, obj: JsonObject) -> list[FieldError]:
    errors = [*check_metadata(kind.resource.kind, metadata(obj), custom=kind.custom)]
    errors += custom_errors(kind, obj, MISSING, "", errors)
    if not kind.custom:
        errors += check_content(kind.resource.kind, obj)
    if kind.resource == CRD:
        errors += definition_errors(obj)
    return errors


def kept(kind: Kind, obj: JsonObject) -> JsonObject:
    """``obj`` as it is stored and read from then on."""
    return obj if kind.custom else as_stored(kind.resource, obj)


def complete(kind: Kind, obj: JsonObject) -> JsonObject:
    """``obj`` with what the server decides at creation, which no manager owns."""
    if kind.custom:
        return obj
    result: JsonObject = clone(obj)
    complete_new(kind.resource.kind, result)
    return result


def prepare_update(
    kind: Kind, old: JsonObject, obj: JsonObject, subresource: str, *, check: bool = True, applied: bool = False
) -> JsonObject:
    """The object to store in place of ``old`` for the sent ``obj``; equal to ``old`` where nothing changes.

    Args:
        subresource: which it is written to; empty: the object itself.
        check: whether to validate it.
        applied: whether it comes of an apply, whose nulls are nowhere dropped.

    Raises:
        ApiError: 422.
    """
    result = _conform(kind, obj, keep_nulls=applied)
    if subresource == "status":
        result = _with_status_of(kind, old, result)
    elif kind.has_status:
        result.pop("status", None)
        if "status" in old:
            result["status"] = clone(old["status"])
        if kind.resource == CRD:
            result["status"] = kept_status(result, old)
    meta = _tidy_metadata(result)
    before: JsonObject = old["metadata"]
    asked = list(_deletion_errors(before, meta))
    for name in (*_SET_BY_SERVER, "name", "namespace"):
        meta.pop(name, None)
    meta |= {n: before[n] for n in (*_KEPT_ON_UPDATE, "name", "namespace", "resourceVersion") if n in before}
    _fill(kind, result)
    if not kind.custom:
        carry_over(kind.resource.kind, clone(old), result, subresource)
    counted = "generation" in before and (kind.has_generation or kind.custom)
    if counted and not same(_wanted(kind, old), _wanted(kind, kept(kind, result))):
        meta["generation"] = before["generation"] + 1
    if check:
        _refuse(kind, result, [*asked, *_update_errors(kind, old, result, subresource)])
    if kind.custom or kind.resource == CRD:
        # After the comparison: 1.0 in place of the 1 that is stored counts as a change, each time it is written.
        write_whole_numbers(result)
    return result


def unknown_fields(kind: Kind, obj: JsonObject) -> list[str]:
    """The paths of fields that the kind does not have, as far as its schema is known; those of metadata aside.

    Raises:
        WrongType: a value of a built-in kind does not fit its field.
    """
    if kind.resource == CRD:
        return list(complete_definition(clone(obj)))
    if kind.schema is None:
        return conform_builtin(kind.resource, obj)[1]
    unknown = prune(obj, kind.schema, keep_nulls=True)[1]
    return [*unknown, *tidy_metadata(clone(obj), kind.schema)] if embeds(kind.schema) else unknown


def _conform(kind: Kind, obj: JsonObject, *, keep_nulls: bool = False) -> JsonObject:
    """A copy in the stored version, pruned by the schema."""
    schema = kind.schema
    result: JsonObject = _builtin(kind, obj) if schema is None else conform(obj, schema, keep_nulls=keep_nulls)
    result["apiVersion"] = kind.resource.api_version
    result["kind"] = kind.resource.kind
    return result


def _builtin(kind: Kind, obj: JsonObject) -> JsonObject:
    """``obj`` as the Go type of a built-in kind holds it."""
    resource = kind.resource
    try:
        return without_nulls(conform_builtin(resource, obj)[0])
    except WrongType as error:
        raise failures.bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {error}'
        ) from None


def reach_of(kind: Kind, subresource: str) -> Reach:
    """Where a write to ``subresource`` (empty: the object) of a ``kind`` changes anything."""
    if subresource != "status":
        return _ALL_BUT_STATUS if kind.has_status else _ALL
    if kind.custom:
        return _STATUS
    return _STATUS_AND_METADATA._replace(
        resets=frozenset(("f:metadata", f"f:{n}") for n in _KEPT_BY_STATUS.get(kind.resource.kind, ()))
    )


def blank(kind: Kind) -> JsonObject:
    """What an object of a built-in kind has before anything is written to it: owned by nobody."""
    if kind.resource == CRD:
        return {"spec": {"names": {}}}
    return {} if kind.custom else blank_of(kind.resource)


def _with_status_of(kind: Kind, old: JsonObject, obj: JsonObject) -> JsonObject:
    """``old`` with the status of ``obj``, and of a built-in kind with its metadata, too."""
    result = {k: clone(v) for k, v in old.items() if k != "status"}
    if "status" in obj:
        result["status"] = obj["status"]
    if not kind.custom:
        kept = {n: result["metadata"].get(n) for n in _KEPT_BY_STATUS.get(kind.resource.kind, ())}
        result["metadata"] = {**metadata(obj), **kept}
    return result


def _tidy_metadata(obj: JsonObject) -> JsonObject:
    meta = metadata(obj)
    for name in _EMPTY_IS_ABSENT:
        if name in meta and not meta[name]:
            del meta[name]
    if "ownerReferences" in meta:
        owners = meta["ownerReferences"]
        meta["ownerReferences"] = [o for i, o in enumerate(owners) if o not in owners[:i]]
    return meta


def _fill(kind: Kind, obj: JsonObject) -> None:
    if kind.schema is not None:
        fill_defaults(obj, kind.schema)
    elif not kind.custom:
        apply_defaults(kind.resource.kind, obj)
        fill_blanks(kind.resource, obj)


def _wanted(kind: Kind, obj: JsonObject) -> JsonObject:
    # A custom resource without a status subresource counts changes of its status field, too.
    ignored = _NOT_WANTED if kind.has_status or not kind.custom else _NOT_WANTED[:3]
    return {k: v for k, v in obj.items() if k not in ignored}


def _deletion_errors(before: JsonObject, sent: JsonObject) -> Iterator[FieldError]:
    """A deletion is asked for by DELETE alone."""
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        if name not in before and sent.get(name) is not None:
            error = invalid_value(f"metadata.{name}", sent[name], "field is immutable")
            # The real server checks the metadata twice.
            yield from (error, error)


def _update_errors(kind: Kind, old: JsonObject, new: JsonObject, subresource: str) -> Iterator[FieldError]:
    found = [
        *check_metadata(kind.resource.kind, new["metadata"], custom=kind.custom),
        *check_finalizers(old["metadata"], new["metadata"]),
    ]
    yield from found
    yield from custom_errors(kind, new, old, subresource, found)
    if not kind.custom:
        if kind.resource == CRD and not subresource:
            yield from definition_errors(new, old)
        yield from check_unchanged(kind.resource.kind, old, new)
        yield from check_content(kind.resource.kind, new)
        if subresource == "finalize":
            yield from finalizer_errors(list_at(map_at(new, "spec"), "finalizers"), "spec.finalizers", exact=True)


def _refuse(kind: Kind, obj: JsonObject, errors: Any) -> None:
    found = list(errors)
    if found:
        resource = kind.resource if kind.kept_in is None else kind.resource._replace(group=kind.kept_in.group)
        raise failures.invalid(resource, obj["metadata"].get("name", ""), found)
