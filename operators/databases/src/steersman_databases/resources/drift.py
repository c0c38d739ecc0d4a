"""What somebody changed in an object of ours: what an apply does not put back, and whether it changed anything.

Left alone on purpose is what of a pod template we never say: admission policies of a cluster add to those, and each
would undo what the other does.
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

_NOTHING: Sequence[Any] = (None, False, {}, ())
_FIELDS: Mapping[str, tuple[str, Sequence[Any]]] = {
    "externalIPs": ("external_ips", _NOTHING),
    "publishNotReadyAddresses": ("publish_not_ready_addresses", _NOTHING),
    "sessionAffinity": ("session_affinity", (*_NOTHING, "None")),
    # Refused beside an affinity of "None", and so has to go with it.
    "sessionAffinityConfig": ("session_affinity_config", _NOTHING),
    "internalTrafficPolicy": ("internal_traffic_policy", (*_NOTHING, "Cluster")),
    "externalTrafficPolicy": ("external_traffic_policy", (*_NOTHING, "Cluster")),
    "loadBalancerSourceRanges": ("load_balancer_source_ranges", _NOTHING),
}
"""Of a Service, what leads clients elsewhere or keeps them out: by the wire's names, with what says nothing.

Other fields are filled by Kubernetes.
"""
_OF_LOAD_BALANCERS = frozenset({"externalIPs", "loadBalancerSourceRanges"})
"""Where a load balancer is declared: controllers of a cloud write the former, and without the latter, by which
somebody has closed it, it would be open to everybody. A Service of another type is refused with the latter.
"""


def repair_of(present: Object, config: ApplyConfiguration[Any]) -> MergePatch | None:
    """What puts back what an apply of ``config`` would not; None where there is nothing of the kind."""
    match present, config:
        case Service(), core.Service():
            repair = _of_service(present, config)
        case PodDisruptionBudget(), policy.PodDisruptionBudget():
            repair = _of_budget(present, config)
        case ConfigMap(), core.ConfigMap():
            repair = _of_config_map(present, config)
        case Deployment(), apps.Deployment():
            # A rollout that somebody paused would never get to what is declared.
            repair = {"spec": {"paused": None}} if present.spec.paused else {}
        case StatefulSet(), apps.StatefulSet():
            repair = _of_statefulset(present)
        case EndpointSlice(), discovery.EndpointSlice():
            repair = _of_slice(present, config)
        case _:
            repair = {}
    if not repair:
        return None
    metadata = {**repair.pop("metadata", {}), "resourceVersion": present.metadata.resource_version}
    return MergePatch({"metadata": metadata, **repair})


def _of_service(present: Service, config: core.Service) -> dict[str, Any]:
    """Ports are merged by number and protocol: one that was changed by hand would stay beside ours, under the same
    name. Fields and keys that we never said would stay, too.
    """
    assert config.spec is not UNSET
    wanted, spec = config.spec, dict[str, Any]()
    ports: Sequence[core.ServicePort] = () if wanted.ports is UNSET else list(wanted.ports)
    if {(p.port, p.protocol or "TCP") for p in present.spec.ports} != {(p.port, p.protocol) for p in ports}:
        spec["ports"] = to_builtins(ports)
    theirs = _OF_LOAD_BALANCERS if wanted.type == "LoadBalancer" else frozenset[str]()
    for name, (field, unsaid) in _FIELDS.items():
        if name not in theirs and getattr(wanted, field) is UNSET and getattr(present.spec, field) not in unsaid:
            spec[name] = None
    selector = frozenset[str]() if wanted.selector is UNSET else wanted.selector.keys()
    if foreign := present.spec.selector.keys() - selector:
        spec["selector"] = dict.fromkeys(foreign)
    return {"spec": spec} if spec else {}


def _of_budget(present: PodDisruptionBudget, config: policy.PodDisruptionBudget) -> dict[str, Any]:
    """Of the two limits there is one: beside the other, ours is refused."""
    assert config.spec is not UNSET
    if present.spec.min_available is None:
        return {}
    return {"spec": {"minAvailable": None, "maxUnavailable": config.spec.max_unavailable}}


def _of_config_map(present: ConfigMap, config: core.ConfigMap) -> dict[str, Any]:
    """Each key is a file to whom it is mounted for."""
    declared = frozenset[str]() if config.data is UNSET else config.data.keys()
    repair = dict[str, Any]()
    if foreign := present.data.keys() - declared:
        repair["data"] = dict.fromkeys(sorted(foreign))
    if present.binary_data:
        repair["binaryData"] = None
    return repair


def _of_statefulset(present: StatefulSet) -> dict[str, Any]:
    """Another ordinal is another pod. What is about rolling updates is refused beside ``OnDelete``, which is ours."""
    spec, strategy = dict[str, Any](), present.spec.update_strategy
    if present.spec.ordinals is not None:
        spec["ordinals"] = None
    if strategy.rolling_update is not None:
        spec["updateStrategy"] = {"type": "OnDelete", "rollingUpdate": None}
    return {"spec": spec} if spec else {}


def _of_slice(present: EndpointSlice, config: discovery.EndpointSlice) -> dict[str, Any]:
    """All but the endpoints, which are the primary's to write."""
    repair, labels = dict[str, Any](), config.metadata.labels or {}
    if lost := dict(sorted(labels.items() - present.metadata.labels.items())):
        repair["metadata"] = {"labels": lost}
    wanted = () if config.ports is UNSET else config.ports
    there = [(port.name, port.port, port.protocol) for port in present.ports or ()]
    if there != [(port.name, port.port, port.protocol) for port in wanted]:
        repair["ports"] = to_builtins(wanted)
    if present.address_type != config.address_type:
        # Refused, and so told: somebody made it anew.
        repair["addressType"] = config.address_type
    return repair


def is_unchangeable(present: Object, config: ApplyConfiguration[Any]) -> bool:
    """Whether an apply of ``config`` is refused until ``present`` is another: an immutable ConfigMap with other data.

    What else cannot be changed differs only where somebody made the object anew, or an admission policy has it so:
    the API server's refusal is told, since nobody knows what goes with the object.
    """
    match present, config:
        case ConfigMap(immutable=True), core.ConfigMap():
            return bool(present.binary_data) or present.data != (config.data or {})
        case _:
            return False


def content_of(obj: Object) -> Any:
    """What people mean by a change of it: without status, versions and managers."""
    content = to_builtins(obj)
    metadata = content.pop("metadata", {})
    content.pop("status", None)
    return content, metadata.get("labels"), metadata.get("annotations"), metadata.get("ownerReferences")
