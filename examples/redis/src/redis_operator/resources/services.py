"""Services and PodDisruptionBudget of the nodes."""

from __future__ import annotations

from msgspec import UNSET
from steersman import ObjectKey
from steersman.api.apply import core, meta, policy

from redis_operator.api.v1.rediscluster import RedisCluster
from redis_operator.resources.names import PORT, ObjectNames, object_metadata, selector_labels


def client_service(cluster: RedisCluster) -> core.Service:
    """Return the Service for clients, which selects ready nodes."""
    return _service(cluster, ObjectNames(cluster.key).service, headless=False)


def headless_service(cluster: RedisCluster) -> core.Service:
    """Return the headless Service. It publishes DNS names before pods are ready."""
    return _service(cluster, ObjectNames(cluster.key).headless_service, headless=True)


def disruption_budget(cluster: RedisCluster) -> policy.PodDisruptionBudget:
    """Return the PodDisruptionBudget: one node at a time.

    Pods that are not ready can be evicted at any time."""
    spec = policy.PodDisruptionBudgetSpec(
        max_unavailable=1,
        unhealthy_pod_eviction_policy="AlwaysAllow",
        selector=meta.LabelSelector(match_labels=selector_labels(cluster)),
    )
    return policy.PodDisruptionBudget(metadata=object_metadata(cluster, ObjectNames(cluster.key).budget), spec=spec)


def _service(cluster: RedisCluster, key: ObjectKey, *, headless: bool) -> core.Service:
    return core.Service(
        metadata=object_metadata(cluster, key),
        spec=core.ServiceSpec(
            type="ClusterIP",
            cluster_ip="None" if headless else UNSET,
            publish_not_ready_addresses=headless,
            selector=selector_labels(cluster),
            ports=[core.ServicePort(name="redis", port=PORT, target_port=PORT, protocol="TCP")],
        ),
    )
