"""Scheduling of a cluster's pods, and their image pull settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from steersman.api.apply import core, meta
from steersman.api.core_v1 import TopologySpreadConstraint
from steersman.meta import to_builtins
from steersman_databases.engines.cluster_engine import PodTemplateSettings

T = TypeVar("T")


def with_scheduling(
    pods: PodTemplateSettings, pod: core.PodSpec, affinity: core.Affinity | UnsetType
) -> core.PodSpec:
    """Return ``pod`` with scheduling, priority and image pull settings."""
    return replace(
        pod,
        image_pull_secrets=[to_apply(s, core.LocalObjectReference) for s in pods.image_pull_secrets] or UNSET,
        affinity=affinity,
        node_selector=pods.node_selector or UNSET,
        tolerations=[to_apply(t, core.Toleration) for t in pods.tolerations] or UNSET,
        priority_class_name=pods.priority_class or UNSET,
    )


def auxiliary_affinity(
    pods: PodTemplateSettings, *, pod_anti_affinity: core.PodAntiAffinity | UnsetType = UNSET
) -> core.Affinity | UnsetType:
    """Return the affinity of other pods than instances.

    Declared pod affinities refer to labels of instances, and are left out.
    """
    nodes = None if pods.affinity is None else pods.affinity.node_affinity
    node_affinity = UNSET if nodes is None else to_apply(nodes, core.NodeAffinity)
    return (
        UNSET
        if node_affinity is pod_anti_affinity is UNSET
        else core.Affinity(node_affinity=node_affinity, pod_anti_affinity=pod_anti_affinity)
    )


def anti_affinity(selector: meta.LabelSelector) -> core.PodAntiAffinity:
    """Return a preferred podAntiAffinity by node."""
    term = core.PodAffinityTerm(topology_key="kubernetes.io/hostname", label_selector=selector)
    preferred = [core.WeightedPodAffinityTerm(weight=100, pod_affinity_term=term)]
    return core.PodAntiAffinity(preferred_during_scheduling_ignored_during_execution=preferred)


def topology_spread(
    declared: Sequence[TopologySpreadConstraint], selector: meta.LabelSelector
) -> list[core.TopologySpreadConstraint]:
    """Return the declared constraints, with ``ours`` as default selector."""
    constraints = [to_apply(c, core.TopologySpreadConstraint) for c in declared]
    return [replace(c, label_selector=selector) if not c.label_selector else c for c in constraints]


def to_apply(declared: Any, kind: type[T]) -> T:
    """Convert a value of a spec to its apply type."""
    return msgspec.convert(to_builtins(declared), kind)
