"""Server-side apply: merge a configuration into the live object, and remove what its manager no longer declares.

Source: KEP-555; ``sigs.k8s.io/structured-merge-diff/v6`` (``typed.Merge``, ``merge.Updater.Apply``).
"""

from __future__ import annotations

from typing import Any

from steersman_testing.apiserver.fields.ownership import (
    NOBODYS,
    FieldChange,
    ManagerKey,
    Managers,
    Reach,
    Translate,
    own_applied,
    resolve_conflicts,
)
from steersman_testing.apiserver.fields.sets import (
    FieldSet,
    Path,
    below,
    field_set,
    is_associative,
    list_elements,
    with_containers,
)
from steersman_testing.apiserver.fields.shapes import Shape
from steersman_testing.apiserver.values import MISSING, JsonObject, clone, is_map, same


def apply_configuration(
    live: JsonObject,
    config: JsonObject,
    managers: Managers,
    key: ManagerKey,
    shape: Shape,
    *,
    force: bool,
    api_version: str,
    time: str,
    reach: Reach,
    translate: Translate | None = None,
) -> tuple[JsonObject, Managers]:
    """The object and its managers after ``key`` applied ``config`` to ``live`` (empty, where there is none yet).

    Raises:
        ApiError: 409, another manager owns a field that would change; 500, a list item lacks its key.
    """
    declared = frozenset(reach.of(field_set(config, shape)))
    merged = merge(live, config, shape)
    former = managers[key].fields if key in managers else frozenset[Path]()
    if same(merged, live) and former <= declared:
        # Where nothing changes, the time of the last change stays.
        time = managers[key].time if key in managers else ""
    after = own_applied(managers, key, declared, api_version=api_version, time=time)
    version = managers[key].api_version if key in managers else api_version
    if translate is None or version == api_version:
        _prune(merged, former, after, shape)
    elif there := translate(version, merged):
        _prune(there[0], former, after, there[1])
        back = translate(api_version, there[0])
        merged = merged if back is None else back[0]
    return merged, resolve_conflicts(
        after, key, FieldChange(live, merged, shape, api_version, translate), force=force
    )


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
    left, right = list_elements(live, shape), list_elements(config, shape)
    inner = shape.item()
    before, wanted = list(left), list(right)
    shared = [element for element in wanted if element in left]
    result: list[Any] = []
    merged: set[str] = set()
    while before or wanted:
        if before and before[0] not in right:
            result.append(clone(left[before.pop(0)]))
        elif before and (before[0] in merged or (wanted and shared and shared[0] != before[0])):
            # It comes, or has come, at its place in the configuration.
            before.pop(0)
        elif wanted:
            element = wanted.pop(0)
            merged.add(element)
            shared = [other for other in shared if other != element]
            result.append(merge(left.get(element, MISSING), right[element], inner))
            if before and before[0] == element:
                before.pop(0)
    return result


def _prune(merged: JsonObject, former: FieldSet, after: Managers, shape: Shape) -> None:
    """Removes from ``merged`` what ``former`` had and nobody owns any more."""
    if any(former <= entry.fields for entry in after.values()):
        # Mostly its manager declares all of it again.
        return
    owned = with_containers(path for entry in after.values() for path in entry.fields)
    dropped = with_containers(former) - owned - NOBODYS
    # A dropped container takes its content with it, defaulted fields included: outermost first.
    for path in sorted(dropped, key=len):
        if not below(path, owned):
            _remove(merged, path, shape)


def _remove(value: Any, path: Path, shape: Shape) -> Any:
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
