"""The commands ``store ls``, ``store key`` and ``store check`` of ``kubectl steersman``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from steersman.meta import ObjectKey
from steersman_databases.core.sizes import format_bytes
from steersman_databases.features.backup_store.listing import StoreListing
from steersman_databases.features.backup_store.probe_process import ProbeProcess
from steersman_databases.kubectl.backup import stores
from steersman_databases.kubectl.command import EXIT_PROBLEM_FOUND, CommandContext, on_cluster, print_note
from steersman_databases.kubectl.tables import plain_table, print_table

store_app = typer.Typer(
    no_args_is_help=True,
    help="Check object stores, list them, export their keys.\n\nExample: kubectl steersman store check archive",
)
_StoreName = Annotated[str, typer.Argument(metavar="STORE", show_default=False, help="The BackupStore.")]


@store_app.command("ls")
@on_cluster
def list_command(
    place: CommandContext,
    store: _StoreName,
    path: Annotated[str, typer.Argument(metavar="PATH", show_default=False, help="The path of an archive.")] = "",
) -> None:
    """List the archives in an object store, or the backups of one.

    This machine must reach the object store.

    Example: kubectl steersman store ls archive

    Example: kubectl steersman store ls archive prod/postgresqlcluster.shop/0123abcd
    """
    found = place.run(lambda client, ns: stores.list_content(client, ObjectKey(ns, store), path, ProbeProcess()))
    rows = [asdict(each) for each in (found.backups if path else found.archives)]
    place.print_output(rows, lambda: print_table(_backups(found) if path else _archives(found)))
    if not rows and place.output == "table":
        print_note("No backups found." if path else "No archives found.")


@store_app.command("key")
@on_cluster
def key_command(
    place: CommandContext,
    store: _StoreName,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="The file; STORE-key.yaml here.")] = None,
) -> None:
    """Export the encryption key, and mark it as exported.

    The file has the Secret for another Kubernetes cluster. Without the key, no backup can be read.

    Example: kubectl steersman store key archive --file archive-key.yaml
    """
    target = file or Path(f"{store}-key.yaml")
    found = place.run(lambda client, ns: stores.export_key(client, ObjectKey(ns, store), target))
    place.print_output(found, lambda: typer.echo(found.file))
    print_note(f"Keep {found.file} in a safe place outside this Kubernetes cluster.")


@store_app.command("check")
@on_cluster
def check_command(place: CommandContext, store: _StoreName) -> None:
    """Check connection, credentials, bucket and rights from this machine.

    Exit code 1 for a problem. The operator checks the same from its pod every 5 minutes.

    Example: kubectl steersman store check archive
    """
    found = place.run(lambda client, ns: stores.check(client, ObjectKey(ns, store), ProbeProcess()))

    def print_lines() -> None:
        typer.echo(f"backupstore/{found.store} {found.reason}{f': {found.message}' if found.message else ''}")
        if found.clock_skew_seconds:
            typer.echo(f"clock skew: {found.clock_skew_seconds} s")
        if found.locked_days is not None:
            typer.echo(f"object lock: {found.locked_days} days")
        typer.echo(f"operator: {found.operator}")

    place.print_output(found, print_lines)
    if not found.ok:
        raise typer.Exit(EXIT_PROBLEM_FOUND)


def _archives(listing: StoreListing) -> Table:
    rows = [(each.path, each.engine, each.cluster_uid, each.key_fingerprint) for each in listing.archives]
    return plain_table(("PATH", "ENGINE", "CLUSTER UID", "KEY"), rows)


def _backups(listing: StoreListing) -> Table:
    rows = [
        (
            each.id,
            each.type,
            each.stop,
            format_bytes(each.stored_bytes),
            "Complete" if each.complete else "Incomplete",
        )
        for each in listing.backups
    ]
    return plain_table(("ID", "TYPE", "STOPPED", "STORED", "STATE"), rows)
