"""The model keeps what users of MySQL may have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from database_support.accounts_contract import SHOP, At, TestAccounts, at, user
from steersman_databases.engines import MySQL
from steersman_databases.engines.actions import Grant
from steersman_databases.engines.desired import DesiredGrant, ObjectKind
from steersman_databases.engines.mysql.statements import Dialect, statement
from steersman_databases.engines.survey import SecuredObject

__all__ = ["TestAccounts", "at"]


@pytest.fixture
def like_mysql(model_of: Callable[[MySQL], Any]) -> Any:
    return model_of(MySQL())


@pytest.fixture
def with_table(like_mysql: Any) -> Callable[[str, str, tuple[str, ...]], None]:
    def make(database: str, table: str, columns: tuple[str, ...]) -> None:
        like_mysql.model.create_table(like_mysql.administrator, database, table, columns=columns)

    return make


async def test_who_creates_routines_keeps_what_the_server_gives_for_it(at: At) -> None:
    total = SecuredObject(ObjectKind.FUNCTION, SHOP, None, "total", "PROCEDURE")
    creator = user(grants=(DesiredGrant(SHOP, frozenset({"CREATE ROUTINE"})),))
    await at.make(creator)
    await at.do(Grant("clerk", total, ("ALTER ROUTINE", "EXECUTE"), ""))
    assert await at.make(creator) == []
    assert await at.make(user()) == ["GrantRevoked", "GrantRevoked"]
    assert await at.held("clerk") == set()


@pytest.mark.parametrize("kind", ["FUNCTION", "PROCEDURE", "PACKAGE", "PACKAGE BODY"])
def test_a_routine_is_granted_as_what_it_is(kind: str) -> None:
    total = SecuredObject(ObjectKind.FUNCTION, "shop", None, "total", kind)
    _, text = statement(Grant("clerk", total, ("EXECUTE",), ""), Dialect(mariadb=True))
    assert text == f"GRANT EXECUTE ON {kind} `shop`.`total` TO `clerk`@`%`"
