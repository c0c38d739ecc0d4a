"""EndpointSlices with the leader."""

from __future__ import annotations

from msgspec import UNSET
from steersman.api.apply import core, discovery, meta
from steersman.api.core_v1 import Pod

from leader_operator.api.v1.leaderservice import GROUP, LeaderService


def endpoint_slice(
    service: LeaderService, name: str, family: str, leader: Pod | None, ready: bool
) -> discovery.EndpointSlice:
    """Return the EndpointSlice of a Service for one IP family.

    Args:
        service: the LeaderService.
        name: name of the Service.
        family: IPv4 or IPv6.
        leader: the leader. None: no endpoint.
        ready: True if the leader receives traffic.
    """
    labels = {
        "kubernetes.io/service-name": name,
        "endpointslice.kubernetes.io/managed-by": GROUP,
        "app.kubernetes.io/managed-by": GROUP,
    }
    metadata = meta.ObjectMeta(name=f"{name}-{family.lower()}", namespace=service.metadata.namespace, labels=labels)
    ports = [
        discovery.EndpointPort(name=port.name, port=port.target_port or port.port, protocol=port.protocol)
        for port in service.spec.ports
    ]
    endpoints = [] if leader is None else _endpoints(leader, family, ready)
    return discovery.EndpointSlice(metadata=metadata, address_type=family, ports=ports, endpoints=endpoints)


def _endpoints(pod: Pod, family: str, ready: bool) -> list[discovery.Endpoint]:
    addresses = [pod_ip.ip for pod_ip in pod.status.pod_ips if (":" in pod_ip.ip) == (family == "IPv6")]
    target = core.ObjectReference(
        kind="Pod", name=pod.metadata.name, namespace=pod.metadata.namespace, uid=pod.metadata.uid
    )
    terminating = pod.metadata.deletion_timestamp is not None
    conditions = discovery.EndpointConditions(ready=ready, serving=ready, terminating=terminating)
    node_name = pod.spec.node_name or UNSET
    return [
        discovery.Endpoint(addresses=[address], conditions=conditions, node_name=node_name, target_ref=target)
        for address in addresses[:1]
    ]
