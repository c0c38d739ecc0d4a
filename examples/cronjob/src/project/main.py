# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""Controllers and webhooks of the operator."""

from __future__ import annotations

from steersman import Manager
from steersman.webhook import WebhookServerOptions

from project.controllers.cronjob import CronJobReconciler
from project.webhooks.cronjob import setup_cronjob_webhook_with_manager
from project.webhooks.cronjob_conversion import CRONJOBS

# +steersman:scaffold:imports

NAME = "project"
"""Name of the Lease, the Events' reporter and the field manager."""

WEBHOOKS = WebhookServerOptions(service=f"{NAME}-webhook", namespace=f"{NAME}-system")
"""Service of the webhooks."""


def setup(manager: Manager) -> None:
    """Register the controllers and webhooks."""
    CronJobReconciler.setup_with_manager(manager)
    setup_cronjob_webhook_with_manager(manager)
    manager.conversion(CRONJOBS)
    # +steersman:scaffold:setup
