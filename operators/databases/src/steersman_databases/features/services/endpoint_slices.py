"""Endpoints of a Service for the primary: its pod, or none."""

from __future__ import annotations

from typing import Any

from steersman.api.core_v1 import Pod
from steersman.api.discovery_v1 import EndpointSlice

LEADER_TERM_ANNOTATION = "databases.steersman.dev/leader-term"
"""Annotation of slices: `Members.leader_term` of their author."""


def endpoints_of(pod: Pod | None, family: str) -> list[dict[str, Any]]:
    """Return the endpoints of this address family, as members write them."""
    if pod is None:
        return []
    addresses = [a.ip for a in pod.status.pod_ips or () if (":" in a.ip) == (family == "IPv6")]
    target = {"kind": "Pod", "name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid}
    conditions = {"ready": True, "serving": True, "terminating": False}
    node = {"nodeName": pod.spec.node_name} if pod.spec.node_name else {}
    return [{"addresses": [a], "conditions": conditions, **node, "targetRef": target} for a in addresses[:1]]


def points_to(found: EndpointSlice, endpoints: list[dict[str, Any]]) -> bool:
    """Return True if the slice has exactly these addresses, all ready."""
    present = [address for endpoint in found.endpoints or () for address in endpoint.addresses]
    # A missing condition means ready.
    if any(endpoint.conditions.ready is False for endpoint in found.endpoints or ()):
        return False
    return present == [address for endpoint in endpoints for address in endpoint["addresses"]]


def pods_of(found: EndpointSlice) -> dict[str, str]:
    """Return the UIDs of the slice's pods by name."""
    targets = [endpoint.target_ref for endpoint in found.endpoints or () if endpoint.target_ref is not None]
    return {target.name or "": target.uid or "" for target in targets}
