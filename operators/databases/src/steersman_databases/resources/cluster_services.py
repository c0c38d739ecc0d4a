"""The Services of a cluster, and the EndpointSlices of those that lead to its primary.

-ro and -r follow the labels that the members give themselves. -rw does not: a primary that is cut off cannot take its
label off. So its selector fits nobody, and whoever holds the lock writes the one endpoint. With none at all, somebody
could give it one, and what Kubernetes then fills in would stay: replicas, among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import UNSET

from steersman.api.apply import core, discovery, meta
from steersman.meta import ObjectKey
from steersman_databases.api.cluster_parts import AdditionalService, Services, ServiceTemplate
from steersman_databases.clusters.keyring import pooler_services
from steersman_databases.engines.cluster import ClusterView
from steersman_databases.engines.cluster_names import MEMBER_OF_LABEL, ROLE_LABEL, ServiceRole
from steersman_databases.resources.labels import cluster_labels
from steersman_databases.resources.names import MANAGED_BY

SERVICE_LABEL = "kubernetes.io/service-name"
"""On EndpointSlices: the Service that they are of."""


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """One Service that is declared."""

    key: ObjectKey
    role: ServiceRole
    template: ServiceTemplate


def declared_services(cluster: ClusterView, services: Services) -> Sequence[ServicePlan]:
    """All that are enabled."""
    names = cluster.names
    own: tuple[tuple[ServiceRole, ServiceTemplate], ...] = (
        ("rw", services.rw),
        ("ro", services.ro),
        ("r", services.r),
    )
    additional = [ServicePlan(_beside(names.key, s), s.role, s) for s in services.additional if s.enabled]
    return [*(ServicePlan(names.service(role), role, t) for role, t in own if t.enabled), *additional]


def names_taken(cluster: ClusterView, services: Services) -> Sequence[str]:
    """Names of additional Services that are names of the operator's own."""
    names = cluster.names
    own = {names.headless_service.name, *(names.service(role).name for role in ("rw", "ro", "r"))}
    own |= set(pooler_services(cluster))
    return [s.name for s in services.additional if s.name in own]


def _beside(cluster: ObjectKey, service: AdditionalService) -> ObjectKey:
    return ObjectKey(cluster.namespace, service.name)


def cluster_service(cluster: ClusterView, plan: ServicePlan, port: int) -> core.Service:
    """Where clients connect."""
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


def cluster_headless_service(cluster: ClusterView, port: int) -> core.Service:
    """Gives each pod a name of its own, before it is ready too."""
    key = cluster.names.headless_service
    return core.Service(
        metadata=meta.ObjectMeta(name=key.name, namespace=key.namespace, labels=cluster_labels(cluster)),
        spec=core.ServiceSpec(
            type="ClusterIP",
            cluster_ip="None",
            publish_not_ready_addresses=True,
            selector={MEMBER_OF_LABEL: cluster.key.name},
            ports=[core.ServicePort(name=cluster.engine, port=port, target_port=port, protocol="TCP")],
        ),
    )


def empty_slices(cluster: ClusterView, service: str, port: int) -> Iterable[discovery.EndpointSlice]:
    """The EndpointSlices of a Service that leads to the primary, one for each address family, to be created."""
    for key, family in zip(cluster.names.slices(service), ("IPv4", "IPv6"), strict=True):
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


def _selector(cluster: ClusterView, role: ServiceRole) -> Mapping[str, str]:
    match role:
        case "rw":
            return {MEMBER_OF_LABEL: cluster.key.name, ROLE_LABEL: "nobody"}
        case "ro":
            return {MEMBER_OF_LABEL: cluster.key.name, ROLE_LABEL: "replica"}
        case "r":
            return {MEMBER_OF_LABEL: cluster.key.name}
