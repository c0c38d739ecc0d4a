"""Secret with the password of the nodes, generated once."""

from __future__ import annotations

import secrets

from steersman.api.apply import core

from redis_operator.api.v1.rediscluster import RedisCluster
from redis_operator.resources.names import ObjectNames, object_metadata


def generate_password() -> str:
    """Return 192 random bits in characters that need no escaping.

    They are safe in shells, URLs and redis.conf.
    """
    return secrets.token_urlsafe(24)


def password_secret(cluster: RedisCluster, password: str) -> core.Secret:
    """Return the Secret: ``password`` for clients and probes, ``auth.conf`` for redis.conf."""
    conf = f"requirepass {password}\nmasterauth {password}\n"
    data = {"password": password.encode(), "auth.conf": conf.encode()}
    return core.Secret(metadata=object_metadata(cluster, ObjectNames(cluster.key).secret), type="Opaque", data=data)
