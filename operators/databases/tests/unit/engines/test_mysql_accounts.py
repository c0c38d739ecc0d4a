"""The model keeps what users of MySQL may have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from database_support.contracts.mysql_accounts import SHOP, MySQLAccountsHarness, TestAccounts, at, user
from steersman_databases.engines.mysql.sql.engine import MySQLSqlEngine
from steersman_databases.engines.mysql.sql.statements import StatementDialect, statement
from steersman_databases.engines.sql.desired import DesiredGrant, SecurableKind
from steersman_databases.engines.sql.inspection import SecuredObject
from steersman_databases.engines.sql.sql_actions import GrantPrivileges

__all__ = ["TestAccounts", "at"]


@pytest.fixture
def like_mysql(model_of: Callable[[MySQLSqlEngine], Any]) -> Any:
    return model_of(MySQLSqlEngine())


@pytest.fixture
def with_table(like_mysql: Any) -> Callable[[str, str, tuple[str, ...]], None]:
    def make(database: str, table: str, columns: tuple[str, ...]) -> None:
        like_mysql.model.create_table(like_mysql.administrator, database, table, columns=columns)

    return make


async def test_automatic_routine_privileges_are_kept(at: MySQLAccountsHarness) -> None:
    total = SecuredObject(SecurableKind.FUNCTION, SHOP, None, "total", "PROCEDURE")
    creator = user(grants=(DesiredGrant(SHOP, frozenset({"CREATE ROUTINE"})),))
    await at.reconcile(creator)
    await at.apply(GrantPrivileges("clerk", total, ("ALTER ROUTINE", "EXECUTE"), ""))
    assert await at.reconcile(creator) == []
    assert await at.reconcile(user()) == ["GrantRevoked", "GrantRevoked"]
    assert await at.held_privileges("clerk") == set()


@pytest.mark.parametrize("kind", ["FUNCTION", "PROCEDURE", "PACKAGE", "PACKAGE BODY"])
def test_routine_grant_names_its_type(kind: str) -> None:
    total = SecuredObject(SecurableKind.FUNCTION, "shop", None, "total", kind)
    _, text = statement(GrantPrivileges("clerk", total, ("EXECUTE",), ""), StatementDialect(mariadb=True))
    assert text == f"GRANT EXECUTE ON {kind} `shop`.`total` TO `clerk`@`%`"
