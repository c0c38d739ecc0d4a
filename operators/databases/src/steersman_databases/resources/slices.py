"""What the EndpointSlices of a Service that leads to the primary hold: its pod, or nobody."""

from __future__ import annotations

from typing import Any

from steersman.api.core_v1 import Pod
from steersman.api.discovery_v1 import EndpointSlice

LEADERSHIP = "databases.steersman.dev/leadership"
"""On slices: `Members.leadership` of who wrote them."""


def endpoints_of(pod: Pod | None, family: str) -> list[dict[str, Any]]:
    """The endpoints of a slice of this address family, exactly as the members write them."""
    if pod is None:
        return []
    addresses = [a.ip for a in pod.status.pod_ips or () if (":" in a.ip) == (family == "IPv6")]
    target = {"kind": "Pod", "name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid}
    conditions = {"ready": True, "serving": True, "terminating": False}
    node = {"nodeName": pod.spec.node_name} if pod.spec.node_name else {}
    return [{"addresses": [a], "conditions": conditions, **node, "targetRef": target} for a in addresses[:1]]


def leads_to(found: EndpointSlice, endpoints: list[dict[str, Any]]) -> bool:
    """Whether these addresses, and no others, stand in the slice, and all may be led to."""
    present = [address for endpoint in found.endpoints or () for address in endpoint.addresses]
    # Not said is ready.
    if any(endpoint.conditions.ready is False for endpoint in found.endpoints or ()):
        return False
    return present == [address for endpoint in endpoints for address in endpoint["addresses"]]


def pods_of(found: EndpointSlice) -> dict[str, str]:
    """The pods that the slice leads to, by name, and their uids."""
    targets = [endpoint.target_ref for endpoint in found.endpoints or () if endpoint.target_ref is not None]
    return {target.name or "": target.uid or "" for target in targets}
