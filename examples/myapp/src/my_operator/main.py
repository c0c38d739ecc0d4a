# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""Controllers and webhooks of the operator."""

from __future__ import annotations

from steersman import Manager
from steersman.webhook import WebhookServerOptions

from my_operator.controllers.myapp import MyAppReconciler

# +steersman:scaffold:imports

NAME = "my-operator"
"""Name of the Lease, the Events' reporter and the field manager."""

WEBHOOKS = WebhookServerOptions(service=f"{NAME}-webhook", namespace=f"{NAME}-system")
"""Service of the webhooks."""


def setup(manager: Manager) -> None:
    """Register the controllers and webhooks."""
    MyAppReconciler.setup_with_manager(manager)
    # +steersman:scaffold:setup
