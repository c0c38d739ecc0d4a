"""The file redis.conf: fixed parameters and those of the user."""

from __future__ import annotations

import hashlib

from steersman.api.apply import core

from redis_operator.api.v1.rediscluster import RedisCluster
from redis_operator.resources.names import PORT, ObjectNames, object_metadata

_DEFAULT_PARAMETERS = {
    "appendonly": "yes",
    # A replica takes over after its master was unreachable for five seconds.
    "cluster-node-timeout": "5000",
}
_MANAGED_PARAMETERS = {
    "port": str(PORT),
    "bind": "* -::*",
    # Nodes require a password, so protected mode is not needed.
    "protected-mode": "no",
    "dir": "/data",
    "cluster-enabled": "yes",
    "cluster-config-file": "/data/nodes.conf",
    # The operator assigns the replicas.
    "cluster-allow-replica-migration": "no",
    # The password comes from the Secret.
    "include": "/etc/redis/auth/auth.conf",
}


def redis_conf(cluster: RedisCluster) -> str:
    """Return redis.conf. Redis uses the last value of a parameter, so fixed parameters come last."""
    user_parameters = sorted((_DEFAULT_PARAMETERS | dict(cluster.spec.config)).items())
    lines = [*user_parameters, *_MANAGED_PARAMETERS.items()]
    return "".join(f"{name} {value or _EMPTY_VALUE}\n" for name, value in lines)


_EMPTY_VALUE = '""'


def config_map(cluster: RedisCluster) -> core.ConfigMap:
    """Return an immutable ConfigMap whose name contains the digest of its content."""
    content = redis_conf(cluster)
    key = ObjectNames(cluster.key).config_map(hashlib.sha256(content.encode()).hexdigest()[:8])
    return core.ConfigMap(metadata=object_metadata(cluster, key), data={"redis.conf": content}, immutable=True)
