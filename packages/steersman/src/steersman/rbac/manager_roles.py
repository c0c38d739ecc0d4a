"""Roles for what a manager does beside its controllers: hold a lease, show its metrics, keep certificates."""

from __future__ import annotations

from typing import Any

from steersman.api.coordination_v1 import Lease
from steersman.meta import ApiResource

_SECRETS = ApiResource("", "v1", "Secret", "secrets")
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
    return _role(name, namespace, Lease.api_resource, lease)


def webhook_certificate_role(name: str, secret: str, *, namespace: str = "") -> dict[str, Any]:
    """A Role that lets its subject keep the certificates of its webhooks, and touch no other Secret.

    Args:
        name: of the role.
        secret: name of the Secret, as ``WebhookServing.secret_name`` has it.
        namespace: of both; without it, kubectl or kustomize decide.
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
    """A ClusterRole for who scrapes secured metrics, such as the service account of Prometheus."""
    return {
        "apiVersion": _API_VERSION,
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    }
