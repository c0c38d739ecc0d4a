"""Names and labels of the objects of a RedisCluster."""

from __future__ import annotations

from dataclasses import dataclass

from steersman import Object, ObjectKey
from steersman.api.apply import meta

from redis_operator.api.v1.rediscluster import RedisCluster

MANAGED_BY = "redis-operator"
VERSION_LABEL = "app.kubernetes.io/version"
PORT = 6379
GIVE_UP_NODE_ANNOTATION = "cache.example.com/give-up-node"
"""Annotation with the ID of a lost node. Its slots may be assigned again without their keys."""

_INSTANCE_LABEL = "app.kubernetes.io/instance"


@dataclass(frozen=True, slots=True)
class ObjectNames:
    """Names of the objects of one RedisCluster."""

    cluster: ObjectKey

    @property
    def statefulset(self) -> ObjectKey:
        return self.cluster

    @property
    def service(self) -> ObjectKey:
        """Service for clients. Any ready node redirects them."""
        return self.cluster

    @property
    def headless_service(self) -> ObjectKey:
        return self._named("nodes")

    @property
    def secret(self) -> ObjectKey:
        return self._named("auth")

    @property
    def budget(self) -> ObjectKey:
        return self.cluster

    def config_map(self, digest: str) -> ObjectKey:
        """Return the name for a content, so that restarted pods find theirs."""
        return self._named(f"config-{digest}")

    def _named(self, part: str) -> ObjectKey:
        return ObjectKey(self.cluster.namespace, f"{self.cluster.name}-{part}")


def selector_labels(cluster: RedisCluster) -> dict[str, str]:
    """Return the labels of the pods. They must never change."""
    return {
        "app.kubernetes.io/name": "redis",
        _INSTANCE_LABEL: cluster.metadata.name,
        "app.kubernetes.io/managed-by": MANAGED_BY,
    }


def object_metadata(cluster: RedisCluster, key: ObjectKey) -> meta.ObjectMeta:
    """Return the metadata of an object of the cluster."""
    return meta.ObjectMeta(name=key.name, namespace=key.namespace, labels=selector_labels(cluster))


def owning_cluster(obj: Object) -> list[ObjectKey]:
    """Return the RedisCluster that an object belongs to."""
    name = obj.metadata.labels.get(_INSTANCE_LABEL)
    return [ObjectKey(obj.metadata.namespace, name)] if name else []


def pod_ordinal(name: str) -> int:
    """Return the ordinal of a pod of a StatefulSet."""
    return int(name.rpartition("-")[2])
