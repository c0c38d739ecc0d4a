"""Servers that keep names of databases and tables in lower case: two that differ in capitals alone are one there."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from database_support.accounts_contract import At, claim, user
from database_support.modest_mysql import KEEPER, LEDGER, ledger, on
from database_support.mysql_server import start_mariadb, start_mysql
from devcluster import database_servers
from steersman_databases.engines.actions import MarkDatabase
from steersman_databases.engines.desired import Claim, DesiredGrant, ObjectKind
from steersman_databases.engines.errors import InvalidName

LOWERED = "--lower-case-table-names=1"
STARTS = {"mariadb": partial(start_mariadb, Path("/"), LOWERED)}
if (sid := database_servers.root(database_servers.SID)) is not None:
    STARTS["mysql"] = partial(start_mysql, sid, LOWERED)


@pytest.fixture(params=STARTS)
async def lowered(request: pytest.FixtureRequest) -> AsyncGenerator[At]:
    with contextmanager(STARTS[request.param])() as server:
        found = At(server)
        yield found
        await found.close()


async def test_a_name_in_capitals_is_refused_and_what_it_would_mean_stays_who_has_its(lowered: At) -> None:
    server = lowered.server
    await lowered.make(user(KEEPER.username))
    await lowered.make(ledger())
    others = Claim("c1", "Database", "other", "capitals")
    with pytest.raises(InvalidName, match=r'databaseName "Ledger" cannot be used: .* write ledger'):
        await lowered.make(ledger("Ledger", others))
    await lowered.drop_database("Ledger", others)
    assert LEDGER in await server.databases()

    table = DesiredGrant(LEDGER, frozenset({"SELECT"}), ObjectKind.TABLE, None, ("Entries",))
    for grant, named in ((on("Ledger", "SELECT"), "Ledger"), (table, "Entries")):
        with pytest.raises(InvalidName, match=f'grants "{named}" cannot be used: .* write {named.lower()}'):
            await lowered.make(user(grants=(grant,)))
    await lowered.make(user(grants=(on(LEDGER, "SELECT"),)))
    await lowered.drop_database(LEDGER, claim("keeper"))
    assert LEDGER not in await server.databases()


async def test_what_a_former_version_made_of_such_a_name_is_not_dropped_by_it(lowered: At) -> None:
    """Somebody else may have taken it over by the name that it has."""
    await lowered.make(user(KEEPER.username))
    await lowered.make(ledger())
    await lowered.do(MarkDatabase("Ledger", claim("keeper").text, KEEPER.username))
    await lowered.drop_database("Ledger", claim("keeper"))
    assert LEDGER in await lowered.server.databases()
