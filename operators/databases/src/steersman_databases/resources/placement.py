"""Where the pods of a cluster go, and what their images are pulled with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from steersman.api.apply import core, meta
from steersman.api.core_v1 import TopologySpreadConstraint
from steersman.meta import to_builtins
from steersman_databases.engines.cluster import PodSettings

T = TypeVar("T")


def placed(pods: PodSettings, pod: core.PodSpec, affinity: core.Affinity | UnsetType) -> core.PodSpec:
    """``pod`` on the nodes that the cluster is for, with its priority, and what its images are pulled with."""
    return replace(
        pod,
        image_pull_secrets=[applied(s, core.LocalObjectReference) for s in pods.image_pull_secrets] or UNSET,
        affinity=affinity,
        node_selector=pods.node_selector or UNSET,
        tolerations=[applied(t, core.Toleration) for t in pods.tolerations] or UNSET,
        priority_class_name=pods.priority_class or UNSET,
    )


def beside(pods: PodSettings, *, apart: core.PodAntiAffinity | UnsetType = UNSET) -> core.Affinity | UnsetType:
    """The affinity of pods that are no instances.

    What instances keep to or away from, by the labels of pods, is about instances.
    """
    nodes = None if pods.affinity is None else pods.affinity.node_affinity
    chosen = UNSET if nodes is None else applied(nodes, core.NodeAffinity)
    return UNSET if chosen is apart is UNSET else core.Affinity(node_affinity=chosen, pod_anti_affinity=apart)


def apart(selector: meta.LabelSelector) -> core.PodAntiAffinity:
    """On nodes of their own where that is possible."""
    term = core.PodAffinityTerm(topology_key="kubernetes.io/hostname", label_selector=selector)
    preferred = [core.WeightedPodAffinityTerm(weight=100, pod_affinity_term=term)]
    return core.PodAntiAffinity(preferred_during_scheduling_ignored_during_execution=preferred)


def spread(
    declared: Sequence[TopologySpreadConstraint], ours: meta.LabelSelector
) -> list[core.TopologySpreadConstraint]:
    """What is declared, each constraint without a selector about ``ours``."""
    constraints = [applied(c, core.TopologySpreadConstraint) for c in declared]
    return [replace(c, label_selector=ours) if not c.label_selector else c for c in constraints]


def applied(read: Any, kind: type[T]) -> T:
    """What was read from a spec, as it is applied."""
    return msgspec.convert(to_builtins(read), kind)
