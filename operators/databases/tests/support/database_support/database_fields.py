"""Every field of a Database's spec, on a cluster of each engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from database_support.cluster_engines import MYSQL, POSTGRESQL, Engine
from database_support.cluster_fields import Case, Found, Object


@dataclass(frozen=True)
class Given:
    """What is given once, for good: a spec, a statement about it in the database of this name, and its answer."""

    spec: Object
    database: str
    statement: str
    answer: str


@dataclass(frozen=True)
class Kept:
    """What never changes: the object that has it, and another value."""

    of: str
    other: Any


@dataclass(frozen=True)
class DatabaseFields:
    """Of one engine.

    Attributes:
        cases: by the fields' paths, all of one database, ``stock``.
        owner: of another one, ``owned``.
        given: by the objects' names.
        kept: by the fields' paths.
        refused: fields that are not for this engine or not with ``clusterRef``, with a value and the refusal.
        made: the statement that makes a database by hand.
        there: the statement that counts databases and users of a name.
        mould: what has to be there before, made by hand.
    """

    cases: Mapping[str, Case]
    owner: Case
    given: Mapping[str, Given]
    kept: Mapping[str, Kept]
    refused: Mapping[str, tuple[Any, str]]
    made: str
    there: str
    mould: Sequence[tuple[str, str]] = ()


def _asked(statement: str, database: str = "stock") -> Callable[[Found], str]:
    return lambda found: found.cluster.sql(statement, database)


def _among(column: str, catalog: str, *names: str) -> Callable[[Found], str]:
    """Which of these there are."""
    listed = ", ".join(f"'{name}'" for name in names)
    return _asked(f"SELECT string_agg({column}, ' ' ORDER BY {column}) FROM {catalog} WHERE {column} IN ({listed})")


_CASES: Mapping[str, Case] = {
    "connectionLimit": Case(
        5, 7, _asked("SELECT datconnlimit FROM pg_database WHERE datname = 'stock'"), ("5", "7", "-1")
    ),
    # What is declared no more is left alone, as others are.
    "extensions[].name": Case(
        [{"name": "citext"}],
        [{"name": "fuzzystrmatch"}],
        _among("extname", "pg_extension", "citext", "fuzzystrmatch"),
        ("citext", "citext fuzzystrmatch", "citext fuzzystrmatch"),
    ),
    "extensions[].version": Case(
        [{"name": "pg_trgm", "version": "1.4"}],
        [{"name": "pg_trgm", "version": "1.5"}],
        _asked("SELECT extversion FROM pg_extension WHERE extname = 'pg_trgm'"),
        ("1.4", "1.5", "1.5"),
        rest=[{"name": "pg_trgm"}],
    ),
    "extensions[].schema": Case(
        [{"name": "hstore", "schema": "one"}],
        [{"name": "hstore", "schema": "two"}],
        _asked("SELECT extnamespace::regnamespace FROM pg_extension WHERE extname = 'hstore'"),
        ("one", "two", "two"),
        rest=[{"name": "hstore"}],
    ),
    "extensions[].ensure": Case(
        [{"name": "btree_gin", "ensure": "Present"}],
        [{"name": "btree_gin", "ensure": "Absent"}],
        _asked("SELECT count(*) FROM pg_extension WHERE extname = 'btree_gin'"),
        ("1", "0", "1"),
        rest=[{"name": "btree_gin"}],
    ),
    "schemas[].name": Case(
        [{"name": "one"}, {"name": "two"}, {"name": "first"}],
        [{"name": "two"}, {"name": "second"}],
        _among("nspname", "pg_namespace", "first", "second"),
        ("first", "first second", "first second"),
    ),
    "schemas[].owner": Case(
        [{"name": "held", "owner": "holder_one"}],
        [{"name": "held", "owner": "holder_two"}],
        _asked("SELECT nspowner::regrole FROM pg_namespace WHERE nspname = 'held'"),
        ("holder_one", "holder_two", "stock"),
        rest=[{"name": "held"}],
    ),
    "schemas[].ensure": Case(
        [{"name": "brief", "ensure": "Present"}],
        [{"name": "brief", "ensure": "Absent"}],
        _asked("SELECT count(*) FROM pg_namespace WHERE nspname = 'brief'"),
        ("1", "0", "1"),
        rest=[{"name": "brief"}],
    ),
}
_LETTERS = "SELECT pg_encoding_to_char(encoding), datcollate, datctype FROM pg_database WHERE datname = 'letters'"
_COPY = (
    "SELECT pg_encoding_to_char(encoding), datdba::regrole, to_regclass('moulded') FROM pg_database "
    "WHERE datname = 'the copy'"
)
_IMMUTABLE: Mapping[str, Kept] = {
    "clusterRef.name": Kept("copy", "other"),
    "clusterRef.namespace": Kept("copy", "elsewhere"),
    "databaseName": Kept("copy", "other"),
    "username": Kept("copy", "other"),
}
_SERVERS: Mapping[str, tuple[Any, str]] = {
    "version": ("17", "version is the server's"),
    "storageSize": ("1Gi", "storageSize is the server's"),
}
_ON_POSTGRESQL = DatabaseFields(
    cases=_CASES,
    owner=Case(
        "keeper_one",
        "keeper_two",
        _asked("SELECT datdba::regrole FROM pg_database WHERE datname = 'owned'", "owned"),
        ("keeper_one", "keeper_two", "owned"),
    ),
    given={
        "letters": Given({"collation": "C", "characterType": "C.UTF-8"}, "letters", _LETTERS, "UTF8|C|C.UTF-8"),
        "copy": Given(
            {
                "engine": "postgresql",
                "databaseName": "the copy",
                "username": "copyist",
                "template": "mould",
                "encoding": "LATIN1",
            },
            "the copy",
            _COPY,
            "LATIN1|copyist|moulded",
        ),
    },
    kept={
        **_IMMUTABLE,
        "clusterRef.kind": Kept("copy", "MySQLCluster"),
        "engine": Kept("copy", "mysql"),
        "template": Kept("copy", "template1"),
        "encoding": Kept("copy", "UTF8"),
        "collation": Kept("letters", "C.UTF-8"),
        "characterType": Kept("letters", "C"),
    },
    refused={**_SERVERS, "engine": ("mysql", "engine is not the cluster's")},
    made="CREATE DATABASE found",
    there="SELECT (SELECT count(*) FROM pg_database WHERE datname = '{0}') + "
    "(SELECT count(*) FROM pg_roles WHERE rolname = '{0}')",
    mould=(
        ("CREATE DATABASE mould TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C' LOCALE_PROVIDER libc", ""),
        ("ALTER DATABASE mould IS_TEMPLATE true", ""),
        ("CREATE TABLE moulded (n int)", "mould"),
    ),
)
_COPIED = (
    "SELECT DEFAULT_CHARACTER_SET_NAME, DEFAULT_COLLATION_NAME, (SELECT GROUP_CONCAT(User) FROM mysql.db "
    "WHERE Db = 'the copy' AND Drop_priv = 'Y') FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = 'the copy'"
)
_ON_MYSQL = DatabaseFields(
    cases={},
    # Owning is having all privileges.
    owner=Case(
        "keeper_one",
        "keeper_two",
        _asked(
            "SELECT GROUP_CONCAT(User ORDER BY User) FROM mysql.db WHERE Db = 'owned' AND Drop_priv = 'Y'", "owned"
        ),
        ("keeper_one", "keeper_two", "owned"),
    ),
    given={
        "copy": Given(
            {
                "engine": "mysql",
                "databaseName": "the copy",
                "username": "copyist",
                "encoding": "latin1",
                "collation": "latin1_bin",
            },
            "the copy",
            _COPIED,
            "latin1\tlatin1_bin\tcopyist",
        )
    },
    kept={
        **_IMMUTABLE,
        "clusterRef.kind": Kept("copy", "PostgreSQLCluster"),
        "engine": Kept("copy", "postgresql"),
        "encoding": Kept("copy", "utf8mb4"),
        "collation": Kept("copy", "latin1_danish_ci"),
    },
    refused={
        **_SERVERS,
        "engine": ("postgresql", "engine is not the cluster's"),
        "characterType": ("C", "MySQL's databases have none"),
        "template": ("template1", "PostgreSQL's"),
        "connectionLimit": (5, "PostgreSQL's"),
        "extensions": ([{"name": "pg_trgm"}], "PostgreSQL's"),
        "schemas": ([{"name": "one"}], "PostgreSQL's"),
    },
    made="CREATE DATABASE found",
    there="SELECT (SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = '{0}') + "
    "(SELECT COUNT(*) FROM mysql.user WHERE User = '{0}')",
)
FIELDS: Mapping[Engine, DatabaseFields] = {POSTGRESQL: _ON_POSTGRESQL, MYSQL: _ON_MYSQL}
