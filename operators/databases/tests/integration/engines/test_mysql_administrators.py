"""What the documentation says that an administrator of MySQL or MariaDB must have is enough."""

from __future__ import annotations

import pytest

from database_support.accounts_contract import At, claim, role, user
from database_support.modest_mysql import (
    CARETAKER,
    CLERK,
    KEEPER,
    LEDGER,
    as_seen,
    has,
    is_mariadb,
    ledger,
    lose,
    modest,
    on,
)
from database_support.mysql_server import MySQLServer
from steersman_databases.engines.desired import Claim, DesiredGrant, DesiredMembership, ObjectKind, SecondCredential
from steersman_databases.engines.errors import (
    AlreadyExists,
    Claimed,
    EngineError,
    InvalidName,
    ObjectsMissing,
    SqlFailed,
)

__all__ = ["modest"]

READS = DesiredGrant(LEDGER, frozenset({"SELECT"}), ObjectKind.TABLE, None, ("entries",))


async def test_what_is_documented_is_enough(modest: At, mysql_server: MySQLServer) -> None:
    assert await modest.make(user(KEEPER.username)) == ["UserCreated"]
    assert await modest.make(ledger()) == ["DatabaseCreated", "GrantsRestored"]
    await mysql_server.execute("CREATE TABLE {}.entries (coin int)", LEDGER, credentials=KEEPER)

    await modest.make(role("reader", grants=(READS,)))
    roles = (DesiredMembership("reader"),)
    await modest.make(user(roles=roles))
    assert await mysql_server.can_log_in(CLERK, LEDGER)
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
    for statement in (f"GRANT SELECT ON {LEDGER}.* TO clerk@'%'", f"GRANT ALL ON {LEDGER}.* TO dba"):
        await mysql_server.execute(statement)
    await mysql_server.execute_unprepared("GRANT dba TO {}@'%'", CARETAKER.username)
    assert await modest.make(ledger()) == ["GrantRevoked", "DatabaseCreated", "GrantsRestored"]
    held = await mysql_server.execute("SELECT User FROM mysql.db WHERE Db = 'ledger' ORDER BY User")
    assert held == [(CARETAKER.username,), ("dba",), (KEEPER.username,)]


async def test_one_grant_that_is_refused_keeps_no_other(modest: At, mysql_server: MySQLServer) -> None:
    for name in ("archive", LEDGER):
        await mysql_server.execute(f"CREATE DATABASE {name}")
    await mysql_server.execute("GRANT SELECT ON archive.* TO {}@'%'", CARETAKER.username)
    await modest.make(user())
    await mysql_server.execute("GRANT INSERT ON ledger.* TO clerk@'%'")
    for _ in range(2):
        with pytest.raises(SqlFailed, match="archive"):
            await modest.make(user(grants=(on("archive", "SELECT"), on(LEDGER, "SELECT"))))
        assert await has(mysql_server, "clerk") == {"SELECT"}


async def test_one_grant_that_cannot_be_revoked_keeps_no_other(modest: At, mysql_server: MySQLServer) -> None:
    for name in ("archive", LEDGER):
        await mysql_server.execute(f"CREATE DATABASE {name}")
    await modest.make(user())
    await mysql_server.execute("GRANT SELECT ON archive.* TO clerk@'%'")
    await mysql_server.execute("GRANT INSERT ON ledger.* TO clerk@'%'")
    with pytest.raises(SqlFailed, match="archive"):
        await modest.make(user())
    assert await has(mysql_server, "clerk") == set()


async def test_who_acts_by_a_mandatory_role_keeps_it(modest: At, mysql_server: MySQLServer) -> None:
    if await is_mariadb(mysql_server):
        pytest.skip("MariaDB has none")
    await modest.make(user(KEEPER.username))
    await lose(mysql_server)
    await mysql_server.execute_unprepared("CREATE ROLE dba")
    await mysql_server.execute("GRANT ALL ON ledger.* TO dba WITH GRANT OPTION")
    await mysql_server.execute_unprepared("SET GLOBAL mandatory_roles = 'dba', activate_all_roles_on_login = ON")
    by_a_role = as_seen(mysql_server, CARETAKER)
    try:
        assert await by_a_role.make(ledger()) == ["DatabaseCreated", "GrantsRestored"]
    finally:
        await by_a_role.close()
        await mysql_server.execute_unprepared(
            "SET GLOBAL mandatory_roles = DEFAULT, activate_all_roles_on_login = DEFAULT"
        )


async def test_what_a_role_has_that_the_administrator_has_not_is_told(modest: At, mysql_server: MySQLServer) -> None:
    """On MariaDB who makes a role is its member, and has nothing by that before it sets the role."""
    await modest.make(role("reader"))
    await mysql_server.execute("GRANT RELOAD ON *.* TO reader")
    with pytest.raises(ObjectsMissing, match="reader has RELOAD on the whole server, which only who has it"):
        await modest.make(role("reader"))


@pytest.mark.parametrize("made", ["by another", "by hand"])
async def test_a_database_that_one_does_not_see_is_not_marked(
    modest: At, mysql_server: MySQLServer, made: str
) -> None:
    mighty = as_seen(mysql_server, mysql_server.superuser)
    await mighty.make(user(KEEPER.username))
    theirs, ours = ledger("payroll"), ledger("payroll", Claim("c1", "Database", "other", "mine"))
    try:
        await (mighty.make(theirs) if made == "by another" else mysql_server.execute("CREATE DATABASE payroll"))
        for _ in range(2):
            with pytest.raises(SqlFailed, match=r"looking for database payroll: Access denied"):
                await modest.make(ours)
        await mysql_server.execute("GRANT ALL ON payroll.* TO {}@'%' WITH GRANT OPTION", CARETAKER.username)
        with pytest.raises(Claimed if made == "by another" else AlreadyExists):
            await modest.make(ours)
        if made == "by another":
            assert await mighty.make(theirs) == []
    finally:
        await mighty.close()


async def test_a_database_that_the_administrator_sees_no_more_is_not_taken_for_dropped(
    modest: At, mysql_server: MySQLServer
) -> None:
    await modest.make(user(KEEPER.username))
    await modest.make(ledger())
    await lose(mysql_server)
    for _ in range(2):
        with pytest.raises(SqlFailed, match="dropping database ledger: Access denied"):
            await modest.drop_database(LEDGER, claim("keeper"))
    await modest.drop_database(LEDGER, claim("another"))
    await mysql_server.execute("GRANT DROP ON ledger.* TO {}@'%'", CARETAKER.username)
    await modest.drop_database(LEDGER, claim("keeper"))
    assert LEDGER not in await mysql_server.databases()


async def test_the_mark_of_a_database_that_somebody_dropped_goes_with_its_object(
    modest: At, mysql_server: MySQLServer
) -> None:
    await modest.make(user(KEEPER.username))
    await modest.make(ledger())
    await mysql_server.execute("DROP DATABASE ledger")
    await modest.drop_database(LEDGER, claim("keeper"))
    assert await mysql_server.execute("SELECT * FROM steersman.claims WHERE name = 'ledger'") == []


async def test_a_role_by_which_the_administrator_acts_is_not_taken(modest: At, mysql_server: MySQLServer) -> None:
    await mysql_server.execute_unprepared("CREATE ROLE dba")
    await mysql_server.execute("GRANT ALL ON payroll.* TO dba WITH GRANT OPTION")
    await mysql_server.execute_unprepared("GRANT dba TO {}@'%'", CARETAKER.username)
    to = "FOR" if await is_mariadb(mysql_server) else "TO"
    await mysql_server.execute_unprepared(f"SET DEFAULT ROLE dba {to} {{}}@'%'", CARETAKER.username)
    await mysql_server.execute("CREATE DATABASE payroll")
    with pytest.raises(InvalidName, match="the administrator acts by this role"):
        await modest.make(role("dba", adopt=True))
    assert await mysql_server.can_log_in(CARETAKER, "payroll")
