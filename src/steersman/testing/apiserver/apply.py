"""Server-side apply: merge a configuration into the live object, and remove what its manager no longer declares.

Source: KEP-555; ``sigs.k8s.io/structured-merge-diff/v6`` (``typed.Merge``, ``merge.Updater.Apply``).
"""

from __future__ import annotations

from typing import Any

from steersman.testing.apiserver.fieldsets import (
    FieldSet,
    Path,
    below,
    field_set,
    is_associative,
    list_elements,
    with_containers,
)
from steersman.testing.apiserver.ownership import (
    NOBODYS,
    ManagerKey,
    Managers,
    ignored,
    own_applied,
    resolve_conflicts,
)
from steersman.testing.apiserver.shapes import Shape
from steersman.testing.apiserver.values import MISSING, JsonObject, clone, is_map


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
    has_status: bool,
) -> tuple[JsonObject, Managers]:
    """The object and its managers after ``key`` applied ``config`` to ``live`` (empty, where there is none yet).

    Raises:
        ApiError: 409, another manager owns a field that would change; 500, a list item lacks its key.
    """
    declared = frozenset(
        p for p in field_set(config, shape) if not ignored(p, key.subresource, has_status=has_status)
    )
    merged = merge(live, config, shape)
    former = managers[key].fields if key in managers else frozenset[Path]()
    if merged == live and former <= declared:
        # Where nothing changes, the time of the last change stays.
        time = managers[key].time if key in managers else ""
    after = own_applied(managers, key, declared, api_version=api_version, time=time)
    _prune(merged, former, after, shape)
    return merged, resolve_conflicts(after, key, live, merged, shape, force=force)


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
    result: list[Any] = []
    remaining = list(right)
    merged: set[str] = set()
    for element, item in left.items():
        if element not in right:
            result.append(clone(item))
            continue
        if element in merged:
            continue
        # Everything that the configuration lists before this item comes before it.
        while remaining and element not in merged:
            following = remaining.pop(0)
            merged.add(following)
            result.append(merge(left.get(following, MISSING), right[following], inner))
    result.extend(merge(MISSING, right[element], inner) for element in remaining)
    return result


def _prune(merged: JsonObject, former: FieldSet, after: Managers, shape: Shape) -> None:
    """Removes from ``merged`` what ``former`` had and nobody owns any more."""
    owned = with_containers(path for entry in after.values() for path in entry.fields)
    dropped = with_containers(former) - owned - NOBODYS
    # A dropped container takes its content with it, defaulted fields included: outermost first.
    for path in sorted(dropped, key=len):
        if not below(path, owned):
            _remove(merged, path, shape)


def _remove(value: Any, path: Path, shape: Shape) -> None:
    element, *rest = path
    if element.startswith("f:"):
        name = element[2:]
        if not is_map(value) or name not in value:
            return
        if rest:
            _remove(value[name], tuple(rest), shape.field(name))
        else:
            del value[name]
        return
    items = list_elements(value, shape) if is_associative(value, shape) else {}
    if element not in items:
        return
    if rest:
        _remove(items[element], tuple(rest), shape.item())
    else:
        value[:] = [item for other, item in items.items() if other != element]
