"""The command `top`: sessions, and the statements that take the most time."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import msgspec
import typer

from steersman.client import Client
from steersman.meta import ObjectKey
from steersman_databases.kubectl.command import CommandContext, OperationRejected, on_cluster, print_note, usage_error
from steersman_databases.kubectl.insight import load_queries
from steersman_databases.kubectl.insight.instance import Instance, decode, find_instance
from steersman_databases.kubectl.insight.load import Load, LoadSample, StatementLoad, measure
from steersman_databases.kubectl.insight.load_queries import StatementSource
from steersman_databases.kubectl.insight.load_view import render
from steersman_databases.kubectl.tables import print_table

_CLEAR_SCREEN = "\x1b[H\x1b[2J"


@on_cluster
def top_command(
    place: CommandContext,
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", show_default=False)],
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, max=300, help="Seconds between two samples.")] = 5,
    limit: Annotated[int, typer.Option(min=1, max=100, help="Number of statements.")] = 10,
    replica: Annotated[bool, typer.Option("--replica", help="Inspect a replica instead of the primary.")] = False,
    instance: Annotated[str, typer.Option("--instance", help="Inspect this instance.")] = "",
) -> None:
    """Show sessions, and the statements that take the most time.

    Rates are the difference of two samples. Statements can contain data of applications.

    Example: kubectl steersman top shop

    Example: kubectl steersman top shop --watch --replica

    Example: kubectl steersman top shop --interval 30 -o json
    """

    async def work(client: Client, namespace: str) -> None:
        if watch and place.output != "table":
            raise usage_error("--watch prints tables. Remove --watch or --output")
        server = await find_instance(place, client, ObjectKey(namespace, cluster), instance, replica=replica)
        meter = await LoadMeter.start(server, cluster)
        while True:
            await asyncio.sleep(interval)
            try:
                load = await meter.measure(limit)
            except OperationRejected as error:
                if not watch:
                    raise
                # The server may restart.
                print_note(f"error: {error}")
                continue
            place.print_output(load, lambda load=load: _print(load, clear=watch and sys.stdout.isatty()))
            if not watch:
                return

    place.run(work)


def _print(load: Load, *, clear: bool) -> None:
    if clear:
        typer.echo(_CLEAR_SCREEN, nl=False)
    for part in render(load):
        print_table(part)


class LoadMeter:
    """Measures the load of an instance from sample to sample."""

    def __init__(self, server: Instance, source: StatementSource, cluster: str) -> None:
        self._server = server
        self._source = source
        self._cluster = cluster
        self._before = LoadSample(at=0)

    @classmethod
    async def start(cls, server: Instance, cluster: str) -> LoadMeter:
        """Take the first sample. Raises OperationRejected."""
        source = StatementSource()
        if not server.is_mysql:
            source = decode(await server.query(load_queries.POSTGRESQL_SOURCE_SQL), StatementSource)
        meter = cls(server, source, cluster)
        meter._before = await meter._sample()
        return meter

    async def measure(self, limit: int) -> Load:
        """Return the load since the previous sample.

        Raises:
            OperationRejected: the server did not respond.
        """
        before, self._before = self._before, await self._sample()
        try:
            load = measure(self._server.name, before, self._before, limit=limit)
        except ValueError as error:
            raise OperationRejected(str(error)) from None
        if load.totals is None:
            return msgspec.structs.replace(load, note=self._missing())
        return msgspec.structs.replace(load, statements=await self._with_texts(load.statements))

    async def _sample(self) -> LoadSample:
        if self._server.is_mysql:
            sql = load_queries.MYSQL_SAMPLE_SQL
        else:
            sql = load_queries.postgresql_sample(self._source.schema if self._source.loaded else None)
        return decode(await self._server.query(sql), LoadSample)

    async def _with_texts(self, statements: tuple[StatementLoad, ...]) -> tuple[StatementLoad, ...]:
        if not statements:
            return statements
        ids = sorted({one.id for one in statements})
        sql = (
            load_queries.mysql_texts(ids)
            if self._server.is_mysql
            else load_queries.postgresql_texts(self._source.schema or "", ids)
        )
        texts = decode(await self._server.query(sql), dict[str, str | None])
        return tuple(msgspec.structs.replace(one, statement=texts.get(one.id)) for one in statements)

    def _missing(self) -> str:
        """Return why the server does not count statements, and what to do."""
        if self._server.is_mysql:
            return "No statements: performance_schema is off."
        if not self._source.loaded:
            return (
                "No statements: pg_stat_statements is not loaded. Add it to"
                " spec.postgresql.sharedPreloadLibraries, which restarts the servers."
            )
        return (
            "No statements: the database postgres lacks the extension. Run: kubectl steersman psql"
            f" {self._cluster} -- --command 'CREATE EXTENSION pg_stat_statements'"
        )
