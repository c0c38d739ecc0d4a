"""What tests and measurements of clusters must know of an engine: its kind, its words, and how its clients log in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pytest

# By what all who read a URI take from it: no client of MySQL's own takes one.
_BY_URI_OF_MYSQL = """
import os, pymysql, sys, urllib.parse as uris
at = uris.urlsplit(os.environ[sys.argv[1]].removeprefix("jdbc:"))
said = dict(uris.parse_qsl(at.query))
connection = pymysql.connect(
    host=at.hostname,
    port=at.port,
    user=said.get("user") or uris.unquote(at.username),
    password=said.get("password") or uris.unquote(at.password),
    database=uris.unquote(at.path[1:]),
    ssl_ca=os.environ["CA"],
    ssl_verify_cert=True,
    ssl_verify_identity=True,
)
cursor = connection.cursor()
cursor.execute(sys.argv[2])
print(*(word for row in cursor for word in row))
"""
_RESOURCES = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}


class EngineCommands(Protocol):
    """One engine's clusters and clients."""

    kind: str
    """Of the custom resource."""
    small: Mapping[str, Any]
    """A spec that a machine with other things to do can bear."""
    settings: str
    """The field of a spec that has the parameters."""
    store: str
    """The ConfigMap in which the members agree, behind the cluster's name."""
    administrative: str
    """The database that administrators are in."""
    driver: str
    """Python's, which the engine's image has."""
    password: str
    """The variable from which its client reads the password."""
    process: str
    """What its server is called among the processes."""
    data: str
    """The directory of its data on the volume."""
    is_following: str
    """The statement by which who leads tells how many follow it."""
    writable: str
    """The statement by which a server says 1 if it takes writes."""
    current_user: str
    """The statement by which a server tells somebody his name."""
    pid: str
    """What tells a shell beside a server the id of its process."""
    corrupt: str
    """What breaks the data for good, in a shell beside a server: it ends, and does not start with them again."""
    corruption_message: str
    """What is said of a server with such data."""

    lock_wait: str
    """Words of a login by which a client waits 20 seconds for an answer."""

    def leader_of(self, cluster: str, annotations: Mapping[str, str]) -> str:
        """The instance that leads, as the annotations of the members' ConfigMap say; empty where none does."""
        ...

    def admin_command(self, statement: str, database: str) -> Sequence[str]:
        """The command that asks beside a server, as its superuser."""
        ...

    def client_command(self, statement: str, login: str) -> Sequence[str]:
        """The command of a client."""
        ...

    def uri_command(self, variable: str, statement: str) -> Sequence[str]:
        """The command of a client that has a connection string in a variable, and verifies by the file `$CA`."""
        ...

    def connection_string(self, entries: Mapping[str, str], host: str, *, verified: bool = True) -> str:
        """How a client with these entries of a Secret logs in, but for the password."""
        ...

    def show_parameter(self, parameter: str) -> str:
        """The statement that tells a parameter's value."""
        ...

    def create_table(self, name: str, user: str) -> str:
        """The statement that makes an empty table of numbers, which ``user`` may write to."""
        ...


class PostgreSQLCommands:
    """With Patroni. An `Engine`."""

    kind = "PostgreSQLCluster"
    small: Mapping[str, Any] = {
        "instances": 3,
        "deletionPolicy": "Delete",
        "storage": {"size": "512Mi"},
        "resources": _RESOURCES,
        "postgresql": {"parameters": {"shared_buffers": "32MB", "max_connections": "40"}},
    }
    settings = "postgresql"
    store = "leader"
    administrative = "postgres"
    driver = "psycopg2"
    password = "PGPASSWORD"
    process = "postgres"
    data = "pgdata"
    is_following = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
    writable = "SELECT (NOT pg_is_in_recovery())::int"
    current_user = "SELECT current_user"
    pid = "head -1 /var/lib/steersman/data/pgdata/postmaster.pid"
    # A server that is stopped writes its control file once more, and this one must not.
    corrupt = f"printf broken > /var/lib/steersman/data/pgdata/global/pg_control && kill -9 $({pid})"
    corruption_message = "the data are broken"
    lock_wait = "tcp_user_timeout=20000"

    def leader_of(self, cluster: str, annotations: Mapping[str, str]) -> str:
        """See `Engine.leader`."""
        return (annotations.get("leader") or "").removesuffix("-0")

    def admin_command(self, statement: str, database: str) -> Sequence[str]:
        """See `Engine.inside`."""
        return ("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", statement)

    def client_command(self, statement: str, login: str) -> Sequence[str]:
        """See `Engine.outside`."""
        return ("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", login, "-c", statement)

    def uri_command(self, variable: str, statement: str) -> Sequence[str]:
        """See `Engine.by_uri`. libpq takes a driver's words, too, and no mode is said here: the string does."""
        script = f'PGSSLROOTCERT=$CA exec psql -XAtq -v ON_ERROR_STOP=1 "${{{variable}#jdbc:}}" -c "$0"'
        return ("sh", "-c", script, statement)

    def connection_string(self, entries: Mapping[str, str], host: str, *, verified: bool = True) -> str:
        """See `Engine.login`."""
        return (
            f"host={host} port={entries['port']} user={entries['user']} dbname={entries['dbname']} "
            f"sslmode={'verify-full sslrootcert=/tls/ca.crt' if verified else 'require'} connect_timeout=5 "
            # A server that is gone without a word is given up as soon as a driver can.
            "tcp_user_timeout=3000 keepalives_idle=1 keepalives_interval=1 keepalives_count=3"
        )

    def show_parameter(self, parameter: str) -> str:
        """See `Engine.show`."""
        return f"SHOW {parameter}"

    def create_table(self, name: str, user: str) -> str:
        """See `Engine.table`."""
        columns = "number bigint PRIMARY KEY, at timestamptz DEFAULT clock_timestamp()"
        return f"DROP TABLE IF EXISTS {name}; SET ROLE {user}; CREATE TABLE {name} ({columns})"


class MySQLCommands:
    """With Group Replication. An `Engine`."""

    kind = "MySQLCluster"
    small: Mapping[str, Any] = {
        "instances": 3,
        "deletionPolicy": "Delete",
        "storage": {"size": "1Gi"},
        "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"memory": "768Mi"}},
        "mysql": {"parameters": {"innodb_buffer_pool_size": "32M", "max_connections": "60"}},
    }
    settings = "mysql"
    store = "group"
    administrative = "mysql"
    driver = "pymysql"
    password = "MYSQL_PWD"
    process = "mysqld"
    data = "mysql"
    is_following = (
        "SELECT COUNT(*) - 1 FROM performance_schema.replication_group_members WHERE MEMBER_STATE = 'ONLINE'"
    )
    writable = "SELECT NOT @@GLOBAL.super_read_only"
    current_user = "SELECT SUBSTRING_INDEX(CURRENT_USER(), '@', 1)"
    pid = "cat /run/steersman/mysqld.pid"
    # Before it writes what it holds in memory.
    corrupt = (
        "dd if=/dev/urandom of=/var/lib/steersman/data/mysql/mysql.ibd bs=16k count=60 conv=notrunc "
        f"&& kill -9 $({pid})"
    )
    corruption_message = "does not start: "
    lock_wait = "read_timeout=20"

    def leader_of(self, cluster: str, annotations: Mapping[str, str]) -> str:
        """See `Engine.leader`."""
        group = json.loads(annotations.get("databases.steersman.dev/group-state") or "{}")
        return "" if group.get("leader") is None else f"{cluster}-{group['leader']}"

    def admin_command(self, statement: str, database: str) -> Sequence[str]:
        """See `Engine.inside`."""
        options = ("--no-defaults", "--user=root", "--socket=/run/steersman/mysqld.sock", f"--database={database}")
        return (
            "mysql",
            *options,
            "--default-character-set=utf8mb4",
            "--batch",
            "--skip-column-names",
            f"--execute={statement}",
        )

    def client_command(self, statement: str, login: str) -> Sequence[str]:
        """See `Engine.outside`."""
        said = dict(word.split("=", 1) for word in login.split())
        where = (f"--host={said['host']}", f"--port={said['port']}", f"--user={said['user']}")
        trust = ("--ssl-mode=VERIFY_IDENTITY", f"--ssl-ca={said['ca']}") if "ca" in said else ()
        options = ("--no-defaults", *where, *trust, "--connect-timeout=5", f"--database={said['dbname']}")
        return ("mysql", *options, "--batch", "--skip-column-names", f"--execute={statement}")

    def uri_command(self, variable: str, statement: str) -> Sequence[str]:
        """See `Engine.by_uri`. Verifying is the client's to ask for, as is documented."""
        return ("python3", "-c", _BY_URI_OF_MYSQL, variable, statement)

    def connection_string(self, entries: Mapping[str, str], host: str, *, verified: bool = True) -> str:
        """See `Engine.login`."""
        said = f"host={host} port={entries['port']} user={entries['user']} dbname={entries['dbname']}"
        return f"{said} ca=/tls/ca.crt" if verified else said

    def show_parameter(self, parameter: str) -> str:
        """See `Engine.show`."""
        return f"SELECT @@GLOBAL.{parameter}"

    def create_table(self, name: str, user: str) -> str:
        """See `Engine.table`. Whoever may write to the database may to this."""
        columns = "number bigint PRIMARY KEY, at timestamp(6) DEFAULT CURRENT_TIMESTAMP(6)"
        return f"DROP TABLE IF EXISTS {name}; CREATE TABLE {name} ({columns})"


POSTGRESQL, MYSQL = PostgreSQLCommands(), MySQLCommands()


def _on(*engines: EngineCommands) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("of", engines, ids=[engine.settings for engine in engines], indirect=True)


EACH_ENGINE = _on(POSTGRESQL, MYSQL)
"""Of a test that is about clusters of every engine."""
ON_POSTGRESQL, ON_MYSQL = _on(POSTGRESQL), _on(MYSQL)
"""Of a test that is about one's alone."""
