"""Roles for the people who use a kind, as kubebuilder makes them."""

from __future__ import annotations

from typing import Any

from steersman.meta import Object
from steersman.meta.custom_resource import ResourceOptions

_API_VERSION = "rbac.authorization.k8s.io/v1"
_READ = ("get", "list", "watch")
_WRITE = ("create", "delete", "patch", "update")
_AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"


def editor_role(name: str, kind: type[Object], *, aggregate: bool = False) -> dict[str, Any]:
    """A ClusterRole for who makes, changes, scales and deletes objects of ``kind``, and sees their status.

    Args:
        name: of the role.
        kind: whose objects.
        aggregate: let everybody who is ``admin`` or ``edit`` in a namespace have it there.
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
    """A ClusterRole for who looks at objects of ``kind``.

    Args:
        name: of the role.
        kind: whose objects.
        aggregate: let everybody who may ``view`` a namespace have it there; ``edit`` and ``admin`` contain that.
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
