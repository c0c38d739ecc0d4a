"""``python -m benchmarks``: runs all scenarios, prints a table, writes ``results/latest.json``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from benchmarks import cold_start
from benchmarks.measurement import Measurement
from benchmarks.work import Work
from steersman.api.apply.apiextensions_v1 import CustomResourceDefinitionApply
from steersman.client import Client, connect
from steersman.crd import definition
from steersman.errors import NotFound
from steersman.meta import decode_builtins
from steersman.testing.envtest import Envtest

RESULTS = Path(__file__).parent / "results" / "latest.json"


def main(objects: Annotated[int, typer.Option(help="How many custom objects there are.", min=1)] = 2000) -> None:
    """Run all scenarios."""
    measurements = asyncio.run(_measure(objects))
    Console().print(_table(measurements, objects))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(measurements), indent=2) + b"\n")
    Console().print(f"written to {RESULTS}", soft_wrap=True)


async def _measure(objects: int) -> list[Measurement]:
    loops = ["asyncio", *(["uvloop"] if find_spec("uvloop") else [])]
    measurements: list[Measurement] = []
    with Envtest.start() as environment:
        async with connect(environment.config) as transport:
            client = Client(transport, field_manager="benchmark")
            await _install(client)
            for loop in loops:
                measurements += await cold_start.measure(client, str(environment.kubeconfig), objects, loop)
    return measurements


async def _install(client: Client) -> None:
    """Makes the API server know ``Work``; returns once it serves it."""
    await client.apply(decode_builtins(definition(Work), CustomResourceDefinitionApply))
    async with asyncio.timeout(30):
        while True:
            try:
                await client.list(Work)
            except NotFound:
                await asyncio.sleep(0.05)
            else:
                return


def _table(measurements: Sequence[Measurement], objects: int) -> Table:
    table = Table(title=f"{objects} objects, {cold_start.WORKERS} workers")
    table.add_column("scenario")
    table.add_column("metric")
    peers = list(dict.fromkeys(m.peer for m in measurements))
    for peer in peers:
        table.add_column(peer, justify="right")
    rows = list(dict.fromkeys((m.scenario, m.metric, m.unit) for m in measurements))
    values = {(m.scenario, m.metric, m.peer): m.value for m in measurements}
    for scenario, metric, unit in rows:
        shown = [
            f"{values[scenario, metric, peer]:,.2f}" if (scenario, metric, peer) in values else "" for peer in peers
        ]
        table.add_row(scenario, f"{metric} ({unit})", *shown)
    return table


if __name__ == "__main__":
    typer.run(main)
