"""Changes of other clients that an apply does not revert.

Undeclared fields of pod templates are left alone on purpose: admission policies of a cluster add some, and each side
would revert the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET

from steersman.api.apply import apps, core, discovery, policy
from steersman.api.apps_v1 import Deployment, StatefulSet
from steersman.api.core_v1 import ConfigMap, Service
from steersman.api.discovery_v1 import EndpointSlice
from steersman.api.policy_v1 import PodDisruptionBudget
from steersman.client import MergePatch
from steersman.meta import ApplyConfiguration, Object, to_builtins

_UNSET_VALUES: Sequence[Any] = (None, False, {}, ())
_FIELDS: Mapping[str, tuple[str, Sequence[Any]]] = {
    "externalIPs": ("external_ips", _UNSET_VALUES),
    "publishNotReadyAddresses": ("publish_not_ready_addresses", _UNSET_VALUES),
    "sessionAffinity": ("session_affinity", (*_UNSET_VALUES, "None")),
    # The API server refuses it with an affinity of "None", so both are removed.
    "sessionAffinityConfig": ("session_affinity_config", _UNSET_VALUES),
    "internalTrafficPolicy": ("internal_traffic_policy", (*_UNSET_VALUES, "Cluster")),
    "externalTrafficPolicy": ("external_traffic_policy", (*_UNSET_VALUES, "Cluster")),
    "loadBalancerSourceRanges": ("load_balancer_source_ranges", _UNSET_VALUES),
}
"""Fields of a Service that redirect or exclude clients.

The keys are the field names on the wire, with their neutral values. Kubernetes fills other fields.
"""
_LOAD_BALANCER_FIELDS = frozenset({"externalIPs", "loadBalancerSourceRanges"})
"""Exceptions for load balancers.

Controllers of a cloud write the first one. Without the second one, which a user may have set, the load balancer
would be open to all. Kubernetes refuses the second one for other types of Services.
"""


def repair_patch(present: Object, config: ApplyConfiguration[Any]) -> MergePatch | None:
    """Return a patch of drift that an apply would not revert.

    None if there is no such drift.
    """
    match present, config:
        case Service(), core.Service():
            repair = _repair_service(present, config)
        case PodDisruptionBudget(), policy.PodDisruptionBudget():
            repair = _repair_budget(present, config)
        case ConfigMap(), core.ConfigMap():
            repair = _repair_config_map(present, config)
        case Deployment(), apps.Deployment():
            # A paused rollout would never complete.
            repair = {"spec": {"paused": None}} if present.spec.paused else {}
        case StatefulSet(), apps.StatefulSet():
            repair = _repair_statefulset(present)
        case EndpointSlice(), discovery.EndpointSlice():
            repair = _repair_slice(present, config)
        case _:
            repair = {}
    if not repair:
        return None
    metadata = {**repair.pop("metadata", {}), "resourceVersion": present.metadata.resource_version}
    return MergePatch({"metadata": metadata, **repair})


def _repair_service(present: Service, config: core.Service) -> dict[str, Any]:
    """Return a patch for ports, fields and selectors.

    Kubernetes merges ports by number and protocol, so a changed port would stay next to the declared one, with the
    same name. Undeclared fields and keys would stay, too.
    """
    assert config.spec is not UNSET
    desired, spec = config.spec, dict[str, Any]()
    ports: Sequence[core.ServicePort] = () if desired.ports is UNSET else list(desired.ports)
    if {(p.port, p.protocol or "TCP") for p in present.spec.ports} != {(p.port, p.protocol) for p in ports}:
        spec["ports"] = to_builtins(ports)
    current_ports = _LOAD_BALANCER_FIELDS if desired.type == "LoadBalancer" else frozenset[str]()
    for name, (field, undeclared) in _FIELDS.items():
        if (
            name not in current_ports
            and getattr(desired, field) is UNSET
            and getattr(present.spec, field) not in undeclared
        ):
            spec[name] = None
    selector = frozenset[str]() if desired.selector is UNSET else desired.selector.keys()
    if foreign := present.spec.selector.keys() - selector:
        spec["selector"] = dict.fromkeys(foreign)
    return {"spec": spec} if spec else {}


def _repair_budget(present: PodDisruptionBudget, config: policy.PodDisruptionBudget) -> dict[str, Any]:
    """Return a patch that removes the other limit: only one is allowed."""
    assert config.spec is not UNSET
    if present.spec.min_available is None:
        return {}
    return {"spec": {"minAvailable": None, "maxUnavailable": config.spec.max_unavailable}}


def _repair_config_map(present: ConfigMap, config: core.ConfigMap) -> dict[str, Any]:
    """Return a patch that removes foreign keys.

    Each key is mounted as a file.
    """
    declared = frozenset[str]() if config.data is UNSET else config.data.keys()
    repair = dict[str, Any]()
    if foreign := present.data.keys() - declared:
        repair["data"] = dict.fromkeys(sorted(foreign))
    if present.binary_data:
        repair["binaryData"] = None
    return repair


def _repair_statefulset(present: StatefulSet) -> dict[str, Any]:
    """Return a patch for ordinals and the update strategy.

    Other ordinals change the pods. The API server refuses fields of rolling updates together with `OnDelete`.
    """
    spec, strategy = dict[str, Any](), present.spec.update_strategy
    if present.spec.ordinals is not None:
        spec["ordinals"] = None
    if strategy.rolling_update is not None:
        spec["updateStrategy"] = {"type": "OnDelete", "rollingUpdate": None}
    return {"spec": spec} if spec else {}


def _repair_slice(present: EndpointSlice, config: discovery.EndpointSlice) -> dict[str, Any]:
    """Return a patch for all but the endpoints, which the primary writes."""
    repair, labels = dict[str, Any](), config.metadata.labels or {}
    if missing_labels := dict(sorted(labels.items() - present.metadata.labels.items())):
        repair["metadata"] = {"labels": missing_labels}
    desired = () if config.ports is UNSET else config.ports
    current_ports = [(port.name, port.port, port.protocol) for port in present.ports or ()]
    if current_ports != [(port.name, port.port, port.protocol) for port in desired]:
        repair["ports"] = to_builtins(desired)
    if present.address_type != config.address_type:
        # The API server refuses this, so the error is reported: another client recreated the slice.
        repair["addressType"] = config.address_type
    return repair


def requires_recreation(present: Object, config: ApplyConfiguration[Any]) -> bool:
    """Return True if an immutable ConfigMap has other data.

    Other immutable fields differ only if a client recreated the object, or an admission policy changed it. Then the
    API server's refusal is reported, because the consequences of a deletion are unknown.
    """
    match present, config:
        case ConfigMap(immutable=True), core.ConfigMap():
            return bool(present.binary_data) or present.data != (config.data or {})
        case _:
            return False


def comparable(obj: Object) -> Any:
    """Return the content without status, versions and managers."""
    content = to_builtins(obj)
    metadata = content.pop("metadata", {})
    content.pop("status", None)
    return content, metadata.get("labels"), metadata.get("annotations"), metadata.get("ownerReferences")
