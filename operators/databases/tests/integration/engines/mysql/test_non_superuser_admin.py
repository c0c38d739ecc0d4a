"""What the documentation says that an administrator of MySQL or MariaDB must have is enough."""

from __future__ import annotations

import pytest

from database_support.contracts.mysql_accounts import MySQLAccountsHarness, mark_named, role, user
from database_support.servers.mysql import RealMySQLServer
from database_support.servers.mysql_non_superuser_admins import (
    CARETAKER,
    CLERK,
    KEEPER,
    LEDGER,
    as_admin,
    has,
    is_mariadb,
    ledger,
    lose,
    non_superuser_admin,
    on,
)
from steersman_databases.engines.errors import (
    AlreadyExists,
    EngineError,
    InvalidName,
    ObjectsMissing,
    OwnedByAnother,
    SqlFailed,
)
from steersman_databases.engines.sql.desired import (
    DesiredGrant,
    DesiredMembership,
    OwnershipMark,
    SecondCredential,
    SecurableKind,
)

__all__ = ["non_superuser_admin"]

READS = DesiredGrant(LEDGER, frozenset({"SELECT"}), SecurableKind.TABLE, None, ("entries",))


async def test_documented_privileges_are_sufficient(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    assert await non_superuser_admin.reconcile(user(KEEPER.username)) == ["UserCreated"]
    assert await non_superuser_admin.reconcile(ledger()) == ["DatabaseCreated", "GrantsRestored"]
    await mysql_server.execute("CREATE TABLE {}.entries (coin int)", LEDGER, credentials=KEEPER)

    await non_superuser_admin.reconcile(role("reader", grants=(READS,)))
    roles = (DesiredMembership("reader"),)
    await non_superuser_admin.reconcile(user(roles=roles))
    assert await mysql_server.can_log_in(CLERK, LEDGER)
    assert await non_superuser_admin.reconcile(
        user(password="next", second_credential=SecondCredential("s3cret"), roles=roles)
    ) == ["PasswordReset"]
    assert await non_superuser_admin.reconcile(user(password="next", roles=roles)) == ["PasswordRemoved"]
    await mysql_server.execute("GRANT ALL ON {}.* TO {}@'%' WITH GRANT OPTION", LEDGER, "clerk")
    assert {"GrantRevoked", "MembershipRevoked"} <= set(await non_superuser_admin.reconcile(user(password="next")))

    await mysql_server.execute("CREATE DEFINER = {}@'%' VIEW {}.v AS SELECT 1 AS one", "clerk", LEDGER)
    with pytest.raises(EngineError, match=f"clerk is the definer of view {LEDGER}.v"):
        await non_superuser_admin.drop("clerk")
    await mysql_server.execute("DROP USER {}@'%'", "clerk")
    assert "UserCreated" in await non_superuser_admin.reconcile(user())
    await mysql_server.execute("DROP VIEW {}.v", LEDGER)

    for name in ("clerk", "reader"):
        await non_superuser_admin.drop(name)
    await non_superuser_admin.drop_database(LEDGER, mark_named("keeper"))
    await non_superuser_admin.drop(KEEPER.username)
    assert not {"clerk", "reader", KEEPER.username} & await mysql_server.users()
    assert LEDGER not in await mysql_server.databases()


async def test_grant_before_database_exists_is_kept(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    """By a role, too; what somebody else had on a former one of the name is revoked."""
    await non_superuser_admin.reconcile(user(KEEPER.username))
    await mysql_server.execute("CREATE USER {}@'%'", "clerk")
    await mysql_server.execute_unprepared("CREATE ROLE dba")
    for statement in (f"GRANT SELECT ON {LEDGER}.* TO clerk@'%'", f"GRANT ALL ON {LEDGER}.* TO dba"):
        await mysql_server.execute(statement)
    await mysql_server.execute_unprepared("GRANT dba TO {}@'%'", CARETAKER.username)
    assert await non_superuser_admin.reconcile(ledger()) == ["GrantRevoked", "DatabaseCreated", "GrantsRestored"]
    held = await mysql_server.execute("SELECT User FROM mysql.db WHERE Db = 'ledger' ORDER BY User")
    assert held == [(CARETAKER.username,), ("dba",), (KEEPER.username,)]


async def test_rejected_grant_does_not_block_others(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    for name in ("archive", LEDGER):
        await mysql_server.execute(f"CREATE DATABASE {name}")
    await mysql_server.execute("GRANT SELECT ON archive.* TO {}@'%'", CARETAKER.username)
    await non_superuser_admin.reconcile(user())
    await mysql_server.execute("GRANT INSERT ON ledger.* TO clerk@'%'")
    for _ in range(2):
        with pytest.raises(SqlFailed, match="archive"):
            await non_superuser_admin.reconcile(user(grants=(on("archive", "SELECT"), on(LEDGER, "SELECT"))))
        assert await has(mysql_server, "clerk") == {"SELECT"}


async def test_rejected_revoke_does_not_block_others(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    for name in ("archive", LEDGER):
        await mysql_server.execute(f"CREATE DATABASE {name}")
    await non_superuser_admin.reconcile(user())
    await mysql_server.execute("GRANT SELECT ON archive.* TO clerk@'%'")
    await mysql_server.execute("GRANT INSERT ON ledger.* TO clerk@'%'")
    with pytest.raises(SqlFailed, match="archive"):
        await non_superuser_admin.reconcile(user())
    assert await has(mysql_server, "clerk") == set()


async def test_mandatory_role_is_kept(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    if await is_mariadb(mysql_server):
        pytest.skip("MariaDB has none")
    await non_superuser_admin.reconcile(user(KEEPER.username))
    await lose(mysql_server)
    await mysql_server.execute_unprepared("CREATE ROLE dba")
    await mysql_server.execute("GRANT ALL ON ledger.* TO dba WITH GRANT OPTION")
    await mysql_server.execute_unprepared("SET GLOBAL mandatory_roles = 'dba', activate_all_roles_on_login = ON")
    by_a_role = as_admin(mysql_server, CARETAKER)
    try:
        assert await by_a_role.reconcile(ledger()) == ["DatabaseCreated", "GrantsRestored"]
    finally:
        await by_a_role.close()
        await mysql_server.execute_unprepared(
            "SET GLOBAL mandatory_roles = DEFAULT, activate_all_roles_on_login = DEFAULT"
        )


async def test_role_privilege_beyond_administrator_is_reported(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    """On MariaDB who makes a role is its member, and has nothing by that before it sets the role."""
    await non_superuser_admin.reconcile(role("reader"))
    await mysql_server.execute("GRANT RELOAD ON *.* TO reader")
    with pytest.raises(ObjectsMissing, match="reader has RELOAD on the whole server, and the operator lacks it"):
        await non_superuser_admin.reconcile(role("reader"))


@pytest.mark.parametrize("made", ["by another", "by hand"])
async def test_invisible_database_is_not_marked(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer, made: str
) -> None:
    mighty = as_admin(mysql_server, mysql_server.superuser)
    await mighty.reconcile(user(KEEPER.username))
    theirs, ours = ledger("payroll"), ledger("payroll", OwnershipMark("c1", "Database", "other", "mine"))
    try:
        await (mighty.reconcile(theirs) if made == "by another" else mysql_server.execute("CREATE DATABASE payroll"))
        for _ in range(2):
            with pytest.raises(SqlFailed, match=r"searching for database payroll: Access denied"):
                await non_superuser_admin.reconcile(ours)
        await mysql_server.execute("GRANT ALL ON payroll.* TO {}@'%' WITH GRANT OPTION", CARETAKER.username)
        with pytest.raises(OwnedByAnother if made == "by another" else AlreadyExists):
            await non_superuser_admin.reconcile(ours)
        if made == "by another":
            assert await mighty.reconcile(theirs) == []
    finally:
        await mighty.close()


async def test_database_no_longer_visible_is_not_dropped(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    await non_superuser_admin.reconcile(user(KEEPER.username))
    await non_superuser_admin.reconcile(ledger())
    await lose(mysql_server)
    for _ in range(2):
        with pytest.raises(SqlFailed, match="dropping database ledger: Access denied"):
            await non_superuser_admin.drop_database(LEDGER, mark_named("keeper"))
    await non_superuser_admin.drop_database(LEDGER, mark_named("another"))
    await mysql_server.execute("GRANT DROP ON ledger.* TO {}@'%'", CARETAKER.username)
    await non_superuser_admin.drop_database(LEDGER, mark_named("keeper"))
    assert LEDGER not in await mysql_server.databases()


async def test_mark_of_dropped_database_is_removed(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    await non_superuser_admin.reconcile(user(KEEPER.username))
    await non_superuser_admin.reconcile(ledger())
    await mysql_server.execute("DROP DATABASE ledger")
    await non_superuser_admin.drop_database(LEDGER, mark_named("keeper"))
    assert await mysql_server.execute("SELECT * FROM steersman.claims WHERE name = 'ledger'") == []


async def test_role_active_for_administrator_is_not_adopted(
    non_superuser_admin: MySQLAccountsHarness, mysql_server: RealMySQLServer
) -> None:
    await mysql_server.execute_unprepared("CREATE ROLE dba")
    await mysql_server.execute("GRANT ALL ON payroll.* TO dba WITH GRANT OPTION")
    await mysql_server.execute_unprepared("GRANT dba TO {}@'%'", CARETAKER.username)
    to = "FOR" if await is_mariadb(mysql_server) else "TO"
    await mysql_server.execute_unprepared(f"SET DEFAULT ROLE dba {to} {{}}@'%'", CARETAKER.username)
    await mysql_server.execute("CREATE DATABASE payroll")
    with pytest.raises(InvalidName, match="the administrator has its privileges by this role"):
        await non_superuser_admin.reconcile(role("dba", adopt=True))
    assert await mysql_server.can_log_in(CARETAKER, "payroll")
