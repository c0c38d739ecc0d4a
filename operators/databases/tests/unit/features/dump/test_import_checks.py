"""Refusals of sources that the tests on real servers do not have."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from io import BytesIO
from typing import Any

import pytest

from steersman_instance.dump import mysql_load, mysql_problems, postgresql_load, postgresql_problems
from steersman_instance.dump.account_grants import ObjectPrivileges, grants_document, grouped
from steersman_instance.dump.postgresql_client import ServerState
from steersman_instance.dump.source import DumpSource
from steersman_instance.jobs import JobRefused


def source(version: str) -> DumpSource:
    """Return a source of a version."""
    return DumpSource(
        name="Database shop of db", version=version, result={}, read=lambda: nullcontext(({}, BytesIO()))
    )


@pytest.mark.parametrize(
    ("found", "target"),
    [
        ("9.7.0", "8.4.3"),
        ("11.4.2-MariaDB", "9.7.0"),
        ("8.0.36", "11.4.2-MariaDB-ubu2404"),
        ("11.8.1-MariaDB", "5.5.5-10.11.2-MariaDB"),
    ],
)
def test_mysql_source_of_other_product_or_newer_is_refused(found: str, target: str) -> None:
    with pytest.raises(JobRefused, match=f"Database shop of db is of version {found}, and the server has {target}"):
        mysql_load.require_fitting(source(found), target)


def test_older_source_of_same_product_is_accepted() -> None:
    mysql_load.require_fitting(source("5.7.44-log"), "9.7.0")
    mysql_load.require_fitting(source("10.6.1-MariaDB"), "11.4.2-MariaDB")
    postgresql_load.require_fitting(source("9.6.24"), 17, "17.5")


def test_newer_postgresql_dump_is_refused() -> None:
    with pytest.raises(JobRefused, match=r"is of PostgreSQL 17\.5, and the server has 16\.1"):
        postgresql_load.require_fitting(source("17.5"), 16, "16.1")


TARGET = postgresql_problems.PostgreSQLTarget(
    major=17,
    version="17.5",
    newest=17,
    encoding="UTF8",
    present=frozenset({"plpgsql"}),
    available=frozenset({"plpgsql", "citext", "dblink"}),
    creatable=frozenset({"citext"}),
)


def problems(target: postgresql_problems.PostgreSQLTarget = TARGET, **changes: Any) -> list[tuple[str, str]]:
    """Return reasons and messages of a source."""
    content: dict[str, Any] = {"state": ServerState(160004, "16.4"), "encoding": "UTF8", **changes}
    found = postgresql_problems.PostgreSQLContent(**content)
    listed = postgresql_problems.problems_of("Database shop of db", "reader", found, target)
    return [(each.reason, each.message) for each in listed]


def test_all_problems_of_a_source_are_listed() -> None:
    found = problems(
        state=ServerState(180000, "18.0"),
        encoding="SQL_ASCII",
        extensions=["aws_s3", "citext", "dblink", "plpgsql"],
        denied=["public.a", "public.b"],
        filtered=["public.c"],
        large_objects=["16400"],
        restricted=["function public.f(integer)"],
    )
    assert [reason for reason, _ in found] == [
        "UnsupportedVersion",
        *("RightsMissing",) * 3,
        "ExtensionUnavailable",
        "ExtensionMissing",
        "EncodingMismatch",
        "SuperuserRequired",
    ]
    assert "has extension aws_s3, which" in found[4][1] and "has extension dblink, which" in found[5][1]


def test_newer_postgresql_source_is_a_problem() -> None:
    ((reason, message),) = problems(replace(TARGET, major=15, version="15.9"))
    assert reason == "SourceMismatch"
    assert message.startswith("Database shop of db is of PostgreSQL 16.4, and the server has 15.9.")


def test_declared_extension_that_exists_is_no_problem() -> None:
    assert not problems(replace(TARGET, present=frozenset({"dblink"})), extensions=["dblink"])


@pytest.mark.parametrize(("found", "target"), [("UTF8", "LATIN1"), ("LATIN1", "LATIN9"), ("SQL_ASCII", "UTF8")])
def test_encoding_that_may_lack_characters_is_a_problem(found: str, target: str) -> None:
    ((reason, message),) = problems(replace(TARGET, encoding=target), encoding=found)
    assert reason == "EncodingMismatch" and f"Create a new Database with spec.encoding {found}" in message


def test_any_encoding_but_raw_bytes_fits_utf8() -> None:
    assert not problems(encoding="LATIN1")
    assert not problems(replace(TARGET, encoding="SQL_ASCII"), encoding="SQL_ASCII")


def test_group_replication_refuses_tables_without_innodb() -> None:
    content = mysql_problems.MysqlContent(version="8.0.36", other_engines=["log (MyISAM)"])
    group = mysql_problems.MysqlTarget(version="9.7.4", is_group=True)
    (problem,) = mysql_problems.problems_of("Database shop of db", "reader", content, group)
    assert problem.reason == "StorageEngine" and "ENGINE=InnoDB" in problem.message
    assert not list(mysql_problems.problems_of("d", "reader", content, replace(group, is_group=False)))


def test_grants_are_grouped_within_the_limits_of_a_user() -> None:
    tables = [ObjectPrivileges(kind="table", schema="s", name=f"t{n:03}", privileges=["SELECT"]) for n in range(70)]
    columns = [
        ObjectPrivileges(kind="table", schema="s", name="u", column=name, privileges=["UPDATE"]) for name in "ba"
    ]
    first, second, third = grouped([*tables, *columns])
    assert (len(first["objects"]), second["objects"][0], len(second["objects"])) == (64, "t064", 6)
    assert (third["objects"], third["columns"], third["privileges"]) == (["u"], ["a", "b"], ["UPDATE"])
    many = [ObjectPrivileges(kind="schema", schema=f"s{n}", privileges=["USAGE"]) for n in range(70)]
    assert grants_document(many)["omittedGrants"] == 6
