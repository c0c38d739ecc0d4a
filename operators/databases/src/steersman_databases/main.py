"""The command that runs the operator, and what `steersman` finds it by."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from steersman.client.config_loader import SERVICE_ACCOUNT_DIRECTORY
from steersman.manager import Manager
from steersman.manager.flags import ManagerFlags, with_manager_flags
from steersman.webhook import WebhookServerOptions
from steersman_databases import controllers
from steersman_databases.engines import engine_named
from steersman_databases.engines.cluster import CLUSTER_DOMAIN
from steersman_databases.webhooks import setup_webhooks

NAME = "steersman-databases"
"""The operator's: its roles, its Lease, the manager of its fields."""

WEBHOOKS = WebhookServerOptions(service=f"{NAME}-webhook", namespace=f"{NAME}-system")
"""Where the API server finds the webhooks."""

RESOLVER = Path("/etc/resolv.conf")
NAMESPACE = SERVICE_ACCOUNT_DIRECTORY / "namespace"

# Tables of rich truncate long options at 80 columns.
app = typer.Typer(add_completion=False, rich_markup_mode=None)


def setup(
    manager: Manager,
    *,
    target: str | None = None,
    cluster_domain: str = CLUSTER_DOMAIN,
    operator_namespace: str = "",
) -> None:
    """Declares the operator's controllers and webhooks.

    Args:
        target: a value of the label ``target``: only users who bear it; all for None.
        cluster_domain: the DNS domain of Kubernetes' own names.
        operator_namespace: where this process runs; empty where nobody knows.
    """
    controllers.setup(manager, target=target, cluster_domain=cluster_domain, operator_namespace=operator_namespace)
    setup_webhooks(manager, engine_named)


@app.command()
@with_manager_flags
def run(
    flags: ManagerFlags,
    target: Annotated[
        str, typer.Option(help="Only DatabaseUsers whose label target is this, in whatever case; all unless given.")
    ] = "",
    cluster_domain: Annotated[
        str, typer.Option(help="DNS domain of Kubernetes' own names; the one that this pod searches unless given.")
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
    told = partial(
        setup,
        target=target or None,
        cluster_domain=cluster_domain or searched_domain(RESOLVER),
        operator_namespace=own_namespace(NAMESPACE),
    )
    flags.run(told, name=NAME, webhooks=WEBHOOKS if webhooks else None)


def searched_domain(resolver: Path) -> str:
    """The domain of Kubernetes' own names by a pod's ``resolv.conf``, which searches ``svc.<domain>``."""
    try:
        lines = resolver.read_text().splitlines()
    except OSError:
        return CLUSTER_DOMAIN
    searched = [name for line in lines if line.startswith("search ") for name in line.split()[1:]]
    return next(
        (name.removeprefix("svc.").rstrip(".") for name in searched if name.startswith("svc.")), CLUSTER_DOMAIN
    )


def own_namespace(file: Path) -> str:
    """The namespace that a pod's service account is of; empty outside of a pod."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


__all__ = ["NAME", "WEBHOOKS", "app", "run", "setup"]
