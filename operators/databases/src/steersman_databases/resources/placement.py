"""Where the pods of a cluster go, and what their images are pulled with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from steersman.api.apply.core_v1 import (
    AffinityApply,
    LocalObjectReferenceApply,
    NodeAffinityApply,
    PodAffinityTermApply,
    PodAntiAffinityApply,
    PodSpecApply,
    TolerationApply,
    TopologySpreadConstraintApply,
    WeightedPodAffinityTermApply,
)
from steersman.api.apply.meta_v1 import LabelSelectorApply
from steersman.api.core_v1 import TopologySpreadConstraint
from steersman.meta import to_builtins
from steersman_databases.engines.cluster import PodSettings

T = TypeVar("T")


def placed(pods: PodSettings, pod: PodSpecApply, affinity: AffinityApply | UnsetType) -> PodSpecApply:
    """``pod`` on the nodes that the cluster is for, with its priority, and what its images are pulled with."""
    return replace(
        pod,
        image_pull_secrets=[applied(s, LocalObjectReferenceApply) for s in pods.image_pull_secrets] or UNSET,
        affinity=affinity,
        node_selector=pods.node_selector or UNSET,
        tolerations=[applied(t, TolerationApply) for t in pods.tolerations] or UNSET,
        priority_class_name=pods.priority_class or UNSET,
    )


def beside(pods: PodSettings, *, apart: PodAntiAffinityApply | UnsetType = UNSET) -> AffinityApply | UnsetType:
    """The affinity of pods that are no instances.

    What instances keep to or away from, by the labels of pods, is about instances.
    """
    nodes = None if pods.affinity is None else pods.affinity.node_affinity
    chosen = UNSET if nodes is None else applied(nodes, NodeAffinityApply)
    return UNSET if chosen is apart is UNSET else AffinityApply(node_affinity=chosen, pod_anti_affinity=apart)


def apart(selector: LabelSelectorApply) -> PodAntiAffinityApply:
    """On nodes of their own where that is possible."""
    term = PodAffinityTermApply(topology_key="kubernetes.io/hostname", label_selector=selector)
    preferred = [WeightedPodAffinityTermApply(weight=100, pod_affinity_term=term)]
    return PodAntiAffinityApply(preferred_during_scheduling_ignored_during_execution=preferred)


def spread(
    declared: Sequence[TopologySpreadConstraint], ours: LabelSelectorApply
) -> list[TopologySpreadConstraintApply]:
    """What is declared, each constraint without a selector about ``ours``."""
    constraints = [applied(c, TopologySpreadConstraintApply) for c in declared]
    return [replace(c, label_selector=ours) if not c.label_selector else c for c in constraints]


def applied(read: Any, kind: type[T]) -> T:
    """What was read from a spec, as it is applied."""
    return msgspec.convert(to_builtins(read), kind)
