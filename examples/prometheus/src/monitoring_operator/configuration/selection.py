"""Label selectors: which monitors and rules belong to a Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from steersman import Object
from steersman.api.meta_v1 import LabelSelector

T = TypeVar("T", bound=Object)


def matches(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Return True if ``labels`` meet all terms. An unknown operator matches nothing."""
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    for term in selector.match_expressions:
        value = labels.get(term.key)
        match term.operator:
            case "In":
                met = value in term.values
            case "NotIn":
                met = value not in term.values
            case "Exists":
                met = value is not None
            case "DoesNotExist":
                met = value is None
            case _:
                met = False
        if not met:
            return False
    return True


def select(
    objects: Iterable[T],
    selector: LabelSelector | None,
    namespace_selector: LabelSelector | None,
    *,
    own_namespace: str,
    namespaces: Mapping[str, Mapping[str, str]],
) -> list[T]:
    """Return the selected objects in the order of their keys.

    Objects that are being deleted are left out.

    Args:
        objects: the candidates.
        selector: selects by labels. None selects nothing, an empty one everything.
        namespace_selector: selects by labels of the namespace. None selects ``own_namespace``.
        own_namespace: namespace of the Prometheus.
        namespaces: labels of all namespaces, by name.
    """
    if selector is None:
        return []
    if namespace_selector is None:
        allowed = {own_namespace}
    else:
        allowed = {name for name, labels in namespaces.items() if matches(namespace_selector, labels)}
    found = [
        obj
        for obj in objects
        if obj.metadata.namespace in allowed
        and obj.metadata.deletion_timestamp is None
        and matches(selector, obj.metadata.labels)
    ]
    return sorted(found, key=lambda obj: obj.key)
