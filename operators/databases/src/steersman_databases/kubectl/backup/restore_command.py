"""The command ``restore`` of ``kubectl steersman``."""

from __future__ import annotations

from typing import Annotated

import typer

from steersman.client import Client
from steersman.meta import Duration, ObjectKey
from steersman_databases.api import Restore
from steersman_databases.api.backups.backup_common import RecoveryTarget
from steersman_databases.api.backups.restore import UndoneRestore
from steersman_databases.kubectl.backup import restores
from steersman_databases.kubectl.command import CommandContext, on_cluster, parse_moment, print_note, usage_error
from steersman_databases.kubectl.waiting import wait_until_completed

_PLAN_SECONDS = 900.0


@on_cluster
def restore_command(
    place: CommandContext,
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", show_default=False)],
    to: Annotated[str, typer.Option(help="Moment to go back to, such as 2026-03-01T12:30:00Z.")] = "",
    undo: Annotated[str, typer.Option(help="Restore whose previous volumes serve again.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and do nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    keep_previous: Annotated[str, typer.Option(help="Time to keep the previous volumes.")] = "24h",
    over: Annotated[bool, typer.Option("--over", help="Restore over the present volumes. There is no undo.")] = False,
    name: Annotated[str, typer.Option(help="Name of the Restore object.")] = "",
    timeout: Annotated[float, typer.Option(help="Seconds to wait.", min=0)] = 7200,
) -> None:
    """Restore a cluster to a moment in place, or undo that.

    Example: kubectl steersman restore shop --to 2026-03-01T12:30:00Z

    Example: kubectl steersman restore shop --undo back-to-noon

    Example: kubectl steersman restore shop --to 2026-03-01T12:30:00Z --dry-run -o json
    """

    async def plan(client: Client, namespace: str) -> Restore:
        if bool(to) == bool(undo):
            raise usage_error("set either --to or --undo")
        if undo and over:
            raise usage_error("--over restores from the archive: set --to")
        source = UndoneRestore(name=undo) if undo else RecoveryTarget(time=parse_moment("--to", to))
        try:
            kept = None if over else Duration(keep_previous)
        except ValueError as error:
            raise usage_error(f"--keep-previous: {error}") from None
        created = await restores.create(client, ObjectKey(namespace, cluster), source, name, kept, over=over)
        print_note(f"restore/{created.metadata.name} created")
        return await restores.wait_until_planned(client, created, _PLAN_SECONDS)

    async def discard(client: Client, _namespace: str) -> None:
        await restores.discard(client, planned)

    async def carry_out(client: Client, _namespace: str) -> Restore:
        assert found is not None
        return await wait_until_completed(client, await restores.confirm(client, planned, found), timeout)

    planned = place.run(plan)
    found = planned.status.plan
    if found is None:
        raise typer.Exit(1)
    if not dry_run and not yes:
        print_note("\n".join(restores.plan_lines(cluster, found)))
    if dry_run or not (yes or _agrees(cluster, over)):
        place.run(discard)
        shown = restores.report(planned)
        place.print_output(shown, lambda: typer.echo("\n".join(restores.plan_lines(cluster, found))))
        raise typer.Exit(0 if dry_run else 1)
    completed = place.run(carry_out)
    place.print_output(
        restores.report(completed),
        lambda: typer.echo(f"restore/{completed.metadata.name} completed: {completed.status.message}"),
    )


def _agrees(cluster: str, over: bool) -> bool:
    no_undo = ", and there is no undo" if over else ""
    try:
        return typer.confirm(f"Restore cluster {cluster}? All later commits are lost to it{no_undo}", err=True)
    except typer.Abort:
        return False
