"""What becomes of an object between the request and the store: the create and update strategies.

Source: ``k8s.io/apiserver/pkg/registry/rest`` and the strategies in ``pkg/registry`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any
from uuid import UUID

from steersman_testing.apiserver import failures
from steersman_testing.apiserver.builtin.content import check_content
from steersman_testing.apiserver.builtin.defaults import apply_defaults, carry_over, complete_new
from steersman_testing.apiserver.builtin.immutability import check_unchanged
from steersman_testing.apiserver.builtin.types import as_stored, blank_of, conform_builtin, fill_blanks
from steersman_testing.apiserver.definitions.conversion import conform
from steersman_testing.apiserver.definitions.crds import (
    CRD,
    complete_definition,
    definition_errors,
    first_status,
    kept_status,
)
from steersman_testing.apiserver.definitions.customresources import custom_errors
from steersman_testing.apiserver.failures import FieldError, invalid_value
from steersman_testing.apiserver.fields.ownership import Reach
from steersman_testing.apiserver.go_values import WrongType
from steersman_testing.apiserver.kinds import Kind
from steersman_testing.apiserver.names import check_finalizers, check_metadata, finalizer_errors
from steersman_testing.apiserver.schemas.schema import fill_defaults
from steersman_testing.apiserver.values import (
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


def conformed(kind: Kind, obj: JsonObject, *, applied: bool = False) -> tuple[JsonObject, list[str]]:
    """A copy of ``obj`` as its kind holds it, and the paths of fields that the kind does not have; those of metadata,
    which are taken as they are, aside.

    Args:
        applied: whether it comes of an apply: of custom resources its nulls are nowhere dropped.

    Raises:
        WrongType: a value of a built-in kind does not fit its field.
    """
    resource = kind.resource
    if kind.schema is not None:
        result, unknown = conform(obj, kind.schema, keep_nulls=applied)
    elif resource == CRD:
        # The spec is replaced by a copy, without nulls.
        result = {n: v if n == "spec" else without_nulls(v) for n, v in obj.items() if v is not None}
        unknown = complete_definition(result, keep_nulls=False)
    else:
        result, unknown = conform_builtin(resource, obj)
        if applied:
            result["metadata"] = without_nulls(result["metadata"])
    result["apiVersion"], result["kind"] = resource.api_version, resource.kind
    return result, unknown


def reread(kind: Kind, obj: JsonObject, *, applied: bool = False) -> JsonObject:
    """As ``conformed``, of what the server or a webhook has made of a sent object.

    Raises:
        ApiError: 400, a value does not fit its field.
    """
    try:
        return conformed(kind, obj, applied=applied)[0]
    except WrongType as error:
        named, version = kind.resource.kind, kind.resource.version
        raise failures.bad_request(
            f'{named} in version "{version}" cannot be handled as a {named}: {error}'
        ) from None


def decoded(kind: Kind, obj: JsonObject) -> JsonObject:
    """``obj``, which is conformed, as mutating webhooks see it: with the defaults, which are put in place."""
    _tidy_metadata(obj)
    _fill(kind, obj)
    return obj


def prepare_create(kind: Kind, obj: JsonObject, *, now: str, random: Random, check: bool = True) -> JsonObject:
    """The object to store for ``obj``, which is conformed, and changed in place.

    Its name and namespace are decided; ``complete`` comes after it.

    Args:
        check: whether to validate it.

    Raises:
        ApiError: 422.
    """
    meta = _tidy_metadata(obj)
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
        obj.pop("status", None)
    if kind.resource == CRD:
        obj["status"] = first_status(obj)
    _fill(kind, obj)
    if check:
        _refuse(kind, obj, _creation_errors(kind, obj))
    if kind.custom or kind.resource == CRD:
        write_whole_numbers(obj)
    return obj


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


def complete(kind: Kind, obj: JsonObject) -> None:
    """Fills in what the server decides at creation, which no manager owns, in place."""
    if not kind.custom:
        complete_new(kind.resource.kind, obj)


def prepare_update(
    kind: Kind, old: JsonObject, obj: JsonObject, subresource: str, *, check: bool = True
) -> JsonObject:
    """The object to store in place of ``old`` for ``obj``, which is conformed, and not to be used any more.

    It is equal to ``old`` where nothing changes.

    Args:
        subresource: which it is written to; empty: the object itself.
        check: whether to validate it.

    Raises:
        ApiError: 422.
    """
    result = obj
    if subresource == "status":
        result = _with_status_of(kind, old, obj)
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
