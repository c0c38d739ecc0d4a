"""The command `why`: blocking sessions, and what retains old data."""

from __future__ import annotations

from typing import Annotated

import typer

from steersman.client import Client
from steersman.meta import ObjectKey
from steersman_databases.kubectl.command import CommandContext, on_cluster
from steersman_databases.kubectl.insight import diagnosis
from steersman_databases.kubectl.insight.instance import find_instance
from steersman_databases.kubectl.tables import printable


@on_cluster
def why_command(
    place: CommandContext,
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", show_default=False)],
    replica: Annotated[bool, typer.Option("--replica", help="Inspect a replica instead of the primary.")] = False,
    instance: Annotated[str, typer.Option("--instance", help="Inspect this instance.")] = "",
) -> None:
    """Show which sessions block others, and what retains old data.

    Statements can contain data of applications.

    Example: kubectl steersman why shop
    """

    async def inspect(client: Client, namespace: str) -> tuple[diagnosis.Diagnosis, bool]:
        server = await find_instance(place, client, ObjectKey(namespace, cluster), instance, replica=replica)
        sql = diagnosis.MYSQL_SQL if server.is_mysql else diagnosis.POSTGRESQL_SQL
        return diagnosis.parse(await server.query(sql)), server.is_mysql

    found, is_mysql = place.run(inspect)
    units = ("seconds", "seconds") if is_mysql else ("transactions", "bytes")

    def print_lines() -> None:
        for line in diagnosis.lines(found, horizon_unit=units[0], log_unit=units[1]):
            typer.echo(printable(line))

    place.print_output(found, print_lines)
