"""Services and PodDisruptionBudget of the nodes."""

from __future__ import annotations

from msgspec import UNSET
from steersman import ObjectKey
from steersman.api.apply.core_v1 import ServiceApply, ServicePortApply, ServiceSpecApply
from steersman.api.apply.meta_v1 import LabelSelectorApply
from steersman.api.apply.policy_v1 import PodDisruptionBudgetApply, PodDisruptionBudgetSpecApply

from redis_operator.api.v1.rediscluster import RedisCluster
from redis_operator.resources.names import PORT, ObjectNames, object_metadata, selector_labels


def client_service(cluster: RedisCluster) -> ServiceApply:
    """Return the Service for clients, which selects ready nodes."""
    return _service(cluster, ObjectNames(cluster.key).service, headless=False)


def headless_service(cluster: RedisCluster) -> ServiceApply:
    """Return the headless Service. It publishes DNS names before pods are ready."""
    return _service(cluster, ObjectNames(cluster.key).headless_service, headless=True)


def disruption_budget(cluster: RedisCluster) -> PodDisruptionBudgetApply:
    """Return the PodDisruptionBudget: one node at a time.

    Pods that are not ready can be evicted at any time."""
    spec = PodDisruptionBudgetSpecApply(
        max_unavailable=1,
        unhealthy_pod_eviction_policy="AlwaysAllow",
        selector=LabelSelectorApply(match_labels=selector_labels(cluster)),
    )
    return PodDisruptionBudgetApply(metadata=object_metadata(cluster, ObjectNames(cluster.key).budget), spec=spec)


def _service(cluster: RedisCluster, key: ObjectKey, *, headless: bool) -> ServiceApply:
    return ServiceApply(
        metadata=object_metadata(cluster, key),
        spec=ServiceSpecApply(
            type="ClusterIP",
            cluster_ip="None" if headless else UNSET,
            publish_not_ready_addresses=headless,
            selector=selector_labels(cluster),
            ports=[ServicePortApply(name="redis", port=PORT, target_port=PORT, protocol="TCP")],
        ),
    )
