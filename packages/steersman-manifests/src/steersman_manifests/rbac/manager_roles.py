"""Roles for the manager: leader election, webhook certificates and metrics."""

from __future__ import annotations

from typing import Any

from steersman.api.coordination_v1 import Lease
from steersman.meta import ApiResource

_SECRETS = ApiResource("", "v1", "Secret", "secrets")
_API_VERSION = "rbac.authorization.k8s.io/v1"


def leader_election_role(name: str, lease: str, *, namespace: str = "") -> dict[str, Any]:
    """A Role for leader election, limited to one Lease.

    RBAC cannot restrict ``create`` to a name, since the request path does not contain it. Source:
    "Using RBAC Authorization", "Referring to resources".

    Args:
        name: name of the Role.
        lease: name of the Lease, as in ``LeaderElection.name``.
        namespace: namespace of the Role. Defaults to none, for kubectl or kustomize to set.
    """
    return _role(name, namespace, Lease.api_resource, lease)


def webhook_certificate_role(name: str, secret: str, *, namespace: str = "") -> dict[str, Any]:
    """A Role for webhook certificates, limited to one Secret.

    Args:
        name: name of the Role.
        secret: name of the Secret, as in ``WebhookServerOptions.secret_name``.
        namespace: namespace of the Role. Defaults to none, for kubectl or kustomize to set.
    """
    return _role(name, namespace, _SECRETS, secret)


def _role(name: str, namespace: str, resource: ApiResource, object_name: str) -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    target = {"apiGroups": [resource.group], "resources": [resource.plural]}
    rules = [
        {**target, "verbs": ["create"]},
        {**target, "resourceNames": [object_name], "verbs": ["get", "watch", "patch"]},
    ]
    return {"apiVersion": _API_VERSION, "kind": "Role", "metadata": metadata, "rules": rules}


def metrics_reader_role(name: str) -> dict[str, Any]:
    """A ClusterRole to read secure metrics, for the service account of Prometheus."""
    return {
        "apiVersion": _API_VERSION,
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    }
