"""An administrator of MySQL or MariaDB who has what the documentation says is enough, and no more."""

from __future__ import annotations

import copy
import re
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from database_support.contracts.mysql_accounts import MySQLAccountsHarness, mark_named
from database_support.servers.mysql import RealMySQLServer
from steersman_databases.engines import SqlCredentials
from steersman_databases.engines.sql.desired import DesiredDatabase, DesiredGrant, OwnershipMark

CARETAKER, KEEPER, CLERK = (
    SqlCredentials(*pair) for pair in (("caretaker", "m0dest"), ("keeper", "s3cret"), ("clerk", "s3cret"))
)
LEDGER = "ledger"
_OTHERS = ("archive", "payroll")
_DOCUMENT = Path(__file__).parents[6] / "docs/how-to/users-and-grants.md"


def as_admin(server: RealMySQLServer, by: SqlCredentials) -> MySQLAccountsHarness:
    """A server as this administrator has it."""
    seen = copy.copy(server)
    seen.administrator = by
    return MySQLAccountsHarness(seen)


async def is_mariadb(server: RealMySQLServer) -> bool:
    [(version,)] = await server.execute("SELECT VERSION()")
    return "MariaDB" in version


def ledger(name: str = LEDGER, of: OwnershipMark | None = None) -> DesiredDatabase:
    return DesiredDatabase(name, KEEPER.username, mark=of or mark_named(KEEPER.username))


def on(database: str, *privileges: str) -> DesiredGrant:
    return DesiredGrant(database, frozenset(privileges))


async def has(server: RealMySQLServer, name: str, database: str = LEDGER, host: str = "%") -> set[str]:
    """Of reading and writing, what somebody was granted on all of a database."""
    rows = await server.execute(
        "SELECT Select_priv, Insert_priv FROM mysql.db"
        f" WHERE User = '{name}' AND Db = '{database}' AND Host = '{host}'"
    )
    return {word for row in rows for word, held in zip(("SELECT", "INSERT"), row, strict=True) if held == "Y"}


async def lose(server: RealMySQLServer, database: str = LEDGER) -> None:
    """The administrator loses all that it has on a database."""
    for words in ("ALL", "GRANT OPTION"):
        await server.execute(f"REVOKE {words} ON {database}.* FROM {{}}@'%'", CARETAKER.username)


@pytest.fixture
async def non_superuser_admin(mysql_server: RealMySQLServer) -> AsyncGenerator[MySQLAccountsHarness]:
    """A server as this administrator has it."""
    mariadb = await is_mariadb(mysql_server)
    await mysql_server.execute(f"CREATE USER {{}}@'%' IDENTIFIED BY '{CARETAKER.password}'", CARETAKER.username)
    for statement in _documented("MariaDB" if mariadb else "MySQL"):
        await mysql_server.execute(statement)
    found = as_admin(mysql_server, CARETAKER)
    yield found
    await found.close()
    for database in (LEDGER, *_OTHERS):
        await mysql_server.execute(f"DROP DATABASE IF EXISTS {database}")
        await mysql_server.execute(f"DELETE FROM mysql.db WHERE Db = '{database}'")
        if "steersman" in await mysql_server.databases():
            await mysql_server.execute(f"DELETE FROM steersman.claims WHERE name = '{database}'")
    await mysql_server.execute("FLUSH PRIVILEGES")
    for name in ("clerk", "reader", "dba"):
        if mariadb:
            await mysql_server.execute_unprepared(f"DROP ROLE IF EXISTS {name}")
        await mysql_server.execute("DROP USER IF EXISTS {}@'%'", name)
    for one in (KEEPER, CARETAKER):
        await mysql_server.execute("DROP USER IF EXISTS {}@'%'", one.username)


def _documented(product: str) -> list[str]:
    """The statements, but for those of the other product."""
    told = re.findall(r"^(GRANT .* TO caretaker@'%'[^;]*);(?: *-- (\w+):)?", _DOCUMENT.read_text(), re.MULTILINE)
    return [statement for statement, only in told if only in {"", product}]
