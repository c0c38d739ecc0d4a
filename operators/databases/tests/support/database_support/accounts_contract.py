"""What users of MySQL and MariaDB may have, whatever the server: a model or a real one.

tests/unit and tests/integration collect this class, each with servers of its own. What is found after each step is
compared in whole, so the model is held to what real servers remember.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace

import pytest

from database_support.engine_contract import Server
from steersman_databases.engines.actions import (
    Action,
    AlterUser,
    Attributes,
    DiscardSecond,
    Grant,
    GrantRole,
    Revoke,
    RevokeRole,
    SetVerifier,
)
from steersman_databases.engines.desired import (
    Claim,
    DesiredDatabase,
    DesiredGrant,
    DesiredMembership,
    DesiredUser,
    HourlyLimits,
    NoPassword,
    ObjectKind,
    SecondCredential,
)
from steersman_databases.engines.errors import (
    AlreadyExists,
    InvalidName,
    NotPermitted,
    NotSupported,
    ObjectsMissing,
)
from steersman_databases.engines.mysql import verifiers
from steersman_databases.engines.plan import Plan, Step
from steersman_databases.engines.server import Credentials, Login, TLSMode, Verification
from steersman_databases.engines.server import Server as Located
from steersman_databases.engines.sessions import Sessions
from steersman_databases.engines.settle import settle
from steersman_databases.engines.survey import Membership, Scope, SecuredObject, UserState

SERVER = SecuredObject(ObjectKind.SERVER, "*")
SHOP = "accounts_sh%op"
OF_THE_SERVER = SecuredObject(ObjectKind.DATABASE, "mysql")
VERIFIERS = SecuredObject(ObjectKind.TABLE, "mysql", None, "user")
TABLE = SecuredObject(ObjectKind.TABLE, SHOP, None, "till")
EVERY_DATABASE = SecuredObject(ObjectKind.DATABASE, "%", name="%")


def claim(name: str) -> Claim:
    return Claim("c1", "DatabaseUser", "shop", name)


class At:
    """A server and what is asked of it."""

    def __init__(self, server: Server) -> None:
        self.server, self.contents = server, server.contents
        self.sessions, self.others = self._connect(server.administrator), self._connect(server.superuser)

    def _connect(self, credentials: Credentials) -> Sessions:
        login = Login(credentials.username, credentials.password)
        verification = Verification(TLSMode.REQUIRE)
        return self.contents.connect(Located("mysql", self.server.endpoint, login, verification))

    async def close(self) -> None:
        await self.sessions.close()
        await self.others.close()

    async def make(self, desired: DesiredUser | DesiredDatabase) -> list[str]:
        """The reasons of what was changed. Afterwards nothing is left to do."""
        reasons = [change.reason for change in await settle(self.contents, self.sessions, desired)]
        assert await settle(self.contents, self.sessions, desired) == ()
        return reasons

    async def do(self, *actions: Action) -> None:
        """Something that somebody does behind our back, who may do anything."""
        await self.contents.carry_out(self.others, Plan(tuple(map(Step, actions))))

    async def held(self, name: str, database: str = SHOP) -> set[tuple[str, str]]:
        """What a user holds: the object in words, and the privilege."""
        survey = await self.contents.survey(self.sessions, Scope(frozenset({name}), inside={database: frozenset()}))
        found = {one for state in survey.databases.values() for one in state.privileges}
        found |= {one for inside in survey.inside.values() for one in inside.privileges}
        return {(str(one.on), one.privilege) for one in found if one.grantee == name}

    async def state(self, name: str) -> UserState | None:
        survey = await self.contents.survey(self.sessions, Scope(frozenset({name})))
        return survey.users.get(name)

    async def drop_database(self, name: str, claim: Claim) -> None:
        survey = await self.contents.survey(self.sessions, Scope(databases=frozenset({name})))
        await self.contents.carry_out(self.sessions, self.contents.plan_drop_database(survey, name, claim))

    async def drop(self, name: str) -> None:
        names = frozenset({name})
        survey = await self.contents.survey(self.sessions, Scope(names, dropped=names))
        await self.contents.carry_out(self.sessions, self.contents.plan_drop_user(survey, name, claim(name), None))


@pytest.fixture
async def at(like_mysql: Server, with_table: Callable[[str, str, tuple[str, ...]], object]) -> AsyncGenerator[At]:
    """A server with one database, in it a table `till` with the columns `coin` and `note`."""
    found = At(like_mysql)
    if SHOP not in await like_mysql.databases():
        await found.make(DesiredUser("accounts", "0wner", exact=False))
        await found.make(DesiredDatabase(SHOP, "accounts"))
        result = with_table(SHOP, "till", ("coin", "note"))
        if hasattr(result, "__await__"):
            await result  # pyright: ignore[reportGeneralTypeIssues]
    yield found
    for name in ("clerk", "reader", "writer"):
        await found.drop(name)
    await found.close()


def user(name: str = "clerk", **fields: object) -> DesiredUser:
    return replace(DesiredUser(name, "s3cret", claim=claim(name)), **fields)


def role(name: str, **fields: object) -> DesiredUser:
    return user(name, password=NoPassword.NONE, login=False, **fields)


def on_table(*privileges: str, columns: tuple[str, ...] = (), option: bool = False) -> DesiredGrant:
    return DesiredGrant(SHOP, frozenset(privileges), ObjectKind.TABLE, None, ("till",), option, columns=columns)


def on_server(*privileges: str) -> DesiredGrant:
    return DesiredGrant("*", frozenset(privileges), ObjectKind.SERVER)


TILL = f"table {SHOP}.till"


class TestAccounts:
    async def test_exactly_what_is_declared(self, at: At) -> None:
        grants = (on_table("UPDATE", option=True), on_table("SELECT", columns=("coin",)), on_server("PROCESS"))
        clerk = user(grants=grants)
        assert await at.make(clerk) == ["UserCreated", "Granted", "Granted", "Granted"]
        declared = {(TILL, "UPDATE"), (TILL, "GRANT OPTION"), (f"column coin of {TILL}", "SELECT")}
        assert await at.held("clerk") == declared | {("the whole server", "PROCESS")}
        note = SecuredObject(ObjectKind.TABLE, SHOP, None, "till", column="note")
        await at.do(
            Grant("clerk", SERVER, ("INSERT", "GRANT OPTION"), ""),
            Grant("clerk", note, ("SELECT",), ""),
            Revoke("clerk", replace(note, column=None), ("UPDATE",), ""),
        )
        assert sorted(await at.make(clerk)) == ["GrantRevoked", "GrantRevoked", "Granted"]
        assert await at.held("clerk") == declared | {("the whole server", "PROCESS")}
        assert await at.make(user()) == ["GrantRevoked"] * 3
        assert await at.held("clerk") == set()

    async def test_all_that_may_be_declared_can_be_given_and_taken(self, at: At) -> None:
        database = DesiredGrant(SHOP, frozenset({"ALL"}), with_grant_option=True)
        grants = (on_server("ALL"), database, on_table("ALL", option=True))
        await at.make(user(grants=grants, replication=True))
        held = await at.held("clerk")
        assert {("the whole server", "REPLICATION SLAVE"), (TILL, "GRANT OPTION"), (TILL, "TRIGGER")} <= held
        assert {on for on, _ in held} == {"the whole server", f"database {SHOP}", TILL}
        assert set(await at.make(user())) == {"GrantRevoked"}
        assert await at.held("clerk") == set()

    async def test_what_is_narrowed_to_columns_keeps_them(self, at: At) -> None:
        note = replace(TABLE, column="note")
        await at.make(user(grants=(on_table("SELECT"),)))
        await at.do(Grant("clerk", note, ("SELECT",), ""))
        narrowed = (on_table("SELECT", columns=("coin",)),)
        assert await at.make(user(grants=narrowed)) == ["GrantRevoked", "Granted"]
        assert await at.held("clerk") == {(f"column coin of {TILL}", "SELECT")}
        await at.do(Grant("clerk", TABLE, ("SELECT",), ""))
        assert await at.make(user(grants=narrowed)) == ["GrantRevoked", "Granted"]
        assert await at.make(user(grants=(on_table("SELECT"),))) == ["Granted", "GrantRevoked"]
        await at.do(Grant("clerk", note, ("SELECT",), ""))
        assert await at.make(user()) == ["GrantRevoked"]
        assert await at.held("clerk") == set()

    async def test_a_column_that_is_not_there_is_waited_for(self, at: At) -> None:
        with pytest.raises(ObjectsMissing, match=f"column later of {TILL} is not there yet"):
            await settle(at.contents, at.sessions, user(grants=(on_table("SELECT", columns=("coin", "later")),)))
        assert await at.held("clerk") == {(f"column coin of {TILL}", "SELECT")}

    async def test_roles_are_active_if_they_are_inherited(self, at: At) -> None:
        await at.make(role("reader", grants=(on_table("SELECT"),)))
        await at.make(role("writer", grants=(on_table("INSERT"),)))
        credentials = at.server.administrator.__class__("clerk", "s3cret")
        roles = (DesiredMembership("reader"), DesiredMembership("writer", admin=True, inherit=False))
        clerk = user(roles=roles)
        made = await at.make(clerk)
        assert made == ["UserCreated", "MembershipGranted", "MembershipGranted", "UserAltered"]
        state = await at.state("clerk")
        assert state is not None
        assert state.memberships == {
            Membership("reader", "", admin=False, inherit=True, set_role=True),
            Membership("writer", "", admin=True, inherit=False, set_role=True),
        }
        assert await at.server.can_log_in(credentials, SHOP)
        await at.do(RevokeRole("clerk", "reader", ""))
        assert "MembershipGranted" in await at.make(clerk)
        await at.do(RevokeRole("clerk", "writer", ""), GrantRole("clerk", Membership("writer", "")))
        assert await at.make(clerk) == ["MembershipRevoked", "MembershipGranted"]
        assert await at.make(user(roles=(DesiredMembership("reader"),))) == ["MembershipRevoked"]
        await at.make(user())
        assert not await at.server.can_log_in(credentials, SHOP)

    async def test_one_more_role_is_active_where_what_is_undeclared_is_kept(self, at: At) -> None:
        for name in ("reader", "writer"):
            await at.make(role(name, grants=(on_table("SELECT"),)))
        await at.make(user(roles=(DesiredMembership("reader"),)))
        made = await at.make(user(roles=(DesiredMembership("writer"),), exact=False))
        assert made == ["MembershipGranted", "UserAltered"]
        state = await at.state("clerk")
        assert state is not None
        assert {one.role for one in state.memberships} == {"reader", "writer"}
        assert "writer" in {one.role for one in state.memberships if one.inherit}

    async def test_a_role_in_a_role_is_not_counted_twice(self, at: At) -> None:
        await at.make(role("reader", grants=(on_table("SELECT"),)))
        await at.make(
            role("writer", grants=(on_table("INSERT"),), roles=(DesiredMembership("reader", inherit=False),))
        )
        assert await at.held("writer") == {(TILL, "INSERT")}

    async def test_a_role_becomes_a_user_and_again_a_role(self, at: At) -> None:
        grants = (on_table("SELECT"),)
        await at.make(role("clerk", grants=grants))
        credentials = at.server.administrator.__class__("clerk", "s3cret")
        assert not await at.server.can_log_in(credentials, SHOP)
        await at.make(user(grants=grants))
        assert await at.server.can_log_in(credentials, SHOP)
        await at.make(role("clerk", grants=grants))
        assert not await at.server.can_log_in(credentials, SHOP)
        assert await at.held("clerk") == {(TILL, "SELECT")}

    async def test_two_passwords_open_while_one_follows_the_other(self, at: At) -> None:
        grants = (on_table("SELECT"),)
        await at.make(user(password="first", grants=grants))
        rotated = user(password="next", second=SecondCredential("first"), grants=grants)
        mariadb = (await at.contents.survey(at.sessions, Scope())).product == "MariaDB"
        verifier = verifiers.native if mariadb else verifiers.sha2
        alone = SetVerifier("clerk", verifier("next")) if mariadb else DiscardSecond("clerk")

        async def opening() -> set[str]:
            tried = {word: at.server.administrator.__class__("clerk", word) for word in ("first", "next", "other")}
            return {word for word, one in tried.items() if await at.server.can_log_in(one, SHOP)}

        assert await at.make(rotated) == ["PasswordReset"]
        assert await opening() == {"first", "next"}
        await at.do(alone)
        assert await opening() == {"next"}
        assert await at.make(rotated) == ["PasswordReset"]
        assert await opening() == {"first", "next"}
        await at.do(SetVerifier("clerk", verifier("other")), *([] if mariadb else [DiscardSecond("clerk")]))
        assert await opening() == {"other"}
        assert await at.make(rotated) == ["PasswordReset"]
        assert await opening() == {"first", "next"}
        assert await at.make(rotated) == []
        assert await at.make(user(password="next", grants=grants)) == ["PasswordRemoved"]
        assert await opening() == {"next"}
        await at.do(SetVerifier("clerk", verifier("next"), retain=not mariadb, beside=verifier("other")))
        assert await at.make(user(password="next", grants=grants)) == ["PasswordRemoved"], "nobody declared another"
        assert await opening() == {"next"}

    async def test_limits_and_an_end(self, at: At) -> None:
        clerk = user(connection_limit=3, limits=HourlyLimits(100, 50, 20), grants=(on_table("SELECT"),))
        await at.make(clerk)
        state = await at.state("clerk")
        assert state is not None
        assert (state.connection_limit, state.limits) == (3, HourlyLimits(100, 50, 20))
        await at.do(AlterUser("clerk", Attributes(connection_limit=-1, limits=HourlyLimits(1))))
        assert await at.make(clerk) == ["UserAltered"]
        credentials = at.server.administrator.__class__("clerk", "s3cret")
        assert await at.server.can_log_in(credentials, SHOP)
        ended = replace(clerk, ended=True)
        assert await at.make(ended) == ["UserLocked"]
        assert not await at.server.can_log_in(credentials, SHOP)
        await at.do(AlterUser("clerk", Attributes(locked=False)))
        assert await at.make(ended) == ["UserLocked"]

    async def test_who_may_replicate(self, at: At) -> None:
        assert await at.make(user(replication=True)) == ["UserCreated", "UserAltered"]
        assert await at.held("clerk") == {("the whole server", "REPLICATION SLAVE")}
        assert await at.make(user()) == ["GrantRevoked"]
        await at.make(user(replication=True, exact=False))
        assert await at.make(user(exact=False)) == ["UserAltered"]
        assert await at.held("clerk") == set()
        await at.make(role("reader", replication=True))
        await at.do(GrantRole("clerk", Membership("reader", "")))
        with pytest.raises(InvalidName, match="rights over the whole server"):
            await at.make(user(exact=False))

    @pytest.mark.parametrize(
        "privilege",
        [
            *("SUPER", "FILE", "CREATE USER", "RELOAD", "SELECT", "GRANT OPTION"),
            *("BACKUP_ADMIN", "FLUSH_TABLES", "FLUSH_USER_RESOURCES"),
        ],
    )
    async def test_what_makes_an_administrator_is_not_given_away(self, at: At, privilege: str) -> None:
        with pytest.raises(NotSupported, match="is not given away on the whole server"):
            await at.make(user(grants=(on_server(privilege),)))

    @pytest.mark.parametrize("on", [SERVER, OF_THE_SERVER, VERIFIERS, EVERY_DATABASE], ids=str)
    async def test_nobody_gets_mighty_by_a_role(self, at: At, on: SecuredObject) -> None:
        await at.make(role("reader"))
        await at.make(role("writer", roles=(DesiredMembership("reader", inherit=False),)))
        clerk = user(roles=(DesiredMembership("writer"),), grants=(on_table("SELECT"),))
        await at.make(clerk)
        await at.do(Grant("reader", on, ("SELECT",), ""), Revoke("clerk", TABLE, ("SELECT",), ""))
        with pytest.raises(ObjectsMissing, match="role writer has rights over the whole server") as caught:
            await at.make(replace(clerk, ended=True))
        assert {one.reason for one in caught.value.changes} >= {"UserLocked", "MembershipRevoked", "Granted"}
        state = await at.state("clerk")
        assert state is not None
        assert (state.locked, state.superuser, state.memberships) == (True, False, frozenset())
        with pytest.raises(ObjectsMissing) as again:
            await at.make(replace(clerk, ended=True))
        assert again.value.changes == ()

    @pytest.mark.parametrize("on", [SERVER, OF_THE_SERVER, VERIFIERS, EVERY_DATABASE], ids=str)
    async def test_who_is_mighty_is_not_taken_and_who_is_ours_is_so_no_more(self, at: At, on: SecuredObject) -> None:
        await at.make(user())
        await at.do(Grant("clerk", on, ("SELECT",), ""))
        with pytest.raises(InvalidName, match="rights over the whole server"):
            await at.make(user(exact=False))
        assert await at.make(user(exact=False, ended=True)) == ["UserLocked"]
        assert await at.make(user()) == ["UserUnlocked", "GrantRevoked"]
        state = await at.state("clerk")
        assert state is not None
        assert not state.superuser

    async def test_who_could_read_a_database_cannot_read_the_next_of_its_name(self, at: At) -> None:
        """Here grants outlive what they are about."""
        database, till = "accounts_la%st", SecuredObject(ObjectKind.TABLE, "accounts_la%st", None, "till")
        guest = user(guest=True, exact=False, grants=(DesiredGrant(database, frozenset({"SELECT"})),))
        await at.make(DesiredUser("accounts", "0wner", exact=False))
        await at.make(DesiredDatabase(database, "accounts", claim=claim("first")))
        await at.make(guest)
        await at.do(Grant("clerk", till, ("INSERT", "CREATE"), ""))
        held = {(f"database {database}", "SELECT"), (f"table {database}.till", "INSERT")}
        await at.drop_database(database, claim("first"))
        assert held <= await at.held("clerk", database)
        with pytest.raises(ObjectsMissing, match="is not there yet"):
            await at.make(guest)
        other = Claim("c1", "Database", "elsewhere", "second")
        made = await at.make(DesiredDatabase(database, "accounts", claim=other))
        assert set(made) == {"GrantRevoked", "DatabaseCreated"}
        assert await at.held("clerk", database) == set()
        with pytest.raises(NotPermitted):
            await at.make(guest)
        await at.drop_database(database, other)

    async def test_who_owns_a_database_has_all_of_it_beside_what_is_declared(self, at: At) -> None:
        database, of = "accounts_h%ld", Claim("c1", "Database", "shop", "held")
        await at.make(user())
        await at.make(role("writer"))
        owned = DesiredDatabase(database, "clerk", claim=of)
        assert await at.make(owned) == ["DatabaseCreated", "GrantsRestored"]
        everything = await at.held("clerk", database)
        assert {what for _, what in everything} > {"SELECT", "DROP", "CREATE ROUTINE"}
        assert await at.make(user()) == []
        assert await at.held("clerk", database) == everything
        assert await at.make(user(grants=(on_table("SELECT"),))) == ["Granted"]
        assert await at.make(user()) == ["GrantRevoked"]
        handed_over = replace(owned, owner="writer")
        assert await at.make(handed_over) == ["DatabaseAltered", "GrantsRestored"]
        assert await at.make(user()) == ["GrantRevoked"]
        assert await at.held("clerk", database) == set()
        assert await at.make(role("writer")) == []
        await at.drop_database(database, of)
        # Who owned the former one does not own the next.
        assert await at.make(owned) == ["GrantRevoked", "DatabaseCreated", "GrantsRestored"]
        await at.drop_database(database, of)

    async def test_an_owner_has_no_more_by_owning_than_all_of_the_one_database(self, at: At) -> None:
        database, of = "accounts_h_ld", Claim("c1", "Database", "shop", "held")
        on, everything = SecuredObject(ObjectKind.DATABASE, database), frozenset({"ALL"})
        await at.make(user())
        await at.make(DesiredDatabase(database, "clerk", claim=of))
        declared = user(grants=(DesiredGrant(database, everything, with_grant_option=True),))
        assert await at.make(declared) == ["Granted"]
        assert (str(on), "GRANT OPTION") in await at.held("clerk", database)
        assert await at.make(user()) == ["GrantRevoked"]
        assert (str(on), "GRANT OPTION") not in await at.held("clerk", database)
        await at.do(Revoke("clerk", on, ("SELECT",), ""))
        assert await at.make(user()) == []
        # What is declared is granted, whether the owner has it by owning or not.
        assert await at.make(user(grants=(DesiredGrant(database, everything),))) == ["Granted"]
        # The next of its name owns nothing.
        await at.drop("clerk")
        await at.make(user(grants=(DesiredGrant(database, everything),)))
        assert await at.make(user()) == ["GrantRevoked"]
        await at.drop_database(database, of)

    async def test_a_strangers_role_is_not_taken(self, at: At) -> None:
        await at.make(role("reader"))
        with pytest.raises(AlreadyExists):
            await at.make(replace(role("reader"), claim=replace(claim("reader"), cluster="c2")))
