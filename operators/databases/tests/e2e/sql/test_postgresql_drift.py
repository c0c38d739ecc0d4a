"""What is inside a cluster: two who want the same, somebody who changes it by hand, somebody who sets traps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from database_support.e2e.cluster import ClusterUnderTest
from database_support.e2e.sql_drift import RESTORED_WITHIN_SECONDS, SqlDrift, assert_reverted

pytestmark = pytest.mark.xdist_group("cluster-contents")

Record = Callable[[str, object], None]


def user(name: str, *, tables: bool = False) -> dict[str, Any]:
    grants: list[dict[str, Any]] = [{"database": "shop", "privileges": ["CONNECT"]}]
    if tables:
        grants += [
            {"database": "shop", "schema": "public", "privileges": ["USAGE"]},
            {"database": "shop", "schema": "public", "tables": ["*"], "privileges": ["SELECT"], "future": True},
        ]
    return {"clusterRef": {"name": "orders"}, "user": name, "grants": grants}


def test_two_users_same_role_older_object_keeps_it(three: ClusterUnderTest) -> None:
    """Scenario 9: two objects claim one role."""
    place = three.namespace_client
    place.apply("DatabaseUser", "first", user("clerk"))
    place.wait_reason("databaseuser", "first", "ProvisionSucceeded")
    password = "SELECT rolpassword FROM pg_authid WHERE rolname = 'clerk'"
    before = three.sql(password)

    place.apply("DatabaseUser", "second", user("clerk"))
    said = place.wait_reason("databaseuser", "second", "ProvisionFailed")
    assert "first" in said["message"]
    assert place.condition("databaseuser", "first")["status"] == "True"
    assert three.sql(password) == before
    assert not place.get("secret", "second-user")

    # Who never had it takes nothing along.
    place.kubectl("delete", "databaseuser", "second", "--timeout=60s", seconds=70)
    assert three.sql(password) == before
    place.apply("DatabaseUser", "third", user("clerk"))
    place.wait_reason("databaseuser", "third", "ProvisionFailed")
    place.kubectl("delete", "databaseuser", "first", "--timeout=60s", seconds=70)
    place.wait_reason("databaseuser", "third", "ProvisionSucceeded")
    assert three.sql(password) not in ("", before)
    place.kubectl("delete", "databaseuser", "third", "--timeout=60s", seconds=70)
    assert three.sql("SELECT count(*) FROM pg_roles WHERE rolname = 'clerk'") == "0"


BOOKS = """
SET ROLE shop;
CREATE TABLE kept (n int);
CREATE TABLE hidden (n int);
CREATE SCHEMA books;
CREATE TABLE books.visits (at int, who text);
CREATE SEQUENCE books.numbers;
CREATE FUNCTION books.total(int) RETURNS int LANGUAGE sql AS 'SELECT $1 + 1';
CREATE FUNCTION books.other(int) RETURNS int LANGUAGE sql AS 'SELECT $1';
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA books FROM PUBLIC;
"""
IN_BOOKS: dict[str, Any] = {"database": "shop", "schema": "books"}
ON_BOOKS: list[dict[str, Any]] = [
    {**IN_BOOKS, "privileges": ["USAGE"]},
    {**IN_BOOKS, "tables": ["visits"], "columns": ["at"], "privileges": ["SELECT"]},
    {**IN_BOOKS, "sequences": ["numbers"], "privileges": ["USAGE"]},
    {**IN_BOOKS, "functions": ["total(integer)"], "privileges": ["EXECUTE"]},
]


def may(kind: str, *words: str) -> str:
    """Asks whether ``reader`` may do the last of these words."""
    return f"SELECT has_{kind}_privilege('reader', {', '.join(map(repr, words))})"


SELECT_ON_KEPT = may("table", "kept", "SELECT")
MEMBERSHIPS = (
    "SELECT string_agg(concat(roleid::regrole, ' ', admin_option), ', ') FROM pg_auth_members "
    "WHERE member = 'reader'::regrole"
)
DEFAULTS = (
    "SELECT string_agg(privilege_type, ' ') FROM pg_default_acl, aclexplode(defaclacl) "
    "WHERE grantee = 'reader'::regrole"
)
TO_COME = "ALTER DEFAULT PRIVILEGES FOR ROLE shop IN SCHEMA public"
A_TABLE_TO_COME = "each table that shop creates in shop.public"
ROLE = "SELECT {} FROM pg_roles WHERE rolname = 'reader'"
HARM_TO_A_USER = {
    "revoked": SqlDrift(
        "REVOKE SELECT ON kept FROM reader",
        SELECT_ON_KEPT,
        "t",
        ("PrivilegesGranted", "SELECT on table shop.public.kept"),
    ),
    "granted": SqlDrift(
        "GRANT DELETE ON kept TO reader",
        may("table", "kept", "DELETE"),
        "f",
        ("GrantRevoked", "DELETE on table shop.public.kept"),
    ),
    "revoked on the database": SqlDrift(
        "REVOKE CONNECT ON DATABASE shop FROM reader",
        may("database", "shop", "CONNECT"),
        "t",
        ("PrivilegesGranted", "CONNECT on database shop"),
    ),
    "revoked on a schema": SqlDrift(
        "REVOKE USAGE ON SCHEMA books FROM reader",
        may("schema", "books", "USAGE"),
        "t",
        ("PrivilegesGranted", "USAGE on schema shop.books"),
    ),
    "granted on a schema": SqlDrift(
        "GRANT CREATE ON SCHEMA books TO reader",
        may("schema", "books", "CREATE"),
        "f",
        ("GrantRevoked", "CREATE on schema shop.books"),
    ),
    "revoked on a column": SqlDrift(
        "REVOKE SELECT (at) ON books.visits FROM reader",
        may("column", "books.visits", "at", "SELECT"),
        "t",
        ("PrivilegesGranted", "SELECT on column at of table shop.books.visits"),
    ),
    "granted on a column": SqlDrift(
        "GRANT SELECT (who) ON books.visits TO reader",
        may("column", "books.visits", "who", "SELECT"),
        "f",
        ("GrantRevoked", "SELECT on column who of table shop.books.visits"),
    ),
    "revoked on a sequence": SqlDrift(
        "REVOKE USAGE ON SEQUENCE books.numbers FROM reader",
        may("sequence", "books.numbers", "USAGE"),
        "t",
        ("PrivilegesGranted", "USAGE on sequence shop.books.numbers"),
    ),
    "granted on a sequence": SqlDrift(
        "GRANT UPDATE ON SEQUENCE books.numbers TO reader",
        may("sequence", "books.numbers", "UPDATE"),
        "f",
        ("GrantRevoked", "UPDATE on sequence shop.books.numbers"),
    ),
    "revoked on a function": SqlDrift(
        "REVOKE EXECUTE ON FUNCTION books.total(int) FROM reader",
        may("function", "books.total(int)", "EXECUTE"),
        "t",
        ("PrivilegesGranted", "EXECUTE on function shop.books.total(integer)"),
    ),
    "granted on a function": SqlDrift(
        "GRANT EXECUTE ON FUNCTION books.other(int) TO reader",
        may("function", "books.other(int)", "EXECUTE"),
        "f",
        ("GrantRevoked", "EXECUTE on function shop.books.other(integer)"),
    ),
    "revoked of what comes": SqlDrift(
        f"{TO_COME} REVOKE SELECT ON TABLES FROM reader", DEFAULTS, "SELECT", ("PrivilegesGranted", A_TABLE_TO_COME)
    ),
    "granted of what comes": SqlDrift(
        f"{TO_COME} GRANT DELETE ON TABLES TO reader",
        DEFAULTS,
        "SELECT",
        ("GrantRevoked", f"DELETE on {A_TABLE_TO_COME}"),
    ),
    "a new table": SqlDrift(
        "SET ROLE shop; CREATE TABLE later (n int); REVOKE ALL ON later FROM reader",
        may("table", "later", "SELECT"),
        "t",
        ("PrivilegesGranted", "SELECT on table shop.public.later"),
    ),
    # The membership is the one that the operator gave.
    "a membership revoked": SqlDrift(
        "REVOKE readers FROM reader GRANTED BY steersman_operator",
        MEMBERSHIPS,
        "readers f",
        ("MembershipGranted", "granted membership in readers to reader"),
    ),
    "a membership given": SqlDrift(
        "GRANT writers TO reader",
        MEMBERSHIPS,
        "readers f",
        ("MembershipRevoked", "revoked membership in writers from reader"),
    ),
    "a membership with more": SqlDrift(
        "GRANT readers TO reader WITH ADMIN OPTION",
        MEMBERSHIPS,
        "readers f",
        ("MembershipRevoked", "revoked membership in readers from reader"),
    ),
    "superuser": SqlDrift(
        "ALTER ROLE reader SUPERUSER",
        ROLE.format("rolsuper"),
        "f",
        ("UserAltered", "altered user reader (superuser)"),
    ),
    "dropped": SqlDrift(
        "DROP OWNED BY reader; DROP ROLE reader",
        ROLE.format("count(*)"),
        "1",
        ("UserCreated", "created user reader"),
    ),
}


def test_sql_drift_is_reverted(three: ClusterUnderTest, record_property: Record) -> None:
    """Scenario 11: a grant is revoked behind the operator's back, and more."""
    place = three.namespace_client
    three.sql(BOOKS, "shop")
    for role in ("readers", "writers"):
        place.apply("DatabaseUser", role, three.reference(user=role, login=False))
        place.wait_reason("databaseuser", role, "ProvisionSucceeded")
    reader = user("reader", tables=True)
    place.apply(
        "DatabaseUser",
        "reader",
        {**reader, "grants": [*reader["grants"], *ON_BOOKS], "roles": [{"name": "readers"}]},
    )
    place.wait_reason("databaseuser", "reader", "ProvisionSucceeded")
    assert three.sql(SELECT_ON_KEPT, "shop") == "t"
    assert_reverted(three, "reader", HARM_TO_A_USER, "shop", record_property)
    for name, told_of in (("reader", "reader"), ("postgres", three.name)):
        verifier = f"SELECT rolpassword FROM pg_authid WHERE rolname = '{name}'"
        with place.expecting_events(told_of, "PasswordReset"):
            # At once: it may be healed before anybody looks again.
            changed = three.sql(f"ALTER ROLE {name} PASSWORD 'elsewhere'; {verifier}")
            began = time.monotonic()
            three.until(
                "the password is healed", lambda q=verifier, c=changed: three.sql(q) != c, RESTORED_WITHIN_SECONDS
            )
            record_property(f"password of {name}", round(time.monotonic() - began, 1))
    three.until("the grants are back", lambda: three.sql(SELECT_ON_KEPT, "shop") == "t", RESTORED_WITHIN_SECONDS)
    three.sql("ALTER ROLE reader SET synchronous_commit = off")
    said = three.wait_reason("NotForAllRoles", "Synchronous", RESTORED_WITHIN_SECONDS)["message"]
    assert "do not wait for a replica: role reader. " in said
    three.sql("ALTER ROLE reader RESET synchronous_commit")
    three.wait_reason("InSync", "Synchronous", RESTORED_WITHIN_SECONDS)


SCHEMA = "SELECT nspowner::regrole FROM pg_namespace WHERE nspname = '{}'"
EXTENSION = "SELECT extversion, extnamespace::regnamespace FROM pg_extension WHERE extname = 'pg_trgm'"
DATABASE = "SELECT datconnlimit, datdba::regrole FROM pg_database WHERE datname = 'stock'"
HARM_TO_A_DATABASE = {
    "a schema dropped": SqlDrift(
        "DROP SCHEMA shelf", SCHEMA.format("shelf"), "stock", ("SchemaCreated", "created schema shelf")
    ),
    "a schema given away": SqlDrift(
        "ALTER SCHEMA shelf OWNER TO postgres",
        SCHEMA.format("shelf"),
        "stock",
        ("OwnerRestored", "changed the owner of schema shelf of database stock from postgres back to stock"),
    ),
    "a keeper's schema dropped": SqlDrift(
        "DROP SCHEMA lent", SCHEMA.format("lent"), "keeper", ("SchemaCreated", "created schema lent")
    ),
    "a keeper's schema taken": SqlDrift(
        "ALTER SCHEMA lent OWNER TO stock",
        SCHEMA.format("lent"),
        "keeper",
        ("OwnerRestored", "changed the owner of schema lent of database stock from stock back to keeper"),
    ),
    "the schema public given away": SqlDrift(
        "ALTER SCHEMA public OWNER TO postgres",
        SCHEMA.format("public"),
        "pg_database_owner",
        ("GrantsRestored", "granted ALL on schema public of database stock to stock"),
    ),
    "a schema made that is not to be": SqlDrift(
        "CREATE SCHEMA brief",
        "SELECT count(*) FROM pg_namespace WHERE nspname = 'brief'",
        "0",
        ("SchemaDropped", "dropped schema brief"),
    ),
    "an extension dropped": SqlDrift(
        "DROP EXTENSION pg_trgm", EXTENSION, "1.5|tools", ("ExtensionCreated", "created extension pg_trgm")
    ),
    "an extension moved": SqlDrift(
        "ALTER EXTENSION pg_trgm SET SCHEMA public",
        EXTENSION,
        "1.5|tools",
        ("ExtensionMoved", "moved extension pg_trgm in database stock to schema tools"),
    ),
    "an extension of another version": SqlDrift(
        "DROP EXTENSION pg_trgm; CREATE EXTENSION pg_trgm SCHEMA tools VERSION '1.4'",
        EXTENSION,
        "1.5|tools",
        ("ExtensionUpdated", "updated extension pg_trgm in database stock from 1.4 to 1.5"),
    ),
    "an extension made that is not to be": SqlDrift(
        "CREATE EXTENSION citext",
        "SELECT count(*) FROM pg_extension WHERE extname = 'citext'",
        "0",
        ("ExtensionDropped", "dropped extension citext"),
    ),
    "another limit": SqlDrift(
        "ALTER DATABASE stock CONNECTION LIMIT 9",
        DATABASE,
        "7|stock",
        ("DatabaseAltered", "set stock's connection limit"),
    ),
    "nobody let in": SqlDrift(
        "ALTER DATABASE stock CONNECTION LIMIT 0",
        DATABASE,
        "7|stock",
        ("DatabaseOpened", "opened database stock to connections"),
    ),
    "given away": SqlDrift(
        "ALTER DATABASE stock OWNER TO keeper",
        DATABASE,
        "7|stock",
        ("OwnerRestored", "changed the owner of database stock from keeper back to stock"),
    ),
}


def test_database_drift_is_reverted(three: ClusterUnderTest, record_property: Record) -> None:
    place = three.namespace_client
    place.apply("DatabaseUser", "keeper", three.reference(user="keeper", login=False))
    place.wait_reason("databaseuser", "keeper", "ProvisionSucceeded")
    inside = {
        "connectionLimit": 7,
        "schemas": [
            *({"name": name} for name in ("shelf", "tools")),
            {"name": "lent", "owner": "keeper"},
            {"name": "brief", "ensure": "Absent"},
        ],
        "extensions": [
            {"name": "pg_trgm", "version": "1.5", "schema": "tools"},
            {"name": "citext", "ensure": "Absent"},
        ],
    }
    place.apply("Database", "stock", three.reference(deletionPolicy="Delete", **inside))
    place.wait_reason("database", "stock", "DatabaseReady")
    assert_reverted(three, "stock", HARM_TO_A_DATABASE, "stock", record_property)
    place.wait_reason("database", "stock", "DatabaseReady")
    place.kubectl("delete", "database", "stock", "--timeout=60s", seconds=70)
    place.kubectl("delete", "databaseuser", "keeper", "--timeout=60s", seconds=70)


def test_undeclared_grants_are_revoked(three: ClusterUnderTest, record_property: Record) -> None:
    place = three.namespace_client
    three.sql("CREATE DATABASE elsewhere")
    three.sql("CREATE TABLE found (n int)", "elsewhere")
    place.apply("DatabaseUser", "visitor", user("visitor"))
    place.wait_reason("databaseuser", "visitor", "ProvisionSucceeded")
    granted = "SELECT count(*) FROM {}, aclexplode({}) a WHERE {} AND a.grantee = 'visitor'::regrole"
    harm = {
        "on a table": ("GRANT DELETE ON found TO visitor", ("pg_class", "relacl", "relname = 'found'")),
        "on a database": (
            "GRANT CONNECT ON DATABASE elsewhere TO visitor",
            ("pg_database", "datacl", "datname = 'elsewhere'"),
        ),
    }
    for what, (statement, where) in harm.items():
        with place.expecting_events("visitor", ("GrantRevoked", "elsewhere")):
            three.sql(statement, "elsewhere")
            began = time.monotonic()
            three.until(
                f"what was granted {what} is revoked",
                lambda w=where: three.sql(granted.format(*w), "elsewhere") == "0",
                RESTORED_WITHIN_SECONDS,
            )
            record_property(f"{what}: seconds until it is revoked", round(time.monotonic() - began, 1))
    place.kubectl("delete", "databaseuser", "visitor", "--timeout=60s", seconds=70)
    three.sql("DROP DATABASE elsewhere")


def test_dropped_table_with_grant_is_reported(three: ClusterUnderTest) -> None:
    place = three.namespace_client
    three.sql("SET ROLE shop; CREATE TABLE brief (n int)", "shop")
    grants = [*user("finder")["grants"]]
    grants += [
        {"database": "shop", "schema": "public", "privileges": ["USAGE"]},
        {"database": "shop", "schema": "public", "tables": ["brief"], "privileges": ["SELECT"]},
    ]
    place.apply("DatabaseUser", "finder", {**user("finder"), "grants": grants})
    place.wait_reason("databaseuser", "finder", "ProvisionSucceeded")
    with place.expecting_events("finder", ("ProvisionFailed", "table shop.public.brief does not exist yet")):
        three.sql("DROP TABLE brief", "shop")
        place.wait_reason("databaseuser", "finder", "ProvisionFailed", seconds=RESTORED_WITHIN_SECONDS)
    three.sql("SET ROLE shop; CREATE TABLE brief (n int)", "shop")
    place.wait_reason("databaseuser", "finder", "ProvisionSucceeded", seconds=RESTORED_WITHIN_SECONDS)
    three.sql("DROP TABLE brief", "shop")
    place.kubectl("delete", "databaseuser", "finder", "--timeout=60s", seconds=70)


TRAPS = """
SET ROLE shop;
CREATE TABLE public.trapped (who name);
GRANT INSERT ON public.trapped TO PUBLIC;
CREATE FUNCTION public.spring() RETURNS void LANGUAGE plpgsql AS
  $$ BEGIN INSERT INTO public.trapped VALUES (current_user); END $$;
CREATE FUNCTION public.same(a oid, b oid) RETURNS boolean LANGUAGE plpgsql AS
  $$ BEGIN PERFORM public.spring(); RETURN a OPERATOR(pg_catalog.=) b; END $$;
CREATE OPERATOR public.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = public.same);
CREATE FUNCTION public.same(a name, b name) RETURNS boolean LANGUAGE plpgsql AS
  $$ BEGIN PERFORM public.spring(); RETURN a OPERATOR(pg_catalog.=) b; END $$;
CREATE OPERATOR public.= (LEFTARG = name, RIGHTARG = name, FUNCTION = public.same);
CREATE FUNCTION public.pg_get_userbyid(o oid) RETURNS name LANGUAGE plpgsql AS
  $$ BEGIN PERFORM public.spring(); RETURN pg_catalog.pg_get_userbyid(o); END $$;
CREATE FUNCTION public.format(f text, a text) RETURNS text LANGUAGE plpgsql AS
  $$ BEGIN PERFORM public.spring(); RETURN pg_catalog.format(f, a); END $$;
ALTER DATABASE shop SET search_path = public, pg_catalog;
"""


def test_planted_objects_do_not_run_as_superuser(three: ClusterUnderTest) -> None:
    """Scenario 17: a malicious owner hijacks the search_path."""
    place = three.namespace_client
    three.sql(TRAPS, "shop")
    three.sql("SELECT count(*) FROM pg_class WHERE oid = 1::oid AND relname = 'x'::name", "shop")
    caught = "SELECT string_agg(DISTINCT who::text, ',') FROM public.trapped"
    assert three.sql(caught, "shop") == "postgres", "the traps work"
    three.sql("TRUNCATE public.trapped", "shop")

    place.apply("DatabaseUser", "visitor", user("visitor", tables=True))
    place.wait_reason("databaseuser", "visitor", "ProvisionSucceeded")
    inside = {
        "clusterRef": {"name": "orders"},
        "deletionPolicy": "Delete",
        "schemas": [{"name": "stock"}],
        "extensions": [{"name": "plpgsql"}, {"name": "pg_trgm", "schema": "stock"}],
    }
    place.apply("Database", "shop", inside)
    extension = "SELECT count(*) FROM pg_catalog.pg_extension WHERE extname OPERATOR(pg_catalog.=) 'pg_trgm'"
    three.until("the extension is there", lambda: three.sql(extension, "shop") == "1", 60)
    place.wait_reason("database", "shop", "DatabaseReady")
    place.kubectl("delete", "databaseuser", "visitor", "--timeout=60s", seconds=70)
    assert three.sql("SELECT count(*) FROM public.trapped", "shop") == "0", three.sql(caught, "shop")
