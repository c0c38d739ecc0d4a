from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from steersman_databases.engines import ENGINES, InvalidName
from steersman_databases.engines.desired import (
    DesiredDatabase,
    DesiredGrant,
    DesiredSchema,
    DesiredUser,
    ObjectKind,
)


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
