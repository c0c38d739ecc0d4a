"""Servers that keep names of databases and tables in lower case: two that differ in capitals alone are one there."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from database_support.contracts.mysql_accounts import MySQLAccountsHarness, mark_named, user
from database_support.servers.mysql import start_mariadb, start_mysql
from database_support.servers.mysql_non_superuser_admins import KEEPER, LEDGER, ledger, on
from devcluster import database_servers
from steersman_databases.engines.errors import InvalidName
from steersman_databases.engines.sql.desired import DesiredGrant, OwnershipMark, SecurableKind
from steersman_databases.engines.sql.sql_actions import TagDatabase

LOWERED = "--lower-case-table-names=1"
STARTS = {"mariadb": partial(start_mariadb, Path("/"), LOWERED)}
if (sid := database_servers.root(database_servers.SID)) is not None:
    STARTS["mysql"] = partial(start_mysql, sid, LOWERED)


@pytest.fixture(params=STARTS)
async def lowered(request: pytest.FixtureRequest) -> AsyncGenerator[MySQLAccountsHarness]:
    with contextmanager(STARTS[request.param])() as server:
        found = MySQLAccountsHarness(server)
        yield found
        await found.close()


async def test_upper_case_name_is_rejected_and_lower_case_kept(lowered: MySQLAccountsHarness) -> None:
    server = lowered.server
    await lowered.reconcile(user(KEEPER.username))
    await lowered.reconcile(ledger())
    others = OwnershipMark("c1", "Database", "other", "capitals")
    with pytest.raises(InvalidName, match=r'databaseName "Ledger" cannot be used: .* write ledger'):
        await lowered.reconcile(ledger("Ledger", others))
    await lowered.drop_database("Ledger", others)
    assert LEDGER in await server.databases()

    table = DesiredGrant(LEDGER, frozenset({"SELECT"}), SecurableKind.TABLE, None, ("Entries",))
    for grant, named in ((on("Ledger", "SELECT"), "Ledger"), (table, "Entries")):
        with pytest.raises(InvalidName, match=f'grants "{named}" cannot be used: .* write {named.lower()}'):
            await lowered.reconcile(user(grants=(grant,)))
    await lowered.reconcile(user(grants=(on(LEDGER, "SELECT"),)))
    await lowered.drop_database(LEDGER, mark_named("keeper"))
    assert LEDGER not in await server.databases()


async def test_upper_case_object_does_not_drop_lower_case_database(lowered: MySQLAccountsHarness) -> None:
    """Somebody else may have taken it over by the name that it has."""
    await lowered.reconcile(user(KEEPER.username))
    await lowered.reconcile(ledger())
    await lowered.apply(TagDatabase("Ledger", mark_named("keeper").text, KEEPER.username))
    await lowered.drop_database("Ledger", mark_named("keeper"))
    assert LEDGER in await lowered.server.databases()
