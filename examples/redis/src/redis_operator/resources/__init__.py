"""Kubernetes objects of each RedisCluster."""

from redis_operator.resources.configuration import config_map, redis_conf
from redis_operator.resources.names import (
    GIVE_UP_NODE_ANNOTATION,
    MANAGED_BY,
    PORT,
    VERSION_LABEL,
    ObjectNames,
    owning_cluster,
    pod_ordinal,
    selector_labels,
)
from redis_operator.resources.secret import generate_password, password_secret
from redis_operator.resources.services import client_service, disruption_budget, headless_service
from redis_operator.resources.statefulset import REVISION_LABEL, statefulset

__all__ = [
    "GIVE_UP_NODE_ANNOTATION",
    "MANAGED_BY",
    "PORT",
    "REVISION_LABEL",
    "VERSION_LABEL",
    "ObjectNames",
    "client_service",
    "config_map",
    "disruption_budget",
    "generate_password",
    "headless_service",
    "owning_cluster",
    "password_secret",
    "pod_ordinal",
    "redis_conf",
    "selector_labels",
    "statefulset",
]
