"""``kubectl steersman undrop``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from database_support.unit.backup_objects import backup_settings
from database_support.unit.plugin import KEY, call, reached, server
from steersman.client import Client, MergePatch
from steersman.errors import ConfigurationError
from steersman.meta import ObjectKey, ObjectMeta, decode_builtins, to_builtins
from steersman_databases.api import PostgreSQLCluster, Restore, RestoreSpec, RestoreStatus
from steersman_databases.kubectl.backup import undrop
from steersman_testing import InMemoryApiServer

__all__ = ["reached", "server"]
LATEST: Mapping[str, object] = {"latest": {}}
BEFORE = ("--before", "2026-03-01T12:30:00Z")


def declare_archive(server: InMemoryApiServer) -> None:
    body = {"spec": {"backup": to_builtins(backup_settings())}}
    asyncio.run(Client(server).patch(PostgreSQLCluster, KEY, MergePatch(body)))


def created(server: InMemoryApiServer, name: str) -> Restore:
    return asyncio.run(Client(server).get(Restore, ObjectKey("prod", name)))


def test_undrop_creates_a_restore(server: InMemoryApiServer) -> None:
    declare_archive(server)
    objects = ('orders."my.own".items', "orders.parts")
    result = call("undrop", "shop", *objects, *BEFORE, "--name", "r", "--no-wait", "-n", "prod", "-o", "json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["phase"] == "Pending"
    spec = to_builtins(created(server, "r").spec)
    assert spec["target"] == {"time": "2026-03-01T12:30:00Z"}
    assert spec["only"] == [
        {"database": "orders", "schema": "my.own", "table": "items"},
        {"database": "orders", "table": "parts"},
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a.b.c.d", *BEFORE), "is not DATABASE"),
        (("a..b", *BEFORE), "is not DATABASE"),
        (("orders.t", "--before", "2026-03-01T12:30:00"), "time zone"),
    ],
)
def test_undrop_refuses_malformed_arguments(
    server: InMemoryApiServer, arguments: tuple[str, ...], message: str
) -> None:
    declare_archive(server)
    result = call("undrop", "shop", *arguments, "-n", "prod", "--no-wait")
    assert result.exit_code == 2 and message in result.stderr


def test_undrop_refuses_what_the_schema_refuses(server: InMemoryApiServer) -> None:
    declare_archive(server)
    result = call("undrop", "shop", "orders", "other.t", *BEFORE, "-n", "prod", "--no-wait")
    assert result.exit_code == 1 and "all items must name the same database" in result.stderr


def test_undrop_without_archive_is_refused(server: InMemoryApiServer) -> None:
    result = call("undrop", "shop", "orders.t", *BEFORE, "-n", "prod", "--no-wait")
    assert result.exit_code == 1 and "spec.backup" in result.stderr


def completed(kind: str, only: list[dict[str, str]], status: Mapping[str, Any]) -> Restore:
    given = {"clusterRef": {"name": "shop", "kind": kind}, "target": LATEST, "only": only}
    return Restore(
        metadata=ObjectMeta(name="r", namespace="prod"),
        spec=decode_builtins(given, RestoreSpec),
        status=decode_builtins({"phase": "Completed", **status}, RestoreStatus),
    )


def test_completed_undrop_prints_statements() -> None:
    only = [{"database": "shop", "table": 'a"b'}, {"database": "shop", "schema": "own", "table": "t"}]
    tables = [{"name": "x", "copy": "x", "exists": exists} for exists in (False, True)]
    found = undrop.report(
        completed("PostgreSQLCluster", only, {"database": "it's", "schema": "restored_r", "tables": tables})
    )
    assert found.statements == (
        'ALTER TABLE "restored_r"."a""b" SET SCHEMA "public";',
        'INSERT INTO "own"."t" SELECT * FROM "restored_r"."t" ON CONFLICT DO NOTHING;',
    )
    text = "\n".join(undrop.lines(found, "psql"))
    assert "schema restored_r of database it's" in text
    assert "kubectl steersman psql shop --database 'it'\"'\"'s'" in text


def test_statements_of_mysql_rename_or_insert() -> None:
    only = [{"database": "stock", "table": "a`b"}, {"database": "stock", "table": "t"}]
    tables = [{"name": "x", "copy": "x", "exists": exists} for exists in (False, True)]
    found = undrop.report(completed("MySQLCluster", only, {"database": "stock_restored_r", "tables": tables}))
    assert found.statements == (
        "RENAME TABLE `stock_restored_r`.`a``b` TO `stock`.`a``b`;",
        "INSERT IGNORE INTO `stock`.`t` SELECT * FROM `stock_restored_r`.`t`;",
    )


def test_whole_database_has_no_statements() -> None:
    found = undrop.report(completed("PostgreSQLCluster", [{"database": "shop"}], {"database": "shop_restored_r"}))
    assert found.statements == ()
    assert undrop.lines(found, "psql") == ["restore/r completed: database shop_restored_r"]


def test_names_of_mysql_have_two_parts() -> None:
    assert undrop.parse_item("a.`b.c`", mysql=True).table == "b.c"
    with pytest.raises(ConfigurationError, match=r"DATABASE\.TABLE\. Quote"):
        undrop.parse_item("a.b.c", mysql=True)
