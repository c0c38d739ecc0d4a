"""What a new database is configured with: SQL of the user's, run by ``psql`` as the database's owner, once.

All of it is one transaction, and its last statement makes `MARKER`. So it is in force as a whole or not at all,
whoever is killed when, and a second run that comes too late fails at the marker and leaves nothing behind.

The SQL is SQL alone: ``psql``'s own commands, which start programs and read files, are refused while it runs.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from steersman.api.apply import core

from ..cluster import ClusterView, Configurer, SqlSource
from ..desired import ObjectKind
from ..initial_sql import AUTHORITY, container, host, path_of
from ..survey import SecuredObject

# Notices quote, too. And psql takes no server for one that writes whose sessions begin read-only.
OPTIONS = "-c client_min_messages=error -c default_transaction_read_only=off"
SCHEMA, TABLE = "steersman", "initial_configuration"
REFUSED = (1, 3)
"""Exit statuses of ``psql`` for a statement and for a file that the server refused. 2 is a connection that failed."""

# Before version 17 there is no limit to a transaction, and no session with one.
_BEGIN = (
    "SET LOCAL steersman.initial = 'one transaction'; "
    "SELECT pg_catalog.set_config('transaction_timeout', '0', true) "
    "WHERE pg_catalog.current_setting('transaction_timeout', true) OPERATOR(pg_catalog.<>) ''"
)
# Whoever ends the transaction loses what was set for it.
_STILL = (
    "DO $$ BEGIN IF current_setting('steersman.initial', true) IS DISTINCT FROM 'one transaction' THEN "
    "RAISE EXCEPTION 'the SQL ends its transaction: "
    "leave BEGIN, COMMIT and ROLLBACK out'; END IF; END $$"
)
# The next file finds the session as the first one did.
_AGAIN = f"RESET ROLE; RESET ALL; {_BEGIN}"
_MARK = (
    "CREATE SCHEMA IF NOT EXISTS steersman; "
    "CREATE TABLE steersman.initial_configuration AS SELECT pg_catalog.now() AS applied; "
    "COMMENT ON TABLE steersman.initial_configuration IS "
    "'The initial configuration of this database was applied. Without this table it is applied again.'"
)


def marker(database: str) -> SecuredObject:
    """The table that is there once the SQL was applied."""
    return SecuredObject(ObjectKind.TABLE, database, SCHEMA, TABLE)


def arguments(sources: Sequence[SqlSource], key: str) -> list[str]:
    """What ``psql`` is called with: names of files, and nothing of what is in them.

    Args:
        sources: in the order in which they are run.
        key: letters and digits that nobody guesses. Without it the SQL cannot end that it is restricted. Source:
            PostgreSQL documentation, psql, ``\\restrict`` (since 15.14 and 17.6).
    """
    told = ["-X", "-w", "-q", "-o", "/dev/null", "-v", "ON_ERROR_STOP=1", "-1", "-c", _BEGIN]
    for source in sources:
        # An error's words quote the statement. What is in a Secret must not be in logs and conditions.
        verbosity = "sqlstate" if source.kind == "Secret" else "terse"
        told += ["-c", f"\\set VERBOSITY {verbosity}"]
        told += ["-c", f"\\restrict {key}", "-f", path_of(source), "-c", f"\\unrestrict {key}"]
        told += ["-c", "\\set VERBOSITY terse", "-c", _STILL, "-c", _AGAIN]
    return [*told, "-c", _MARK]


def configurer(cluster: ClusterView) -> Configurer:
    """``psql`` in the first database, as its owner."""
    initial = cluster.initial
    return Configurer(
        container=_container(cluster),
        paths={source: path_of(source) for source in initial.sql},
        marker=marker(initial.database),
        refused=REFUSED,
        one_transaction=True,
    )


def _container(cluster: ClusterView) -> core.Container:
    initial = cluster.initial
    environment = {
        "PGHOST": host(cluster),
        "PGPORT": "5432",
        "PGDATABASE": initial.database,
        "PGUSER": initial.owner,
        "PGSSLMODE": "verify-full",
        "PGSSLROOTCERT": f"{AUTHORITY}/ca.crt",
        # While another one takes over, the Service may still lead to the former primary.
        "PGTARGETSESSIONATTRS": "read-write",
        "PGCONNECT_TIMEOUT": "10",
        "PGAPPNAME": "steersman-initial-configuration",
        "PGOPTIONS": OPTIONS,
    }
    command = ["psql", *arguments(initial.sql, secrets.token_hex(16))]
    return container(cluster, "psql", command, environment, variable="PGPASSWORD")
