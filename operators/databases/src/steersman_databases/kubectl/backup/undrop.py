"""Restores for ``kubectl steersman``: create one, show the copy."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime

from steersman.client import Client
from steersman.meta import FrozenStruct, ObjectKey, ObjectMeta, find_condition
from steersman_databases.api import Cluster, MySQLCluster, Restore, RestoreSpec
from steersman_databases.api.backups.backup_common import RecoveryTarget
from steersman_databases.api.backups.restore import RestoreClusterReference, RestoredTable, RestoreItem
from steersman_databases.features.backup.progress import COMPLETE
from steersman_databases.features.restore import model
from steersman_databases.kubectl.command import OperationRejected, usage_error
from steersman_databases.kubectl.lookup import find_cluster

_PART = re.compile(r'"(?:[^"]|"")+"|`(?:[^`]|``)+`|[^."`]+')

_INSERT = "INSERT INTO {present} SELECT * FROM {copy} ON CONFLICT DO NOTHING;"
_SET_SCHEMA = "ALTER TABLE {copy} SET SCHEMA {schema};"
_INSERT_IGNORE = "INSERT IGNORE INTO {present} SELECT * FROM {copy};"
_RENAME = "RENAME TABLE {copy} TO {present};"


class UndropReport(FrozenStruct):
    """A restore as the command shows it.

    Args:
        statements: SQL that brings the rows back, one for each table.
    """

    name: str
    cluster: str
    phase: str
    reason: str | None = None
    message: str | None = None
    database: str | None = None
    schema: str | None = None
    recovered_to: datetime | None = None
    tables: tuple[RestoredTable, ...] = ()
    statements: tuple[str, ...] = ()


def parse_item(text: str, *, mysql: bool) -> RestoreItem:
    """Parse ``database``, ``database.table`` or ``database.schema.table``. Parts with a period are quoted.

    Raises:
        ConfigurationError: the text has another form.
    """
    parts = [_unquoted(part) for part in _PART.findall(text)]
    most = 2 if mysql else 3
    if not 1 <= len(parts) <= most or ".".join(_PART.findall(text)) != text:
        form = "DATABASE or DATABASE.TABLE" if mysql else "DATABASE, DATABASE.TABLE or DATABASE.SCHEMA.TABLE"
        raise usage_error(f"{text!r} is not {form}. Quote names that contain a period")
    if len(parts) == 1:
        return RestoreItem(database=parts[0])
    schema = parts[1] if len(parts) == 3 else None
    return RestoreItem(database=parts[0], schema=schema, table=parts[-1])


async def create(
    client: Client, key: ObjectKey, texts: Sequence[str], before: datetime, name: str, into: str
) -> Restore:
    """Create a ``Restore``.

    Args:
        texts: tables or a database.
        name: of the object. Defaults to one with the present time.
        into: name of the copy. Defaults to that of the operator.

    Raises:
        OperationRejected: the cluster has no archive.
        ConfigurationError: a name is malformed.
    """
    cluster = await find_cluster(client, key)
    if cluster.spec.backup is None:
        kind = type(cluster).api_resource.kind
        raise OperationRejected(f"{kind} {key.name} has no spec.backup, so there is no archive to restore from")
    items = tuple(parse_item(text, mysql=isinstance(cluster, MySQLCluster)) for text in texts)
    spec = RestoreSpec(
        cluster_ref=_reference(cluster), target=RecoveryTarget(time=before), only=items, into=into or None
    )
    metadata = ObjectMeta(name=name or f"{key.name}-undrop-{datetime.now(UTC):%Y%m%d%H%M%S}", namespace=key.namespace)
    return await client.create(Restore(metadata=metadata, spec=spec))


def report(restore: Restore) -> UndropReport:
    """A restore as it is shown."""
    status = restore.status
    condition = find_condition(status.conditions, COMPLETE)
    return UndropReport(
        name=restore.metadata.name,
        cluster=restore.spec.cluster_ref.name,
        phase=status.phase or "Pending",
        reason=None if condition is None else condition.reason,
        message=status.message,
        database=status.database,
        schema=status.schema,
        recovered_to=status.recovered_to,
        tables=status.tables,
        statements=statements(restore) if status.phase == "Completed" else (),
    )


def statements(restore: Restore) -> tuple[str, ...]:
    """Return the SQL that brings back the rows of each table."""
    engine, into = model.engine_of(restore), model.copy_name(restore)
    found: list[str] = []
    for item, table in zip(restore.spec.only or (), restore.status.tables, strict=False):
        assert item.table is not None
        schema = model.schema_of(item, engine) or item.database
        present, copy = (f"{_quoted(each, engine)}.{_quoted(item.table, engine)}" for each in (schema, into))
        if engine == "mysql":
            form = _INSERT_IGNORE if table.exists else _RENAME
        else:
            form = _INSERT if table.exists else _SET_SCHEMA
        found.append(form.format(present=present, copy=copy, schema=_quoted(schema, engine)))
    return tuple(found)


def lines(found: UndropReport, client: str) -> list[str]:
    """Return the text of a completed restore.

    Args:
        client: subcommand with an SQL client, such as ``psql``.
    """
    place = f"schema {found.schema} of database {found.database}" if found.schema else f"database {found.database}"
    shown = [f"restore/{found.name} completed: {place}"]
    if found.statements:
        option = f" --database {shlex.quote(found.database or '')}" if client == "psql" else ""
        shown += ["", f"To bring the rows back, run in kubectl steersman {client} {found.cluster}{option}:", ""]
        shown += [f"  {statement}" for statement in found.statements]
    return shown


def _reference(cluster: Cluster) -> RestoreClusterReference:
    return RestoreClusterReference(
        name=cluster.metadata.name, kind="MySQLCluster" if isinstance(cluster, MySQLCluster) else "PostgreSQLCluster"
    )


def _unquoted(part: str) -> str:
    quote = part[0]
    return part[1:-1].replace(quote * 2, quote) if quote in '"`' else part


def _quoted(name: str, engine: str) -> str:
    quote = "`" if engine == "mysql" else '"'
    return f"{quote}{name.replace(quote, quote * 2)}{quote}"
