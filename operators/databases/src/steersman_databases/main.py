"""The command that runs the operator, and what `steersman` finds it by."""

from __future__ import annotations

import typer

from steersman.manager.flags import ManagerFlags, with_manager_flags
from steersman_databases.controllers import setup

NAME = "steersman-databases"
"""The operator's: its roles, its Lease, the manager of its fields."""

app = typer.Typer(add_completion=False)


@app.command()
@with_manager_flags
def run(flags: ManagerFlags) -> None:
    """Run the Steersman database operator until SIGTERM.

    Example: steersman-databases --kubeconfig ./kubeconfig --log-format console

    Example: steersman-databases --leader-elect --leader-election-namespace steersman-databases-system
    """
    flags.run(setup, name=NAME)


__all__ = ["NAME", "app", "run", "setup"]
