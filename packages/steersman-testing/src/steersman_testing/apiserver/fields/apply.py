"""Server-side apply: merge a configuration into the live object, and remove what its manager no longer declares.

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
    """The object and its managers after ``key`` applied ``config`` to ``live`` (empty, where there is none yet).

    Raises:
        ApiError: 409, another manager owns a field that would change; 500, a list item lacks its key.
    """
    applied_fields = frozenset(scope.filter(field_set(config, shape)))
    merged = merge(live, config, shape)
    previous_fields = managers[key].fields if key in managers else frozenset[FieldPath]()
    if json_equal(merged, live) and previous_fields <= applied_fields:
        # Where nothing changes, the time of the last change stays.
        time = managers[key].time if key in managers else ""
    after = apply_ownership(managers, key, applied_fields, api_version=api_version, time=time)
    version = managers[key].api_version if key in managers else api_version
    if convert is None or version == api_version:
        _remove_unowned(merged, previous_fields, after, shape)
    elif in_applied_version := convert(version, merged):
        _remove_unowned(in_applied_version[0], previous_fields, after, in_applied_version[1])
        converted_back = convert(api_version, in_applied_version[0])
        merged = merged if converted_back is None else converted_back[0]
    return merged, resolve_conflicts(after, key, FieldChange(live, merged, shape, api_version, convert), force=force)


def merge(live: Any, config: Any, shape: Shape) -> Any:
    """``live`` with the values of ``config``; maps and associative lists are merged item by item."""
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
    """Shared items in the order of ``config``, with those of ``live`` alone left at their places."""
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
            # It comes, or has come, at its place in the configuration.
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
    """Removes from ``merged`` what ``former`` had and nobody owns any more."""
    if any(previous_fields <= entry.fields for entry in after.values()):
        # Mostly its manager declares all of it again.
        return
    versioned_set = with_parents(path for entry in after.values() for path in entry.fields)
    removed = with_parents(previous_fields) - versioned_set - UNOWNED_FIELDS
    # A dropped container takes its content with it, defaulted fields included: outermost first.
    for path in sorted(removed, key=len):
        if not contains_or_below(path, versioned_set):
            _remove(merged, path, shape)


def _remove(value: Any, path: FieldPath, shape: Shape) -> Any:
    """``value`` without what is at ``path``, changed in place; null, as in the real one, where nothing is left."""
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
