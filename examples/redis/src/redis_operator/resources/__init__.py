"""What each RedisCluster is made of in Kubernetes."""

from redis_operator.resources.configuration import config_map, configuration
from redis_operator.resources.names import (
    GIVE_UP,
    MANAGED_BY,
    PORT,
    VERSION,
    Names,
    instance_of,
    ordinal_of,
    selector_of,
)
from redis_operator.resources.secret import generate_password, password_secret
from redis_operator.resources.services import client_service, disruption_budget, headless_service
from redis_operator.resources.statefulset import REVISION, statefulset

__all__ = [
    "GIVE_UP",
    "MANAGED_BY",
    "PORT",
    "REVISION",
    "VERSION",
    "Names",
    "client_service",
    "config_map",
    "configuration",
    "disruption_budget",
    "generate_password",
    "headless_service",
    "instance_of",
    "ordinal_of",
    "password_secret",
    "selector_of",
    "statefulset",
]
