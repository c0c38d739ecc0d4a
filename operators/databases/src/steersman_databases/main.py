"""The command that runs the operator, and what `steersman` finds it by."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from steersman.client.config_loader import SERVICE_ACCOUNT_DIRECTORY
from steersman.manager import Manager
from steersman.manager.flags import ManagerFlags, with_manager_flags
from steersman.observability.logging import get_logger
from steersman.webhook import WebhookServerOptions
from steersman_databases.api.autopilot.automation import AutomationMode
from steersman_databases.engines.cluster_engine import CLUSTER_DOMAIN
from steersman_databases.engines.connection.networks import Network, parse_networks
from steersman_databases.engines.registry import sql_engine_named
from steersman_databases.setup import setup as setup_controllers
from steersman_databases.webhooks import setup_webhooks

log = get_logger("databases")

NAME = "steersman-databases"
"""The operator's: its roles, its Lease, the manager of its fields."""

WEBHOOKS = WebhookServerOptions(service=f"{NAME}-webhook", namespace=f"{NAME}-system")
"""Service of the webhooks for the API server."""

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
    minor_upgrades_at_once: int = 1,
    automation: AutomationMode = "Automatic",
    server_networks: tuple[Network, ...] = (),
) -> None:
    """Set up the operator's controllers and webhooks.

    Args:
        target: reconcile only users with this value of the label ``target``. None means all.
        cluster_domain: DNS domain of the Kubernetes cluster.
        operator_namespace: namespace of this process, "" if unknown.
        minor_upgrades_at_once: clusters in a minor upgrade, or not Ready after it, at the same time.
        automation: most that automatic functions, such as storage autogrow, may do.
        server_networks: networks that the servers of `serverRef` must be in. Empty permits all.
    """
    setup_controllers(
        manager,
        target=target,
        cluster_domain=cluster_domain,
        operator_namespace=operator_namespace,
        minor_upgrades_at_once=minor_upgrades_at_once,
        automation=automation,
        server_networks=server_networks,
    )
    setup_webhooks(manager, sql_engine_named)
    if not manager.options.serve_webhooks:
        log.warning("webhooks are disabled: the rights of users to what objects declare are not checked")


@app.command()
@with_manager_flags
def run(
    flags: ManagerFlags,
    target: Annotated[
        str,
        typer.Option(help="Value of the label target of reconciled DatabaseUsers, ignoring case. Defaults to all."),
    ] = "",
    cluster_domain: Annotated[
        str, typer.Option(help="DNS domain of the Kubernetes cluster. Defaults to the search domain of this pod.")
    ] = "",
    minor_upgrades_at_once: Annotated[
        int,
        typer.Option(
            min=1,
            help="Clusters of a kind and version that may be in an automatic minor upgrade, or not Ready after it, "
            "at the same time. Raise it to continue past a cluster that is not Ready.",
        ),
    ] = 1,
    webhooks: Annotated[
        bool,
        typer.Option(help="Serve the webhooks. Disable it if the API server cannot reach this process."),
    ] = True,
    automation: Annotated[
        AutomationMode,
        typer.Option(help="Most that automatic functions, such as storage autogrow, may do in any cluster."),
    ] = "Automatic",
    server_networks: Annotated[
        list[str] | None,
        typer.Option(
            help="CIDRs of the servers that serverRef may name, as a comma-separated list or a repeated flag. "
            "Defaults to all except loopback, link-local and the API server."
        ),
    ] = None,
) -> None:
    """Run the Steersman database operator until SIGTERM.

    Example: steersman-databases --kubeconfig ./kubeconfig --log-format console

    Example: steersman-databases --target orders --namespaces shop,stock

    Example: steersman-databases --leader-elect --leader-election-namespace steersman-databases-system
    """
    options = partial(
        setup,
        target=target or None,
        cluster_domain=cluster_domain or searched_domain(RESOLVER),
        operator_namespace=own_namespace(NAMESPACE),
        minor_upgrades_at_once=minor_upgrades_at_once,
        automation=automation,
        server_networks=_networks(server_networks or ()),
    )
    flags.run(options, name=NAME, webhooks=WEBHOOKS if webhooks else None)


def _networks(values: Sequence[str]) -> tuple[Network, ...]:
    try:
        return parse_networks(values)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--server-networks'") from None


def searched_domain(resolver: Path) -> str:
    """Return the Kubernetes DNS domain of a pod's ``resolv.conf``.

    It is in the search entry ``svc.<domain>``.
    """
    try:
        lines = resolver.read_text().splitlines()
    except OSError:
        return CLUSTER_DOMAIN
    searched = [name for line in lines if line.startswith("search ") for name in line.split()[1:]]
    return next(
        (name.removeprefix("svc.").rstrip(".") for name in searched if name.startswith("svc.")), CLUSTER_DOMAIN
    )


def own_namespace(file: Path) -> str:
    """Return the namespace of a pod's service account, "" outside of pods."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


__all__ = ["NAME", "WEBHOOKS", "app", "run", "setup"]
