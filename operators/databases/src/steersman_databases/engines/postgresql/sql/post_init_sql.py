"""Initial SQL of a new database, run once by `psql`.

It runs as the database's owner. All of it is one transaction, and its last statement creates the marker. So it
takes effect completely or not at all, whenever a process is killed. A late second run fails at the marker and
leaves nothing behind.

Only SQL is allowed: the commands of `psql`, which start programs and read files, are refused while it runs.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from steersman.api.apply import core
from steersman_databases.engines.cluster_engine import DeclaredCluster, PostInitRunner, SqlSource
from steersman_databases.engines.post_init_sql import CA_DIRECTORY, client_container, file_of, primary_host
from steersman_databases.engines.sql.desired import SecurableKind
from steersman_databases.engines.sql.inspection import SecuredObject

# Notices quote SQL, too. psql does not accept a server with read-only sessions as read-write.
OPTIONS = "-c client_min_messages=error -c default_transaction_read_only=off"
SCHEMA, TABLE = "steersman", "post_init_sql"
NON_RETRYABLE_EXIT_CODES = (1, 3)
"""Exit codes of `psql` for a refused statement or file.

2 is a failed connection.
"""

# Before version 17 there is no `transaction_timeout`.
_BEGIN_MARKER = (
    "SET LOCAL steersman.initial = 'one transaction'; "
    "SELECT pg_catalog.set_config('transaction_timeout', '0', true) "
    "WHERE pg_catalog.current_setting('transaction_timeout', true) OPERATOR(pg_catalog.<>) ''"
)
# SQL that ends the transaction loses the settings of the transaction.
_STILL_IN_TRANSACTION_CHECK = (
    "DO $$ BEGIN IF current_setting('steersman.initial', true) IS DISTINCT FROM 'one transaction' THEN "
    "RAISE EXCEPTION 'the SQL ends its transaction: "
    "leave BEGIN, COMMIT and ROLLBACK out'; END IF; END $$"
)
# Each file starts with the same state of the session.
_RESET_SESSION = f"RESET ROLE; RESET ALL; {_BEGIN_MARKER}"
_WRITE_MARKER = (
    "CREATE SCHEMA IF NOT EXISTS steersman; "
    "CREATE TABLE steersman.post_init_sql AS SELECT pg_catalog.now() AS applied; "
    "COMMENT ON TABLE steersman.post_init_sql IS "
    "'The initial configuration of this database was applied. Without this table it is applied again.'"
)


def marker(database: str) -> SecuredObject:
    """Return the table that exists once the SQL was applied."""
    return SecuredObject(SecurableKind.TABLE, database, SCHEMA, TABLE)


def psql_arguments(sources: Sequence[SqlSource], key: str) -> list[str]:
    r"""Return the arguments of `psql`: names of files without their content.

    Args:
        sources: in the order of execution.
        key: unpredictable letters and digits. Without the key the SQL cannot end the restricted mode. Source:
            PostgreSQL documentation, psql, `\\restrict` (since 15.14 and 17.6).
    """
    files = ["-X", "-w", "-q", "-o", "/dev/null", "-v", "ON_ERROR_STOP=1", "-1", "-c", _BEGIN_MARKER]
    for source in sources:
        # Error messages quote the statement. The content of a Secret must not be in logs and conditions.
        verbosity = "sqlstate" if source.kind == "Secret" else "terse"
        files += ["-c", f"\\set VERBOSITY {verbosity}"]
        files += ["-c", f"\\restrict {key}", "-f", file_of(source), "-c", f"\\unrestrict {key}"]
        files += ["-c", "\\set VERBOSITY terse", "-c", _STILL_IN_TRANSACTION_CHECK, "-c", _RESET_SESSION]
    return [*files, "-c", _WRITE_MARKER]


def post_init_runner(cluster: DeclaredCluster) -> PostInitRunner:
    """Return the container that runs `psql` in the first database.

    It runs as the database's owner.
    """
    initial = cluster.bootstrap
    return PostInitRunner(
        container=_container(cluster),
        paths={source: file_of(source) for source in initial.sql},
        marker=marker(initial.database),
        non_retryable_exit_codes=NON_RETRYABLE_EXIT_CODES,
        single_transaction=True,
    )


def _container(cluster: DeclaredCluster) -> core.Container:
    initial = cluster.bootstrap
    environment = {
        "PGHOST": primary_host(cluster),
        "PGPORT": "5432",
        "PGDATABASE": initial.database,
        "PGUSER": initial.owner,
        "PGSSLMODE": "verify-full",
        "PGSSLROOTCERT": f"{CA_DIRECTORY}/ca.crt",
        # During a switchover the Service may still lead to the previous primary.
        "PGTARGETSESSIONATTRS": "read-write",
        "PGCONNECT_TIMEOUT": "10",
        "PGAPPNAME": "steersman-initial-configuration",
        "PGOPTIONS": OPTIONS,
    }
    command = ["psql", *psql_arguments(initial.sql, secrets.token_hex(16))]
    return client_container(cluster, "psql", command, environment, variable="PGPASSWORD")
