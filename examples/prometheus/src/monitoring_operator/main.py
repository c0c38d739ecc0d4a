"""Controllers and webhooks of the operator, and its command."""

from __future__ import annotations

from typing import Annotated

import typer
from steersman import Manager
from steersman.manager.flags import ManagerFlags, with_manager_flags
from steersman.webhook import WebhookServerOptions

from monitoring_operator.controllers.prometheus import PrometheusReconciler
from monitoring_operator.servers import Servers

# +steersman:scaffold:imports

NAME = "monitoring-operator"
"""Name of the Lease, the Events' reporter and the field manager."""

WEBHOOKS = WebhookServerOptions(service=f"{NAME}-webhook", namespace=f"{NAME}-system")
"""Service of the webhooks."""

app = typer.Typer(add_completion=False)


def setup(manager: Manager, servers: Servers | None = None) -> None:
    """Register the controllers and webhooks. Tests pass a model as ``servers``."""
    PrometheusReconciler.setup_with_manager(manager, servers)
    # +steersman:scaffold:setup


@app.command()
@with_manager_flags
def run(
    flags: ManagerFlags,
    webhooks: Annotated[bool, typer.Option(help="Serve the webhooks.")] = True,
) -> None:
    """Run the operator until SIGTERM."""
    flags.run(setup, name=NAME, webhooks=WEBHOOKS if webhooks else None)
