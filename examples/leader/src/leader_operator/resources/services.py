"""Services without selector: their EndpointSlices have the leader only."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import UNSET
from steersman.api.apply import core, meta

from leader_operator.api.v1.leaderservice import GROUP, LeaderService


@dataclass(frozen=True, slots=True)
class ServiceName:
    """Names of the Services of a LeaderService.

    Attributes:
        service: the Service with a virtual IP.
        headless: the Service whose DNS name is the address of the leader.
    """

    service: str
    headless: str

    @classmethod
    def of(cls, service: LeaderService) -> ServiceName:
        """Return the names for a LeaderService."""
        name = service.metadata.name
        return cls(name, f"{name}-leader")


def leader_service(service: LeaderService) -> core.Service:
    """Return the Service with a virtual IP."""
    return _service(service, ServiceName.of(service).service, headless=False)


def headless_service(service: LeaderService) -> core.Service:
    """Return the headless Service."""
    return _service(service, ServiceName.of(service).headless, headless=True)


def object_metadata(service: LeaderService, name: str, **labels: str) -> meta.ObjectMeta:
    """Return the metadata of an object. ``labels`` have ``_`` for ``-``."""
    managed = {"app.kubernetes.io/managed-by": GROUP, "app.kubernetes.io/instance": service.metadata.name}
    return meta.ObjectMeta(name=name, namespace=service.metadata.namespace, labels=managed | labels)


def _service(service: LeaderService, name: str, *, headless: bool) -> core.Service:
    ports = [
        core.ServicePort(
            name=port.name or UNSET,
            port=port.port,
            target_port=port.target_port or port.port,
            protocol=port.protocol,
        )
        for port in service.spec.ports
    ]
    cluster_ip = "None" if headless else UNSET
    return core.Service(
        metadata=object_metadata(service, name),
        spec=core.ServiceSpec(type="ClusterIP", cluster_ip=cluster_ip, ports=ports),
    )
