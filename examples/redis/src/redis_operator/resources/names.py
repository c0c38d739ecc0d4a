"""Names and labels of what belongs to a RedisCluster."""

from __future__ import annotations

from dataclasses import dataclass

from steersman import Object, ObjectKey, ObjectMetaApply

from redis_operator.api.v1.rediscluster import RedisCluster

MANAGED_BY = "redis-operator"
VERSION_LABEL = "app.kubernetes.io/version"
PORT = 6379
GIVE_UP_NODE_ANNOTATION = "cache.example.com/give-up-node"
"""An annotation: the id of a lost node whose slots may be served anew, empty."""

_INSTANCE_LABEL = "app.kubernetes.io/instance"


@dataclass(frozen=True, slots=True)
class ObjectNames:
    """Of the objects of one RedisCluster."""

    cluster: ObjectKey

    @property
    def statefulset(self) -> ObjectKey:
        return self.cluster

    @property
    def service(self) -> ObjectKey:
        """For clients: any ready node tells them where the others are."""
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
        """One for each content, so that a pod that restarts finds the one that it was made for."""
        return self._named(f"config-{digest}")

    def _named(self, part: str) -> ObjectKey:
        return ObjectKey(self.cluster.namespace, f"{self.cluster.name}-{part}")


def selector_labels(cluster: RedisCluster) -> dict[str, str]:
    """What its pods have in common, for ever."""
    return {
        "app.kubernetes.io/name": "redis",
        _INSTANCE_LABEL: cluster.metadata.name,
        "app.kubernetes.io/managed-by": MANAGED_BY,
    }


def object_metadata(cluster: RedisCluster, key: ObjectKey) -> ObjectMetaApply:
    """Of one of its objects."""
    return ObjectMetaApply(name=key.name, namespace=key.namespace, labels=selector_labels(cluster))


def owning_cluster(obj: Object) -> list[ObjectKey]:
    """The RedisCluster that an object of ours is part of."""
    name = obj.metadata.labels.get(_INSTANCE_LABEL)
    return [ObjectKey(obj.metadata.namespace, name)] if name else []


def pod_ordinal(name: str) -> int:
    """The number of a pod of a StatefulSet."""
    return int(name.rpartition("-")[2])
