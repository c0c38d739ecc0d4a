"""Controllers and webhooks of the operator."""

from __future__ import annotations

from steersman import Manager
from steersman.webhook import WebhookServerOptions

from leader_operator.controllers.leaderservice import LeaderServiceReconciler
from leader_operator.discovery import serve_leaders

# +steersman:scaffold:imports

NAME = "leader-operator"
"""Name of the Lease, the Events' reporter and the field manager."""

WEBHOOKS = WebhookServerOptions(service=f"{NAME}-webhook", namespace=f"{NAME}-system")
"""Service of the webhooks."""


def setup(manager: Manager) -> None:
    """Register the controllers and webhooks."""
    LeaderServiceReconciler.setup_with_manager(manager)
    serve_leaders(manager)
    # +steersman:scaffold:setup
