"""Roles and bindings for the users of a test.

Source: "Using RBAC Authorization".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from steersman_testing.apiserver.access.authorization import RBAC
from steersman_testing.apiserver.values import JsonObject, clone, ensure_map

RoleOrManifest: TypeAlias = str | Mapping[str, Any]
"""Name of a ClusterRole, or manifest of a role."""


def role_manifests(user: str, role: RoleOrManifest, namespace: str) -> Iterator[JsonObject]:
    """Yield the manifests that grant ``role`` to ``user``.

    Raises:
        ValueError: the manifest is not a role, or a Role has no namespace.
    """
    if isinstance(role, str):
        kind, name = "ClusterRole", role
    else:
        manifest: JsonObject = clone(dict(role))
        kind, name = str(manifest.get("kind", "")), str(manifest["metadata"]["name"])
        if kind not in ("ClusterRole", "Role"):
            raise ValueError(f"a {kind or 'manifest without a kind'} is not a role: pass a ClusterRole or a Role")
        if kind == "Role":
            namespace = ensure_map(manifest, "metadata").setdefault("namespace", namespace)
            if not namespace:
                raise ValueError(f"Role {name} has no namespace: set metadata.namespace or pass a namespace")
        yield manifest
    yield _binding_manifest(user, kind, name, namespace)


def _binding_manifest(user: str, kind: str, name: str, namespace: str) -> JsonObject:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": f"{user}:{kind}:{name}", **({"namespace": namespace} if namespace else {})},
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    }
