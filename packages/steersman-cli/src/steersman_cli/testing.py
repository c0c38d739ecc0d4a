"""``steersman testing``: serve the in-memory API server to kubectl and other programs."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
import yaml

from steersman.errors import ConfigurationError, SteersmanError

if TYPE_CHECKING:
    from steersman_testing import InMemoryApiServer
    from steersman_testing.serving import ApiEndpoint

group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Serve an in-memory API server.")
"""The commands below ``steersman testing``."""

_COMPACTION_INTERVAL_SECONDS = 300.0


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
        _check_kubeconfig_owner(kubeconfig)
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
        _write_kubeconfig(endpoint, kubeconfig)
        await _compact_periodically(server, stopped)
    typer.echo("Stopped.")


def _write_kubeconfig(endpoint: ApiEndpoint, kubeconfig: Path) -> None:
    try:
        kubeconfig.write_text(endpoint.kubeconfig)
    except OSError as error:
        raise ConfigurationError(f"cannot write {kubeconfig}: {error.strerror}") from error
    typer.echo(f"Listening at {endpoint.url}. In another terminal:\n")
    typer.echo(f"  export KUBECONFIG={kubeconfig.resolve()}\n  kubectl get namespaces\n\nPress Ctrl-C to stop.")


async def _compact_periodically(server: InMemoryApiServer, stopped: asyncio.Event) -> None:
    """Compact old revisions every 5 minutes until the server stops."""
    compact_revision = server.resource_version
    while not stopped.is_set():
        try:
            async with asyncio.timeout(_COMPACTION_INTERVAL_SECONDS):
                await stopped.wait()
        except TimeoutError:
            server.compact(compact_revision)
            server.requests.clear()
            server.rbac_denials.clear()
            compact_revision = server.resource_version


def _check_kubeconfig_owner(kubeconfig: Path) -> None:
    """Reject an existing kubeconfig that this command did not write."""
    from steersman_testing.serving.endpoint import CONTEXT_NAME

    if not kubeconfig.exists():
        return
    try:
        found = yaml.safe_load(kubeconfig.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{kubeconfig} exists and cannot be read: choose another --kubeconfig") from error
    if not isinstance(found, dict) or cast("dict[str, Any]", found).get("current-context") != CONTEXT_NAME:
        raise ConfigurationError(
            f"{kubeconfig} exists and was not written by this command: choose another --kubeconfig"
        )
