"""The commands ``backup``, ``backups``, ``verify`` and ``undrop`` of ``kubectl steersman``."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from steersman.client import Client
from steersman.meta import ObjectKey
from steersman_databases.kubectl.backup import backups, undrop
from steersman_databases.kubectl.command import CommandContext, on_cluster, parse_moment, print_note
from steersman_databases.kubectl.tables import print_table
from steersman_databases.kubectl.waiting import wait_until_completed

_Type = Annotated[
    Literal["Full", "Differential", "Incremental"],
    typer.Option("--type", help="Full, or only changes since the last full backup or the last backup."),
]


@on_cluster
def backup_command(
    place: CommandContext,
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", show_default=False)] = "",
    database: Annotated[str, typer.Option(help="Dump this Database on a server of serverRef instead.")] = "",
    type_: _Type = "Full",
    wait: Annotated[bool, typer.Option(help="Wait for completion.")] = True,
    timeout: Annotated[float, typer.Option(help="Seconds to wait.", min=0)] = 3600,
) -> None:
    """Make a backup of a cluster, or a dump of a Database.

    Example: kubectl steersman backup shop

    Example: kubectl steersman backup shop --type Incremental --no-wait

    Example: kubectl steersman backup --database orders
    """
    if bool(cluster) == bool(database):
        raise typer.BadParameter("name a cluster, or a Database with --database")
    if database and type_ != "Full":
        raise typer.BadParameter("each dump is complete: leave it out with --database", param_hint="--type")

    async def work(client: Client, namespace: str) -> backups.BackupReport:
        if database:
            created = await backups.request_dump(client, ObjectKey(namespace, database))
        else:
            created = await backups.request(client, ObjectKey(namespace, cluster), type_)
        return backups.report(await wait_until_completed(client, created, timeout) if wait else created)

    found = place.run(work)
    outcome = "completed" if wait else "requested"
    place.print_output(found, lambda: typer.echo(f"backup/{found.name} {outcome}"))


@on_cluster
def backups_command(
    place: CommandContext, cluster: Annotated[str, typer.Argument(metavar="CLUSTER", show_default=False)] = ""
) -> None:
    """List backups, the newest first.

    Example: kubectl steersman backups shop

    Example: kubectl steersman backups -n prod -o json
    """
    found = place.run(lambda client, namespace: backups.load(client, namespace, cluster))
    place.print_output(found, lambda: print_table(backups.table(found)))
    if not found and place.output == "table":
        print_note("No backups found.")


@on_cluster
def verify_command(
    place: CommandContext,
    backup: Annotated[str, typer.Argument(metavar="BACKUP", show_default=False)],
    wait: Annotated[bool, typer.Option(help="Wait for the result.")] = True,
    timeout: Annotated[float, typer.Option(help="Seconds to wait.", min=0)] = 3600,
) -> None:
    """Verify a backup by restoring it in a temporary pod.

    Example: kubectl steersman verify shop-weekly-202603010230
    """

    async def work(client: Client, namespace: str) -> backups.BackupReport:
        requested = await backups.verify(client, ObjectKey(namespace, backup))
        return backups.report(await backups.wait_for_verification(client, requested, timeout) if wait else requested)

    found = place.run(work)
    outcome = "verified" if wait else "verification requested"
    place.print_output(found, lambda: typer.echo(f"backup/{found.name} {outcome}"))


@on_cluster
def undrop_command(
    place: CommandContext,
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", show_default=False)],
    only: Annotated[
        list[str],
        typer.Argument(metavar="OBJECT...", show_default=False, help="DATABASE[.SCHEMA].TABLE, or one DATABASE."),
    ],
    before: Annotated[str, typer.Option(help="Moment before the mistake, such as 2026-03-01T12:30:00Z.")],
    into: Annotated[str, typer.Option(help="Name of the new schema or database.")] = "",
    name: Annotated[str, typer.Option(help="Name of the Restore object.")] = "",
    wait: Annotated[bool, typer.Option(help="Wait for completion.")] = True,
    timeout: Annotated[float, typer.Option(help="Seconds to wait.", min=0)] = 3600,
) -> None:
    """Restore tables or a database next to the present ones.

    Example: kubectl steersman undrop shop orders.public.items --before 2026-03-01T12:30:00Z

    Example: kubectl steersman undrop stock stock.parts stock.prices --before 2026-03-01T12:30:00Z -o json

    Example: kubectl steersman undrop shop orders --before 2026-03-01T12:30:00Z --into orders_old
    """

    async def work(client: Client, namespace: str) -> tuple[undrop.UndropReport, str]:
        moment = parse_moment("--before", before)
        created = await undrop.create(client, ObjectKey(namespace, cluster), only, moment, name, into)
        print_note(f"restore/{created.metadata.name} created")
        found = await wait_until_completed(client, created, timeout) if wait else created
        shell = "mysql" if created.spec.cluster_ref.kind == "MySQLCluster" else "psql"
        return undrop.report(found), shell

    found, shell = place.run(work)
    place.print_output(found, lambda: typer.echo("\n".join(undrop.lines(found, shell))) if wait else None)
