"""The command that runs the operator, and what `steersman` finds it by."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from steersman.manager.flags import ManagerFlags, with_manager_flags
from steersman_databases.controllers import setup

NAME = "steersman-databases"
"""The operator's: its roles, its Lease, the manager of its fields."""

app = typer.Typer(add_completion=False)


@app.command()
@with_manager_flags
def run(
    flags: ManagerFlags,
    target: Annotated[
        str, typer.Option(help="Only DatabaseUsers whose label target is this, in whatever case; all unless given.")
    ] = "",
) -> None:
    """Run the Steersman database operator until SIGTERM.

    Example: steersman-databases --kubeconfig ./kubeconfig --log-format console

    Example: steersman-databases --target orders --namespaces shop,stock

    Example: steersman-databases --leader-elect --leader-election-namespace steersman-databases-system
    """
    flags.run(partial(setup, target=target or None), name=NAME)


__all__ = ["NAME", "app", "run", "setup"]
