"""Command ``import check`` of ``kubectl steersman``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
import yaml

from steersman.client import Client
from steersman.meta import ObjectKey
from steersman_databases.api import Database
from steersman_databases.features.dump.import_check import TIMEOUT_SECONDS, ImportReport
from steersman_databases.kubectl.command import (
    EXIT_PROBLEM_FOUND,
    CommandContext,
    on_cluster,
    print_note,
    usage_error,
)
from steersman_databases.kubectl.imports import import_check
from steersman_databases.kubectl.imports.user_manifests import skipped_accounts, user_manifests
from steersman_databases.kubectl.tables import printable

import_app = typer.Typer(
    no_args_is_help=True,
    help="Prepare the import of a running server.\n\nExample: kubectl steersman import check -f shop.yaml",
)


@import_app.callback()
def import_group() -> None:
    """Prepare the import of a running server.

    Example: kubectl steersman import check -f shop.yaml
    """


@import_app.command("check")
@on_cluster
def check_command(
    place: CommandContext,
    database: Annotated[str, typer.Argument(metavar="[DATABASE]", show_default=False)] = "",
    file: Annotated[str, typer.Option("--file", "-f", help="Manifest of the Database; - is standard input.")] = "",
    users: Annotated[
        bool, typer.Option("--users", help="Print DatabaseUser manifests for the accounts of the source.")
    ] = False,
    image: Annotated[str, typer.Option(help="Image of the new server. Defaults to that of its version.")] = "",
    timeout: Annotated[float, typer.Option(help="Seconds to wait.", min=0)] = TIMEOUT_SECONDS,
) -> None:
    """Report what an import cannot take, without importing.

    A Job in the namespace of the Database reads the source. The Database need not exist. The exit code is 1 if
    something prevents the import.

    Example: kubectl steersman import check -f shop.yaml

    Example: kubectl steersman import check -f shop.yaml --users > users.yaml
    """
    if bool(database) == bool(file):
        raise typer.BadParameter("name a Database, or its manifest with --file")
    text = _read(file) if file else ""

    async def work(client: Client, namespace: str) -> tuple[Database, ImportReport]:
        if text:
            found = import_check.parse_manifest(text, place.namespace or namespace)
        else:
            found = await import_check.load_database(client, ObjectKey(namespace, database))
        return found, await import_check.check(client, found, image, timeout)

    found, report = place.run(work)
    if users:
        _print_users(found, report)
    else:
        place.print_output(report, lambda: _print_report(found, report))
    if report.problems:
        raise typer.Exit(EXIT_PROBLEM_FOUND)


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        typer.echo(f"error: {usage_error(f'{file} cannot be read: {error}')}", err=True)
        raise typer.Exit(2) from None


def _source_name(database: Database) -> str:
    source = database.import_settings
    assert source is not None
    return f"database {source.database_name or database.database_name} of {source.host}"


def _print_report(database: Database, report: ImportReport) -> None:
    for line in import_check.lines(report, _source_name(database)):
        typer.echo(printable(line))
    if report.accounts:
        typer.echo(f"\nAccounts: {len(report.accounts)}. Print DatabaseUser manifests for them with --users.")


def _print_users(database: Database, report: ImportReport) -> None:
    """Print the manifests to standard output, and all else to standard error."""
    for line in import_check.lines(report, _source_name(database)):
        print_note(printable(line))
    for manifest, notes in user_manifests(database, report.accounts):
        typer.echo("---")
        for note in notes:
            typer.echo(f"# {printable(note)}")
        typer.echo(yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True), nl=False)
    if skipped := skipped_accounts(report.accounts):
        print_note(f"Accounts without a manifest: {', '.join(skipped)}.")
    if report.omitted_accounts or report.truncated:
        print_note("The source has more accounts or privileges than a report can have. Declare the others by hand.")
