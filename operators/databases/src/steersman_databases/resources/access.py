"""What the servers of a cluster may do at the API server: change what is theirs by name, and ``create`` nothing.

Each engine's servers what they ask for, and no more: see `Rights`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from msgspec import UNSET, UnsetType

from steersman.api.apply import core, meta, rbac
from steersman.api.core_v1 import ConfigMap, Pod
from steersman.api.discovery_v1 import EndpointSlice
from steersman.controller import Builder
from steersman.meta import Object, ObjectKey
from steersman_databases.engines.cluster import Rights
from steersman_databases.engines.cluster_names import ClusterNames

T = TypeVar("T", bound=Object)


def service_account(names: ClusterNames, labels: Mapping[str, str]) -> core.ServiceAccount:
    """Who the servers are. Its token is mounted only where a pod asks for it."""
    return core.ServiceAccount(metadata=_metadata(names, labels), automount_service_account_token=False)


def role(
    names: ClusterNames,
    labels: Mapping[str, str],
    rights: Rights,
    *,
    store: Collection[ObjectKey],
    instances: Iterable[int],
    writable: Iterable[str],
) -> rbac.Role:
    """What they may do.

    Args:
        rights: what those of their engine ask for.
        store: the ConfigMaps in which they agree.
        instances: numbers of those that are there or about to be.
        writable: the Services whose one endpoint the primary writes, ``<cluster>-rw`` among them.
    """
    slices = [key for service in writable for key in names.slices(service)]
    return rbac.Role(
        metadata=_metadata(names, labels),
        rules=[
            *_named("", "configmaps", rights.store, store),
            *_every("configmaps", rights.every_config_map),
            *_named("", "pods", rights.pods, [names.pod(n) for n in instances]),
            *_every("pods", rights.every_pod),
            *_named("discovery.k8s.io", "endpointslices", rights.slices, slices),
        ],
    )


def role_binding(names: ClusterNames, labels: Mapping[str, str]) -> rbac.RoleBinding:
    """Gives the one to the other."""
    account = names.account
    return rbac.RoleBinding(
        metadata=_metadata(names, labels),
        role_ref=rbac.RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name=account.name),
        subjects=[rbac.Subject(kind="ServiceAccount", name=account.name, namespace=account.namespace)],
    )


def permit(builder: Builder[T]) -> Builder[T]:
    """Lets the operator give these rights: who does not hold them may write no such Role (no escalation)."""
    for kind in (ConfigMap, Pod):
        builder.needs(kind, "get", "list", "watch", "patch")
    return builder.needs(EndpointSlice, "get", "patch")


def _named(group: str, resource: str, verbs: Iterable[str], keys: Collection[ObjectKey]) -> list[rbac.PolicyRule]:
    # A rule without names is one for all of them.
    return [_rule(group, resource, verbs, sorted(key.name for key in keys))] if keys else []


def _every(resource: str, verbs: Collection[str]) -> list[rbac.PolicyRule]:
    # A rule without verbs is none.
    return [_rule("", resource, verbs)] if verbs else []


def _rule(group: str, resource: str, verbs: Iterable[str], names: list[str] | UnsetType = UNSET) -> rbac.PolicyRule:
    return rbac.PolicyRule(api_groups=[group], resources=[resource], verbs=list(verbs), resource_names=names)


def _metadata(names: ClusterNames, labels: Mapping[str, str]) -> meta.ObjectMeta:
    account = names.account
    return meta.ObjectMeta(name=account.name, namespace=account.namespace, labels=labels)
