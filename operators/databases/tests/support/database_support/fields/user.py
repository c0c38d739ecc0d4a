"""Every field of a DatabaseUser's spec, on a cluster of each engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from database_support.e2e.engines import MYSQL, POSTGRESQL, EngineCommands
from database_support.fields.cluster import ClusterObjects, FieldCase


@dataclass(frozen=True)
class UserFields:
    """Of one engine.

    Attributes:
        cases: by the fields' paths, all of one user, ``clerk``.
        login: likewise, of ``reader``, whose Secret they are about.
        refused: fields that are not for this engine or not with ``clusterRef``, with a value and the refusal.
        furnished: the statements by which the owner of ``orders`` makes what is granted.
        made: the statement that makes a user by hand.
        there: the statement that counts users of a name.
        undeclared: the statement that grants ``guest`` what is not declared.
        held: the statement that counts that.
        limit: the statement that sets ``guest`` a limit that is not declared, and the one that shows it.
    """

    cases: Mapping[str, FieldCase]
    login: Mapping[str, FieldCase]
    refused: Mapping[str, tuple[Any, str]]
    furnished: str
    made: str
    there: str
    undeclared: str
    held: str
    limit: tuple[str, str]


def _asked(statement: str) -> Callable[[ClusterObjects], str]:
    return lambda found: found.cluster.sql(statement, "orders")


def _grant(**of: Any) -> list[Mapping[str, Any]]:
    return [{"database": "orders", **of}]


def _word(number: int) -> Callable[[ClusterObjects], str]:
    """A word of the password in the Secret, once it opens: ``one a`` is under the key ``a`` of ``chosen-one``."""

    def look(found: ClusterObjects) -> str:
        cluster = found.cluster
        login = cluster.namespace_client.secret("reader-user")
        assert cluster.namespace_client.log_in(f"{cluster.primary}-0", login, "SELECT 1", login["type"]) == "1"
        return login["password"].split()[number]

    return look


def _dbname(found: ClusterObjects) -> str:
    return found.cluster.namespace_client.secret("reader-user")["dbname"]


_LOGIN: Mapping[str, FieldCase] = {
    # The password stays where none is given any more: who has it is let in.
    "password.name": FieldCase("chosen-one", "chosen-two", _word(0), ("one", "two", "two")),
    "password.key": FieldCase("a", "b", _word(1), ("a", "b", "b")),
    "database": FieldCase("stock", "orders", _dbname, ("stock", "orders", "stock")),
}
_ROLES: Mapping[str, tuple[Any, Any, Any]] = {
    "roles[].name": ([{"name": "role_one"}], [{"name": "role_two"}], None),
    "roles[].admin": (
        [{"name": "role_three", "admin": False}],
        [{"name": "role_three", "admin": True}],
        [{"name": "role_three"}],
    ),
    "roles[].inherit": (
        [{"name": "role_four", "inherit": True}],
        [{"name": "role_four", "inherit": False}],
        [{"name": "role_four"}],
    ),
}


def _membership(field: str, look: Callable[[ClusterObjects], Any], *seen: str) -> FieldCase:
    first, second, rest = _ROLES[field]
    return FieldCase(first, second, look, seen, default=rest)


def _role(column: str) -> Callable[[ClusterObjects], str]:
    return _asked(f"SELECT {column} FROM pg_roles WHERE rolname = 'clerk'")


def _option(option: str, role: str) -> Callable[[ClusterObjects], str]:
    return _asked(
        f"SELECT {option} FROM pg_auth_members WHERE member = 'clerk'::regrole AND roleid = '{role}'::regrole"
    )


def _may(*questions: str) -> Callable[[ClusterObjects], str]:
    """What PostgreSQL answers to each question of the kind ``table, kept, SELECT``."""
    asked = (question.split(", ") for question in questions)
    return _asked(
        "SELECT " + ", ".join(f"has_{kind}_privilege('clerk', '{on}', '{what}')" for kind, on, what in asked)
    )


def _default(column: str, kind: str) -> Callable[[ClusterObjects], str]:
    """What the default privileges in schema ``films`` say of what will be made."""
    return _asked(
        f"SELECT coalesce(string_agg({column}, ' '), '') FROM pg_default_acl, aclexplode(defaclacl) "
        f"WHERE grantee = 'clerk'::regrole AND defaclobjtype = '{kind}'"
    )


_BOOKS = {"schema": "books"}
_FILMS = {"schema": "films"}
_SELECT = {"privileges": ["SELECT"]}
_EXECUTE = {"privileges": ["EXECUTE"]}
_PASSED_ON = {**_BOOKS, "tables": ["passed"], **_SELECT}
_TO_COME = {**_FILMS, "sequences": ["*"], **_SELECT}
_OTHERS = {**_FILMS, "tables": ["*"], **_SELECT, "future": True}

_POSTGRESQL_CASES: Mapping[str, FieldCase] = {
    "inherit": FieldCase(False, True, _role("rolinherit"), ("f", "t", "t")),
    "createDatabase": FieldCase(False, True, _role("rolcreatedb"), ("f", "t", "f")),
    "replication": FieldCase(False, True, _role("rolreplication"), ("f", "t", "f")),
    "bypassRowLevelSecurity": FieldCase(False, True, _role("rolbypassrls"), ("f", "t", "f")),
    "connectionLimit": FieldCase(3, 5, _role("rolconnlimit"), ("3", "5", "-1")),
    "validUntil": FieldCase(
        "2031-01-01T00:00:00Z",
        "2032-01-01T00:00:00Z",
        _role("coalesce(extract(year FROM rolvaliduntil AT TIME ZONE 'UTC')::text, 'never')"),
        ("2031", "2032", "Infinity"),
    ),
    "roles[].name": _membership(
        "roles[].name",
        _asked(
            "SELECT string_agg(roleid::regrole::text, ' ') FROM pg_auth_members "
            "WHERE member = 'clerk'::regrole AND roleid IN ('role_one'::regrole, 'role_two'::regrole)"
        ),
        "role_one",
        "role_two",
        "",
    ),
    "roles[].admin": _membership("roles[].admin", _option("admin_option", "role_three"), "f", "t", "f"),
    # At last as the user's own, which is at its default then.
    "roles[].inherit": _membership("roles[].inherit", _option("inherit_option", "role_four"), "t", "f", "t"),
    "roles[].set": FieldCase(
        [{"name": "role_five", "set": True}],
        [{"name": "role_five", "set": False}],
        _option("set_option", "role_five"),
        ("t", "f", "t"),
        default=[{"name": "role_five"}],
    ),
    "grants[].database": FieldCase(
        _grant(privileges=["CONNECT"]),
        [{"database": "stock", "privileges": ["CONNECT"]}],
        _may("database, orders, CONNECT", "database, stock, CONNECT"),
        ("t|f", "f|t", "f|f"),
    ),
    "grants[].schema": FieldCase(
        _grant(schema="books", privileges=["USAGE"]),
        _grant(schema="films", privileges=["USAGE"]),
        _may("schema, books, USAGE", "schema, films, USAGE"),
        ("t|f", "f|t", "f|f"),
    ),
    "grants[].tables": FieldCase(
        _grant(**_BOOKS, tables=["read"], **_SELECT),
        _grant(**_BOOKS, tables=["lent"], **_SELECT),
        _may("table, books.read, SELECT", "table, books.lent, SELECT"),
        ("t|f", "f|t", "f|f"),
    ),
    "grants[].columns": FieldCase(
        _grant(**_BOOKS, tables=["visits"], columns=["at"], **_SELECT),
        _grant(**_BOOKS, tables=["visits"], columns=["who"], **_SELECT),
        _asked(
            "SELECT string_agg(attname, ' ') FROM pg_attribute WHERE attrelid = 'books.visits'::regclass "
            "AND attnum > 0 AND has_column_privilege('clerk', attrelid, attnum, 'SELECT')"
        ),
        ("at", "who", ""),
    ),
    "grants[].sequences": FieldCase(
        _grant(**_BOOKS, sequences=["numbers"], **_SELECT),
        _grant(**_BOOKS, sequences=["counts"], **_SELECT),
        _may("sequence, books.numbers, SELECT", "sequence, books.counts, SELECT"),
        ("t|f", "f|t", "f|f"),
    ),
    "grants[].functions": FieldCase(
        _grant(**_BOOKS, functions=["total(integer)"], **_EXECUTE),
        _grant(**_BOOKS, functions=["rest(integer)"], **_EXECUTE),
        _may("function, books.total(int), EXECUTE", "function, books.rest(int), EXECUTE"),
        ("t|f", "f|t", "f|f"),
    ),
    "grants[].privileges": FieldCase(
        _grant(**_BOOKS, tables=["written"], **_SELECT),
        _grant(**_BOOKS, tables=["written"], privileges=["INSERT", "DELETE"]),
        _may("table, books.written, SELECT", "table, books.written, INSERT", "table, books.written, DELETE"),
        ("t|f|f", "f|t|t", "f|f|f"),
    ),
    "grants[].withGrantOption": FieldCase(
        _grant(**_PASSED_ON, withGrantOption=False),
        _grant(**_PASSED_ON, withGrantOption=True),
        _may("table, books.passed, SELECT", "table, books.passed, SELECT WITH GRANT OPTION"),
        ("t|f", "t|t", "t|f"),
        default=_grant(**_PASSED_ON),
    ),
    "grants[].future": FieldCase(
        _grant(**_TO_COME, future=False),
        _grant(**_TO_COME, future=True),
        _default("privilege_type", "S"),
        ("", "SELECT", ""),
        default=_grant(**_TO_COME),
    ),
    "grants[].createdBy": FieldCase(
        _grant(**_OTHERS, createdBy=["role_one"]),
        _grant(**_OTHERS, createdBy=["role_two"]),
        _default("defaclrole::regrole::text", "r"),
        ("role_one", "role_two", "orders"),
        default=_grant(**_OTHERS),
    ),
}
_ON_POSTGRESQL = UserFields(
    cases=_POSTGRESQL_CASES,
    login=_LOGIN,
    refused={
        "engine": ("postgresql", "engine cannot be set with clusterRef"),
        "limits.queries": ({"queries": 1}, "limits are supported on MySQL only: remove them"),
    },
    furnished="""
SET ROLE orders;
CREATE SCHEMA books;
CREATE SCHEMA films;
CREATE TABLE books.visits (at int, who text);
CREATE TABLE books.read (n int);
CREATE TABLE books.lent (n int);
CREATE TABLE books.written (n int);
CREATE TABLE books.passed (n int);
CREATE TABLE books.extra (n int);
CREATE SEQUENCE books.numbers;
CREATE SEQUENCE books.counts;
CREATE FUNCTION books.total(int) RETURNS int LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION books.rest(int) RETURNS int LANGUAGE sql AS 'SELECT $1';
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA books FROM PUBLIC;
""",
    made="CREATE ROLE found LOGIN",
    there="SELECT count(*) FROM pg_roles WHERE rolname = '{0}'",
    undeclared="GRANT SELECT ON books.extra TO guest; GRANT role_one TO guest",
    held="SELECT has_table_privilege('guest', 'books.extra', 'SELECT')::int + pg_has_role('guest', 'role_one', "
    "'MEMBER')::int",
    limit=(
        "ALTER ROLE guest CONNECTION LIMIT 7",
        "SELECT rolconnlimit = 7 FROM pg_roles WHERE rolname = 'guest'",
    ),
)


def _account(column: str) -> Callable[[ClusterObjects], str]:
    return _asked(f"SELECT {column} FROM mysql.user WHERE User = 'clerk'")


def _default_role(role: str) -> Callable[[ClusterObjects], str]:
    return _asked(f"SELECT COUNT(*) FROM mysql.default_roles WHERE USER = 'clerk' AND DEFAULT_ROLE_USER = '{role}'")


def _edge(column: str, *roles: str) -> Callable[[ClusterObjects], str]:
    listed = ", ".join(f"'{role}'" for role in roles)
    return _asked(f"SELECT MAX({column}) FROM mysql.role_edges WHERE TO_USER = 'clerk' AND FROM_USER IN ({listed})")


def _privileges(catalog: str, condition: str, column: str = "PRIVILEGE_TYPE") -> Callable[[ClusterObjects], str]:
    return _asked(
        f"SELECT GROUP_CONCAT({column} ORDER BY 1 SEPARATOR ' ') FROM information_schema.{catalog} "
        f"WHERE GRANTEE = '''clerk''@''%''' AND {condition}"
    )


_NONE = "NULL"
_MYSQL_CASES: Mapping[str, FieldCase] = {
    # Of what says nothing by itself.
    "inherit": FieldCase(False, True, _default_role("role_three"), ("0", "1", "1")),
    "replication": FieldCase(False, True, _account("Repl_slave_priv"), ("N", "Y", "N")),
    "connectionLimit": FieldCase(3, 5, _account("max_user_connections"), ("3", "5", "0")),
    "limits.queries": FieldCase(30, 31, _account("max_questions"), ("30", "31", "0")),
    "limits.updates": FieldCase(20, 21, _account("max_updates"), ("20", "21", "0")),
    "limits.connections": FieldCase(10, 11, _account("max_connections"), ("10", "11", "0")),
    "validUntil": FieldCase(
        "2031-01-01T00:00:00Z", "2001-01-01T00:00:00Z", _account("account_locked"), ("N", "Y", "N")
    ),
    "roles[].name": _membership(
        "roles[].name", _edge("FROM_USER", "role_one", "role_two"), "role_one", "role_two", _NONE
    ),
    "roles[].admin": _membership("roles[].admin", _edge("WITH_ADMIN_OPTION", "role_three"), "N", "Y", "N"),
    "roles[].inherit": _membership("roles[].inherit", _default_role("role_four"), "1", "0", "1"),
    "grants[].database": FieldCase(
        _grant(privileges=["INDEX"]),
        [{"database": "stock", "privileges": ["INDEX"]}],
        _privileges("SCHEMA_PRIVILEGES", "PRIVILEGE_TYPE = 'INDEX'", "TABLE_SCHEMA"),
        ("orders", "stock", _NONE),
    ),
    "grants[].tables": FieldCase(
        _grant(tables=["read_"], privileges=["SELECT"]),
        _grant(tables=["lent"], privileges=["SELECT"]),
        _privileges("TABLE_PRIVILEGES", "TABLE_NAME IN ('read_', 'lent')", "TABLE_NAME"),
        ("read_", "lent", _NONE),
    ),
    "grants[].columns": FieldCase(
        _grant(tables=["visits"], columns=["at"], privileges=["SELECT"]),
        _grant(tables=["visits"], columns=["who"], privileges=["SELECT"]),
        _privileges("COLUMN_PRIVILEGES", "TABLE_NAME = 'visits'", "COLUMN_NAME"),
        ("at", "who", _NONE),
    ),
    "grants[].functions": FieldCase(
        _grant(functions=["total"], **_EXECUTE),
        _grant(functions=["rest"], **_EXECUTE),
        _asked("SELECT GROUP_CONCAT(Routine_name) FROM mysql.procs_priv WHERE User = 'clerk'"),
        ("total", "rest", _NONE),
    ),
    "grants[].privileges": FieldCase(
        _grant(tables=["written"], privileges=["SELECT"]),
        _grant(tables=["written"], privileges=["INSERT", "DELETE"]),
        _privileges("TABLE_PRIVILEGES", "TABLE_NAME = 'written'"),
        ("SELECT", "DELETE INSERT", _NONE),
    ),
    "grants[].withGrantOption": FieldCase(
        _grant(tables=["passed"], privileges=["SELECT"], withGrantOption=False),
        _grant(tables=["passed"], privileges=["SELECT"], withGrantOption=True),
        _privileges("TABLE_PRIVILEGES", "TABLE_NAME = 'passed'", "IS_GRANTABLE"),
        ("NO", "YES", "NO"),
        default=_grant(tables=["passed"], privileges=["SELECT"]),
    ),
}
_SCHEMALESS = "schema, sequences and future are supported on PostgreSQL only"
_ON_MYSQL = UserFields(
    cases=_MYSQL_CASES,
    login=_LOGIN,
    refused={
        "engine": ("mysql", "engine cannot be set with clusterRef"),
        "createDatabase": (True, "supported on PostgreSQL only"),
        "bypassRowLevelSecurity": (True, "supported on PostgreSQL only"),
        "connectionLimit": (0, "0 means unlimited on MySQL"),
        "roles[].set": ([{"name": "role_one", "set": False}], "remove set"),
        "grants[].schema": (_grant(schema="books", privileges=["USAGE"]), _SCHEMALESS),
        "grants[].sequences": (_grant(schema="books", sequences=["numbers"], privileges=["SELECT"]), _SCHEMALESS),
        "grants[].future": (_grant(tables=["*"], privileges=["SELECT"], future=True), _SCHEMALESS),
        "grants[].createdBy": (
            _grant(tables=["*"], privileges=["SELECT"], future=True, createdBy=["role_one"]),
            _SCHEMALESS,
        ),
    },
    furnished="""
CREATE TABLE visits (at int PRIMARY KEY, who varchar(9));
CREATE TABLE read_ (n int PRIMARY KEY);
CREATE TABLE lent (n int PRIMARY KEY);
CREATE TABLE written (n int PRIMARY KEY);
CREATE TABLE passed (n int PRIMARY KEY);
CREATE TABLE extra (n int PRIMARY KEY);
CREATE PROCEDURE total() SELECT 1;
CREATE PROCEDURE rest() SELECT 1;
""",
    made="CREATE USER found",
    there="SELECT COUNT(*) FROM mysql.user WHERE User = '{0}'",
    undeclared="GRANT SELECT ON orders.extra TO guest; GRANT role_one TO guest",
    held="SELECT (SELECT COUNT(*) FROM mysql.tables_priv WHERE User = 'guest') + "
    "(SELECT COUNT(*) FROM mysql.role_edges WHERE TO_USER = 'guest')",
    limit=(
        "ALTER USER guest WITH MAX_USER_CONNECTIONS 7",
        "SELECT max_user_connections = 7 FROM mysql.user WHERE User = 'guest'",
    ),
)
FIELDS: Mapping[EngineCommands, UserFields] = {POSTGRESQL: _ON_POSTGRESQL, MYSQL: _ON_MYSQL}
