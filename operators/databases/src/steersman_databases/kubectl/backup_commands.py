"""The commands ``backup``, ``backups`` and ``verify`` of ``kubectl steersman``."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from steersman.client import Client
from steersman.meta import ObjectKey
from steersman_databases.kubectl import backups
from steersman_databases.kubectl.command import CommandContext, on_cluster, print_note
from steersman_databases.kubectl.tables import print_table

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
        return backups.report(await backups.wait(client, created, timeout) if wait else created)

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
