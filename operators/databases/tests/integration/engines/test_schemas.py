"""Schemas of PostgreSQL and what of a database can change, as the server's own catalogues have it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from database_support.postgresql_administrators import CLAIM, DATABASE, OWNER, SHOP, At, role, user
from steersman_databases.engines.desired import DesiredExtension, DesiredSchema
from steersman_databases.engines.errors import ImmutableOnServer, ObjectsMissing, SqlFailed

BOOKS = 'the "books"; %s \\ ksiąg'
LONGEST = "é" * 31 + "y"
CLERK = "the clerk's"


async def schemas(at: At) -> dict[str, str]:
    found = await at.sql(
        "SELECT nspname, pg_get_userbyid(nspowner) FROM pg_namespace"
        " WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"
    )
    return dict(found)


async def test_schemas_come_change_hands_and_go(at: At) -> None:
    await at.make(user(CLERK))
    two = replace(DATABASE, schemas=(DesiredSchema(BOOKS), DesiredSchema(LONGEST, CLERK)))
    assert (await at.make(two)).count("SchemaCreated") == 2
    there = {"public": "pg_database_owner", BOOKS: OWNER.username, LONGEST: CLERK}
    assert await schemas(at) == there
    if at.rank != "modest":
        turned = replace(DATABASE, schemas=(DesiredSchema(BOOKS, CLERK), DesiredSchema(LONGEST)))
        assert await at.make(turned) == ["OwnerRestored", "OwnerRestored"]
        assert await schemas(at) == {**there, BOOKS: CLERK, LONGEST: OWNER.username}
        await at.sql("ALTER SCHEMA {} OWNER TO {}", BOOKS, at.postgresql.administrator.username)
        assert await at.make(turned) == ["OwnerRestored"]
        assert await at.make(two) == ["OwnerRestored", "OwnerRestored"]
    assert await at.make(DATABASE) == [], "schemas that are not declared are left alone"
    gone = (DesiredSchema(BOOKS, present=False), DesiredSchema(LONGEST, present=False))
    assert await at.make(replace(DATABASE, schemas=gone)) == ["SchemaDropped", "SchemaDropped"]
    assert await schemas(at) == {"public": "pg_database_owner"}


INSIDE = {
    "TABLE": "CREATE TABLE {}.entries (id int)",
    "VIEW": "CREATE VIEW {}.entries AS SELECT 1 AS one",
    "TYPE": "CREATE TYPE {}.entries AS ENUM ('red')",
    "FUNCTION": "CREATE FUNCTION {}.entries() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "COLLATION": 'CREATE COLLATION {}.entries FROM "C"',
}


async def test_a_schema_with_something_in_it_is_never_dropped(at: At) -> None:
    await at.make(replace(DATABASE, schemas=(DesiredSchema(BOOKS),)))
    wanted = replace(DATABASE, schemas=(DesiredSchema(BOOKS, present=False),))
    for kind, statement in INSIDE.items():
        await at.sql(statement, BOOKS, who=OWNER)
        with pytest.raises(SqlFailed, match=rf"dropping schema .* {kind.lower()} .*entries.* depends on"):
            await at.make(wanted)
        await at.sql(f"DROP {kind} {{}}.entries", BOOKS, who=OWNER)
    await at.sql(INSIDE["TABLE"], BOOKS, who=OWNER)
    with pytest.raises(SqlFailed, match="depends on") as caught:
        await at.make(replace(wanted, schemas=(*wanted.schemas, DesiredSchema("till"))))
    assert [change.reason for change in caught.value.changes] == ["SchemaCreated"], "the rest is done"
    await at.sql("DROP TABLE {}.entries", BOOKS, who=OWNER)
    assert await at.make(wanted) == ["SchemaDropped"]


async def test_the_schema_public_goes_too_and_comes_back(at: At) -> None:
    await at.make(DATABASE)
    assert await at.make(replace(DATABASE, schemas=(DesiredSchema("public", present=False),))) == ["SchemaDropped"]
    assert await schemas(at) == {} or await schemas(at) == []
    assert await at.make(replace(DATABASE, schemas=(DesiredSchema("public"),))) == ["SchemaCreated"]


async def test_a_schema_public_of_a_group_is_its_members_to_use(at: At) -> None:
    await at.make(role("team"))
    await at.make(DATABASE)
    at.postgresql.administer("GRANT team TO {}", OWNER.username)
    await at.sql("ALTER SCHEMA public OWNER TO team")
    assert await at.make(DATABASE) == []
    await at.sql("REVOKE CREATE ON SCHEMA public FROM team")
    assert await at.make(DATABASE) == ["GrantsRestored"]
    await at.sql("CREATE TABLE public.entries ()", who=OWNER)


async def test_an_empty_schema_of_somebody_else_goes_as_its_owners_would(at: At) -> None:
    if at.rank == "modest":
        return
    await at.make(DATABASE)
    await at.sql("CREATE SCHEMA {} AUTHORIZATION {}", BOOKS, at.postgresql.administrator.username)
    assert await at.make(replace(DATABASE, schemas=(DesiredSchema(BOOKS, present=False),))) == ["SchemaDropped"]


async def test_a_schema_is_left_before_it_goes(at: At) -> None:
    """In one go: the extension moves out, and then nothing is in the schema."""
    trusted = DesiredExtension("pg_trgm", schema=BOOKS)
    await at.make(replace(DATABASE, schemas=(DesiredSchema(BOOKS),), extensions=(trusted,)))
    moved = replace(
        DATABASE,
        schemas=(DesiredSchema(BOOKS, present=False), DesiredSchema("till")),
        extensions=(replace(trusted, schema="till"),),
    )
    if at.rank == "modest":
        with pytest.raises(SqlFailed, match=r"moving extension pg_trgm .* must be owner of function"):
            await at.make(moved)
        return
    assert await at.make(moved) == ["SchemaCreated", "ExtensionMoved", "SchemaDropped"]


async def test_the_owner_of_a_schema_is_waited_for(at: At) -> None:
    wanted = replace(DATABASE, schemas=(DesiredSchema(BOOKS, CLERK), DesiredSchema("till")))
    with pytest.raises(ObjectsMissing, match=f"role {CLERK}, the owner of schema"):
        await at.make(wanted)
    assert "till" in await schemas(at)
    await at.make(role(CLERK))
    assert await at.make(wanted) == ["SchemaCreated"]


MADE = """
SELECT pg_encoding_to_char(encoding), datcollate, datctype, datconnlimit, pg_get_userbyid(datdba)
FROM pg_database WHERE datname LIKE 'the "shop"%'
"""


async def test_what_a_database_is_made_with_stays(at: At) -> None:
    latin = replace(DATABASE, encoding="latin-1", collation="C", character_type="POSIX")
    await at.make(latin)
    assert at.postgresql.administer(MADE) == [("LATIN1", "C", "C", -1, OWNER.username)]
    for field, value in (("encoding", "UTF8"), ("collation", "C.UTF-8"), ("character_type", "C.UTF-8")):
        with pytest.raises(ImmutableOnServer, match=r'" on the server and "'):
            await at.make(replace(latin, **{field: value}))
    assert await at.make(replace(latin, encoding="iso88591")) == []
    assert await at.make(replace(latin, encoding=None)) == [], "what is not said is not looked at"
    assert await at.make(replace(latin, template="template1")) == []


async def test_a_collation_brings_its_letters(at: At) -> None:
    await at.make(replace(DATABASE, collation="C"))
    assert at.postgresql.administer(MADE)[0][1:3] == ("C", "C")


async def test_what_no_database_can_be_is_told(at: At) -> None:
    for fields in ({"encoding": "KLINGON"}, {"collation": "tlh_QO"}, {"template": "nowhere"}):
        with pytest.raises(SqlFailed, match=r"KLINGON|tlh_QO|nowhere"):
            await at.make(replace(DATABASE, **fields))
        assert at.postgresql.administer(MADE) == []


async def test_the_connection_limit_is_changed_back_and_healed(at: At) -> None:
    for limit in (3, -1, 5):
        await at.make(replace(DATABASE, connection_limit=limit))
        assert at.postgresql.administer(MADE)[0][3] == limit
    at.postgresql.administer("ALTER DATABASE {} CONNECTION LIMIT 9", SHOP)
    assert await at.make(replace(DATABASE, connection_limit=5)) == ["DatabaseAltered"]
    at.postgresql.administer("ALTER DATABASE {} CONNECTION LIMIT 0", SHOP)
    assert await at.make(DATABASE) == ["DatabaseOpened"]
    assert at.postgresql.administer(MADE)[0][3] == -1


async def test_a_copy_has_what_its_template_has(at: At) -> None:
    await at.make(DATABASE)
    await at.sql("CREATE TABLE goods (id int)", who=OWNER)
    copy = replace(DATABASE, name="a copy", template=SHOP)
    await at.hang_up()
    if at.rank == "operator":
        with pytest.raises(SqlFailed, match="permission denied to copy database"):
            await at.make(copy)
        at.postgresql.administer("ALTER DATABASE {} IS_TEMPLATE true", SHOP)
    assert await at.make(copy) == ["DatabaseCreated", "PublicAccessRevoked"]
    at.postgresql.administer("ALTER DATABASE {} IS_TEMPLATE false", SHOP)
    await at.sql("INSERT INTO goods VALUES (1)", who=OWNER, database="a copy")


async def test_no_owner_makes_a_template_of_it(at: At) -> None:
    """Nobody could drop it, and whoever may create databases could copy it."""
    await at.make(DATABASE)
    for _ in range(2):
        await at.sql("ALTER DATABASE {} IS_TEMPLATE true", SHOP, who=OWNER)
        assert await at.make(DATABASE) == ["DatabaseAltered"]
    at.postgresql.administer("ALTER DATABASE {} IS_TEMPLATE true CONNECTION LIMIT 0", SHOP)
    assert await at.make(DATABASE) == ["DatabaseAltered", "DatabaseOpened"]
    at.postgresql.administer("ALTER DATABASE {} IS_TEMPLATE true", SHOP)
    assert await at.drop_database(replace(CLAIM, name="another")) == []
    assert await at.drop_database() == ["DatabaseDropped"]


async def test_another_owner_gets_the_database_and_what_is_in_it(at: At) -> None:
    await at.make(replace(DATABASE, schemas=(DesiredSchema(BOOKS),)))
    await at.sql("CREATE TABLE goods (id int)", who=OWNER)
    # Who is to be replaced may try to be in the way: by its types alone either of these names both.
    await at.sql("CREATE FUNCTION goods(int, int) RETURNS int LANGUAGE sql AS 'SELECT 1'", who=OWNER)
    await at.sql("CREATE PROCEDURE goods(int, OUT int) LANGUAGE sql AS 'SELECT 1'", who=OWNER)
    await at.make(user(CLERK, claim=CLAIM))
    await at.make(replace(DATABASE, owner=CLERK, schemas=(DesiredSchema(BOOKS),)))
    assert at.postgresql.administer(MADE)[0][4] == CLERK
    owners = "SELECT relname, pg_get_userbyid(relowner) FROM pg_class WHERE relname = 'goods'"
    assert await at.sql(owners) == [("goods", CLERK)]
    routines = "SELECT DISTINCT pg_get_userbyid(proowner) FROM pg_proc WHERE proname = 'goods'"
    assert await at.sql(routines) == CLERK
    assert await schemas(at) == {"public": "pg_database_owner", BOOKS: CLERK}


async def test_a_database_is_dropped_whoever_is_in_it(at: At) -> None:
    await at.make(DATABASE)
    await at.sql("CREATE TABLE goods (id int)", who=OWNER)
    assert await at.drop_database(replace(CLAIM, name="another")) == []
    assert await at.drop_database() == ["DatabaseDropped"]
    assert at.postgresql.administer(MADE) == []
    assert await at.drop_database() == []
