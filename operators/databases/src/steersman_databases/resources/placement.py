"""Where the pods of a cluster go that are no instances."""

from __future__ import annotations

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from steersman.api.apply.core_v1 import (
    AffinityApply,
    LocalObjectReferenceApply,
    NodeAffinityApply,
    PodAntiAffinityApply,
    PodSpecApply,
    TolerationApply,
)
from steersman_databases.engines.cluster import PodSettings
from steersman_databases.resources.instance import applied


def placed(pods: PodSettings, pod: PodSpecApply, *, apart: PodAntiAffinityApply | UnsetType = UNSET) -> PodSpecApply:
    """``pod`` on the nodes that the cluster is for, with its priority, and what its images are pulled with.

    What instances keep to or away from, by the labels of pods, is about instances.
    """
    nodes = None if pods.affinity is None else pods.affinity.node_affinity
    chosen = UNSET if nodes is None else applied(nodes, NodeAffinityApply)
    return replace(
        pod,
        image_pull_secrets=[applied(s, LocalObjectReferenceApply) for s in pods.image_pull_secrets] or UNSET,
        affinity=UNSET if chosen is apart is UNSET else AffinityApply(node_affinity=chosen, pod_anti_affinity=apart),
        node_selector=pods.node_selector or UNSET,
        tolerations=[applied(t, TolerationApply) for t in pods.tolerations] or UNSET,
        priority_class_name=pods.priority_class or UNSET,
    )
