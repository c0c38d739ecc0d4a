from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from steersman_databases.engines import InvalidName
from steersman_databases.engines.errors import NotSupported
from steersman_databases.engines.registry import SQL_ENGINES
from steersman_databases.engines.sql.desired import (
    DesiredDatabase,
    DesiredExtension,
    DesiredGrant,
    DesiredMembership,
    DesiredSchema,
    DesiredUser,
    SecurableKind,
)


def check(engine: str, database: str, username: str, password: str = "any") -> None:
    """As of a server whose administrator is the-administrator."""
    SQL_ENGINES[engine].check(DesiredUser(username, password), "the-administrator")
    SQL_ENGINES[engine].check(DesiredDatabase(database, username), "the-administrator")


@pytest.mark.parametrize("engine", SQL_ENGINES)
@pytest.mark.parametrize("name", ["orders", "Orders", "or-ders", "o r", "o\"`';--", "заказы", "50%_", "select"])
def test_ordinary_names_are_valid(engine: str, name: str) -> None:
    check(engine, name, name)


REFUSED = [
    ("postgresql", "databaseName", "postgres", "reserves this database"),
    ("postgresql", "databaseName", "template0", "reserves this database"),
    ("postgresql", "databaseName", "template1", "reserves this database"),
    ("postgresql", "databaseName", "d" * 64, "64 bytes"),
    ("postgresql", "databaseName", "é" * 32, "64 bytes"),
    ("postgresql", "username", "u" * 64, "64 bytes"),
    ("postgresql", "username", "postgres", "reserves this role"),
    ("postgresql", "username", "public", "reserves this role"),
    ("postgresql", "username", "none", "reserves this role"),
    ("postgresql", "username", "pg_monitor", '"pg_"'),
    ("postgresql", "username", "pg_anything", '"pg_"'),
    ("postgresql", "username", "clerk~", "the second role of users"),
    ("mysql", "databaseName", "mysql", "reserves this database"),
    ("mysql", "databaseName", "sys", "reserves this database"),
    ("mysql", "databaseName", "Information_Schema", "reserves this database"),
    ("mysql", "databaseName", "performance_schema", "reserves this database"),
    ("mysql", "databaseName", "d" * 65, "65 characters"),
    ("mysql", "databaseName", "#mysql50#x", "file name"),
    ("mysql", "databaseName", '"' * 52, "directory"),
    ("mysql", "databaseName", "shop ", "trailing spaces"),
    ("mysql", "databaseName", "shop😀", "U+1F600"),
    ("mysql", "username", "u" * 33, "33 characters"),
    ("mysql", "username", "root", "reserves this user"),
    # The server lists its own threads, and clients that are logging in, under these.
    ("mysql", "username", "event_scheduler", "reserves this user"),
    ("mysql", "username", "system user", "reserves this user"),
    ("mysql", "username", "unauthenticated user", "reserves this user"),
    ("mysql", "username", "delayed", "reserves this user"),
    ("mysql", "username", "mysql.sys", "reserves this user"),
    ("mysql", "username", "mariadb.sys", "reserves this user"),
    ("mysql", "username", "clerk ", "trailing spaces"),
    *[
        (engine, field, name, reason)
        for engine in SQL_ENGINES
        for field in ("databaseName", "username")
        for name, reason in (
            ("", "empty"),
            ("nul\0", "U+0000"),
            ("new\nline", "U+000A"),
            ("half\ud800", "a lone surrogate"),
        )
    ],
    *[(engine, "username", "the-administrator", "administrator") for engine in SQL_ENGINES],
]


@pytest.mark.parametrize(("engine", "field", "name", "reason"), REFUSED)
def test_invalid_name_is_rejected_with_reason(engine: str, field: str, name: str, reason: str) -> None:
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
def test_longest_names_are_valid(engine: str, database: str, username: str) -> None:
    check(engine, database, username)


IN_GRANTS = [
    {"database": "sh\0op"},
    {"schema": "pub\0lic"},
    {"names": ("till\0",)},
    {"columns": ("co\0in",)},
    {"created_by": ("own\0er",)},
]


@pytest.mark.parametrize("engine", SQL_ENGINES)
@pytest.mark.parametrize("given", IN_GRANTS, ids=lambda given: next(iter(given)))
def test_grant_on_impossible_name_is_rejected(engine: str, given: dict[str, Any]) -> None:
    """It would fail in the one look that all who want something there share."""
    grant = DesiredGrant("shop", frozenset({"SELECT"}), SecurableKind.TABLE, names=("till",))
    with pytest.raises(InvalidName, match=r"U\+0000"):
        SQL_ENGINES[engine].check(
            DesiredUser("clerk", "s3cret", grants=(replace(grant, **given),)), "the-administrator"
        )


def test_schema_owner_must_be_valid_role_name() -> None:
    desired = DesiredDatabase("shop", "clerk", schemas=(DesiredSchema("till", owner="o" * 64),))
    with pytest.raises(InvalidName, match="64 bytes"):
        SQL_ENGINES["postgresql"].check(desired, "the-administrator")


@pytest.mark.parametrize("engine", SQL_ENGINES)
@pytest.mark.parametrize("field", ["character_type", "collation", "encoding", "template"])
def test_database_options_must_be_readable_text(engine: str, field: str) -> None:
    desired = replace(DesiredDatabase("shop", "clerk"), **{field: "C\0"})
    with pytest.raises((InvalidName, NotSupported)):
        SQL_ENGINES[engine].check(desired, "the-administrator")


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
def test_postgresql_contents_have_valid_names(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidName, match=reason):
        SQL_ENGINES["postgresql"].check(replace(DesiredDatabase("shop", "clerk"), **given), "the-administrator")


@pytest.mark.parametrize("field", ["collation", "encoding"])
def test_mysql_charset_must_be_a_word(field: str) -> None:
    with pytest.raises(InvalidName, match=r"U\+1F600"):
        SQL_ENGINES["mysql"].check(
            replace(DesiredDatabase("shop", "clerk"), **{field: "utf8😀"}), "the-administrator"
        )


TOO_MUCH = {"postgresql": ("é" * 32, "64 bytes"), "mysql": ("é" * 65, "65 characters")}
MOST = {"postgresql": "é" * 31, "mysql": "é" * 64}


@pytest.mark.parametrize("engine", SQL_ENGINES)
@pytest.mark.parametrize("field", ["columns", "database", "names"])
def test_granted_names_must_fit_length(engine: str, field: str) -> None:
    """PostgreSQL cuts longer ones off, and would find another thing of the shorter name; MySQL finds none ever."""
    schema = "public" if engine == "postgresql" else None
    grant = DesiredGrant("shop", frozenset({"SELECT"}), SecurableKind.TABLE, schema, names=("till",))

    def check(name: str) -> None:
        one = replace(grant, **{field: name if field == "database" else (name,)})
        SQL_ENGINES[engine].check(DesiredUser("clerk", "s3cret", grants=(one,)), "the-administrator")

    check(MOST[engine])
    name, reason = TOO_MUCH[engine]
    with pytest.raises(InvalidName, match=reason):
        check(name)


@pytest.mark.parametrize("field", ["created_by", "schema"])
def test_grant_schema_and_creator_names_must_fit_length(field: str) -> None:
    grant = DesiredGrant("shop", frozenset({"SELECT"}), SecurableKind.TABLE, "public", ("*",), future=True)
    one = replace(grant, **{field: "é" * 32 if field == "schema" else ("é" * 32,)})
    with pytest.raises(InvalidName, match="64 bytes"):
        SQL_ENGINES["postgresql"].check(DesiredUser("clerk", "s3cret", grants=(one,)), "the-administrator")


@pytest.mark.parametrize("name", ["é" * 32 + "(integer)", "é" * 32])
def test_routine_names_must_fit_length_without_types(name: str) -> None:
    def check(name: str) -> None:
        grant = DesiredGrant("shop", frozenset({"EXECUTE"}), SecurableKind.FUNCTION, "public", (name,))
        SQL_ENGINES["postgresql"].check(DesiredUser("clerk", "s3cret", grants=(grant,)), "the-administrator")

    check("total(" + ", ".join(["integer"] * 20) + ")")
    with pytest.raises(InvalidName, match="64 bytes"):
        check(name)


@pytest.mark.parametrize("field", ["columns", "database", "names"])
@pytest.mark.parametrize("kind", [SecurableKind.TABLE, SecurableKind.FUNCTION], ids=lambda kind: kind.value)
def test_mysql_grant_names_must_be_encodable(kind: SecurableKind, field: str) -> None:
    """MariaDB cannot even look for it: "Illegal mix of collations", in the look that all share."""
    grant = DesiredGrant("shop", frozenset({"SELECT"}), kind, names=("till",))
    one = replace(grant, **{field: "till😀" if field == "database" else ("till😀",)})
    with pytest.raises(InvalidName, match=r"U\+1F600"):
        SQL_ENGINES["mysql"].check(DesiredUser("clerk", "s3cret", grants=(one,)), "the-administrator")


@pytest.mark.parametrize("engine", SQL_ENGINES)
def test_membership_must_name_a_valid_role(engine: str) -> None:
    for name in ("", "boss\0", "b" * 64):
        with pytest.raises(InvalidName):
            desired = DesiredUser("clerk", "s3cret", roles=(DesiredMembership(name),))
            SQL_ENGINES[engine].check(desired, "the-administrator")


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
def test_impossible_names_are_rejected(engine: str, name: str, reason: str) -> None:
    SQL_ENGINES[engine].check_name("reassignTo", "postgres")
    with pytest.raises(InvalidName, match=reason):
        SQL_ENGINES[engine].check_name("reassignTo", name)


@pytest.mark.parametrize(("engine", "longest"), [("postgresql", 1024), ("mysql", 256)])
def test_long_password_is_rejected(engine: str, longest: int) -> None:
    check(engine, "shop", "clerk", "x" * longest)
    for password in ("x" * (longest + 1), "\u00e4" * (longest // 2 + 1)):
        with pytest.raises(InvalidName, match=f"longer than {longest} bytes") as caught:
            check(engine, "shop", "clerk", password)
        assert password not in str(caught.value)
