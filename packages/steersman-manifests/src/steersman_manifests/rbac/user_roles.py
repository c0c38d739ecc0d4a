"""Roles for users of a kind, as in kubebuilder's scaffold."""

from __future__ import annotations

from typing import Any

from steersman.meta import Object
from steersman.meta.custom_resource import ResourceOptions

_API_VERSION = "rbac.authorization.k8s.io/v1"
_READ = ("get", "list", "watch")
_WRITE = ("create", "delete", "patch", "update")
_AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"


def editor_role(name: str, kind: type[Object], *, aggregate: bool = False) -> dict[str, Any]:
    """A ClusterRole to edit objects of ``kind``.

    It also allows to create, scale and delete them, and to read their status.

    Args:
        name: name of the ClusterRole.
        kind: type of the objects.
        aggregate: adds its rules to the default roles ``admin`` and ``edit``.
    """
    role = _role(name, kind, (*_WRITE, *_READ), ("admin", "edit") if aggregate else ())
    options: ResourceOptions | None = getattr(kind, "resource_options", None)
    if options is not None and options.scale is not None:
        resource, verbs = kind.api_resource, ["get", "patch", "update"]
        role["rules"].append(
            {"apiGroups": [resource.group], "resources": [f"{resource.plural}/scale"], "verbs": verbs}
        )
    return role


def viewer_role(name: str, kind: type[Object], *, aggregate: bool = False) -> dict[str, Any]:
    """A ClusterRole to read objects of ``kind``.

    Args:
        name: name of the ClusterRole.
        kind: type of the objects.
        aggregate: adds its rules to the default role ``view``, and by that to ``edit`` and ``admin``.
    """
    return _role(name, kind, _READ, ("view",) if aggregate else ())


def _role(name: str, kind: type[Object], verbs: tuple[str, ...], aggregate_to: tuple[str, ...]) -> dict[str, Any]:
    resource = kind.api_resource
    metadata: dict[str, Any] = {"name": name}
    if aggregate_to:
        metadata["labels"] = {f"{_AGGREGATE}{role}": "true" for role in aggregate_to}
    return {
        "apiVersion": _API_VERSION,
        "kind": "ClusterRole",
        "metadata": metadata,
        "rules": [
            {"apiGroups": [resource.group], "resources": [resource.plural], "verbs": sorted(verbs)},
            {"apiGroups": [resource.group], "resources": [f"{resource.plural}/status"], "verbs": ["get"]},
        ],
    }
