"""Controllers and webhooks of the operator."""

from __future__ import annotations

from steersman import Manager
from steersman.webhook import WebhookServerOptions

from monitoring_operator.controllers.prometheus import PrometheusReconciler

# +steersman:scaffold:imports

NAME = "monitoring-operator"
"""Name of the Lease, the Events' reporter and the field manager."""

WEBHOOKS = WebhookServerOptions(service=f"{NAME}-webhook", namespace=f"{NAME}-system")
"""Service of the webhooks."""


def setup(manager: Manager) -> None:
    """Register the controllers and webhooks."""
    PrometheusReconciler.setup_with_manager(manager)
    # +steersman:scaffold:setup
