from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from steersman_databases.engines import ENGINES, InvalidName
from steersman_databases.engines.desired import (
    DesiredDatabase,
    DesiredExtension,
    DesiredGrant,
    DesiredMembership,
    DesiredSchema,
    DesiredUser,
    ObjectKind,
)
from steersman_databases.engines.errors import NotSupported


def check(engine: str, database: str, username: str) -> None:
    """As of a server whose administrator is the-administrator."""
    ENGINES[engine].check(DesiredUser(username, "any"), "the-administrator")
    ENGINES[engine].check(DesiredDatabase(database, username), "the-administrator")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["orders", "Orders", "or-ders", "o r", "o\"`';--", "заказы", "50%_", "select"])
def test_ordinary_names_are_taken(engine: str, name: str) -> None:
    check(engine, name, name)


REFUSED = [
    ("postgresql", "databaseName", "postgres", "keeps this database"),
    ("postgresql", "databaseName", "template0", "keeps this database"),
    ("postgresql", "databaseName", "template1", "keeps this database"),
    ("postgresql", "databaseName", "d" * 64, "64 bytes"),
    ("postgresql", "databaseName", "é" * 32, "64 bytes"),
    ("postgresql", "username", "u" * 64, "64 bytes"),
    ("postgresql", "username", "postgres", "keeps this role"),
    ("postgresql", "username", "public", "keeps this role"),
    ("postgresql", "username", "none", "keeps this role"),
    ("postgresql", "username", "pg_monitor", '"pg_"'),
    ("postgresql", "username", "pg_anything", '"pg_"'),
    ("postgresql", "username", "clerk~", "the second login of users"),
    ("mysql", "databaseName", "mysql", "keeps this database"),
    ("mysql", "databaseName", "sys", "keeps this database"),
    ("mysql", "databaseName", "Information_Schema", "keeps this database"),
    ("mysql", "databaseName", "performance_schema", "keeps this database"),
    ("mysql", "databaseName", "d" * 65, "65 characters"),
    ("mysql", "databaseName", "#mysql50#x", "file name"),
    ("mysql", "databaseName", '"' * 52, "directory"),
    ("mysql", "databaseName", "shop ", "spaces at the end"),
    ("mysql", "databaseName", "shop😀", "U+1F600"),
    ("mysql", "username", "u" * 33, "33 characters"),
    ("mysql", "username", "root", "keeps this user"),
    # The server lists its own threads, and clients that are logging in, under these.
    ("mysql", "username", "event_scheduler", "keeps this user"),
    ("mysql", "username", "system user", "keeps this user"),
    ("mysql", "username", "unauthenticated user", "keeps this user"),
    ("mysql", "username", "delayed", "keeps this user"),
    ("mysql", "username", "mysql.sys", "keeps this user"),
    ("mysql", "username", "mariadb.sys", "keeps this user"),
    ("mysql", "username", "clerk ", "spaces at the end"),
    *[
        (engine, field, name, reason)
        for engine in ENGINES
        for field in ("databaseName", "username")
        for name, reason in (
            ("", "empty"),
            ("nul\0", "U+0000"),
            ("new\nline", "U+000A"),
            ("half\ud800", "half a character"),
        )
    ],
    *[(engine, "username", "the-administrator", "administrator") for engine in ENGINES],
]


@pytest.mark.parametrize(("engine", "field", "name", "reason"), REFUSED)
def test_name_is_refused_with_the_reason(engine: str, field: str, name: str, reason: str) -> None:
    names = {"databaseName": "shop", "username": "clerk", field: name}
    with pytest.raises(InvalidName) as caught:
        check(engine, names["databaseName"], names["username"])
    assert caught.value.field == field
    assert reason in caught.value.reason
    assert field in str(caught.value)
    str(caught.value).encode()


@pytest.mark.parametrize(
    ("engine", "database", "username"),
    [
        ("postgresql", "d" * 63, "u" * 63),
        ("postgresql", "é" * 31 + "d", "😀" * 15),
        ("postgresql", "Template0", "Postgres"),
        ("mysql", "d" * 64, "u" * 32),
        ("mysql", '"' * 51, "é" * 32),
    ],
)
def test_longest_names_are_taken(engine: str, database: str, username: str) -> None:
    check(engine, database, username)


IN_GRANTS = [
    {"database": "sh\0op"},
    {"schema": "pub\0lic"},
    {"names": ("till\0",)},
    {"columns": ("co\0in",)},
    {"created_by": ("own\0er",)},
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("given", IN_GRANTS, ids=lambda given: next(iter(given)))
def test_a_grant_about_what_no_server_can_have_never_reaches_one(engine: str, given: dict[str, Any]) -> None:
    """It would fail in the one look that all who want something there share."""
    grant = DesiredGrant("shop", frozenset({"SELECT"}), ObjectKind.TABLE, names=("till",))
    with pytest.raises(InvalidName, match=r"U\+0000"):
        ENGINES[engine].check(DesiredUser("clerk", "s3cret", grants=(replace(grant, **given),)), "the-administrator")


def test_the_owner_of_a_schema_has_a_name_that_a_role_can_have() -> None:
    desired = DesiredDatabase("shop", "clerk", schemas=(DesiredSchema("till", owner="o" * 64),))
    with pytest.raises(InvalidName, match="64 bytes"):
        ENGINES["postgresql"].check(desired, "the-administrator")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("field", ["character_type", "collation", "encoding", "template"])
def test_how_a_database_is_made_is_told_in_words_that_a_server_can_read(engine: str, field: str) -> None:
    desired = replace(DesiredDatabase("shop", "clerk"), **{field: "C\0"})
    with pytest.raises((InvalidName, NotSupported)):
        ENGINES[engine].check(desired, "the-administrator")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"template": "t" * 64}, "64 bytes"),
        ({"extensions": (DesiredExtension("hstore", version="1\0"),)}, r"U\+0000"),
        ({"extensions": (DesiredExtension("hstore", schema="till\0"),)}, r"U\+0000"),
        ({"extensions": (DesiredExtension("hstore", schema="é" * 32),)}, "64 bytes"),
    ],
    ids=["template", "version", "schema", "long schema"],
)
def test_what_is_in_a_database_has_names_that_postgresql_takes(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidName, match=reason):
        ENGINES["postgresql"].check(replace(DesiredDatabase("shop", "clerk"), **given), "the-administrator")


@pytest.mark.parametrize("field", ["collation", "encoding"])
def test_letters_of_a_mysql_database_are_called_as_mysql_can_read_it(field: str) -> None:
    with pytest.raises(InvalidName, match=r"U\+1F600"):
        ENGINES["mysql"].check(replace(DesiredDatabase("shop", "clerk"), **{field: "utf8😀"}), "the-administrator")


TOO_MUCH = {"postgresql": ("é" * 32, "64 bytes"), "mysql": ("é" * 65, "65 characters")}
MOST = {"postgresql": "é" * 31, "mysql": "é" * 64}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("field", ["columns", "database", "names"])
def test_what_is_granted_on_has_names_that_are_short_enough(engine: str, field: str) -> None:
    """PostgreSQL cuts longer ones off, and would find another thing of the shorter name; MySQL finds none ever."""
    schema = "public" if engine == "postgresql" else None
    grant = DesiredGrant("shop", frozenset({"SELECT"}), ObjectKind.TABLE, schema, names=("till",))

    def check(name: str) -> None:
        one = replace(grant, **{field: name if field == "database" else (name,)})
        ENGINES[engine].check(DesiredUser("clerk", "s3cret", grants=(one,)), "the-administrator")

    check(MOST[engine])
    name, reason = TOO_MUCH[engine]
    with pytest.raises(InvalidName, match=reason):
        check(name)


@pytest.mark.parametrize("field", ["created_by", "schema"])
def test_schemas_and_makers_in_grants_have_names_that_are_short_enough(field: str) -> None:
    grant = DesiredGrant("shop", frozenset({"SELECT"}), ObjectKind.TABLE, "public", ("*",), future=True)
    one = replace(grant, **{field: "é" * 32 if field == "schema" else ("é" * 32,)})
    with pytest.raises(InvalidName, match="64 bytes"):
        ENGINES["postgresql"].check(DesiredUser("clerk", "s3cret", grants=(one,)), "the-administrator")


@pytest.mark.parametrize("name", ["é" * 32 + "(integer)", "é" * 32])
def test_routines_have_names_that_are_short_enough_whatever_types_they_take(name: str) -> None:
    def check(name: str) -> None:
        grant = DesiredGrant("shop", frozenset({"EXECUTE"}), ObjectKind.FUNCTION, "public", (name,))
        ENGINES["postgresql"].check(DesiredUser("clerk", "s3cret", grants=(grant,)), "the-administrator")

    check("total(" + ", ".join(["integer"] * 20) + ")")
    with pytest.raises(InvalidName, match="64 bytes"):
        check(name)


@pytest.mark.parametrize("field", ["columns", "database", "names"])
@pytest.mark.parametrize("kind", [ObjectKind.TABLE, ObjectKind.FUNCTION], ids=lambda kind: kind.value)
def test_mysql_grants_nothing_on_what_it_has_no_letters_for(kind: ObjectKind, field: str) -> None:
    """MariaDB cannot even look for it: "Illegal mix of collations", in the look that all share."""
    grant = DesiredGrant("shop", frozenset({"SELECT"}), kind, names=("till",))
    one = replace(grant, **{field: "till😀" if field == "database" else ("till😀",)})
    with pytest.raises(InvalidName, match=r"U\+1F600"):
        ENGINES["mysql"].check(DesiredUser("clerk", "s3cret", grants=(one,)), "the-administrator")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_role_that_somebody_is_to_be_a_member_of_has_a_name_of_a_role(engine: str) -> None:
    for name in ("", "boss\0", "b" * 64):
        with pytest.raises(InvalidName):
            desired = DesiredUser("clerk", "s3cret", roles=(DesiredMembership(name),))
            ENGINES[engine].check(desired, "the-administrator")


@pytest.mark.parametrize(
    ("engine", "name", "reason"),
    [
        ("postgresql", "boss\0", r"U\+0000"),
        ("postgresql", "é" * 32, "64 bytes"),
        ("mysql", "boss\0", r"U\+0000"),
        ("mysql", "boss😀", r"U\+1F600"),
        ("mysql", "b" * 65, "65 characters"),
    ],
)
def test_what_can_be_the_name_of_nothing_on_a_server(engine: str, name: str, reason: str) -> None:
    ENGINES[engine].check_name("reassignTo", "postgres")
    with pytest.raises(InvalidName, match=reason):
        ENGINES[engine].check_name("reassignTo", name)
