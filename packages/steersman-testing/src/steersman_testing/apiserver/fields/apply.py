"""Server-side apply.

A configuration is merged into the live object. Fields that its manager no longer applies are removed.

Source: KEP-555; ``sigs.k8s.io/structured-merge-diff/v6`` (``typed.Merge``, ``merge.Updater.Apply``).
"""

from __future__ import annotations

from typing import Any

from steersman_testing.apiserver.fields.field_paths import (
    FieldPath,
    FieldSet,
    contains_or_below,
    field_set,
    is_associative,
    list_elements,
    with_parents,
)
from steersman_testing.apiserver.fields.managed_fields import (
    UNOWNED_FIELDS,
    ConvertFunc,
    FieldChange,
    FieldScope,
    ManagedFields,
    ManagerIdentifier,
    VersionedSet,
    apply_ownership,
    resolve_conflicts,
)
from steersman_testing.apiserver.shapes import Shape
from steersman_testing.apiserver.values import MISSING, JsonObject, clone, is_map, json_equal


def apply_configuration(
    live: JsonObject,
    config: JsonObject,
    managers: ManagedFields,
    key: ManagerIdentifier,
    shape: Shape,
    *,
    force: bool,
    api_version: str,
    time: str,
    scope: FieldScope,
    convert: ConvertFunc | None = None,
) -> tuple[JsonObject, ManagedFields]:
    """Return the object and its managers after an apply.

    Args:
        live: the live object. Empty for a create.
        config: the applied configuration.
        key: the manager that applies it.

    Raises:
        ApiError: 409, another manager owns a changed field; 500, a list item has no key.
    """
    applied_fields = frozenset(scope.filter(field_set(config, shape)))
    merged = merge(live, config, shape)
    previous_fields = managers[key].fields if key in managers else frozenset[FieldPath]()
    if json_equal(merged, live) and previous_fields <= applied_fields:
        # Without a change, the previous time stays.
        time = managers[key].time if key in managers else ""
    after = apply_ownership(managers, key, applied_fields, api_version=api_version, time=time)
    last = managers.get(key)
    if last is None:
        pass
    elif convert is None:
        _remove_unowned(merged, previous_fields, after, shape)
    else:
        merged = _prune_in_versions(merged, last, after, api_version, convert)
    return merged, resolve_conflicts(after, key, FieldChange(live, merged, shape, api_version, convert), force=force)


def merge(live: Any, config: Any, shape: Shape) -> Any:
    """Merge ``config`` into ``live``.

    Maps and associative lists are merged by item.
    """
    if config is MISSING:
        return clone(live)
    if is_map(live) and is_map(config) and shape.relation != "atomic":
        result: JsonObject = clone(live)
        for name, value in config.items():
            result[name] = merge(live.get(name, MISSING), value, shape.field(name))
        return result
    if is_associative(config, shape):
        return _merge_lists(live, config, shape)
    return clone(config)


def _merge_lists(live: Any, config: Any, shape: Shape) -> list[Any]:
    """Merge two lists in the order of ``config``.

    Items of ``live`` only keep their positions.
    """
    live_items, config_items = list_elements(live, shape), list_elements(config, shape)
    inner = shape.item()
    before, remaining = list(live_items), list(config_items)
    shared = [element for element in remaining if element in live_items]
    result: list[Any] = []
    merged: set[str] = set()
    while before or remaining:
        if before and before[0] not in config_items:
            result.append(clone(live_items[before.pop(0)]))
        elif before and (before[0] in merged or (remaining and shared and shared[0] != before[0])):
            # The configuration determines the position of this item.
            before.pop(0)
        elif remaining:
            element = remaining.pop(0)
            merged.add(element)
            shared = [other for other in shared if other != element]
            result.append(merge(live_items.get(element, MISSING), config_items[element], inner))
            if before and before[0] == element:
                before.pop(0)
    return result


def _remove_unowned(merged: JsonObject, previous_fields: FieldSet, after: ManagedFields, shape: Shape) -> None:
    """Remove previously applied fields that have no owner any more."""
    if any(previous_fields <= entry.fields for entry in after.values()):
        # Common case: the manager applies the same fields again.
        return
    versioned_set = with_parents(path for entry in after.values() for path in entry.fields)
    removed = with_parents(previous_fields) - versioned_set - UNOWNED_FIELDS
    # A removed container takes its content with it, defaults included, so the outermost comes first.
    for path in sorted(removed, key=len):
        if not contains_or_below(path, versioned_set):
            _remove(merged, path, shape)


def _prune_in_versions(
    merged: JsonObject, last: VersionedSet, after: ManagedFields, api_version: str, convert: ConvertFunc
) -> JsonObject:
    """Remove fields that lost their owner, in several API versions.

    A field may have another name in each version. Ownership is therefore compared in the version of each manager.
    Source: ``prune``, ``addBackOwnedItems`` and ``addBackDanglingItems`` of structured-merge-diff.
    """
    applied = convert(last.api_version, merged)
    if applied is None:
        return merged
    previous_fields = _with_named_parents(last.fields, applied[1])
    pruned = _without(applied[0], previous_fields, applied[1])
    versions = dict.fromkeys([last.api_version, *(entry.api_version for entry in after.values())])
    for version in versions:
        before, remaining = convert(version, applied[0]), convert(version, pruned)
        if before is None or remaining is None:
            continue
        shape = before[1]
        owned = frozenset(path for e in after.values() if e.api_version == version for path in e.fields)
        kept = _members(remaining[0], shape) | _with_named_parents(owned, shape)
        pruned = _without(before[0], _members(before[0], shape) - kept, shape)
    in_last_version = convert(last.api_version, pruned)
    if in_last_version is None:
        return merged
    removed = _members(applied[0], applied[1]) - _members(in_last_version[0], applied[1])
    result = convert(api_version, _without(applied[0], removed & previous_fields, applied[1]))
    return merged if result is None else result[0]


def _members(obj: JsonObject, shape: Shape) -> FieldSet:
    return _with_named_parents(field_set(obj, shape), shape)


def _with_named_parents(fields: FieldSet, shape: Shape) -> FieldSet:
    """Return ``fields`` and their declared parents.

    Items of lists and keys of maps are not declared.
    """
    found = set(fields)
    for path in fields:
        inner = shape
        for length, element in enumerate(path[:-1], start=1):
            is_field = element.startswith("f:")
            if is_field and inner.declares(element[2:]):
                found.add(path[:length])
            inner = inner.field(element[2:]) if is_field else inner.item()
    return frozenset(found)


def _without(obj: JsonObject, removed: FieldSet, shape: Shape) -> JsonObject:
    result: JsonObject = clone(obj)
    for path in sorted(removed - UNOWNED_FIELDS, key=len):
        _remove(result, path, shape)
    return result


def _remove(value: Any, path: FieldPath, shape: Shape) -> Any:
    """Remove ``path`` from ``value`` in place and return the rest.

    Empty containers become null, as in structured-merge-diff.
    """
    element, *rest = path
    if element.startswith("f:"):
        name = element[2:]
        if not is_map(value) or name not in value:
            return value
        if rest:
            value[name] = _remove(value[name], tuple(rest), shape.field(name))
        else:
            del value[name]
        return value or None
    items = list_elements(value, shape) if is_associative(value, shape) else {}
    if element not in items:
        return value
    if rest:
        items[element] = _remove(items[element], tuple(rest), shape.item())
    else:
        del items[element]
    value[:] = items.values()
    return value or None
