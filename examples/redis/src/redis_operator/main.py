"""Controllers and webhooks of the operator."""

from __future__ import annotations

from steersman import Manager
from steersman.webhook import WebhookServerOptions

from redis_operator.controllers.rediscluster import RedisClusterReconciler

# +steersman:scaffold:imports

NAME = "redis-operator"
"""Name of the Lease, the Events' reporter and the field manager."""

WEBHOOKS = WebhookServerOptions(service=f"{NAME}-webhook", namespace=f"{NAME}-system")
"""Service of the webhooks."""


def setup(manager: Manager) -> None:
    """Register the controllers and webhooks."""
    RedisClusterReconciler.setup_with_manager(manager)
    # +steersman:scaffold:setup
