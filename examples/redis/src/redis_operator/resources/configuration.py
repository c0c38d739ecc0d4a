"""redis.conf: what makes a node part of a cluster, and what the user sets."""

from __future__ import annotations

import hashlib

from steersman.api.apply.core_v1 import ConfigMapApply

from redis_operator.api.v1.rediscluster import RedisCluster
from redis_operator.resources.names import PORT, ObjectNames, object_metadata

_DEFAULT_PARAMETERS = {
    "appendonly": "yes",
    # Five seconds without an answer, and a replica takes over.
    "cluster-node-timeout": "5000",
}
_MANAGED_PARAMETERS = {
    "port": str(PORT),
    "bind": "* -::*",
    # There is a password.
    "protected-mode": "no",
    "dir": "/data",
    "cluster-enabled": "yes",
    "cluster-config-file": "/data/nodes.conf",
    # The operator says who is whose replica.
    "cluster-allow-replica-migration": "no",
    # The password, from the Secret.
    "include": "/etc/redis/auth/auth.conf",
}


def redis_conf(cluster: RedisCluster) -> str:
    """The whole file. Of a parameter that stands in it twice, Redis takes the last; so ours come last."""
    user_parameters = sorted((_DEFAULT_PARAMETERS | dict(cluster.spec.config)).items())
    lines = [*user_parameters, *_MANAGED_PARAMETERS.items()]
    return "".join(f"{name} {value or _EMPTY_VALUE}\n" for name, value in lines)


_EMPTY_VALUE = '""'


def config_map(cluster: RedisCluster) -> ConfigMapApply:
    """It never changes: another configuration is another one, with the digest of its content in its name."""
    content = redis_conf(cluster)
    key = ObjectNames(cluster.key).config_map(hashlib.sha256(content.encode()).hexdigest()[:8])
    return ConfigMapApply(metadata=object_metadata(cluster, key), data={"redis.conf": content}, immutable=True)
