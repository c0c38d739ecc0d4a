"""What the servers of a cluster may do at the API server: change what is theirs by name, and ``create`` nothing.

Each engine's servers what they ask for, and no more: see `Rights`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from msgspec import UNSET, UnsetType

from steersman.api.apply.core_v1 import ServiceAccountApply
from steersman.api.apply.rbac_v1 import PolicyRuleApply, RoleApply, RoleBindingApply, RoleRefApply, SubjectApply
from steersman.api.core_v1 import ConfigMap, Pod
from steersman.api.discovery_v1 import EndpointSlice
from steersman.controller import Builder
from steersman.meta import Object, ObjectKey, ObjectMetaApply
from steersman_databases.engines.cluster import Rights
from steersman_databases.engines.cluster_names import ClusterNames

T = TypeVar("T", bound=Object)


def service_account(names: ClusterNames, labels: Mapping[str, str]) -> ServiceAccountApply:
    """Who the servers are. Its token is mounted only where a pod asks for it."""
    return ServiceAccountApply(metadata=_metadata(names, labels), automount_service_account_token=False)


def role(
    names: ClusterNames,
    labels: Mapping[str, str],
    rights: Rights,
    *,
    store: Collection[ObjectKey],
    instances: Iterable[int],
    writable: Iterable[str],
) -> RoleApply:
    """What they may do.

    Args:
        rights: what those of their engine ask for.
        store: the ConfigMaps in which they agree.
        instances: numbers of those that are there or about to be.
        writable: the Services whose one endpoint the primary writes, ``<cluster>-rw`` among them.
    """
    slices = [key for service in writable for key in names.slices(service)]
    return RoleApply(
        metadata=_metadata(names, labels),
        rules=[
            *_named("", "configmaps", rights.store, store),
            *_every("configmaps", rights.every_config_map),
            *_named("", "pods", rights.pods, [names.pod(n) for n in instances]),
            *_every("pods", rights.every_pod),
            *_named("discovery.k8s.io", "endpointslices", rights.slices, slices),
        ],
    )


def role_binding(names: ClusterNames, labels: Mapping[str, str]) -> RoleBindingApply:
    """Gives the one to the other."""
    account = names.account
    return RoleBindingApply(
        metadata=_metadata(names, labels),
        role_ref=RoleRefApply(api_group="rbac.authorization.k8s.io", kind="Role", name=account.name),
        subjects=[SubjectApply(kind="ServiceAccount", name=account.name, namespace=account.namespace)],
    )


def permit(builder: Builder[T]) -> Builder[T]:
    """Lets the operator give these rights: who does not hold them may write no such Role (no escalation)."""
    for kind in (ConfigMap, Pod):
        builder.needs(kind, "get", "list", "watch", "patch")
    return builder.needs(EndpointSlice, "get", "patch")


def _named(group: str, resource: str, verbs: Iterable[str], keys: Collection[ObjectKey]) -> list[PolicyRuleApply]:
    # A rule without names is one for all of them.
    return [_rule(group, resource, verbs, sorted(key.name for key in keys))] if keys else []


def _every(resource: str, verbs: Collection[str]) -> list[PolicyRuleApply]:
    # A rule without verbs is none.
    return [_rule("", resource, verbs)] if verbs else []


def _rule(group: str, resource: str, verbs: Iterable[str], names: list[str] | UnsetType = UNSET) -> PolicyRuleApply:
    return PolicyRuleApply(api_groups=[group], resources=[resource], verbs=list(verbs), resource_names=names)


def _metadata(names: ClusterNames, labels: Mapping[str, str]) -> ObjectMetaApply:
    account = names.account
    return ObjectMetaApply(name=account.name, namespace=account.namespace, labels=labels)
