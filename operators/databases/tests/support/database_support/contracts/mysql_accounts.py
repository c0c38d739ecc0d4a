"""What users of MySQL and MariaDB may have, whatever the server: a model or a real one.

tests/unit and tests/integration collect this class, each with servers of its own. What is found after each step is
compared in whole, so the model is held to what real servers remember.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace

import pytest

from database_support.contracts.sql_engine import ContractServer
from steersman_databases.engines.connection.pool import ServerSessions
from steersman_databases.engines.errors import AlreadyExists, InvalidName, NotPermitted, NotSupported, ObjectsMissing
from steersman_databases.engines.mysql.sql import verifiers
from steersman_databases.engines.server import DatabaseServer as Located
from steersman_databases.engines.server import Login, SqlCredentials, TLSMode, Verification
from steersman_databases.engines.sql.desired import (
    AccountLimits,
    DesiredDatabase,
    DesiredGrant,
    DesiredMembership,
    DesiredUser,
    OwnershipMark,
    PasswordDirective,
    SecondCredential,
    SecurableKind,
)
from steersman_databases.engines.sql.inspection import InspectionScope, RoleMembership, SecuredObject, UserState
from steersman_databases.engines.sql.reconcile_sql import reconcile
from steersman_databases.engines.sql.sql_actions import (
    AlterRole,
    DiscardOldPassword,
    GrantPrivileges,
    GrantRole,
    RevokePrivileges,
    RevokeRole,
    RoleAttributes,
    SetVerifier,
    SqlAction,
)
from steersman_databases.engines.sql.sql_plan import SqlPlan, SqlStep

SERVER = SecuredObject(SecurableKind.SERVER, "*")
SHOP = "accounts_sh%op"
MYSQL_SCHEMA = SecuredObject(SecurableKind.DATABASE, "mysql")
VERIFIERS = SecuredObject(SecurableKind.TABLE, "mysql", None, "user")
TABLE = SecuredObject(SecurableKind.TABLE, SHOP, None, "till")
EVERY_DATABASE = SecuredObject(SecurableKind.DATABASE, "%", name="%")


def mark_named(name: str) -> OwnershipMark:
    return OwnershipMark("c1", "DatabaseUser", "shop", name)


class MySQLAccountsHarness:
    """A server and what is asked of it."""

    def __init__(self, server: ContractServer) -> None:
        self.server, self.sql_engine = server, server.sql_engine
        self.connections, self.others = self._connect(server.administrator), self._connect(server.superuser)

    def _connect(self, credentials: SqlCredentials) -> ServerSessions:
        login = Login(credentials.username, credentials.password)
        verification = Verification(TLSMode.REQUIRE)
        return self.sql_engine.connect(Located("mysql", self.server.endpoint, login, verification))

    async def close(self) -> None:
        await self.connections.close()
        await self.others.close()

    async def reconcile(self, desired: DesiredUser | DesiredDatabase) -> list[str]:
        """The reasons of what was changed. Afterwards nothing is left to do."""
        reasons = [change.reason for change in await reconcile(self.sql_engine, self.connections, desired)]
        assert await reconcile(self.sql_engine, self.connections, desired) == ()
        return reasons

    async def apply(self, *actions: SqlAction) -> None:
        """Something that somebody does behind our back, who may do anything."""
        await self.sql_engine.execute(self.others, SqlPlan(tuple(map(SqlStep, actions))))

    async def held_privileges(self, name: str, database: str = SHOP) -> set[tuple[str, str]]:
        """What a user holds: the object in words, and the privilege."""
        survey = await self.sql_engine.inspect(
            self.connections, InspectionScope(frozenset({name}), contents={database: frozenset()})
        )
        found = {one for state in survey.databases.values() for one in state.privileges}
        found |= {one for inside in survey.contents.values() for one in inside.privileges}
        return {(str(one.target), one.privilege) for one in found if one.grantee == name}

    async def state(self, name: str) -> UserState | None:
        survey = await self.sql_engine.inspect(self.connections, InspectionScope(frozenset({name})))
        return survey.users.get(name)

    async def drop_database(self, name: str, claim: OwnershipMark) -> None:
        survey = await self.sql_engine.inspect(self.connections, InspectionScope(databases=frozenset({name})))
        await self.sql_engine.execute(self.connections, self.sql_engine.plan_drop_database(survey, name, claim))

    async def drop(self, name: str) -> None:
        names = frozenset({name})
        survey = await self.sql_engine.inspect(self.connections, InspectionScope(names, dropped_databases=names))
        await self.sql_engine.execute(
            self.connections, self.sql_engine.plan_drop_user(survey, name, mark_named(name), None)
        )


@pytest.fixture
async def at(
    like_mysql: ContractServer, with_table: Callable[[str, str, tuple[str, ...]], object]
) -> AsyncGenerator[MySQLAccountsHarness]:
    """A server with one database, in it a table `till` with the columns `coin` and `note`."""
    found = MySQLAccountsHarness(like_mysql)
    if SHOP not in await like_mysql.databases():
        await found.reconcile(DesiredUser("accounts", "0wner", revoke_undeclared=False))
        await found.reconcile(DesiredDatabase(SHOP, "accounts"))
        result = with_table(SHOP, "till", ("coin", "note"))
        if hasattr(result, "__await__"):
            await result  # pyright: ignore[reportGeneralTypeIssues]
    yield found
    for name in ("clerk", "reader", "writer"):
        await found.drop(name)
    await found.close()


def user(name: str = "clerk", **fields: object) -> DesiredUser:
    return replace(DesiredUser(name, "s3cret", mark=mark_named(name)), **fields)


def role(name: str, **fields: object) -> DesiredUser:
    return user(name, password=PasswordDirective.NONE, login=False, **fields)


def on_table(*privileges: str, columns: tuple[str, ...] = (), option: bool = False) -> DesiredGrant:
    return DesiredGrant(SHOP, frozenset(privileges), SecurableKind.TABLE, None, ("till",), option, columns=columns)


def on_server(*privileges: str) -> DesiredGrant:
    return DesiredGrant("*", frozenset(privileges), SecurableKind.SERVER)


TILL = f"table {SHOP}.till"


class TestAccounts:
    async def test_grants_match_the_declaration(self, at: MySQLAccountsHarness) -> None:
        grants = (on_table("UPDATE", option=True), on_table("SELECT", columns=("coin",)), on_server("PROCESS"))
        clerk = user(grants=grants)
        assert await at.reconcile(clerk) == [
            "UserCreated",
            "PrivilegesGranted",
            "PrivilegesGranted",
            "PrivilegesGranted",
        ]
        declared = {(TILL, "UPDATE"), (TILL, "GRANT OPTION"), (f"column coin of {TILL}", "SELECT")}
        assert await at.held_privileges("clerk") == declared | {("the whole server", "PROCESS")}
        note = SecuredObject(SecurableKind.TABLE, SHOP, None, "till", column="note")
        await at.apply(
            GrantPrivileges("clerk", SERVER, ("INSERT", "GRANT OPTION"), ""),
            GrantPrivileges("clerk", note, ("SELECT",), ""),
            RevokePrivileges("clerk", replace(note, column=None), ("UPDATE",), ""),
        )
        assert sorted(await at.reconcile(clerk)) == ["GrantRevoked", "GrantRevoked", "PrivilegesGranted"]
        assert await at.held_privileges("clerk") == declared | {("the whole server", "PROCESS")}
        assert await at.reconcile(user()) == ["GrantRevoked"] * 3
        assert await at.held_privileges("clerk") == set()

    async def test_allowed_privileges_are_granted_and_revoked(self, at: MySQLAccountsHarness) -> None:
        database = DesiredGrant(SHOP, frozenset({"ALL"}), with_grant_option=True)
        grants = (on_server("ALL"), database, on_table("ALL", option=True))
        await at.reconcile(user(grants=grants, replication=True))
        held = await at.held_privileges("clerk")
        assert {("the whole server", "REPLICATION SLAVE"), (TILL, "GRANT OPTION"), (TILL, "TRIGGER")} <= held
        assert {on for on, _ in held} == {"the whole server", f"database {SHOP}", TILL}
        assert set(await at.reconcile(user())) == {"GrantRevoked"}
        assert await at.held_privileges("clerk") == set()

    async def test_column_narrowing_keeps_column_grants(self, at: MySQLAccountsHarness) -> None:
        note = replace(TABLE, column="note")
        await at.reconcile(user(grants=(on_table("SELECT"),)))
        await at.apply(GrantPrivileges("clerk", note, ("SELECT",), ""))
        narrowed = (on_table("SELECT", columns=("coin",)),)
        assert await at.reconcile(user(grants=narrowed)) == ["GrantRevoked", "PrivilegesGranted"]
        assert await at.held_privileges("clerk") == {(f"column coin of {TILL}", "SELECT")}
        await at.apply(GrantPrivileges("clerk", TABLE, ("SELECT",), ""))
        assert await at.reconcile(user(grants=narrowed)) == ["GrantRevoked", "PrivilegesGranted"]
        assert await at.reconcile(user(grants=(on_table("SELECT"),))) == ["PrivilegesGranted", "GrantRevoked"]
        await at.apply(GrantPrivileges("clerk", note, ("SELECT",), ""))
        assert await at.reconcile(user()) == ["GrantRevoked"]
        assert await at.held_privileges("clerk") == set()

    async def test_grant_on_missing_column_waits(self, at: MySQLAccountsHarness) -> None:
        with pytest.raises(ObjectsMissing, match=f"column later of {TILL} does not exist yet"):
            await reconcile(
                at.sql_engine, at.connections, user(grants=(on_table("SELECT", columns=("coin", "later")),))
            )
        assert await at.held_privileges("clerk") == {(f"column coin of {TILL}", "SELECT")}

    async def test_inherited_roles_are_active(self, at: MySQLAccountsHarness) -> None:
        await at.reconcile(role("reader", grants=(on_table("SELECT"),)))
        await at.reconcile(role("writer", grants=(on_table("INSERT"),)))
        credentials = at.server.administrator.__class__("clerk", "s3cret")
        roles = (DesiredMembership("reader"), DesiredMembership("writer", admin=True, inherit=False))
        clerk = user(roles=roles)
        made = await at.reconcile(clerk)
        assert made == ["UserCreated", "MembershipGranted", "MembershipGranted", "UserAltered"]
        state = await at.state("clerk")
        assert state is not None
        assert state.memberships == {
            RoleMembership("reader", "", admin=False, inherit=True, set_role=True),
            RoleMembership("writer", "", admin=True, inherit=False, set_role=True),
        }
        assert await at.server.can_log_in(credentials, SHOP)
        await at.apply(RevokeRole("clerk", "reader", ""))
        assert "MembershipGranted" in await at.reconcile(clerk)
        await at.apply(RevokeRole("clerk", "writer", ""), GrantRole("clerk", RoleMembership("writer", "")))
        assert await at.reconcile(clerk) == ["MembershipRevoked", "MembershipGranted"]
        assert await at.reconcile(user(roles=(DesiredMembership("reader"),))) == ["MembershipRevoked"]
        await at.reconcile(user())
        assert not await at.server.can_log_in(credentials, SHOP)

    async def test_additional_role_is_active_when_undeclared_kept(self, at: MySQLAccountsHarness) -> None:
        for name in ("reader", "writer"):
            await at.reconcile(role(name, grants=(on_table("SELECT"),)))
        await at.reconcile(user(roles=(DesiredMembership("reader"),)))
        made = await at.reconcile(user(roles=(DesiredMembership("writer"),), revoke_undeclared=False))
        assert made == ["MembershipGranted", "UserAltered"]
        state = await at.state("clerk")
        assert state is not None
        assert {one.role for one in state.memberships} == {"reader", "writer"}
        assert "writer" in {one.role for one in state.memberships if one.inherit}

    async def test_nested_role_is_not_counted_twice(self, at: MySQLAccountsHarness) -> None:
        await at.reconcile(role("reader", grants=(on_table("SELECT"),)))
        await at.reconcile(
            role("writer", grants=(on_table("INSERT"),), roles=(DesiredMembership("reader", inherit=False),))
        )
        assert await at.held_privileges("writer") == {(TILL, "INSERT")}

    async def test_role_becomes_user_and_role_again(self, at: MySQLAccountsHarness) -> None:
        grants = (on_table("SELECT"),)
        await at.reconcile(role("clerk", grants=grants))
        credentials = at.server.administrator.__class__("clerk", "s3cret")
        assert not await at.server.can_log_in(credentials, SHOP)
        await at.reconcile(user(grants=grants))
        assert await at.server.can_log_in(credentials, SHOP)
        await at.reconcile(role("clerk", grants=grants))
        assert not await at.server.can_log_in(credentials, SHOP)
        assert await at.held_privileges("clerk") == {(TILL, "SELECT")}

    async def test_two_passwords_are_valid_during_rotation(self, at: MySQLAccountsHarness) -> None:
        grants = (on_table("SELECT"),)
        await at.reconcile(user(password="first", grants=grants))
        rotated = user(password="next", second_credential=SecondCredential("first"), grants=grants)
        mariadb = (await at.sql_engine.inspect(at.connections, InspectionScope())).product == "MariaDB"
        verifier = verifiers.native_verifier if mariadb else verifiers.sha2_verifier
        alone = SetVerifier("clerk", verifier("next")) if mariadb else DiscardOldPassword("clerk")

        async def opening() -> set[str]:
            tried = {word: at.server.administrator.__class__("clerk", word) for word in ("first", "next", "other")}
            return {word for word, one in tried.items() if await at.server.can_log_in(one, SHOP)}

        assert await at.reconcile(rotated) == ["PasswordReset"]
        assert await opening() == {"first", "next"}
        await at.apply(alone)
        assert await opening() == {"next"}
        assert await at.reconcile(rotated) == ["PasswordReset"]
        assert await opening() == {"first", "next"}
        await at.apply(SetVerifier("clerk", verifier("other")), *([] if mariadb else [DiscardOldPassword("clerk")]))
        assert await opening() == {"other"}
        assert await at.reconcile(rotated) == ["PasswordReset"]
        assert await opening() == {"first", "next"}
        assert await at.reconcile(rotated) == []
        assert await at.reconcile(user(password="next", grants=grants)) == ["PasswordRemoved"]
        assert await opening() == {"next"}
        await at.apply(
            SetVerifier("clerk", verifier("next"), retain_current=not mariadb, second_verifier=verifier("other"))
        )
        assert await at.reconcile(user(password="next", grants=grants)) == ["PasswordRemoved"], (
            "nobody declared another"
        )
        assert await opening() == {"next"}

    async def test_limits_and_expiry_apply(self, at: MySQLAccountsHarness) -> None:
        clerk = user(connection_limit=3, limits=AccountLimits(100, 50, 20), grants=(on_table("SELECT"),))
        await at.reconcile(clerk)
        state = await at.state("clerk")
        assert state is not None
        assert (state.connection_limit, state.limits) == (3, AccountLimits(100, 50, 20))
        await at.apply(AlterRole("clerk", RoleAttributes(connection_limit=-1, limits=AccountLimits(1))))
        assert await at.reconcile(clerk) == ["UserAltered"]
        credentials = at.server.administrator.__class__("clerk", "s3cret")
        assert await at.server.can_log_in(credentials, SHOP)
        ended = replace(clerk, expired=True)
        assert await at.reconcile(ended) == ["UserLocked"]
        assert not await at.server.can_log_in(credentials, SHOP)
        await at.apply(AlterRole("clerk", RoleAttributes(locked=False)))
        assert await at.reconcile(ended) == ["UserLocked"]

    async def test_replication_privilege_is_granted(self, at: MySQLAccountsHarness) -> None:
        assert await at.reconcile(user(replication=True)) == ["UserCreated", "UserAltered"]
        assert await at.held_privileges("clerk") == {("the whole server", "REPLICATION SLAVE")}
        assert await at.reconcile(user()) == ["GrantRevoked"]
        await at.reconcile(user(replication=True, revoke_undeclared=False))
        assert await at.reconcile(user(revoke_undeclared=False)) == ["UserAltered"]
        assert await at.held_privileges("clerk") == set()
        await at.reconcile(role("reader", replication=True))
        await at.apply(GrantRole("clerk", RoleMembership("reader", "")))
        with pytest.raises(InvalidName, match="privileges on the whole server"):
            await at.reconcile(user(revoke_undeclared=False))

    @pytest.mark.parametrize(
        "privilege",
        [
            *("SUPER", "FILE", "CREATE USER", "RELOAD", "SELECT", "GRANT OPTION"),
            *("BACKUP_ADMIN", "FLUSH_TABLES", "FLUSH_USER_RESOURCES"),
        ],
    )
    async def test_superuser_privilege_is_not_granted(self, at: MySQLAccountsHarness, privilege: str) -> None:
        with pytest.raises(NotSupported, match="cannot be granted on the whole server"):
            await at.reconcile(user(grants=(on_server(privilege),)))

    @pytest.mark.parametrize("on", [SERVER, MYSQL_SCHEMA, VERIFIERS, EVERY_DATABASE], ids=str)
    async def test_superuser_via_role_is_rejected(self, at: MySQLAccountsHarness, on: SecuredObject) -> None:
        await at.reconcile(role("reader"))
        await at.reconcile(role("writer", roles=(DesiredMembership("reader", inherit=False),)))
        clerk = user(roles=(DesiredMembership("writer"),), grants=(on_table("SELECT"),))
        await at.reconcile(clerk)
        await at.apply(
            GrantPrivileges("reader", on, ("SELECT",), ""), RevokePrivileges("clerk", TABLE, ("SELECT",), "")
        )
        with pytest.raises(ObjectsMissing, match="role writer has privileges on the whole server") as caught:
            await at.reconcile(replace(clerk, expired=True))
        assert {one.reason for one in caught.value.changes} >= {
            "UserLocked",
            "MembershipRevoked",
            "PrivilegesGranted",
        }
        state = await at.state("clerk")
        assert state is not None
        assert (state.locked, state.superuser, state.memberships) == (True, False, frozenset())
        with pytest.raises(ObjectsMissing) as again:
            await at.reconcile(replace(clerk, expired=True))
        assert again.value.changes == ()

    @pytest.mark.parametrize("on", [SERVER, MYSQL_SCHEMA, VERIFIERS, EVERY_DATABASE], ids=str)
    async def test_superuser_is_not_adopted_and_own_loses_rights(
        self, at: MySQLAccountsHarness, on: SecuredObject
    ) -> None:
        await at.reconcile(user())
        await at.apply(GrantPrivileges("clerk", on, ("SELECT",), ""))
        with pytest.raises(InvalidName, match="privileges on the whole server"):
            await at.reconcile(user(revoke_undeclared=False))
        assert await at.reconcile(user(revoke_undeclared=False, expired=True)) == ["UserLocked"]
        assert await at.reconcile(user()) == ["UserUnlocked", "GrantRevoked"]
        state = await at.state("clerk")
        assert state is not None
        assert not state.superuser

    async def test_grants_on_dropped_database_are_revoked(self, at: MySQLAccountsHarness) -> None:
        """Here grants outlive what they are about."""
        database, till = "accounts_la%st", SecuredObject(SecurableKind.TABLE, "accounts_la%st", None, "till")
        guest = user(
            cross_namespace=True, revoke_undeclared=False, grants=(DesiredGrant(database, frozenset({"SELECT"})),)
        )
        await at.reconcile(DesiredUser("accounts", "0wner", revoke_undeclared=False))
        await at.reconcile(DesiredDatabase(database, "accounts", mark=mark_named("first")))
        await at.reconcile(guest)
        await at.apply(GrantPrivileges("clerk", till, ("INSERT", "CREATE"), ""))
        held = {(f"database {database}", "SELECT"), (f"table {database}.till", "INSERT")}
        await at.drop_database(database, mark_named("first"))
        assert held <= await at.held_privileges("clerk", database)
        with pytest.raises(ObjectsMissing, match="does not exist yet"):
            await at.reconcile(guest)
        other = OwnershipMark("c1", "Database", "elsewhere", "second")
        made = await at.reconcile(DesiredDatabase(database, "accounts", mark=other))
        assert set(made) == {"GrantRevoked", "DatabaseCreated"}
        assert await at.held_privileges("clerk", database) == set()
        with pytest.raises(NotPermitted):
            await at.reconcile(guest)
        await at.drop_database(database, other)

    async def test_owner_has_all_privileges_besides_declared(self, at: MySQLAccountsHarness) -> None:
        database, of = "accounts_h%ld", OwnershipMark("c1", "Database", "shop", "held")
        await at.reconcile(user())
        await at.reconcile(role("writer"))
        owned = DesiredDatabase(database, "clerk", mark=of)
        assert await at.reconcile(owned) == ["DatabaseCreated", "GrantsRestored"]
        everything = await at.held_privileges("clerk", database)
        assert {what for _, what in everything} > {"SELECT", "DROP", "CREATE ROUTINE"}
        assert await at.reconcile(user()) == []
        assert await at.held_privileges("clerk", database) == everything
        assert await at.reconcile(user(grants=(on_table("SELECT"),))) == ["PrivilegesGranted"]
        assert await at.reconcile(user()) == ["GrantRevoked"]
        handed_over = replace(owned, owner="writer")
        assert await at.reconcile(handed_over) == ["DatabaseAltered", "GrantsRestored"]
        assert await at.reconcile(user()) == ["GrantRevoked"]
        assert await at.held_privileges("clerk", database) == set()
        assert await at.reconcile(role("writer")) == []
        await at.drop_database(database, of)
        # Who owned the former one does not own the next.
        assert await at.reconcile(owned) == ["GrantRevoked", "DatabaseCreated", "GrantsRestored"]
        await at.drop_database(database, of)

    async def test_owner_privileges_are_limited_to_its_database(self, at: MySQLAccountsHarness) -> None:
        database, of = "accounts_h_ld", OwnershipMark("c1", "Database", "shop", "held")
        on, everything = SecuredObject(SecurableKind.DATABASE, database), frozenset({"ALL"})
        await at.reconcile(user())
        await at.reconcile(DesiredDatabase(database, "clerk", mark=of))
        declared = user(grants=(DesiredGrant(database, everything, with_grant_option=True),))
        assert await at.reconcile(declared) == ["PrivilegesGranted"]
        assert (str(on), "GRANT OPTION") in await at.held_privileges("clerk", database)
        assert await at.reconcile(user()) == ["GrantRevoked"]
        assert (str(on), "GRANT OPTION") not in await at.held_privileges("clerk", database)
        await at.apply(RevokePrivileges("clerk", on, ("SELECT",), ""))
        assert await at.reconcile(user()) == []
        # What is declared is granted, whether the owner has it by owning or not.
        assert await at.reconcile(user(grants=(DesiredGrant(database, everything),))) == ["PrivilegesGranted"]
        # The next of its name owns nothing.
        await at.drop("clerk")
        await at.reconcile(user(grants=(DesiredGrant(database, everything),)))
        assert await at.reconcile(user()) == ["GrantRevoked"]
        await at.drop_database(database, of)

    async def test_foreign_role_is_not_adopted(self, at: MySQLAccountsHarness) -> None:
        await at.reconcile(role("reader"))
        with pytest.raises(AlreadyExists):
            await at.reconcile(replace(role("reader"), mark=replace(mark_named("reader"), cluster="c2")))
