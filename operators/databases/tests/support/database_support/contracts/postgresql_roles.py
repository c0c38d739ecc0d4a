"""What roles of PostgreSQL may have and how they lose it, whatever the server: a model or a real one.

tests/unit and tests/integration collect this class, each with servers of its own. What is found after each step is
compared in whole, so the model is held to what real servers remember.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest

from database_support.contracts.sql_engine import ContractServer
from steersman_databases.engines.errors import ConcurrentChange, ObjectsMissing, SqlFailed
from steersman_databases.engines.server import DatabaseServer as Located
from steersman_databases.engines.server import Login, SqlCredentials, TLSMode, Verification
from steersman_databases.engines.sql.desired import (
    DesiredDatabase,
    DesiredGrant,
    DesiredMembership,
    DesiredSchema,
    DesiredUser,
    OwnershipMark,
    PasswordDirective,
    SecurableKind,
)
from steersman_databases.engines.sql.inspection import InspectionScope, RoleMembership, SecuredObject
from steersman_databases.engines.sql.reconcile_sql import reconcile
from steersman_databases.engines.sql.sql_actions import (
    AlterRole,
    GrantPrivileges,
    GrantRole,
    RoleAttributes,
    SqlAction,
)
from steersman_databases.engines.sql.sql_plan import SqlPlan, SqlStep

MARK = OwnershipMark("c1", "DatabaseUser", "shop", "it's")
SHOP, OWNER = "roles'; shop %s", SqlCredentials('roles" owner', "0wner")
DATABASE = DesiredDatabase(SHOP, OWNER.username, mark=MARK)
TILL = SecuredObject(SecurableKind.TABLE, SHOP, "public", "till")


def user(name: str = "clerk", **fields: Any) -> DesiredUser:
    return replace(DesiredUser(name, "s3cret", mark=MARK), **fields)


def role(name: str, **fields: Any) -> DesiredUser:
    return user(name, password=PasswordDirective.NONE, login=False, **fields)


class RolesHarness:
    """A server, as one who may do anything administrates it."""

    def __init__(self, server: ContractServer) -> None:
        login = Login(server.superuser.username, server.superuser.password)
        located = Located("postgresql", server.endpoint, login, Verification(TLSMode.REQUIRE))
        self.server, self.sql_engine = server, server.sql_engine
        self.connections = self.sql_engine.connect(located)

    async def reconcile(self, desired: DesiredUser | DesiredDatabase) -> list[str]:
        """The reasons of what was changed. Afterwards nothing is left to do."""
        reasons = [change.reason for change in await reconcile(self.sql_engine, self.connections, desired)]
        assert await reconcile(self.sql_engine, self.connections, desired) == ()
        return reasons

    async def apply(self, *actions: SqlAction) -> None:
        """Something that somebody does behind our back, who may do anything."""
        await self.sql_engine.execute(self.connections, SqlPlan(tuple(map(SqlStep, actions))))

    async def held_privileges(self, name: str = "clerk") -> set[tuple[str, str, str, bool]]:
        """What somebody holds: the object in words, the privilege, who gave it, and whether it may be passed on."""
        scope = InspectionScope(frozenset({name}), frozenset({SHOP}), {SHOP: frozenset({"public"})})
        survey = await self.sql_engine.inspect(self.connections, scope)
        states = (*survey.databases.values(), *survey.contents.values())
        found = {one for state in states for one in state.privileges if one.grantee == name}
        return {(one.target.kind.value, one.privilege, one.grantor, one.grantable) for one in found}

    async def memberships(self, name: str = "clerk") -> set[tuple[str, bool]]:
        survey = await self.sql_engine.inspect(self.connections, InspectionScope(frozenset({name})))
        return {(one.role, one.admin) for one in survey.users[name].memberships}

    async def drop(self, name: str) -> list[str]:
        survey = await self.sql_engine.inspect(self.connections, InspectionScope(frozenset({name})))
        plan = self.sql_engine.plan_drop_user(survey, name, MARK, None)
        return [change.reason for change in await self.sql_engine.execute(self.connections, plan)]

    async def has_inherited(self, name: str = "clerk") -> bool:
        """Whether the rights of all of a user's roles are its own."""
        survey = await self.sql_engine.inspect(self.connections, InspectionScope(frozenset({name})))
        state = survey.users[name]
        return all(state.inherit if one.inherit is None else one.inherit for one in state.memberships)


@pytest.fixture
async def at(like_postgresql: ContractServer) -> AsyncGenerator[RolesHarness]:
    """A server with one database, in it a table `till`."""
    found = RolesHarness(like_postgresql)
    await found.reconcile(user(OWNER.username, password=OWNER.password))
    if "DatabaseCreated" in await found.reconcile(DATABASE):
        await like_postgresql.create_table(OWNER, SHOP)
    yield found
    for name in ("jane", "clerk", "reader"):
        await found.drop(name)
    await found.connections.close()


def on_table(*privileges: str, option: bool = False) -> DesiredGrant:
    return DesiredGrant(SHOP, frozenset(privileges), SecurableKind.TABLE, "public", ("till",), option)


CONNECT = DesiredGrant(SHOP, frozenset({"CONNECT"}))
BY_OWNER = OWNER.username


class TestRoles:
    async def test_grant_option_granted_and_revoked(self, at: RolesHarness) -> None:
        await at.reconcile(user(grants=(CONNECT, on_table("SELECT", "INSERT", option=True))))
        both = {("table", "SELECT", BY_OWNER, True), ("table", "INSERT", BY_OWNER, True)}
        assert await at.held_privileges() == {("database", "CONNECT", BY_OWNER, False), *both}
        assert await at.reconcile(user(grants=(on_table("SELECT"),))) == ["GrantRevoked"] * 3
        assert await at.held_privileges() == {("table", "SELECT", BY_OWNER, False)}
        assert await at.reconcile(user(grants=(on_table("SELECT", option=True),))) == ["PrivilegesGranted"]
        assert await at.held_privileges() == {("table", "SELECT", BY_OWNER, True)}

    @pytest.mark.parametrize("kept", [(), (on_table("SELECT"),)], ids=["all of it", "the option only"])
    async def test_delegated_grant_is_reported_rest_revoked(
        self, at: RolesHarness, kept: tuple[DesiredGrant, ...]
    ) -> None:
        await at.reconcile(user("jane"))
        await at.reconcile(user(grants=(CONNECT, on_table("SELECT", "INSERT", option=True))))
        await at.apply(GrantPrivileges("jane", TILL, ("SELECT",), "clerk"))
        declared = user(grants=kept)
        words = r"clerk keeps .*SELECT on table .*\.public\.till, because it granted it to jane: revoke that first"
        with pytest.raises(ObjectsMissing, match=words):
            await at.reconcile(declared)
        assert await at.held_privileges() == {("table", "SELECT", BY_OWNER, True)}
        assert await at.reconcile(user("jane")) == ["GrantRevoked"]
        assert await at.reconcile(declared) == ["GrantRevoked"]
        assert await at.held_privileges() == {("table", "SELECT", BY_OWNER, False) for _ in kept}

    @pytest.mark.parametrize("kept", [True, False], ids=["the column", "nothing"])
    async def test_delegated_column_keeps_table_grant(self, at: RolesHarness, kept: bool) -> None:
        """What is revoked on a table goes from its columns too."""
        await at.reconcile(user("jane"))
        await at.reconcile(user(grants=(CONNECT, on_table("SELECT", "INSERT"))))
        column = replace(TILL, column="coin")
        await at.apply(
            GrantPrivileges("clerk", column, ("SELECT",), BY_OWNER, True),
            GrantPrivileges("jane", column, ("SELECT",), "clerk"),
        )
        narrow = replace(on_table("SELECT", option=True), columns=("coin",))
        declared = user(grants=(narrow,) if kept else ())
        words = r"clerk keeps .*SELECT on table .*\.public\.till, because it granted it to jane: revoke that first"
        with pytest.raises(ObjectsMissing, match=words):
            await at.reconcile(declared)
        assert await at.held_privileges() == {
            ("table", "SELECT", BY_OWNER, False),
            ("table", "SELECT", BY_OWNER, True),
        }
        assert await at.reconcile(user("jane")) == ["GrantRevoked"]
        await at.reconcile(declared)
        assert await at.held_privileges() == {("table", "SELECT", BY_OWNER, True) for _ in range(kept)}

    async def test_rejected_revoke_does_not_block_others(self, at: RolesHarness) -> None:
        """Somebody passes something on between a look and what is done by it."""
        await at.reconcile(user("jane"))
        use = DesiredGrant(SHOP, frozenset({"USAGE"}), SecurableKind.SCHEMA, "public")
        await at.reconcile(
            user(grants=(replace(CONNECT, with_grant_option=True), use, on_table("SELECT", option=True)))
        )
        scope = InspectionScope(frozenset({"clerk"}), frozenset({SHOP}), {SHOP: frozenset({"public"})})
        plan = at.sql_engine.plan_user(await at.sql_engine.inspect(at.connections, scope), user())
        database = SecuredObject(SecurableKind.DATABASE, SHOP)
        await at.apply(
            GrantPrivileges("jane", database, ("CONNECT",), "clerk"),
            GrantPrivileges("jane", TILL, ("SELECT",), "clerk"),
        )
        later = GrantPrivileges("clerk", TILL, ("UPDATE",), BY_OWNER)
        with pytest.raises(SqlFailed, match=r"revoking CONNECT.* 2BP01\); revoking SELECT.* 2BP01\)$") as caught:
            await at.sql_engine.execute(at.connections, SqlPlan((*plan.steps, SqlStep(later))))
        both = {("database", "CONNECT", BY_OWNER, True), ("table", "SELECT", BY_OWNER, True)}
        assert await at.held_privileges() == {*both, ("table", "UPDATE", BY_OWNER, False)}
        assert [change.reason for change in caught.value.changes] == ["GrantRevoked"]
        assert await at.reconcile(user("jane")) == ["GrantRevoked", "GrantRevoked"]

    async def test_grant_from_two_grantors_is_revoked_from_both(self, at: RolesHarness) -> None:
        await at.reconcile(user("jane", grants=(on_table("SELECT", option=True),)))
        await at.reconcile(user(grants=(on_table("SELECT"),)))
        await at.apply(GrantPrivileges("clerk", TILL, ("SELECT",), "jane"))
        assert await at.held_privileges() == {
            ("table", "SELECT", BY_OWNER, False),
            ("table", "SELECT", "jane", False),
        }
        assert await at.reconcile(user()) == ["GrantRevoked", "GrantRevoked"]
        assert await at.held_privileges() == set()

    @pytest.mark.parametrize("kept", [(), (on_table("SELECT"),)], ids=["all of it", "the option only"])
    async def test_self_delegated_grant_is_revoked_first(
        self, at: RolesHarness, kept: tuple[DesiredGrant, ...]
    ) -> None:
        await at.reconcile(user(grants=(on_table("SELECT", option=True),)))
        await at.apply(GrantPrivileges("clerk", TILL, ("SELECT",), "clerk"))
        assert await at.held_privileges() == {
            ("table", "SELECT", BY_OWNER, True),
            ("table", "SELECT", "clerk", False),
        }
        assert await at.reconcile(user(grants=kept)) == ["GrantRevoked", "GrantRevoked"]
        assert await at.held_privileges() == {("table", "SELECT", BY_OWNER, False) for _ in kept}

    async def test_default_privileges_granted_and_revoked(self, at: RolesHarness) -> None:
        later = DesiredGrant(SHOP, frozenset({"SELECT"}), SecurableKind.TABLE, "public", ("*",), future=True)
        await at.reconcile(user(grants=(later,)))
        survey = await at.sql_engine.inspect(
            at.connections, InspectionScope(frozenset({"clerk"}), contents={SHOP: frozenset()})
        )
        ahead = {one.target.creator: one.privilege for one in survey.contents[SHOP].privileges if one.target.creator}
        assert ahead == {OWNER.username: "SELECT"}
        assert await at.reconcile(user()) == ["GrantRevoked", "GrantRevoked"]
        assert await at.held_privileges() == set()

    async def test_memberships_match_the_declaration(self, at: RolesHarness) -> None:
        await at.reconcile(role("reader"))
        await at.reconcile(user(roles=(DesiredMembership("reader", admin=True),)))
        assert await at.memberships() == {("reader", True)}
        assert await at.reconcile(user(roles=(DesiredMembership("reader"),))) == [
            "MembershipRevoked",
            "MembershipGranted",
        ]
        assert await at.memberships() == {("reader", False)}
        await at.apply(GrantRole("clerk", RoleMembership(OWNER.username, at.server.superuser.username)))
        assert await at.reconcile(user(revoke_undeclared=False)) == []
        assert await at.reconcile(user()) == ["MembershipRevoked", "MembershipRevoked"]
        assert await at.memberships() == set()

    async def test_memberships_inherit_as_declared(self, at: RolesHarness) -> None:
        await at.reconcile(role("reader"))
        clerk = user(roles=(DesiredMembership("reader"),))
        for inherit in (True, False, True):
            await at.reconcile(replace(clerk, inherit=inherit))
            assert await at.has_inherited() is inherit
        await at.apply(AlterRole("clerk", RoleAttributes(inherit=False)))
        assert "UserAltered" in await at.reconcile(clerk)
        assert await at.has_inherited()

    async def test_user_with_grants_only_needs_no_new_owner(self, at: RolesHarness) -> None:
        await at.reconcile(user(grants=(CONNECT, on_table("SELECT"))))
        assert await at.drop("clerk") == ["UserDropped"]

    async def test_object_created_during_drop_is_kept(self, at: RolesHarness) -> None:
        create = DesiredGrant(SHOP, frozenset({"CREATE", "USAGE"}), SecurableKind.SCHEMA, "public")
        await at.reconcile(user(grants=(CONNECT, create)))
        survey = await at.sql_engine.inspect(at.connections, InspectionScope(frozenset({"clerk"})))
        plan = at.sql_engine.plan_drop_user(survey, "clerk", MARK, None)
        clerks = replace(DATABASE, schemas=(DesiredSchema("clerk's", "clerk"),))
        await at.reconcile(clerks)
        with pytest.raises(ConcurrentChange, match="it has become the owner of an object there"):
            await at.sql_engine.execute(at.connections, plan)
        assert await at.reconcile(replace(clerks, schemas=(DesiredSchema("clerk's"),))) == ["OwnerRestored"]
        gone = replace(clerks, schemas=(DesiredSchema("clerk's", present=False),))
        assert await at.reconcile(gone) == ["SchemaDropped"]

    async def test_non_empty_schema_does_not_block_others(self, at: RolesHarness) -> None:
        wanted = (DesiredSchema("public", present=False), DesiredSchema("later"))
        with pytest.raises(SqlFailed, match=r"dropping schema public.* depend") as caught:
            await at.reconcile(replace(DATABASE, schemas=wanted))
        assert [change.reason for change in caught.value.changes] == ["SchemaCreated"]
        assert await at.reconcile(replace(DATABASE, schemas=(replace(wanted[1], present=False),))) == [
            "SchemaDropped"
        ]
