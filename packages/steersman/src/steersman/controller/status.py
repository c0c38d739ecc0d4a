"""Partial updates of a status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec
from msgspec.structs import replace

from steersman.cache import CachedClient
from steersman.client.decode import decode_response
from steersman.client.encode import status_document
from steersman.client.managed_fields import (
    applied_other_version,
    apply_would_change,
    owned_status_fields,
    without_emptied_maps,
)
from steersman.client.previous_managers import take_over_fields
from steersman.errors import ApiStatus, ConfigurationError, Conflict, NotFound
from steersman.meta import Condition, Field, Object, encode, set_condition
from steersman.meta.frozen import FrozenStruct

T = TypeVar("T", bound=Object)

_MAX_ATTEMPTS = 3


async def write_status(
    client: CachedClient, obj: T, now: datetime, *, conditions: Iterable[Condition], fields: Mapping[str, Any]
) -> T:
    """Apply changed fields and conditions to the newest status of ``obj``.

    Fields and conditions that only other managers set are not declared, so they keep their owners. The first write in
    another API version declares all others, because their names may have changed.

    The write requires the resourceVersion of that status, so it neither reverts a concurrent change nor reaches an
    object that was recreated under the same name. After a conflict, the status is read from the API server.

    Args:
        client: the client of the reconciler.
        obj: the reconciled object; its generation becomes ``observed_generation``.
        now: the time of condition transitions.
        conditions: conditions to set.
        fields: values of other fields by attribute name; None removes a field that an earlier call set.

    Returns:
        the object as stored, without the transform of its informer.

    Raises:
        TypeError: the status has no such field, or the kind has no typed status.
        NotFound: the object was deleted.
        ConfigurationError: the kind has no status subresource.
        Conflict: the object was recreated, or other clients changed it repeatedly.
    """
    conditions, manager = tuple(conditions), client.live.field_manager
    newest = await client.get_uncached_if_transformed(type(obj), obj.key)
    for attempt in range(_MAX_ATTEMPTS):
        if attempt or newest is None:
            # A cache with a selector may not have the object.
            newest = await client.live.get(type(obj), obj.key)
        if client.live.previous_field_managers:
            newest = await take_over_fields(client.live, newest, "status")
        if applied_other_version(newest, manager):
            # A client drops the managedFields of other managers.
            newest = decode_response(await client.live.raw(obj.api_resource.path(obj.key)), type(obj))
        _require_same_object(obj, newest)
        status = merge_status(obj, newest, now, conditions, fields)
        document = status_document(newest, status, newest.metadata.resource_version)
        owned = owned_status_fields(newest, manager, document["status"])
        declared = _declared_fields(status, document["status"], owned, conditions, fields)
        document["status"] = without_emptied_maps(declared, owned)
        if not apply_would_change(document, newest, manager, "status"):
            break
        try:
            return await client.live.apply_encoded(type(obj), obj.key, encode(document), subresource="status")
        except NotFound:
            _require_same_object(obj, await client.live.get(type(obj), obj.key))
            kind = obj.api_resource.kind
            raise ConfigurationError(f"the CRD of {kind} has no status subresource: add `status: {{}}`") from None
        except Conflict:
            if attempt == _MAX_ATTEMPTS - 1:
                raise
    assert newest is not None
    return newest


def merge_status(
    obj: Object, newest: Object, now: datetime, conditions: Iterable[Condition], fields: Mapping[str, Any]
) -> FrozenStruct:
    """Return the status of ``newest`` with the given fields and conditions.

    Raises:
        TypeError: the status has no such field, or the kind has no typed status.
    """
    status = getattr(newest, "status", None)
    status_type = type(status) if isinstance(status, FrozenStruct) else _optional_status(type(newest))
    if status_type is None:
        name = type(newest).__name__
        raise TypeError(f"{name} has no typed status: declare a Status class, or use client.apply_status")
    known = status_type.__struct_fields__
    given = (*fields, "conditions") if conditions else tuple(fields)
    if unknown := [name for name in given if name not in known]:
        raise TypeError(f"{status_type.__name__} has no field {unknown[0]!r}. Its fields are {', '.join(known)}.")
    changes, generation = dict(fields), obj.metadata.generation or None
    if "observed_generation" in known:
        changes.setdefault("observed_generation", generation)
    if conditions:
        updated: tuple[Condition, ...] = getattr(status, "conditions", None) or ()
        for condition in conditions:
            if condition.observed_generation is None:
                condition = replace(condition, observed_generation=generation)
            updated = set_condition(updated, condition, now)
        changes["conditions"] = updated
    return replace(status, **changes) if isinstance(status, FrozenStruct) else status_type(**changes)


@cache
def _optional_status(kind: type[Object]) -> type[FrozenStruct] | None:
    """Return the type of an optional status, as generated kinds have."""
    try:
        hint = get_type_hints(kind).get("status")
    except NameError:
        # The annotations of a kind inside a function, or under TYPE_CHECKING, cannot be resolved.
        return None
    found = [each for each in get_args(hint) if isinstance(each, type) and issubclass(each, FrozenStruct)]
    return found[0] if len(found) == 1 else None


def _declared_fields(
    status: FrozenStruct,
    encoded: Mapping[str, Any],
    owned: Mapping[str, Any],
    conditions: Iterable[Condition],
    fields: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the given fields and conditions, and those that we own.

    An apply makes us the owner of everything that it declares. A condition of another manager would stay after that
    manager has removed it.
    """
    types = {condition.type for condition in conditions}
    given = {*fields, "observed_generation", *(("conditions",) if types else ())}
    names = zip(status.__struct_fields__, status.__struct_encode_fields__, strict=True)
    declared = {
        wire_name: encoded[wire_name]
        for name, wire_name in names
        if wire_name in encoded and (name in given or f"f:{wire_name}" in owned)
    }
    if "conditions" in declared and _has_shared_conditions(type(status)):
        owned_keys = owned.get("f:conditions", {})
        declared["conditions"] = [
            each
            for each in declared["conditions"]
            if each["type"] in types or f'k:{{"type":"{each["type"]}"}}' in owned_keys
        ]
    return declared


@cache
def _has_shared_conditions(kind: type[FrozenStruct]) -> bool:
    """Return True if each condition may have its own manager: listType ``map``."""
    if kind.__module__.startswith("steersman.api."):
        # Generated types have no list types. Of the built-in kinds, only the conditions of a Job are atomic.
        return kind.__name__ != "JobStatus"
    hints = [field.type for field in msgspec.structs.fields(kind) if field.name == "conditions"]
    markers: list[Any] = [marker for hint in hints for marker in getattr(hint, "__metadata__", ())]
    return any(isinstance(marker, Field) and marker.list_map_keys == ("type",) for marker in markers)


def _require_same_object(obj: Object, newest: Object) -> None:
    if newest.metadata.uid != obj.metadata.uid:
        message = f"{type(obj).api_resource.kind} {obj.key} was deleted and created again: reconcile the new object"
        raise Conflict(ApiStatus(message, "Conflict", 409))
