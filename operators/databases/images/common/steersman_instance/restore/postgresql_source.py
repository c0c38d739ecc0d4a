"""Restored PostgreSQL data: find the tables, set them apart, and dump them.

The server is thrown away afterwards. So the tables of a request are moved to a schema with the name of the copy, and
PostgreSQL itself renames them in all definitions.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Any, cast

from ..dump.postgresql_client import quoted
from ..dump.processes import ClientProgram
from ..jobs import JobRefused
from ..recovery.server import RecoveryServer
from .request import CopyRequest, TableName, database_missing, table_missing

# DROP DATABASE marks a database as invalid before it commits, and replay up to that commit includes this.
_DATABASES = "SELECT datname FROM pg_database WHERE datallowconn AND datconnlimit <> -2 ORDER BY 1"
_TABLES = """
SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname NOT IN ('pg_catalog', 'information_schema')
AND n.nspname !~ '^pg_(toast|temp)' ORDER BY 1
"""
_KIND = """
SELECT relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = {} AND c.relname = {}
"""
_PROPERTIES = """
SELECT json_build_object(
    'owner', pg_get_userbyid(datdba), 'encoding', pg_encoding_to_char(encoding), 'collate', datcollate,
    'ctype', datctype, 'provider', datlocprovider::text,
    'locale', coalesce(to_jsonb(d) ->> 'datlocale', to_jsonb(d) ->> 'daticulocale'))
FROM pg_database d WHERE datname = {}
"""
_EXTENSIONS = "SELECT extname FROM pg_extension WHERE extname <> 'plpgsql' ORDER BY 1"
# The partitions of a table come with it. Its parent stays, so that the copy belongs to no present table.
_MOVE = """
DO {tag}
DECLARE
    root regclass; parent regclass; part regclass;
BEGIN
    IF to_regnamespace({into}) IS NOT NULL THEN
        EXECUTE format('ALTER SCHEMA %s RENAME TO %I', {into}, 'steersman_' || md5({into}));
    END IF;
    EXECUTE format('CREATE SCHEMA %s', {into});
    FOREACH root IN ARRAY {tables}::regclass[] LOOP
        FOR parent IN SELECT inhparent FROM pg_inherits WHERE inhrelid = root LOOP
            IF (SELECT relispartition FROM pg_class WHERE oid = root) THEN
                EXECUTE format('ALTER TABLE %s DETACH PARTITION %s', parent, root);
            ELSE
                EXECUTE format('ALTER TABLE %s NO INHERIT %s', root, parent);
            END IF;
        END LOOP;
        EXECUTE format('ALTER TABLE %s SET SCHEMA %s', root, {into});
        FOR part IN
            SELECT p.relid FROM pg_partition_tree(root) p JOIN pg_class c ON c.oid = p.relid
            WHERE c.relnamespace <> to_regnamespace({into})
        LOOP
            EXECUTE format('ALTER TABLE %s SET SCHEMA %s', part, {into});
        END LOOP;
    END LOOP;
END
{tag}
"""
_OPTIONS = ("--format=custom", "--compress=0", "--no-owner", "--no-acl", "--no-tablespaces", "--no-security-labels")


class PostgreSQLSource:
    """A database of a restored server."""

    def __init__(self, server: RecoveryServer, request: CopyRequest) -> None:
        self._server = server
        self._request = request

    def require(self) -> None:
        """Check that the database and the tables exist. Raises JobRefused."""
        databases = self._server.query(_DATABASES)
        if self._request.database not in databases:
            raise database_missing(self._request.database, databases)
        for table in self._request.tables:
            kind = self._query(_KIND.format(literal(table.schema), literal(table.table)))
            if not kind:
                raise table_missing(table, self._query(_TABLES))
            if kind[0] not in ("r", "p"):
                raise JobRefused("TableNotFound", f"{table} is not a table. Restore the whole database.")
            if table.schema == self._request.into:
                raise JobRefused("NameConflict", f"Table {table} is in the schema of spec.into.")

    def properties(self) -> dict[str, Any]:
        """Return owner, encoding and locale of the database."""
        (text,) = self._query(_PROPERTIES.format(literal(self._request.database)))
        return cast("dict[str, Any]", json.loads(text))

    def extensions(self) -> Sequence[str]:
        """Return the names of the extensions of the database."""
        return self._query(_EXTENSIONS)

    def set_apart(self) -> None:
        """Move the tables to a schema with the name of the copy."""
        if not self._request.tables:
            return
        names = ", ".join(literal(_name(table)) for table in self._request.tables)
        # A random end of the statement cannot be part of a name.
        tag = f"$s{secrets.token_hex(16)}$"
        self._query(_MOVE.format(tag=tag, into=literal(quoted(self._request.into)), tables=f"ARRAY[{names}]"))

    def dump(self) -> ClientProgram:
        """Return pg_dump of the tables, or of the whole database."""
        chosen = [f"--schema={quoted(self._request.into)}", "--strict-names"] if self._request.tables else []
        database = self._request.database.replace("\\", "\\\\").replace("'", "\\'")
        command = ("pg_dump", *_OPTIONS, *chosen, "-d", f"dbname='{database}'")
        return ClientProgram(command, self._server.environment())

    def restore_list(self) -> ClientProgram:
        """Return pg_restore, which lists the objects of a dump."""
        return ClientProgram(("pg_restore", "--list"), self._server.environment())

    def restore_sql(self, objects: str) -> ClientProgram:
        """Return pg_restore, which prints the SQL of the listed objects.

        Args:
            objects: path of the list.
        """
        options = (f"--use-list={objects}", "--no-owner", "--no-acl", "--no-publications", "--no-subscriptions")
        return ClientProgram(("pg_restore", *options, "--file=-"), self._server.environment())

    def _query(self, statement: str) -> list[str]:
        return self._server.query(statement, self._request.database)


def literal(text: str) -> str:
    """Return a text as a literal of SQL, whatever ``standard_conforming_strings`` is."""
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f" E'{escaped}'" if "\\" in text else f"'{escaped}'"


def _name(table: TableName) -> str:
    return f"{quoted(table.schema)}.{quoted(table.table)}"
