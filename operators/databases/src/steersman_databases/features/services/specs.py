"""Services of a cluster, and EndpointSlices that lead to its primary.

-ro and -r follow the role labels of members. -rw does not: a partitioned primary cannot remove its label. So its
selector matches no pod, and the holder of the leader lock writes the one endpoint. A Service without a selector
would not be safe: a user could add one, and endpoints that Kubernetes then adds would stay, including replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import UNSET

from steersman.api.apply import core, discovery, meta
from steersman.meta import ObjectKey
from steersman_databases.api.cluster_common import AdditionalService, ServiceSettings, ServicesSettings
from steersman_databases.core.database_naming import MANAGED_BY
from steersman_databases.core.labels import cluster_labels
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.engines.naming import CLUSTER_LABEL, ROLE_LABEL, ServiceRole
from steersman_databases.features.certificates.model import pooler_services

SERVICE_LABEL = "kubernetes.io/service-name"
"""Label of EndpointSlices: their Service."""


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """A declared Service."""

    key: ObjectKey
    role: ServiceRole
    template: ServiceSettings


def declared_services(cluster: DeclaredCluster, services: ServicesSettings) -> Sequence[ServicePlan]:
    """Return all enabled Services."""
    names = cluster.names
    operator_services: tuple[tuple[ServiceRole, ServiceSettings], ...] = (
        ("rw", services.rw),
        ("ro", services.ro),
        ("r", services.r),
    )
    additional = [
        ServicePlan(_additional_service_key(names.key, s), s.role, s) for s in services.additional if s.enabled
    ]
    return [*(ServicePlan(names.service(role), role, t) for role, t in operator_services if t.enabled), *additional]


def reserved_conflicts(cluster: DeclaredCluster, services: ServicesSettings) -> Sequence[str]:
    """Return additional Services with names of the operator's own."""
    names = cluster.names
    reserved_names = {names.headless_service.name, *(names.service(role).name for role in ("rw", "ro", "r"))}
    reserved_names |= set(pooler_services(cluster))
    return [s.name for s in services.additional if s.name in reserved_names]


def _additional_service_key(cluster: ObjectKey, service: AdditionalService) -> ObjectKey:
    return ObjectKey(cluster.namespace, service.name)


def cluster_service(cluster: DeclaredCluster, plan: ServicePlan, port: int) -> core.Service:
    """Return a Service for clients."""
    template = plan.template
    spec = core.ServiceSpec(
        type=template.type,
        selector=_selector(cluster, plan.role),
        ports=[
            core.ServicePort(
                name=cluster.engine,
                port=port,
                target_port=port,
                protocol="TCP",
                node_port=UNSET if template.node_port is None else template.node_port,
            )
        ],
        load_balancer_class=template.load_balancer_class or UNSET,
        load_balancer_source_ranges=template.load_balancer_source_ranges or UNSET,
        external_traffic_policy=template.external_traffic_policy or UNSET,
        ip_family_policy=template.ip_family_policy or UNSET,
        ip_families=template.ip_families or UNSET,
    )
    return core.Service(
        metadata=meta.ObjectMeta(
            name=plan.key.name,
            namespace=plan.key.namespace,
            labels={**template.labels, **cluster_labels(cluster)},
            annotations=template.annotations or UNSET,
        ),
        spec=spec,
    )


def cluster_headless_service(cluster: DeclaredCluster, port: int) -> core.Service:
    """Return the Service that gives each pod a DNS name.

    Pods that are not ready have a name, too.
    """
    key = cluster.names.headless_service
    return core.Service(
        metadata=meta.ObjectMeta(name=key.name, namespace=key.namespace, labels=cluster_labels(cluster)),
        spec=core.ServiceSpec(
            type="ClusterIP",
            cluster_ip="None",
            publish_not_ready_addresses=True,
            selector={CLUSTER_LABEL: cluster.key.name},
            ports=[core.ServicePort(name=cluster.engine, port=port, target_port=port, protocol="TCP")],
        ),
    )


def endpoint_slices(cluster: DeclaredCluster, service: str, port: int) -> Iterable[discovery.EndpointSlice]:
    """Yield the EndpointSlices of a Service, one per address family.

    They are created, and not applied.
    """
    for key, family in zip(cluster.names.endpoint_slices(service), ("IPv4", "IPv6"), strict=True):
        yield discovery.EndpointSlice(
            metadata=meta.ObjectMeta(
                name=key.name,
                namespace=key.namespace,
                labels={
                    **cluster_labels(cluster),
                    SERVICE_LABEL: service,
                    "endpointslice.kubernetes.io/managed-by": MANAGED_BY,
                },
            ),
            address_type=family,
            endpoints=[],
            ports=[discovery.EndpointPort(name=cluster.engine, port=port, protocol="TCP")],
        )


def _selector(cluster: DeclaredCluster, role: ServiceRole) -> Mapping[str, str]:
    match role:
        case "rw":
            return {CLUSTER_LABEL: cluster.key.name, ROLE_LABEL: "nobody"}
        case "ro":
            return {CLUSTER_LABEL: cluster.key.name, ROLE_LABEL: "replica"}
        case "r":
            return {CLUSTER_LABEL: cluster.key.name}
