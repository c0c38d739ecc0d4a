"""Roles for what a manager does beside its controllers: hold a lease, show its metrics."""

from __future__ import annotations

from typing import Any

from steersman.api.coordination_v1 import Lease

_API_VERSION = "rbac.authorization.k8s.io/v1"


def leader_election_role(name: str, lease: str, *, namespace: str = "") -> dict[str, Any]:
    """A Role that lets its subject stand for election by ``lease``, and touch no other Lease.

    RBAC cannot bind ``create`` to a name, since the name of what is created is not in the request's path. Source:
    "Using RBAC Authorization", "Referring to resources".

    Args:
        name: of the role.
        lease: name of the Lease, as ``LeaderElection.name`` has it.
        namespace: of both; without it, kubectl or kustomize decide.
    """
    group, plural = Lease.api_resource.group, Lease.api_resource.plural
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": _API_VERSION,
        "kind": "Role",
        "metadata": metadata,
        "rules": [
            {"apiGroups": [group], "resources": [plural], "verbs": ["create"]},
            {
                "apiGroups": [group],
                "resources": [plural],
                "resourceNames": [lease],
                "verbs": ["get", "watch", "patch"],
            },
        ],
    }


def metrics_reader_role(name: str) -> dict[str, Any]:
    """A ClusterRole for who scrapes secured metrics, such as the service account of Prometheus."""
    return {
        "apiVersion": _API_VERSION,
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    }
