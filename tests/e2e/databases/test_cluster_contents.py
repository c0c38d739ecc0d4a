"""What is inside a cluster: two who want the same, somebody who changes it by hand, somebody who sets traps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from cluster_under_test import ClusterUnderTest

pytestmark = pytest.mark.xdist_group("cluster-contents")

HEALED_WITHIN = 30.0


def user(name: str, *, tables: bool = False) -> dict[str, Any]:
    grants: list[dict[str, Any]] = [{"database": "shop", "privileges": ["CONNECT"]}]
    if tables:
        grants += [
            {"database": "shop", "schema": "public", "privileges": ["USAGE"]},
            {"database": "shop", "schema": "public", "tables": ["*"], "privileges": ["SELECT"], "future": True},
        ]
    return {"clusterRef": {"name": "orders"}, "user": name, "grants": grants}


def test_the_older_of_two_objects_keeps_the_role(three: ClusterUnderTest) -> None:
    """Scenario 9: two objects claim one role."""
    place = three.place
    place.declare("DatabaseUser", "first", user("clerk"))
    place.wait_reason("databaseuser", "first", "ProvisionSucceeded")
    password = "SELECT rolpassword FROM pg_authid WHERE rolname = 'clerk'"
    before = three.sql(password)

    place.declare("DatabaseUser", "second", user("clerk"))
    said = place.wait_reason("databaseuser", "second", "ProvisionFailed")
    assert "first" in said["message"]
    assert place.condition("databaseuser", "first")["status"] == "True"
    assert three.sql(password) == before
    assert not place.get("secret", "second-user")

    # Who never had it takes nothing along.
    place.kubectl("delete", "databaseuser", "second", "--timeout=60s", seconds=70)
    assert three.sql(password) == before
    place.declare("DatabaseUser", "third", user("clerk"))
    place.wait_reason("databaseuser", "third", "ProvisionFailed")
    place.kubectl("delete", "databaseuser", "first", "--timeout=60s", seconds=70)
    place.wait_reason("databaseuser", "third", "ProvisionSucceeded")
    assert three.sql(password) not in ("", before)
    place.kubectl("delete", "databaseuser", "third", "--timeout=60s", seconds=70)
    assert three.sql("SELECT count(*) FROM pg_roles WHERE rolname = 'clerk'") == "0"


def test_what_was_changed_behind_our_back_is_healed(
    three: ClusterUnderTest, record_property: Callable[[str, object], None]
) -> None:
    """Scenario 11: a grant is revoked behind the operator's back, and more."""
    place = three.place
    three.sql("SET ROLE shop; CREATE TABLE kept (n int); CREATE TABLE hidden (n int)", "shop")
    place.declare("DatabaseUser", "reader", user("reader", tables=True))
    place.wait_reason("databaseuser", "reader", "ProvisionSucceeded")
    has = "SELECT has_table_privilege('reader', 'kept', '{}')"
    assert three.sql(has.format("SELECT"), "shop") == "t"
    harm = {
        "revoked": ("REVOKE SELECT ON kept FROM reader", has.format("SELECT"), "t", "Granted"),
        "granted": ("GRANT DELETE ON kept TO reader", has.format("DELETE"), "f", "GrantRevoked"),
        "a new table": (
            "SET ROLE shop; CREATE TABLE later (n int); REVOKE ALL ON later FROM reader",
            has.format("SELECT").replace("kept", "later"),
            "t",
            "Granted",
        ),
        "superuser": (
            "ALTER ROLE reader SUPERUSER",
            "SELECT rolsuper FROM pg_roles WHERE rolname = 'reader'",
            "f",
            "UserAltered",
        ),
        "dropped": (
            "DROP OWNED BY reader; DROP ROLE reader",
            "SELECT count(*) FROM pg_roles WHERE rolname = 'reader'",
            "1",
            "UserCreated",
        ),
    }
    for what, (statement, question, wanted, reason) in harm.items():
        with place.telling("reader", reason):
            three.sql(statement, "shop")
            began = time.monotonic()
            three.until(f"{what} is healed", lambda q=question, w=wanted: three.sql(q, "shop") == w, HEALED_WITHIN)
            record_property(what, round(time.monotonic() - began, 1))
    for name, told_of in (("reader", "reader"), ("postgres", three.name)):
        verifier = f"SELECT rolpassword FROM pg_authid WHERE rolname = '{name}'"
        with place.telling(told_of, "PasswordReset"):
            three.sql(f"ALTER ROLE {name} PASSWORD 'elsewhere'")
            changed, began = three.sql(verifier), time.monotonic()
            three.until("the password is healed", lambda q=verifier, c=changed: three.sql(q) != c, HEALED_WITHIN)
            record_property(f"password of {name}", round(time.monotonic() - began, 1))
    three.until("the grants are back", lambda: three.sql(has.format("SELECT"), "shop") == "t", HEALED_WITHIN)
    three.sql("ALTER ROLE reader SET synchronous_commit = off")
    said = three.wait_reason("NotForAll", "Synchronous", HEALED_WITHIN)["message"]
    assert "wait for no replica: role reader: " in said
    three.sql("ALTER ROLE reader RESET synchronous_commit")
    three.wait_reason("InSync", "Synchronous", HEALED_WITHIN)


def test_what_is_granted_where_nothing_is_declared_is_revoked(
    three: ClusterUnderTest, record_property: Callable[[str, object], None]
) -> None:
    place = three.place
    three.sql("CREATE DATABASE elsewhere")
    three.sql("CREATE TABLE found (n int)", "elsewhere")
    place.declare("DatabaseUser", "visitor", user("visitor"))
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
        with place.telling("visitor", ("GrantRevoked", "elsewhere")):
            three.sql(statement, "elsewhere")
            began = time.monotonic()
            three.until(
                f"what was granted {what} is revoked",
                lambda w=where: three.sql(granted.format(*w), "elsewhere") == "0",
                HEALED_WITHIN,
            )
            record_property(f"{what}: seconds until it is revoked", round(time.monotonic() - began, 1))
    place.kubectl("delete", "databaseuser", "visitor", "--timeout=60s", seconds=70)
    three.sql("DROP DATABASE elsewhere")


def test_a_table_that_is_granted_and_gone_is_told(three: ClusterUnderTest) -> None:
    place = three.place
    three.sql("SET ROLE shop; CREATE TABLE brief (n int)", "shop")
    grants = [*user("finder")["grants"]]
    grants += [
        {"database": "shop", "schema": "public", "privileges": ["USAGE"]},
        {"database": "shop", "schema": "public", "tables": ["brief"], "privileges": ["SELECT"]},
    ]
    place.declare("DatabaseUser", "finder", {**user("finder"), "grants": grants})
    place.wait_reason("databaseuser", "finder", "ProvisionSucceeded")
    with place.telling("finder", ("ProvisionFailed", "table shop.public.brief is not there yet")):
        three.sql("DROP TABLE brief", "shop")
        place.wait_reason("databaseuser", "finder", "ProvisionFailed", seconds=HEALED_WITHIN)
    three.sql("SET ROLE shop; CREATE TABLE brief (n int)", "shop")
    place.wait_reason("databaseuser", "finder", "ProvisionSucceeded", seconds=HEALED_WITHIN)
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


def test_an_owners_traps_catch_nobody_of_ours(three: ClusterUnderTest) -> None:
    """Scenario 17: a malicious owner hijacks the search_path."""
    place = three.place
    three.sql(TRAPS, "shop")
    three.sql("SELECT count(*) FROM pg_class WHERE oid = 1::oid AND relname = 'x'::name", "shop")
    caught = "SELECT string_agg(DISTINCT who::text, ',') FROM public.trapped"
    assert three.sql(caught, "shop") == "postgres", "the traps work"
    three.sql("TRUNCATE public.trapped", "shop")

    place.declare("DatabaseUser", "visitor", user("visitor", tables=True))
    place.wait_reason("databaseuser", "visitor", "ProvisionSucceeded")
    inside = {
        "clusterRef": {"name": "orders"},
        "deletionPolicy": "Delete",
        "schemas": [{"name": "stock"}],
        "extensions": [{"name": "plpgsql"}, {"name": "pg_trgm", "schema": "stock"}],
    }
    place.declare("Database", "shop", inside)
    extension = "SELECT count(*) FROM pg_catalog.pg_extension WHERE extname OPERATOR(pg_catalog.=) 'pg_trgm'"
    three.until("the extension is there", lambda: three.sql(extension, "shop") == "1", 60)
    place.wait_reason("database", "shop", "DatabaseReady")
    place.kubectl("delete", "databaseuser", "visitor", "--timeout=60s", seconds=70)
    assert three.sql("SELECT count(*) FROM public.trapped", "shop") == "0", three.sql(caught, "shop")
