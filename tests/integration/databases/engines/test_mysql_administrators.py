"""What the documentation says that an administrator of MySQL or MariaDB must have is enough."""

from __future__ import annotations

import copy
import re
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from accounts_contract import At, claim, role, user
from mysql_server import MySQLServer
from steersman_databases.engines import Credentials
from steersman_databases.engines.desired import (
    DesiredDatabase,
    DesiredGrant,
    DesiredMembership,
    ObjectKind,
    SecondCredential,
)
from steersman_databases.engines.errors import EngineError

CARETAKER, KEEPER = Credentials("caretaker", "m0dest"), Credentials("keeper", "s3cret")
LEDGER = "ledger"
READS = DesiredGrant(LEDGER, frozenset({"SELECT"}), ObjectKind.TABLE, None, ("entries",))
DOCUMENT = Path(__file__).parents[4] / "docs/how-to/users-and-grants.md"


def documented(product: str) -> list[str]:
    """The statements, but for those of the other product."""
    told = re.findall(r"^(GRANT .* TO caretaker@'%'[^;]*);(?: *-- (\w+):)?", DOCUMENT.read_text(), re.MULTILINE)
    return [statement for statement, only in told if only in {"", product}]


@pytest.fixture
async def modest(mysql_server: MySQLServer) -> AsyncGenerator[At]:
    """A server as this administrator has it."""
    seen = copy.copy(mysql_server)
    seen.administrator = CARETAKER
    [(version,)] = await mysql_server.execute("SELECT VERSION()")
    await mysql_server.execute(f"CREATE USER {{}}@'%' IDENTIFIED BY '{CARETAKER.password}'", CARETAKER.username)
    for statement in documented("MariaDB" if "MariaDB" in version else "MySQL"):
        await mysql_server.execute(statement)
    found = At(seen)
    yield found
    await found.close()
    await mysql_server.execute(f"DROP DATABASE IF EXISTS {LEDGER}")
    for name in ("clerk", KEEPER.username, CARETAKER.username):
        await mysql_server.execute("DROP USER IF EXISTS {}@'%'", name)


async def test_what_is_documented_is_enough(modest: At, mysql_server: MySQLServer) -> None:
    assert await modest.make(user(KEEPER.username)) == ["UserCreated"]
    ledger = DesiredDatabase(LEDGER, KEEPER.username, claim=claim("keeper"))
    assert await modest.make(ledger) == ["DatabaseCreated", "GrantsRestored"]
    await mysql_server.execute("CREATE TABLE {}.entries (coin int)", LEDGER, credentials=KEEPER)

    await modest.make(role("reader", grants=(READS,)))
    roles = (DesiredMembership("reader"),)
    await modest.make(user(roles=roles))
    assert await mysql_server.can_log_in(Credentials("clerk", "s3cret"), LEDGER)
    assert await modest.make(user(password="next", second=SecondCredential("s3cret"), roles=roles)) == [
        "PasswordReset"
    ]
    assert await modest.make(user(password="next", roles=roles)) == ["PasswordRemoved"]
    await mysql_server.execute("GRANT ALL ON {}.* TO {}@'%' WITH GRANT OPTION", LEDGER, "clerk")
    assert {"GrantRevoked", "MembershipRevoked"} <= set(await modest.make(user(password="next")))

    await mysql_server.execute("CREATE DEFINER = {}@'%' VIEW {}.v AS SELECT 1 AS one", "clerk", LEDGER)
    with pytest.raises(EngineError, match=f"clerk is the definer of view {LEDGER}.v"):
        await modest.drop("clerk")
    await mysql_server.execute("DROP USER {}@'%'", "clerk")
    assert "UserCreated" in await modest.make(user())
    await mysql_server.execute("DROP VIEW {}.v", LEDGER)

    for name in ("clerk", "reader"):
        await modest.drop(name)
    await modest.drop_database(LEDGER, claim("keeper"))
    await modest.drop(KEEPER.username)
    assert not {"clerk", "reader", KEEPER.username} & await mysql_server.users()
    assert LEDGER not in await mysql_server.databases()


async def test_who_was_given_a_database_before_it_is_there_keeps_it(modest: At, mysql_server: MySQLServer) -> None:
    """By a role, too; what somebody else had on a former one of the name is revoked."""
    await modest.make(user(KEEPER.username))
    await mysql_server.execute("CREATE USER {}@'%'", "clerk")
    await mysql_server.execute_unprepared("CREATE ROLE dba")
    try:
        for statement in (f"GRANT SELECT ON {LEDGER}.* TO clerk@'%'", f"GRANT ALL ON {LEDGER}.* TO dba"):
            await mysql_server.execute(statement)
        await mysql_server.execute_unprepared("GRANT dba TO {}@'%'", CARETAKER.username)
        ledger = DesiredDatabase(LEDGER, KEEPER.username, claim=claim("keeper"))
        assert await modest.make(ledger) == ["GrantRevoked", "DatabaseCreated", "GrantsRestored"]
        held = await mysql_server.execute("SELECT User FROM mysql.db WHERE Db = 'ledger' ORDER BY User")
        assert held == [(CARETAKER.username,), ("dba",), (KEEPER.username,)]
    finally:
        await mysql_server.execute_unprepared("DROP ROLE dba")
