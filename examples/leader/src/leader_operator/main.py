"""Controllers and webhooks of the operator, and its command."""

from __future__ import annotations

from typing import Annotated

import typer
from steersman import Manager
from steersman.manager.flags import ManagerFlags, with_manager_flags
from steersman.webhook import WebhookServerOptions

from leader_operator.controllers.leaderservice import LeaderServiceReconciler
from leader_operator.discovery import serve_leaders

# +steersman:scaffold:imports

NAME = "leader-operator"
"""Name of the Lease, the Events' reporter and the field manager."""

WEBHOOKS = WebhookServerOptions(service=f"{NAME}-webhook", namespace=f"{NAME}-system")
"""Service of the webhooks."""

# Tables of rich truncate long options at 80 columns.
app = typer.Typer(add_completion=False, rich_markup_mode=None)


def setup(manager: Manager) -> None:
    """Register the controllers and webhooks."""
    LeaderServiceReconciler.setup_with_manager(manager)
    serve_leaders(manager)
    # +steersman:scaffold:setup


@app.command()
@with_manager_flags
def run(
    flags: ManagerFlags,
    webhooks: Annotated[bool, typer.Option(help="Serve the webhooks.")] = True,
) -> None:
    """Run the operator until SIGTERM."""
    flags.run(setup, name=NAME, webhooks=WEBHOOKS if webhooks else None)
