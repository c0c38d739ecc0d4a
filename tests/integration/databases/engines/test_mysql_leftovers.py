"""What a database of MySQL or MariaDB leaves behind when it is dropped, and what the next of its name makes of it."""

from __future__ import annotations

from accounts_contract import At, claim, role, user
from modest_mysql import KEEPER, LEDGER, has, is_mariadb, ledger, modest
from mysql_server import MySQLServer

__all__ = ["modest"]


async def test_what_a_role_had_that_the_operator_made_is_revoked(modest: At, mysql_server: MySQLServer) -> None:
    """On MariaDB the administrator is a member of each that it made."""
    await modest.make(user(KEEPER.username))
    await modest.make(role("reader", exact=False))
    await modest.make(ledger())
    await mysql_server.execute("GRANT SELECT ON ledger.* TO reader")
    await modest.drop_database(LEDGER, claim("keeper"))
    assert await modest.make(ledger()) == ["GrantRevoked", "DatabaseCreated"]
    host = "" if await is_mariadb(mysql_server) else "%"
    assert await has(mysql_server, "reader", host=host) == set()
