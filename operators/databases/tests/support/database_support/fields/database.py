"""Every field of a Database's spec, on a cluster of each engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from database_support.e2e.engines import MYSQL, POSTGRESQL, EngineCommands
from database_support.fields import server_ref
from database_support.fields.cluster import ClusterObjects, FieldCase, Object


@dataclass(frozen=True)
class CreationCase:
    """What is given once, for good: a spec, a statement about it in the database of this name, and its answer."""

    spec: Object
    database: str
    statement: str
    expected: str


@dataclass(frozen=True)
class ImmutableCase:
    """What never changes: the object that has it, and another value."""

    object_name: str
    other_value: Any


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

    cases: Mapping[str, FieldCase]
    owner: FieldCase
    creation: Mapping[str, CreationCase]
    immutable: Mapping[str, ImmutableCase]
    rejected: Mapping[str, tuple[Any, str]]
    created: str
    exists: str
    template: Sequence[tuple[str, str]] = ()


def _asked(statement: str, database: str = "stock") -> Callable[[ClusterObjects], str]:
    return lambda found: found.cluster.sql(statement, database)


def _among(column: str, catalog: str, *names: str) -> Callable[[ClusterObjects], str]:
    """Which of these there are."""
    listed = ", ".join(f"'{name}'" for name in names)
    return _asked(f"SELECT string_agg({column}, ' ' ORDER BY {column}) FROM {catalog} WHERE {column} IN ({listed})")


_CASES: Mapping[str, FieldCase] = {
    "connectionLimit": FieldCase(
        5, 7, _asked("SELECT datconnlimit FROM pg_database WHERE datname = 'stock'"), ("5", "7", "-1")
    ),
    # What is declared no more is left alone, as others are.
    "extensions[].name": FieldCase(
        [{"name": "citext"}],
        [{"name": "fuzzystrmatch"}],
        _among("extname", "pg_extension", "citext", "fuzzystrmatch"),
        ("citext", "citext fuzzystrmatch", "citext fuzzystrmatch"),
    ),
    "extensions[].version": FieldCase(
        [{"name": "pg_trgm", "version": "1.4"}],
        [{"name": "pg_trgm", "version": "1.5"}],
        _asked("SELECT extversion FROM pg_extension WHERE extname = 'pg_trgm'"),
        ("1.4", "1.5", "1.5"),
        default=[{"name": "pg_trgm"}],
    ),
    "extensions[].schema": FieldCase(
        [{"name": "hstore", "schema": "one"}],
        [{"name": "hstore", "schema": "two"}],
        _asked("SELECT extnamespace::regnamespace FROM pg_extension WHERE extname = 'hstore'"),
        ("one", "two", "two"),
        default=[{"name": "hstore"}],
    ),
    "extensions[].ensure": FieldCase(
        [{"name": "btree_gin", "ensure": "Present"}],
        [{"name": "btree_gin", "ensure": "Absent"}],
        _asked("SELECT count(*) FROM pg_extension WHERE extname = 'btree_gin'"),
        ("1", "0", "1"),
        default=[{"name": "btree_gin"}],
    ),
    "schemas[].name": FieldCase(
        [{"name": "one"}, {"name": "two"}, {"name": "first"}],
        [{"name": "two"}, {"name": "second"}],
        _among("nspname", "pg_namespace", "first", "second"),
        ("first", "first second", "first second"),
    ),
    "schemas[].owner": FieldCase(
        [{"name": "held", "owner": "holder_one"}],
        [{"name": "held", "owner": "holder_two"}],
        _asked("SELECT nspowner::regrole FROM pg_namespace WHERE nspname = 'held'"),
        ("holder_one", "holder_two", "stock"),
        default=[{"name": "held"}],
    ),
    "schemas[].ensure": FieldCase(
        [{"name": "brief", "ensure": "Present"}],
        [{"name": "brief", "ensure": "Absent"}],
        _asked("SELECT count(*) FROM pg_namespace WHERE nspname = 'brief'"),
        ("1", "0", "1"),
        default=[{"name": "brief"}],
    ),
}
_CHARSET_QUERY = (
    "SELECT pg_encoding_to_char(encoding), datcollate, datctype FROM pg_database WHERE datname = 'letters'"
)
_COPY = (
    "SELECT pg_encoding_to_char(encoding), datdba::regrole, to_regclass('moulded') FROM pg_database "
    "WHERE datname = 'the copy'"
)
_IMMUTABLE: Mapping[str, ImmutableCase] = {
    "clusterRef.name": ImmutableCase("copy", "other"),
    "clusterRef.namespace": ImmutableCase("copy", "elsewhere"),
    "databaseName": ImmutableCase("copy", "other"),
    "username": ImmutableCase("copy", "other"),
}
_SERVERS: Mapping[str, tuple[Any, str]] = {
    "version": ("17", "version cannot be set with clusterRef"),
    "storageSize": ("1Gi", "storageSize cannot be set with clusterRef"),
}
_ON_POSTGRESQL = DatabaseFields(
    cases=_CASES,
    owner=FieldCase(
        "keeper_one",
        "keeper_two",
        _asked("SELECT datdba::regrole FROM pg_database WHERE datname = 'owned'", "owned"),
        ("keeper_one", "keeper_two", "owned"),
    ),
    creation={
        "letters": CreationCase(
            {"collation": "C", "characterType": "C.UTF-8"}, "letters", _CHARSET_QUERY, "UTF8|C|C.UTF-8"
        ),
        "icu": CreationCase(
            {"encoding": "LATIN1", "localeProvider": "icu", "locale": "de"},
            "icu",
            "SELECT pg_encoding_to_char(encoding), datlocprovider FROM pg_database WHERE datname = 'icu'",
            "LATIN1|i",
        ),
        "copy": CreationCase(
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
    immutable={
        **_IMMUTABLE,
        "clusterRef.kind": ImmutableCase("copy", "MySQLCluster"),
        "engine": ImmutableCase("copy", "mysql"),
        "template": ImmutableCase("copy", "template1"),
        "encoding": ImmutableCase("copy", "UTF8"),
        "collation": ImmutableCase("letters", "C.UTF-8"),
        "characterType": ImmutableCase("letters", "C"),
        "localeProvider": ImmutableCase("icu", "builtin"),
        "locale": ImmutableCase("icu", "fr"),
    },
    rejected={**_SERVERS, "engine": ("mysql", "engine differs from clusterRef.kind")},
    created="CREATE DATABASE found",
    exists="SELECT (SELECT count(*) FROM pg_database WHERE datname = '{0}') + "
    "(SELECT count(*) FROM pg_roles WHERE rolname = '{0}')",
    template=(
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
    owner=FieldCase(
        "keeper_one",
        "keeper_two",
        _asked(
            "SELECT GROUP_CONCAT(User ORDER BY User) FROM mysql.db WHERE Db = 'owned' AND Drop_priv = 'Y'", "owned"
        ),
        ("keeper_one", "keeper_two", "owned"),
    ),
    creation={
        "copy": CreationCase(
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
    immutable={
        **_IMMUTABLE,
        "clusterRef.kind": ImmutableCase("copy", "PostgreSQLCluster"),
        "engine": ImmutableCase("copy", "postgresql"),
        "encoding": ImmutableCase("copy", "utf8mb4"),
        "collation": ImmutableCase("copy", "latin1_danish_ci"),
    },
    rejected={
        **_SERVERS,
        "engine": ("postgresql", "engine differs from clusterRef.kind"),
        "characterType": ("C", "MySQL's databases have none"),
        "localeProvider": ("libc", "PostgreSQL only"),
        "template": ("template1", "PostgreSQL only"),
        "connectionLimit": (5, "PostgreSQL only"),
        "extensions": ([{"name": "pg_trgm"}], "PostgreSQL only"),
        "schemas": ([{"name": "one"}], "PostgreSQL only"),
    },
    created="CREATE DATABASE found",
    exists="SELECT (SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = '{0}') + "
    "(SELECT COUNT(*) FROM mysql.user WHERE User = '{0}')",
)
FIELDS: Mapping[EngineCommands, DatabaseFields] = {POSTGRESQL: _ON_POSTGRESQL, MYSQL: _ON_MYSQL}
_PASSED_TO_CLUSTER = "simulated/sql/database/test_cluster_of_database.py"
TESTED: Mapping[str, str] = {
    **server_ref.TESTED,
    **dict.fromkeys(("owner", "adopt", "deletionPolicy"), "e2e/fields/test_database_fields.py"),
    **dict.fromkeys(
        ("autogrow", "backup", "bootstrap", "maintenance", "monitoring", "resources", "sizing"), _PASSED_TO_CLUSTER
    ),
    "version": "e2e/fields/test_spec_validation.py",
    "storageSize": "e2e/sql/test_database_lifecycle.py",
}
"""Modules below ``tests`` that test the other fields, or all fields below them."""
