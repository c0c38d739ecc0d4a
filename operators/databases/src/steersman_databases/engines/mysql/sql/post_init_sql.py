"""Initial SQL of a new database, run once by `mysql`.

It runs as the database's owner. MySQL does not roll back CREATE, so a file may end in the middle. A table in the
database records the start and the end of each file. Completed files do not run again. Interrupted files do not
either, because their progress is unknown. If the server refuses a statement, the corrected file runs again.
"""

from __future__ import annotations

from steersman.api.apply import core
from steersman_databases.engines.cluster_engine import DeclaredCluster, PostInitRunner
from steersman_databases.engines.post_init_sql import CA_DIRECTORY, client_container, file_of, primary_host
from steersman_databases.engines.sql.desired import SecurableKind
from steersman_databases.engines.sql.inspection import SecuredObject

TABLE = "steersman_post_init_sql"
"""Exists once all SQL was applied."""
PROGRESS = "steersman_post_init_progress"
NON_RETRYABLE_EXIT_CODES = (3, 4)
"""Exit codes for a refused statement and for an interrupted file."""

# Error messages quote the statement. For files from Secrets only number and line are reported.
_SCRIPT = rf"""
ask() {{
    mysql --no-defaults --host="$HOST" --port=3306 --user="$OWNER" --database="$DATABASE" \
        --ssl-mode=VERIFY_IDENTITY --ssl-ca={CA_DIRECTORY}/ca.crt \
        --connect-timeout=10 --default-character-set=utf8mb4 \
        --batch --skip-column-names --loose-system-command=OFF "$@"
}}
ask --execute='CREATE TABLE IF NOT EXISTS {PROGRESS} (file VARCHAR(700) CHARACTER SET ascii PRIMARY KEY,
    ended BOOL NOT NULL DEFAULT FALSE) ENGINE = InnoDB' || exit 75
for file in "$@"; do
    ended=$(ask --execute="SELECT ended FROM {PROGRESS} WHERE file = '$file'") || exit 75
    [ "$ended" = 1 ] && continue
    if [ "$ended" = 0 ]; then
        echo "an earlier run was interrupted in $file, and MySQL cannot roll it back. Complete or revert it" \
            "manually, set ended to 1 or delete its row in table {PROGRESS}, then delete this Job"
        exit 4
    fi
    begin="INSERT INTO {PROGRESS} (file) VALUES ('$file');"
    if said=$({{ printf '%s ' "$begin"; cat "$file"; }} | ask 2>&1 >/dev/null); then
        ask --execute="UPDATE {PROGRESS} SET ended = TRUE WHERE file = '$file'" || exit 75
        continue
    fi
    case $file in
        secret/*) said=$(printf '%s' "$said" | sed -n 's/^\(ERROR [0-9]* ([^)]*) at line [0-9]*\).*/\1/p') ;;
    esac
    echo "$file: $said"
    case $said in
        *"ERROR 2002 "* | *"ERROR 2003 "* | *"ERROR 2006 "* | *"ERROR 2013 "* | *"ERROR 1053 "* | *"ERROR 1040 "*)
            exit 75 ;;
    esac
    ask --execute="DELETE FROM {PROGRESS} WHERE file = '$file'" || exit 75
    exit 3
done
ask --execute='RENAME TABLE {PROGRESS} TO {TABLE}' || exit 75
"""  # noqa: S608


def marker(database: str) -> SecuredObject:
    """Return the table that exists once the SQL was applied."""
    return SecuredObject(SecurableKind.TABLE, database, None, TABLE)


def post_init_runner(cluster: DeclaredCluster) -> PostInitRunner:
    """Return the container that runs `mysql` in the first database.

    It runs as the database's owner.
    """
    initial = cluster.bootstrap
    return PostInitRunner(
        container=_container(cluster),
        paths={source: file_of(source) for source in initial.sql},
        marker=marker(initial.database),
        non_retryable_exit_codes=NON_RETRYABLE_EXIT_CODES,
        single_transaction=False,
    )


def _container(cluster: DeclaredCluster) -> core.Container:
    initial = cluster.bootstrap
    environment = {"HOST": primary_host(cluster), "OWNER": initial.owner, "DATABASE": initial.database}
    command = ["sh", "-uc", _SCRIPT, "sh", *map(file_of, initial.sql)]
    return client_container(cluster, "mysql", command, environment, variable="MYSQL_PWD")
