"""What a new database is configured with: SQL of the user's, run by ``mysql`` as the database's owner, once.

MySQL undoes no CREATE, so a file may end in the middle. It is written down before a file begins and when it has
ended, in a table of the database itself: what has ended is not run again, and what was cut off is not either, since
nobody knows how far it came. Where the server refuses a statement, the file is run again once it was corrected.
"""

from __future__ import annotations

from steersman.api.apply import core

from ..cluster import ClusterView, Configurer
from ..desired import ObjectKind
from ..initial_sql import AUTHORITY, container, host, path_of
from ..survey import SecuredObject

TABLE = "steersman_initial_configuration"
"""It is there once all SQL was applied."""
PROGRESS = "steersman_initial_progress"
REFUSED = (3, 4)
"""Exit statuses for a statement that the server refused, and for a file that was cut off before."""

# Words of the server quote the statement: of what is in a Secret only number and line are told.
_SCRIPT = rf"""
ask() {{
    mysql --no-defaults --host="$HOST" --port=3306 --user="$OWNER" --database="$DATABASE" \
        --ssl-mode=VERIFY_IDENTITY --ssl-ca={AUTHORITY}/ca.crt --connect-timeout=10 --default-character-set=utf8mb4 \
        --batch --skip-column-names --loose-system-command=OFF "$@"
}}
ask --execute='CREATE TABLE IF NOT EXISTS {PROGRESS} (file VARCHAR(700) CHARACTER SET ascii PRIMARY KEY,
    ended BOOL NOT NULL DEFAULT FALSE) ENGINE = InnoDB' || exit 75
for file in "$@"; do
    ended=$(ask --execute="SELECT ended FROM {PROGRESS} WHERE file = '$file'") || exit 75
    [ "$ended" = 1 ] && continue
    if [ "$ended" = 0 ]; then
        echo "an earlier run was cut off in $file, and MySQL undoes nothing: complete or undo it by hand, set ended" \
            "to 1 or delete its row in table {PROGRESS}, then delete this Job"
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
    """The table that is there once the SQL was applied."""
    return SecuredObject(ObjectKind.TABLE, database, None, TABLE)


def configurer(cluster: ClusterView) -> Configurer:
    """``mysql`` in the first database, as its owner."""
    initial = cluster.initial
    return Configurer(
        container=_container(cluster),
        paths={source: path_of(source) for source in initial.sql},
        marker=marker(initial.database),
        refused=REFUSED,
        one_transaction=False,
    )


def _container(cluster: ClusterView) -> core.Container:
    initial = cluster.initial
    environment = {"HOST": host(cluster), "OWNER": initial.owner, "DATABASE": initial.database}
    command = ["sh", "-uc", _SCRIPT, "sh", *map(path_of, initial.sql)]
    return container(cluster, "mysql", command, environment, variable="MYSQL_PWD")
