"""The command that runs the operator, and what `steersman` finds it by."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from steersman.manager import Manager
from steersman.manager.flags import ManagerFlags, with_manager_flags
from steersman.webhook import WebhookServing
from steersman_databases import controllers
from steersman_databases.engines import engine_named
from steersman_databases.webhooks import setup_webhooks

NAME = "steersman-databases"
"""The operator's: its roles, its Lease, the manager of its fields."""

WEBHOOKS = WebhookServing(service=f"{NAME}-webhook", namespace=f"{NAME}-system")
"""Where the API server finds the webhooks."""

app = typer.Typer(add_completion=False)


def setup(manager: Manager, *, target: str | None = None) -> None:
    """Declares the operator's controllers and webhooks.

    Args:
        target: a value of the label ``target``: only users who bear it; all for None.
    """
    controllers.setup(manager, target=target)
    setup_webhooks(manager, engine_named)


@app.command()
@with_manager_flags
def run(
    flags: ManagerFlags,
    target: Annotated[
        str, typer.Option(help="Only DatabaseUsers whose label target is this, in whatever case; all unless given.")
    ] = "",
    webhooks: Annotated[
        bool,
        typer.Option(help="Serve the webhooks; not where the API server cannot reach this process."),
    ] = True,
) -> None:
    """Run the Steersman database operator until SIGTERM.

    Example: steersman-databases --kubeconfig ./kubeconfig --log-format console

    Example: steersman-databases --target orders --namespaces shop,stock

    Example: steersman-databases --leader-elect --leader-election-namespace steersman-databases-system
    """
    flags.run(partial(setup, target=target or None), name=NAME, webhooks=WEBHOOKS if webhooks else None)


__all__ = ["NAME", "WEBHOOKS", "app", "run", "setup"]
