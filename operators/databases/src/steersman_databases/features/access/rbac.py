"""Permissions of a cluster's servers at the API server.

They may change their own objects by name and create none. Each engine requests only what it needs, see
`PodPermissions`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from steersman.api.apply import core, meta, rbac
from steersman.api.core_v1 import ConfigMap, Pod
from steersman.api.discovery_v1 import EndpointSlice
from steersman.controller import Builder
from steersman.meta import Object, ObjectKey
from steersman_databases.engines.cluster_engine import PodPermissions
from steersman_databases.engines.naming import ClusterNames

T = TypeVar("T", bound=Object)


def service_account(
    names: ClusterNames, labels: Mapping[str, str], annotations: Mapping[str, str] | None = None
) -> core.ServiceAccount:
    """Return the servers' account.

    Its token is mounted only in pods that need it.

    Args:
        annotations: of a workload identity.
    """
    metadata = msgspec.structs.replace(_metadata(names, labels), annotations=annotations or UNSET)
    return core.ServiceAccount(metadata=metadata, automount_service_account_token=False)


def role(
    names: ClusterNames,
    labels: Mapping[str, str],
    permissions: PodPermissions,
    *,
    dcs_config_maps: Collection[ObjectKey],
    instances: Iterable[int],
    writable: Iterable[str],
) -> rbac.Role:
    """Return the servers' permissions.

    Args:
        permissions: permissions that the engine needs.
        dcs_config_maps: the ConfigMaps of the members.
        instances: numbers of existing and planned instances.
        writable: the Services with a single endpoint that the primary writes, including `<cluster>-rw`.
    """
    slices = [key for service in writable for key in names.endpoint_slices(service)]
    return rbac.Role(
        metadata=_metadata(names, labels),
        rules=[
            *_named("", "configmaps", permissions.dcs, dcs_config_maps),
            *_every("configmaps", permissions.every_config_map),
            *_named("", "pods", permissions.pods, [names.pod(n) for n in instances]),
            *_every("pods", permissions.every_pod),
            # The primary reports its archive and the backups there.
            *_named("", "configmaps", ("get", "patch"), [names.backup_catalog]),
            *_named("discovery.k8s.io", "endpointslices", permissions.slices, slices),
        ],
    )


def role_binding(names: ClusterNames, labels: Mapping[str, str]) -> rbac.RoleBinding:
    """Bind the role to the account."""
    account = names.service_account
    return rbac.RoleBinding(
        metadata=_metadata(names, labels),
        role_ref=rbac.RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name=account.name),
        subjects=[rbac.Subject(kind="ServiceAccount", name=account.name, namespace=account.namespace)],
    )


def permit(builder: Builder[T]) -> Builder[T]:
    """Allow the operator to grant these permissions.

    RBAC refuses a Role with permissions that its author lacks.
    """
    for kind in (ConfigMap, Pod):
        builder.needs(kind, "get", "list", "watch", "patch")
    return builder.needs(EndpointSlice, "get", "patch")


def _named(group: str, resource: str, verbs: Iterable[str], keys: Collection[ObjectKey]) -> list[rbac.PolicyRule]:
    # A rule without names applies to all objects.
    return [_rule(group, resource, verbs, sorted(key.name for key in keys))] if keys else []


def _every(resource: str, verbs: Collection[str]) -> list[rbac.PolicyRule]:
    # A rule without verbs is invalid.
    return [_rule("", resource, verbs)] if verbs else []


def _rule(group: str, resource: str, verbs: Iterable[str], names: list[str] | UnsetType = UNSET) -> rbac.PolicyRule:
    return rbac.PolicyRule(api_groups=[group], resources=[resource], verbs=list(verbs), resource_names=names)


def _metadata(names: ClusterNames, labels: Mapping[str, str]) -> meta.ObjectMeta:
    account = names.service_account
    return meta.ObjectMeta(name=account.name, namespace=account.namespace, labels=labels)
