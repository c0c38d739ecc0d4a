"""Schemas of PostgreSQL and what of a database can change, as the server's own catalogues have it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from database_support.servers.postgresql_admins import DATABASE, MARK, OWNER, SHOP, PostgreSQLHarness, role, user
from steersman_databases.engines.errors import ImmutableProperty, ObjectsMissing, SqlFailed
from steersman_databases.engines.sql.desired import DesiredExtension, DesiredSchema

BOOKS = 'the "books"; %s \\ ksiąg'
LONGEST = "é" * 31 + "y"
CLERK = "the clerk's"


async def schemas(at: PostgreSQLHarness) -> dict[str, str]:
    found = await at.sql(
        "SELECT nspname, pg_get_userbyid(nspowner) FROM pg_namespace"
        " WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"
    )
    return dict(found)


async def test_schemas_created_reassigned_and_dropped(at: PostgreSQLHarness) -> None:
    await at.reconcile(user(CLERK))
    two = replace(DATABASE, schemas=(DesiredSchema(BOOKS), DesiredSchema(LONGEST, CLERK)))
    assert (await at.reconcile(two)).count("SchemaCreated") == 2
    there = {"public": "pg_database_owner", BOOKS: OWNER.username, LONGEST: CLERK}
    assert await schemas(at) == there
    if at.rank != "modest":
        turned = replace(DATABASE, schemas=(DesiredSchema(BOOKS, CLERK), DesiredSchema(LONGEST)))
        assert await at.reconcile(turned) == ["OwnerRestored", "OwnerRestored"]
        assert await schemas(at) == {**there, BOOKS: CLERK, LONGEST: OWNER.username}
        await at.sql("ALTER SCHEMA {} OWNER TO {}", BOOKS, at.postgresql.administrator.username)
        assert await at.reconcile(turned) == ["OwnerRestored"]
        assert await at.reconcile(two) == ["OwnerRestored", "OwnerRestored"]
    assert await at.reconcile(DATABASE) == [], "schemas that are not declared are left alone"
    gone = (DesiredSchema(BOOKS, present=False), DesiredSchema(LONGEST, present=False))
    assert await at.reconcile(replace(DATABASE, schemas=gone)) == ["SchemaDropped", "SchemaDropped"]
    assert await schemas(at) == {"public": "pg_database_owner"}


INSIDE = {
    "TABLE": "CREATE TABLE {}.entries (id int)",
    "VIEW": "CREATE VIEW {}.entries AS SELECT 1 AS one",
    "TYPE": "CREATE TYPE {}.entries AS ENUM ('red')",
    "FUNCTION": "CREATE FUNCTION {}.entries() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "COLLATION": 'CREATE COLLATION {}.entries FROM "C"',
}


async def test_non_empty_schema_is_not_dropped(at: PostgreSQLHarness) -> None:
    await at.reconcile(replace(DATABASE, schemas=(DesiredSchema(BOOKS),)))
    wanted = replace(DATABASE, schemas=(DesiredSchema(BOOKS, present=False),))
    for kind, statement in INSIDE.items():
        await at.sql(statement, BOOKS, who=OWNER)
        with pytest.raises(SqlFailed, match=rf"dropping schema .* {kind.lower()} .*entries.* depends on"):
            await at.reconcile(wanted)
        await at.sql(f"DROP {kind} {{}}.entries", BOOKS, who=OWNER)
    await at.sql(INSIDE["TABLE"], BOOKS, who=OWNER)
    with pytest.raises(SqlFailed, match="depends on") as caught:
        await at.reconcile(replace(wanted, schemas=(*wanted.schemas, DesiredSchema("till"))))
    assert [change.reason for change in caught.value.changes] == ["SchemaCreated"], "the rest is done"
    await at.sql("DROP TABLE {}.entries", BOOKS, who=OWNER)
    assert await at.reconcile(wanted) == ["SchemaDropped"]


async def test_public_schema_is_dropped_and_recreated(at: PostgreSQLHarness) -> None:
    await at.reconcile(DATABASE)
    assert await at.reconcile(replace(DATABASE, schemas=(DesiredSchema("public", present=False),))) == [
        "SchemaDropped"
    ]
    assert await schemas(at) == {} or await schemas(at) == []
    assert await at.reconcile(replace(DATABASE, schemas=(DesiredSchema("public"),))) == ["SchemaCreated"]


async def test_public_schema_owned_by_group_is_usable(at: PostgreSQLHarness) -> None:
    await at.reconcile(role("team"))
    await at.reconcile(DATABASE)
    at.postgresql.administer("GRANT team TO {}", OWNER.username)
    await at.sql("ALTER SCHEMA public OWNER TO team")
    assert await at.reconcile(DATABASE) == []
    await at.sql("REVOKE CREATE ON SCHEMA public FROM team")
    assert await at.reconcile(DATABASE) == ["GrantsRestored"]
    await at.sql("CREATE TABLE public.entries ()", who=OWNER)


async def test_empty_foreign_schema_is_dropped(at: PostgreSQLHarness) -> None:
    if at.rank == "modest":
        return
    await at.reconcile(DATABASE)
    await at.sql("CREATE SCHEMA {} AUTHORIZATION {}", BOOKS, at.postgresql.administrator.username)
    assert await at.reconcile(replace(DATABASE, schemas=(DesiredSchema(BOOKS, present=False),))) == ["SchemaDropped"]


async def test_schema_is_not_in_use_when_dropped(at: PostgreSQLHarness) -> None:
    """In one go: the extension moves out, and then nothing is in the schema."""
    trusted = DesiredExtension("pg_trgm", schema=BOOKS)
    await at.reconcile(replace(DATABASE, schemas=(DesiredSchema(BOOKS),), extensions=(trusted,)))
    moved = replace(
        DATABASE,
        schemas=(DesiredSchema(BOOKS, present=False), DesiredSchema("till")),
        extensions=(replace(trusted, schema="till"),),
    )
    if at.rank == "modest":
        with pytest.raises(SqlFailed, match=r"moving extension pg_trgm .* must be owner of function"):
            await at.reconcile(moved)
        return
    assert await at.reconcile(moved) == ["SchemaCreated", "ExtensionMoved", "SchemaDropped"]


async def test_missing_schema_owner_is_waited_for(at: PostgreSQLHarness) -> None:
    wanted = replace(DATABASE, schemas=(DesiredSchema(BOOKS, CLERK), DesiredSchema("till")))
    with pytest.raises(ObjectsMissing, match=f"role {CLERK}, the owner of schema"):
        await at.reconcile(wanted)
    assert "till" in await schemas(at)
    await at.reconcile(role(CLERK))
    assert await at.reconcile(wanted) == ["SchemaCreated"]


MADE = """
SELECT pg_encoding_to_char(encoding), datcollate, datctype, datconnlimit, pg_get_userbyid(datdba)
FROM pg_database WHERE datname LIKE 'the "shop"%'
"""


async def test_creation_options_are_immutable(at: PostgreSQLHarness) -> None:
    latin = replace(DATABASE, encoding="latin-1", collation="C", character_type="POSIX")
    await at.reconcile(latin)
    assert at.postgresql.administer(MADE) == [("LATIN1", "C", "C", -1, OWNER.username)]
    for field, value in (("encoding", "UTF8"), ("collation", "C.UTF-8"), ("character_type", "C.UTF-8")):
        with pytest.raises(ImmutableProperty, match=r'" on the server and "'):
            await at.reconcile(replace(latin, **{field: value}))
    assert await at.reconcile(replace(latin, encoding="iso88591")) == []
    assert await at.reconcile(replace(latin, encoding=None)) == [], "what is not said is not looked at"
    assert await at.reconcile(replace(latin, template="template1")) == []


async def test_collation_implies_encoding(at: PostgreSQLHarness) -> None:
    await at.reconcile(replace(DATABASE, collation="C"))
    assert at.postgresql.administer(MADE)[0][1:3] == ("C", "C")


async def test_impossible_options_are_reported(at: PostgreSQLHarness) -> None:
    for fields in ({"encoding": "KLINGON"}, {"collation": "tlh_QO"}, {"template": "nowhere"}):
        with pytest.raises(SqlFailed, match=r"KLINGON|tlh_QO|nowhere"):
            await at.reconcile(replace(DATABASE, **fields))
        assert at.postgresql.administer(MADE) == []


async def test_connection_limit_set_changed_and_restored(at: PostgreSQLHarness) -> None:
    for limit in (3, -1, 5):
        await at.reconcile(replace(DATABASE, connection_limit=limit))
        assert at.postgresql.administer(MADE)[0][3] == limit
    at.postgresql.administer("ALTER DATABASE {} CONNECTION LIMIT 9", SHOP)
    assert await at.reconcile(replace(DATABASE, connection_limit=5)) == ["DatabaseAltered"]
    at.postgresql.administer("ALTER DATABASE {} CONNECTION LIMIT 0", SHOP)
    assert await at.reconcile(DATABASE) == ["DatabaseOpened"]
    assert at.postgresql.administer(MADE)[0][3] == -1


async def test_template_is_copied(at: PostgreSQLHarness) -> None:
    await at.reconcile(DATABASE)
    await at.sql("CREATE TABLE goods (id int)", who=OWNER)
    copy = replace(DATABASE, name="a copy", template=SHOP)
    await at.close_connections()
    if at.rank == "operator":
        with pytest.raises(SqlFailed, match="permission denied to copy database"):
            await at.reconcile(copy)
        at.postgresql.administer("ALTER DATABASE {} IS_TEMPLATE true", SHOP)
    assert await at.reconcile(copy) == ["DatabaseCreated", "PublicAccessRevoked"]
    at.postgresql.administer("ALTER DATABASE {} IS_TEMPLATE false", SHOP)
    await at.sql("INSERT INTO goods VALUES (1)", who=OWNER, database="a copy")


async def test_owner_cannot_make_template(at: PostgreSQLHarness) -> None:
    """Nobody could drop it, and whoever may create databases could copy it."""
    await at.reconcile(DATABASE)
    for _ in range(2):
        await at.sql("ALTER DATABASE {} IS_TEMPLATE true", SHOP, who=OWNER)
        assert await at.reconcile(DATABASE) == ["DatabaseAltered"]
    at.postgresql.administer("ALTER DATABASE {} IS_TEMPLATE true CONNECTION LIMIT 0", SHOP)
    assert await at.reconcile(DATABASE) == ["DatabaseAltered", "DatabaseOpened"]
    at.postgresql.administer("ALTER DATABASE {} IS_TEMPLATE true", SHOP)
    assert await at.drop_database(replace(MARK, name="another")) == []
    assert await at.drop_database() == ["DatabaseDropped"]


async def test_owner_change_transfers_database_objects(at: PostgreSQLHarness) -> None:
    await at.reconcile(replace(DATABASE, schemas=(DesiredSchema(BOOKS),)))
    await at.sql("CREATE TABLE goods (id int)", who=OWNER)
    # Who is to be replaced may try to be in the way: by its types alone either of these names both.
    await at.sql("CREATE FUNCTION goods(int, int) RETURNS int LANGUAGE sql AS 'SELECT 1'", who=OWNER)
    await at.sql("CREATE PROCEDURE goods(int, OUT int) LANGUAGE sql AS 'SELECT 1'", who=OWNER)
    await at.reconcile(user(CLERK, mark=MARK))
    await at.reconcile(replace(DATABASE, owner=CLERK, schemas=(DesiredSchema(BOOKS),)))
    assert at.postgresql.administer(MADE)[0][4] == CLERK
    owners = "SELECT relname, pg_get_userbyid(relowner) FROM pg_class WHERE relname = 'goods'"
    assert await at.sql(owners) == [("goods", CLERK)]
    routines = "SELECT DISTINCT pg_get_userbyid(proowner) FROM pg_proc WHERE proname = 'goods'"
    assert await at.sql(routines) == CLERK
    assert await schemas(at) == {"public": "pg_database_owner", BOOKS: CLERK}


async def test_database_with_sessions_is_dropped(at: PostgreSQLHarness) -> None:
    await at.reconcile(DATABASE)
    await at.sql("CREATE TABLE goods (id int)", who=OWNER)
    assert await at.drop_database(replace(MARK, name="another")) == []
    assert await at.drop_database() == ["DatabaseDropped"]
    assert at.postgresql.administer(MADE) == []
    assert await at.drop_database() == []
