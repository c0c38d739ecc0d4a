"""Who owns the number of replicas, as a scale is written: the managers of an object as those of its scale, and back.

On the way a manager that updated the object counts as another one than that who updates the scale, so that the number
is taken from it even where it stays what it is. Source: ``pkg/util/managedfields/scalehandler.go`` of
``k8s.io/apimachinery``.
"""

from __future__ import annotations

from collections.abc import Callable

from steersman_testing.apiserver.fields.ownership import ManagerKey, Managers, Owned
from steersman_testing.apiserver.fields.sets import Path

API_VERSION = "autoscaling/v1"
_REPLICAS: Path = ("f:spec", "f:replicas")
# Tells where an object has its number, by version: None where that version has no scale.
Places = Callable[[str], Path | None]


def managers_of_scale(managers: Managers, place: Places) -> Managers:
    """Those of ``managers``, of an object, who own its number, as managers of its scale."""
    return {
        _key(key, API_VERSION): Owned(frozenset({_REPLICAS}), API_VERSION, owned.time)
        for key, owned in managers.items()
        if place(owned.api_version) in owned.fields
    }


def managers_of_scaled(before: Managers, scale: Managers, api_version: str, place: Places) -> Managers:
    """The managers of an object with those of its scale, which was written in ``api_version``."""
    path = place(api_version)
    assert path is not None
    after: dict[ManagerKey, Owned] = {}
    for key, owned in before.items():
        where = place(owned.api_version)
        left = owned.fields if where is None or key in scale else owned.fields - {where}
        if left:
            after[key] = owned._replace(fields=left)
    for key, owned in scale.items():
        if _REPLICAS in owned.fields and key not in after:
            named = _key(key, api_version)
            # Two entries of one name are told until the next write, which finds one.
            after[key if named in after else named] = Owned(frozenset({path}), api_version, "")
    return after


def _key(key: ManagerKey, api_version: str) -> ManagerKey:
    return key._replace(api_version=api_version) if key.operation == "Update" else key
