"""Command ``what-changed`` of ``kubectl steersman``: changes between two moments.

A Job reads the archived binary log with the rights of the caller.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated

import typer
from msgspec import Meta

from steersman.client import Client
from steersman.meta import FrozenStruct, ObjectKey, Quantity
from steersman_databases.api import Cluster, MySQLCluster
from steersman_databases.cluster.declared import declare
from steersman_databases.features.backup.specs import JobPlan, cluster_pod, config_map_of, job_of
from steersman_databases.kubectl.command import (
    CommandContext,
    OperationRejected,
    on_cluster,
    parse_moment,
    usage_error,
)
from steersman_databases.kubectl.lookup import find_cluster
from steersman_databases.kubectl.report_job import JobFailure, run_job
from steersman_databases.kubectl.tables import plain_table, print_table

_TIMEOUT_SECONDS = 600
_DEFAULT_SIZE = "1Gi"
_POSTGRESQL = (
    "what-changed is supported on MySQL only: WAL of PostgreSQL has pages of files, without the names of tables that"
    " were dropped since. Restore a copy with kubectl steersman undrop, and compare it with the present table"
)


class ChangedTable(FrozenStruct):
    """Rows of a table that transactions of the period changed."""

    database: str
    table: str
    inserted: int = 0
    updated: int = 0
    deleted: int = 0


class Definition(FrozenStruct):
    """A statement that changed a definition, such as DROP TABLE."""

    time: str
    statement: str
    database: str = ""


class ChangesReport(FrozenStruct):
    """Changes of a period. Times are of commits.

    Args:
        missing: transactions of the period that the archive lacks.
        archived_until: the last archived commit.
    """

    transactions: int
    first: str | None = None
    last: str | None = None
    tables: Annotated[tuple[ChangedTable, ...], Meta(max_length=500)] = ()
    omitted_tables: int = 0
    definitions: Annotated[tuple[Definition, ...], Meta(max_length=100)] = ()
    omitted_definitions: int = 0
    missing: int = 0
    archived_until: str | None = None


class ChangesOutcome(JobFailure):
    """Line that the program prints: a report, or a failure."""

    changes: ChangesReport | None = None


async def load(
    client: Client, key: ObjectKey, first: datetime, last: datetime, size: int, seconds: float
) -> ChangesReport:
    """Run the Job, and return its report.

    Args:
        size: most bytes of binary log to read.
        seconds: longest time to wait.

    Raises:
        NotFound: there is no such cluster.
        OperationRejected: the cluster has no archive, is of PostgreSQL, or the Job failed.
    """
    cluster = await find_cluster(client, key)
    if not isinstance(cluster, MySQLCluster):
        raise OperationRejected(_POSTGRESQL)
    if cluster.spec.backup is None:
        raise OperationRejected(f"MySQLCluster {key.name} has no spec.backup, so there is no archive to read")
    if not (cluster.status.image or cluster.spec.image):
        raise OperationRejected(f"MySQLCluster {key.name} has no instance yet. Wait until it is Ready")
    plan = changes_plan(cluster, first, last, size)
    labels = changes_labels(cluster)
    job = job_of(plan, labels, cluster_pod(declare(cluster, cluster.status.image or ""), plan))
    outcome = await run_job(client, job, config_map_of(plan, labels), ChangesOutcome, seconds)
    if outcome.changes is None:
        raise OperationRejected(f"Job {plan.key.name} ended without a report. Run the command again")
    return outcome.changes


def changes_plan(cluster: Cluster, first: datetime, last: datetime, size: int) -> JobPlan:
    """The plan of the Job. It needs the object store, and no instance."""
    backup = cluster.spec.backup
    assert backup is not None
    name = f"{cluster.metadata.name[:40]}-changes-{secrets.token_hex(4)}"
    return JobPlan(
        key=ObjectKey(cluster.metadata.namespace, name),
        subcommand="changes",
        image=cluster.spec.image or cluster.status.image or "",
        document={"format": 1, "engine": "mysql", "from": _text(first), "to": _text(last), "max_bytes": size},
        settings=backup.jobs,
        deadline_seconds=_TIMEOUT_SECONDS,
    )


def changes_labels(cluster: Cluster) -> dict[str, str]:
    """Labels of the Job, its pod and its ConfigMap. The operator does not select by them."""
    prefix = "app.kubernetes.io"
    return {
        f"{prefix}/name": "mysql-changes",
        f"{prefix}/instance": cluster.metadata.name,
        f"{prefix}/managed-by": "kubectl-steersman",
        f"{prefix}/component": "changes",
    }


def notes(found: ChangesReport, last: datetime) -> Iterator[str]:
    """Yield sentences about what the report lacks."""
    if found.missing:
        yield f"The archive lacks {found.missing} transactions of this period."
    if found.archived_until is None or datetime.fromisoformat(found.archived_until) < last:
        yield f"The last archived commit is of {found.archived_until or 'no time'}. Later ones are not shown."
    if found.omitted_tables:
        yield f"{found.omitted_tables} more tables have fewer changed rows."
    if found.omitted_definitions:
        yield f"{found.omitted_definitions} more statements are later."


@on_cluster
def what_changed_command(
    place: CommandContext,
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", show_default=False)],
    first: Annotated[str, typer.Option("--from", help="Start, such as 2026-03-01T12:30:00Z.")],
    last: Annotated[str, typer.Option("--to", help="End. Defaults to now.")] = "",
    max_size: Annotated[str, typer.Option(help="Most binary log to read.")] = _DEFAULT_SIZE,
    timeout: Annotated[float, typer.Option(help="Seconds to wait.", min=0)] = _TIMEOUT_SECONDS,
) -> None:
    """Show changed rows by table, and changed definitions.

    It reads the archived binary log of a MySQLCluster.

    Example: kubectl steersman what-changed stock --from 2026-03-01T12:00:00Z --to 2026-03-01T12:30:00Z
    """
    end = datetime.now(UTC)

    async def work(client: Client, namespace: str) -> ChangesReport:
        start, until = parse_moment("--from", first), parse_moment("--to", last) if last else end
        if start > until:
            raise usage_error("--from is after --to")
        return await load(client, ObjectKey(namespace, cluster), start, until, _bytes(max_size), timeout)

    found = place.run(work)
    place.print_output(found, lambda: _show(found, parse_moment("--to", last) if last else end))


def _bytes(text: str) -> int:
    try:
        size = int(Quantity(text).value)
    except ValueError:
        size = 0
    if size <= 0:
        raise usage_error(f"--max-size: {text!r} is not a size, such as 1Gi")
    return size


def _show(found: ChangesReport, last: datetime) -> None:
    between = f", from {found.first} to {found.last}" if found.transactions else ""
    typer.echo(f"Transactions: {found.transactions}{between}")
    if found.tables:
        typer.echo()
        rows = [
            (f"{each.database}.{each.table}", *map(str, (each.inserted, each.updated, each.deleted)))
            for each in found.tables
        ]
        print_table(plain_table(("TABLE", "INSERTED", "UPDATED", "DELETED"), rows))
    if found.definitions:
        typer.echo()
        statements = [(each.time, each.database, each.statement) for each in found.definitions]
        print_table(plain_table(("TIME", "DATABASE", "STATEMENT"), statements, shorten_last=True))
    for note in notes(found, last):
        typer.echo(f"\n{note}")


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
