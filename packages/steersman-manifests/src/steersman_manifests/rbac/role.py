"""Converts permissions to policy rules and roles in wire form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steersman.controller import Permission

_VERB_ORDER = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")


def policy_rules(permissions: Iterable[Permission]) -> list[dict[str, Any]]:
    """Merge ``permissions`` into policy rules, in a stable order."""
    verbs: dict[tuple[tuple[str, ...], str, str], set[str]] = {}
    for permission in permissions:
        resource = permission.resource
        name = f"{resource.plural}/{permission.subresource}" if permission.subresource else resource.plural
        objects = tuple(sorted(set(permission.names)))
        verbs.setdefault((objects, resource.group, name), set()).update(permission.verbs)
    resources: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for (objects, group, name), granted in sorted(verbs.items()):
        resources.setdefault((group, tuple(sorted(granted, key=_verb_sort_key)), objects), []).append(name)
    return [
        {"apiGroups": [group], "resources": names, "verbs": list(granted)}
        | ({"resourceNames": list(objects)} if objects else {})
        for (group, granted, objects), names in resources.items()
    ]


def _verb_sort_key(verb: str) -> tuple[int, str]:
    """Sort common verbs in their usual order, before others such as ``bind``."""
    return (_VERB_ORDER.index(verb) if verb in _VERB_ORDER else len(_VERB_ORDER), verb)


def cluster_role(name: str, permissions: Iterable[Permission]) -> dict[str, Any]:
    """A ClusterRole manifest that grants ``permissions``."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": policy_rules(permissions),
    }
