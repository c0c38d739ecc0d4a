"""What roles of PostgreSQL may have and how they lose it, whatever the server: a model or a real one.

tests/unit and tests/integration collect this class, each with servers of its own. What is found after each step is
compared in whole, so the model is held to what real servers remember.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest

from database_support.engine_contract import Server
from steersman_databases.engines.actions import Action, AlterUser, Attributes, Grant, GrantRole
from steersman_databases.engines.desired import (
    Claim,
    DesiredDatabase,
    DesiredGrant,
    DesiredMembership,
    DesiredSchema,
    DesiredUser,
    NoPassword,
    ObjectKind,
)
from steersman_databases.engines.errors import ObjectsMissing, Raced, SqlFailed
from steersman_databases.engines.plan import Plan, Step
from steersman_databases.engines.server import Credentials, Login, TLSMode, Verification
from steersman_databases.engines.server import Server as Located
from steersman_databases.engines.settle import settle
from steersman_databases.engines.survey import Membership, Scope, SecuredObject

CLAIM = Claim("c1", "DatabaseUser", "shop", "it's")
SHOP, OWNER = "roles'; shop %s", Credentials('roles" owner', "0wner")
DATABASE = DesiredDatabase(SHOP, OWNER.username, claim=CLAIM)
TILL = SecuredObject(ObjectKind.TABLE, SHOP, "public", "till")


def user(name: str = "clerk", **fields: Any) -> DesiredUser:
    return replace(DesiredUser(name, "s3cret", claim=CLAIM), **fields)


def role(name: str, **fields: Any) -> DesiredUser:
    return user(name, password=NoPassword.NONE, login=False, **fields)


class At:
    """A server, as one who may do anything administrates it."""

    def __init__(self, server: Server) -> None:
        login = Login(server.superuser.username, server.superuser.password)
        located = Located("postgresql", server.endpoint, login, Verification(TLSMode.REQUIRE))
        self.server, self.contents = server, server.contents
        self.sessions = self.contents.connect(located)

    async def make(self, desired: DesiredUser | DesiredDatabase) -> list[str]:
        """The reasons of what was changed. Afterwards nothing is left to do."""
        reasons = [change.reason for change in await settle(self.contents, self.sessions, desired)]
        assert await settle(self.contents, self.sessions, desired) == ()
        return reasons

    async def do(self, *actions: Action) -> None:
        """Something that somebody does behind our back, who may do anything."""
        await self.contents.carry_out(self.sessions, Plan(tuple(map(Step, actions))))

    async def held(self, name: str = "clerk") -> set[tuple[str, str, str, bool]]:
        """What somebody holds: the object in words, the privilege, who gave it, and whether it may be passed on."""
        scope = Scope(frozenset({name}), frozenset({SHOP}), {SHOP: frozenset({"public"})})
        survey = await self.contents.survey(self.sessions, scope)
        states = (*survey.databases.values(), *survey.inside.values())
        found = {one for state in states for one in state.privileges if one.grantee == name}
        return {(one.on.kind.value, one.privilege, one.grantor, one.grantable) for one in found}

    async def memberships(self, name: str = "clerk") -> set[tuple[str, bool]]:
        survey = await self.contents.survey(self.sessions, Scope(frozenset({name})))
        return {(one.role, one.admin) for one in survey.users[name].memberships}

    async def drop(self, name: str) -> list[str]:
        survey = await self.contents.survey(self.sessions, Scope(frozenset({name})))
        plan = self.contents.plan_drop_user(survey, name, CLAIM, None)
        return [change.reason for change in await self.contents.carry_out(self.sessions, plan)]

    async def has_inherited(self, name: str = "clerk") -> bool:
        """Whether the rights of all of a user's roles are its own."""
        survey = await self.contents.survey(self.sessions, Scope(frozenset({name})))
        state = survey.users[name]
        return all(state.inherit if one.inherit is None else one.inherit for one in state.memberships)


@pytest.fixture
async def at(like_postgresql: Server) -> AsyncGenerator[At]:
    """A server with one database, in it a table `till`."""
    found = At(like_postgresql)
    await found.make(user(OWNER.username, password=OWNER.password))
    if "DatabaseCreated" in await found.make(DATABASE):
        await like_postgresql.create_table(OWNER, SHOP)
    yield found
    for name in ("jane", "clerk", "reader"):
        await found.drop(name)
    await found.sessions.close()


def on_table(*privileges: str, option: bool = False) -> DesiredGrant:
    return DesiredGrant(SHOP, frozenset(privileges), ObjectKind.TABLE, "public", ("till",), option)


CONNECT = DesiredGrant(SHOP, frozenset({"CONNECT"}))
BY_OWNER = OWNER.username


class TestRoles:
    async def test_the_right_to_pass_on_comes_and_goes(self, at: At) -> None:
        await at.make(user(grants=(CONNECT, on_table("SELECT", "INSERT", option=True))))
        both = {("table", "SELECT", BY_OWNER, True), ("table", "INSERT", BY_OWNER, True)}
        assert await at.held() == {("database", "CONNECT", BY_OWNER, False), *both}
        assert await at.make(user(grants=(on_table("SELECT"),))) == ["GrantRevoked"] * 3
        assert await at.held() == {("table", "SELECT", BY_OWNER, False)}
        assert await at.make(user(grants=(on_table("SELECT", option=True),))) == ["Granted"]
        assert await at.held() == {("table", "SELECT", BY_OWNER, True)}

    @pytest.mark.parametrize("kept", [(), (on_table("SELECT"),)], ids=["all of it", "the option only"])
    async def test_what_was_passed_on_is_told_and_the_rest_is_revoked(
        self, at: At, kept: tuple[DesiredGrant, ...]
    ) -> None:
        await at.make(user("jane"))
        await at.make(user(grants=(CONNECT, on_table("SELECT", "INSERT", option=True))))
        await at.do(Grant("jane", TILL, ("SELECT",), "clerk"))
        declared = user(grants=kept)
        words = r"SELECT on table .*\.public\.till stays with clerk, who passed it on to jane: revoke that first"
        with pytest.raises(ObjectsMissing, match=words):
            await at.make(declared)
        assert await at.held() == {("table", "SELECT", BY_OWNER, True)}
        assert await at.make(user("jane")) == ["GrantRevoked"]
        assert await at.make(declared) == ["GrantRevoked"]
        assert await at.held() == {("table", "SELECT", BY_OWNER, False) for _ in kept}

    @pytest.mark.parametrize("kept", [True, False], ids=["the column", "nothing"])
    async def test_a_column_that_was_passed_on_keeps_the_table(self, at: At, kept: bool) -> None:
        """What is revoked on a table goes from its columns too."""
        await at.make(user("jane"))
        await at.make(user(grants=(CONNECT, on_table("SELECT", "INSERT"))))
        column = replace(TILL, column="coin")
        await at.do(Grant("clerk", column, ("SELECT",), BY_OWNER, True), Grant("jane", column, ("SELECT",), "clerk"))
        narrow = replace(on_table("SELECT", option=True), columns=("coin",))
        declared = user(grants=(narrow,) if kept else ())
        words = r"SELECT on table .*\.public\.till stays with clerk, who passed it on to jane: revoke that first"
        with pytest.raises(ObjectsMissing, match=words):
            await at.make(declared)
        assert await at.held() == {("table", "SELECT", BY_OWNER, False), ("table", "SELECT", BY_OWNER, True)}
        assert await at.make(user("jane")) == ["GrantRevoked"]
        await at.make(declared)
        assert await at.held() == {("table", "SELECT", BY_OWNER, True) for _ in range(kept)}

    async def test_a_refused_revoke_stops_nothing_else(self, at: At) -> None:
        """Somebody passes something on between a look and what is done by it."""
        await at.make(user("jane"))
        use = DesiredGrant(SHOP, frozenset({"USAGE"}), ObjectKind.SCHEMA, "public")
        await at.make(user(grants=(replace(CONNECT, with_grant_option=True), use, on_table("SELECT", option=True))))
        scope = Scope(frozenset({"clerk"}), frozenset({SHOP}), {SHOP: frozenset({"public"})})
        plan = at.contents.plan_user(await at.contents.survey(at.sessions, scope), user())
        database = SecuredObject(ObjectKind.DATABASE, SHOP)
        await at.do(Grant("jane", database, ("CONNECT",), "clerk"), Grant("jane", TILL, ("SELECT",), "clerk"))
        later = Grant("clerk", TILL, ("UPDATE",), BY_OWNER)
        with pytest.raises(SqlFailed, match=r"revoking CONNECT.* 2BP01\); revoking SELECT.* 2BP01\)$") as caught:
            await at.contents.carry_out(at.sessions, Plan((*plan.steps, Step(later))))
        both = {("database", "CONNECT", BY_OWNER, True), ("table", "SELECT", BY_OWNER, True)}
        assert await at.held() == {*both, ("table", "UPDATE", BY_OWNER, False)}
        assert [change.reason for change in caught.value.changes] == ["GrantRevoked"]
        assert await at.make(user("jane")) == ["GrantRevoked", "GrantRevoked"]

    async def test_who_is_given_it_by_two_loses_both(self, at: At) -> None:
        await at.make(user("jane", grants=(on_table("SELECT", option=True),)))
        await at.make(user(grants=(on_table("SELECT"),)))
        await at.do(Grant("clerk", TILL, ("SELECT",), "jane"))
        assert await at.held() == {("table", "SELECT", BY_OWNER, False), ("table", "SELECT", "jane", False)}
        assert await at.make(user()) == ["GrantRevoked", "GrantRevoked"]
        assert await at.held() == set()

    @pytest.mark.parametrize("kept", [(), (on_table("SELECT"),)], ids=["all of it", "the option only"])
    async def test_what_one_passed_on_to_oneself_is_revoked_first(
        self, at: At, kept: tuple[DesiredGrant, ...]
    ) -> None:
        await at.make(user(grants=(on_table("SELECT", option=True),)))
        await at.do(Grant("clerk", TILL, ("SELECT",), "clerk"))
        assert await at.held() == {("table", "SELECT", BY_OWNER, True), ("table", "SELECT", "clerk", False)}
        assert await at.make(user(grants=kept)) == ["GrantRevoked", "GrantRevoked"]
        assert await at.held() == {("table", "SELECT", BY_OWNER, False) for _ in kept}

    async def test_what_is_to_come_is_granted_and_revoked(self, at: At) -> None:
        later = DesiredGrant(SHOP, frozenset({"SELECT"}), ObjectKind.TABLE, "public", ("*",), future=True)
        await at.make(user(grants=(later,)))
        survey = await at.contents.survey(at.sessions, Scope(frozenset({"clerk"}), inside={SHOP: frozenset()}))
        ahead = {one.on.creator: one.privilege for one in survey.inside[SHOP].privileges if one.on.creator}
        assert ahead == {OWNER.username: "SELECT"}
        assert await at.make(user()) == ["GrantRevoked", "GrantRevoked"]
        assert await at.held() == set()

    async def test_memberships_follow_what_is_declared(self, at: At) -> None:
        await at.make(role("reader"))
        await at.make(user(roles=(DesiredMembership("reader", admin=True),)))
        assert await at.memberships() == {("reader", True)}
        assert await at.make(user(roles=(DesiredMembership("reader"),))) == ["MembershipRevoked", "MembershipGranted"]
        assert await at.memberships() == {("reader", False)}
        await at.do(GrantRole("clerk", Membership(OWNER.username, at.server.superuser.username)))
        assert await at.make(user(exact=False)) == []
        assert await at.make(user()) == ["MembershipRevoked", "MembershipRevoked"]
        assert await at.memberships() == set()

    async def test_memberships_are_inherited_as_the_user_is_declared_to(self, at: At) -> None:
        await at.make(role("reader"))
        clerk = user(roles=(DesiredMembership("reader"),))
        for inherit in (True, False, True):
            await at.make(replace(clerk, inherit=inherit))
            assert await at.has_inherited() is inherit
        await at.do(AlterUser("clerk", Attributes(inherit=False)))
        assert "UserAltered" in await at.make(clerk)
        assert await at.has_inherited()

    async def test_who_was_only_granted_something_needs_no_heir(self, at: At) -> None:
        await at.make(user(grants=(CONNECT, on_table("SELECT"))))
        assert await at.drop("clerk") == ["UserDropped"]

    async def test_what_somebody_made_since_one_looked_is_not_dropped(self, at: At) -> None:
        create = DesiredGrant(SHOP, frozenset({"CREATE", "USAGE"}), ObjectKind.SCHEMA, "public")
        await at.make(user(grants=(CONNECT, create)))
        survey = await at.contents.survey(at.sessions, Scope(frozenset({"clerk"})))
        plan = at.contents.plan_drop_user(survey, "clerk", CLAIM, None)
        clerks = replace(DATABASE, schemas=(DesiredSchema("clerk's", "clerk"),))
        await at.make(clerks)
        with pytest.raises(Raced, match="it has come to own something there"):
            await at.contents.carry_out(at.sessions, plan)
        assert await at.make(replace(clerks, schemas=(DesiredSchema("clerk's"),))) == ["OwnerRestored"]
        gone = replace(clerks, schemas=(DesiredSchema("clerk's", present=False),))
        assert await at.make(gone) == ["SchemaDropped"]

    async def test_a_schema_with_something_in_it_stops_nothing_else(self, at: At) -> None:
        wanted = (DesiredSchema("public", present=False), DesiredSchema("later"))
        with pytest.raises(SqlFailed, match=r"dropping schema public.* depend") as caught:
            await at.make(replace(DATABASE, schemas=wanted))
        assert [change.reason for change in caught.value.changes] == ["SchemaCreated"]
        assert await at.make(replace(DATABASE, schemas=(replace(wanted[1], present=False),))) == ["SchemaDropped"]
