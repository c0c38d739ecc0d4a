"""``steersman testing``: serve the in-memory API server to kubectl and other programs."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steersman.errors import SteersmanError
from steersman_cli.local_api_server import check_kubeconfig_owner, compact_periodically, write_kubeconfig

if TYPE_CHECKING:
    from steersman_testing import InMemoryApiServer
    from steersman_testing.serving import ApiEndpoint

group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Serve an in-memory API server.")
"""The commands below ``steersman testing``."""


@group.callback()
def _testing() -> None:  # pyright: ignore[reportUnusedFunction]
    """Serve an in-memory API server."""


@group.command()
def serve(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 chooses a free port.")] = 0,
    kubeconfig: Annotated[Path, typer.Option(help="Kubeconfig to write.")] = Path("kubeconfig"),
    crd: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE|DIRECTORY", help="CRDs to install. Repeatable."),
    ] = None,
    load: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE|DIRECTORY", help="Objects to create at start. Repeatable."),
    ] = None,
    tls: Annotated[bool, typer.Option("--tls", help="Serve HTTPS with a self-signed certificate.")] = False,
) -> None:
    """Serve a Kubernetes API from memory until SIGINT or SIGTERM. Nothing is stored on disk.

    Example: steersman testing serve --crd crds.yaml

    Example: steersman testing serve --port 8001 --tls --load fixtures/
    """
    from steersman_testing import InMemoryApiServer
    from steersman_testing.manifests import CRD_KINDS, collect_manifests

    server = InMemoryApiServer()
    try:
        check_kubeconfig_owner(kubeconfig)
        server.load(*collect_manifests(crd or (), CRD_KINDS))
        server.load(*collect_manifests(load or ()))
        asyncio.run(_serve(server, port, kubeconfig, tls))
    except (SteersmanError, ValueError) as error:
        typer.echo(f"steersman: {error}", err=True)
        raise typer.Exit(1) from None


async def _serve(server: InMemoryApiServer, port: int, kubeconfig: Path, tls: bool) -> None:
    from steersman_testing import serving

    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with serving.serve(server, port=port, tls=tls) as endpoint:
        _announce(endpoint, kubeconfig)
        await compact_periodically(server, stopped)
    typer.echo("Stopped.")


def _announce(endpoint: ApiEndpoint, kubeconfig: Path) -> None:
    write_kubeconfig(kubeconfig, endpoint.kubeconfig)
    typer.echo(f"Listening at {endpoint.url}. In another terminal:\n")
    typer.echo(f"  export KUBECONFIG={kubeconfig.resolve()}\n  kubectl get namespaces\n\nPress Ctrl-C to stop.")
