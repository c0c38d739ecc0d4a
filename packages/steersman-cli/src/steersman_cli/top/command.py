"""``steersman top``."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import Annotated, Literal

import typer

from steersman.errors import ConfigurationError
from steersman_cli.debug_endpoint import (
    DEFAULT_DEBUG_URL,
    CertificateAuthorityOption,
    DebugEndpoint,
    DebugUrlOption,
    TlsServerNameOption,
    TokenFileOption,
)
from steersman_cli.exit_codes import report_errors


def top(
    url: DebugUrlOption = DEFAULT_DEBUG_URL,
    once: Annotated[bool, typer.Option("--once", help="Print one sample. The default without a terminal.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between two samples.")] = 2.0,
    limit: Annotated[int, typer.Option(min=0, max=100, help="Number of slow reconciles.")] = 10,
    output: Annotated[
        Literal["table", "json"], typer.Option("--output", "-o", help="Output format. json prints one sample.")
    ] = "table",
    token_file: TokenFileOption = None,
    certificate_authority: CertificateAuthorityOption = None,
    tls_server_name: TlsServerNameOption = "",
) -> None:
    """Show the load of a running operator.

    For each controller: busy workers, queue length, waiting time of the oldest key, delayed keys, reconciles per
    second, their mean duration, and errors since the start. Below: the slowest reconciles, and why each ran.

    Example: steersman top

    Example: kubectl -n shop-system port-forward deployment/shop 8082 & steersman top --once -o json
    """
    with report_errors():
        endpoint = DebugEndpoint(url, token_file, certificate_authority, tls_server_name)
        if once or output == "json" or not sys.stdout.isatty():
            _print_sample(endpoint, interval, limit, output)
        else:
            with suppress(KeyboardInterrupt):
                _watch(endpoint, interval, limit)


def _print_sample(endpoint: DebugEndpoint, interval: float, limit: int, output: str) -> None:
    import msgspec
    from rich.console import Console

    from steersman_cli.top.load import controller_loads, fetch_samples
    from steersman_cli.top.view import render

    before, started = fetch_samples(endpoint), time.monotonic()
    time.sleep(interval)
    loads = controller_loads(before, fetch_samples(endpoint), time.monotonic() - started)
    if output == "json":
        typer.echo(msgspec.json.format(msgspec.json.encode(loads)).decode())
    else:
        Console(highlight=False).print(render(loads, limit=limit))


def _watch(endpoint: DebugEndpoint, interval: float, limit: int) -> None:
    from rich.live import Live

    from steersman_cli.top.load import controller_loads, fetch_samples
    from steersman_cli.top.view import render

    before, sampled_at = fetch_samples(endpoint), time.monotonic()
    # The first sample has no rates yet.
    loads = controller_loads(before, before, interval)
    with Live(render(loads, limit=limit), auto_refresh=False, screen=True) as live:
        while True:
            time.sleep(interval)
            try:
                after, now = fetch_samples(endpoint), time.monotonic()
            except ConfigurationError as error:
                # The operator may restart, as after a change under `steersman dev`.
                live.update(render(loads, limit=limit, note=str(error)), refresh=True)
                continue
            loads = controller_loads(before, after, now - sampled_at)
            before, sampled_at = after, now
            live.update(
                render(loads, limit=limit, note=f"{endpoint.url}, every {interval:g} s; Ctrl-C ends"), refresh=True
            )
