# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""Which controllers and webhooks there are, and the command that runs them."""

from __future__ import annotations

from typing import Annotated

import typer
from steersman import Manager
from steersman.manager.flags import ManagerFlags, with_manager_flags
from steersman.webhook import WebhookServerOptions

from project.controllers.cronjob import CronJobReconciler
from project.webhooks.cronjob import setup_cronjob_webhook_with_manager
from project.webhooks.cronjob_conversion import CRONJOBS

# +steersman:scaffold:imports

NAME = "project"
"""The operator's: of its Lease, its Events, and the fields that it writes."""

WEBHOOKS = WebhookServerOptions(service=f"{NAME}-webhook", namespace=f"{NAME}-system")
"""Where the API server finds the webhooks, if there are any."""

app = typer.Typer(add_completion=False)


def setup(manager: Manager) -> None:
    """Declares the operator's controllers and webhooks."""
    CronJobReconciler.setup_with_manager(manager)
    setup_cronjob_webhook_with_manager(manager)
    manager.conversion(CRONJOBS)
    # +steersman:scaffold:setup


@app.command()
@with_manager_flags
def run(
    flags: ManagerFlags,
    webhooks: Annotated[bool, typer.Option(help="Serve the webhooks, if there are any.")] = True,
) -> None:
    """Run the operator until SIGTERM."""
    flags.run(setup, name=NAME, webhooks=WEBHOOKS if webhooks else None)
