"""Plans lead to what is declared, whatever is found, and then there is nothing left to do."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman_databases.engines import Credentials, Endpoint, MySQL, PostgreSQL
from steersman_databases.engines.actions import AlterDatabase
from steersman_databases.engines.desired import (
    Claim,
    DesiredDatabase,
    DesiredExtension,
    DesiredGrant,
    DesiredMembership,
    DesiredSchema,
    DesiredUser,
    HourlyLimits,
    NoPassword,
    ObjectKind,
    SecondCredential,
)
from steersman_databases.engines.errors import (
    AlreadyExists,
    Claimed,
    HeirMissing,
    ImmutableOnServer,
    InvalidName,
    NotPermitted,
    NotSupported,
    ObjectsMissing,
    Raced,
)
from steersman_databases.engines.model import ModelContents, ModelServer
from steersman_databases.engines.server import Login, Server, TLSMode, Verification
from steersman_databases.engines.settle import settle
from steersman_databases.engines.survey import Membership, Scope, Survey, UserState

ENDPOINT = Endpoint("model", 5432)
ADMINISTRATOR = Credentials("postgres", "4dmin")
CLAIM = Claim("c1", "DatabaseUser", "shop", "clerk")


_STARTED: dict[type, Any] = {}
"""By engine, what a server holds at the start: verifiers take their time."""


class World:
    """A server in memory with one database, `shop`, of `owner`, with two tables."""

    def __init__(self, like: PostgreSQL | MySQL) -> None:
        self.model = ModelServer(like, ADMINISTRATOR)
        self.contents = ModelContents(like, {ENDPOINT: self.model})
        login = Login(ADMINISTRATOR.username, ADMINISTRATOR.password)
        server = Server(like.name, ENDPOINT, login, Verification(TLSMode.REQUIRE))
        self.sessions = self.contents.connect(server)

    async def start(self) -> World:
        kept = _STARTED.get(type(self.contents.like))
        if kept is not None:
            self.model.users, self.model.databases, self.model.inside = deepcopy(kept)
            return self
        await self.make(DesiredUser("owner", "pw"))
        await self.make(DesiredUser("reader", "pw"))
        await self.make(DesiredDatabase("shop", "owner"))
        for table in ("orders", "goods"):
            self.model.create_table(Credentials("owner", "pw"), "shop", table)
        kept = (self.model.users, self.model.databases, self.model.inside)
        _STARTED[type(self.contents.like)] = deepcopy(kept)
        return self

    async def make(self, desired: DesiredUser | DesiredDatabase) -> list[str]:
        return [change.reason for change in await settle(self.contents, self.sessions, desired)]

    async def left_to_do(self, desired: DesiredUser | DesiredDatabase) -> object:
        survey = await self.contents.survey(self.sessions, Scope.of([desired]))
        if isinstance(desired, DesiredDatabase):
            return self.contents.plan_database(survey, desired).steps
        return self.contents.plan_user(survey, desired).steps

    async def drop_user(self, name: str, claim: Claim | None, heir: str | None = None) -> list[str]:
        scope = Scope(users=frozenset({name, *([heir] if heir else [])}))
        survey = await self.contents.survey(self.sessions, scope)
        plan = self.contents.plan_drop_user(survey, name, claim, heir)
        return [change.reason for change in await self.contents.carry_out(self.sessions, plan)]


@pytest.fixture
async def world() -> World:
    return await World(PostgreSQL()).start()


_passwords = st.sampled_from(["p1", "p2", NoPassword.UNCHANGED, NoPassword.NONE])
_ON = [
    (ObjectKind.DATABASE, None, (), ["CONNECT", "CREATE", "TEMPORARY", "ALL"]),
    (ObjectKind.SCHEMA, "public", (), ["USAGE", "CREATE", "ALL"]),
    (ObjectKind.TABLE, "public", ("*",), ["SELECT", "INSERT", "ALL"]),
    (ObjectKind.TABLE, "public", ("orders",), ["SELECT", "UPDATE"]),
]


@st.composite
def _grants(draw: st.DrawFn) -> DesiredGrant:
    kind, schema, names, known = draw(st.sampled_from(_ON))
    privileges = frozenset(draw(st.lists(st.sampled_from(known), min_size=1, unique=True)))
    option, future = draw(st.booleans()), names == ("*",) and draw(st.booleans())
    return DesiredGrant("shop", privileges, kind, schema, names, option, future)


_users: st.SearchStrategy[DesiredUser] = st.builds(
    DesiredUser,
    name=st.just("clerk"),
    password=_passwords,
    second=st.none() | st.builds(SecondCredential, password=_passwords),
    login=st.booleans(),
    inherit=st.booleans(),
    create_database=st.booleans(),
    connection_limit=st.sampled_from([-1, 5]),
    roles=st.lists(st.builds(DesiredMembership, role=st.just("reader"), admin=st.booleans()), max_size=1).map(tuple),
    grants=st.lists(_grants(), max_size=4).map(tuple),
    exact=st.just(True),
    claim=st.just(CLAIM),
)


@settings(max_examples=12, deadline=None)
@given(former=_users, desired=_users)
async def test_a_plan_that_was_carried_out_leaves_nothing_to_do(former: DesiredUser, desired: DesiredUser) -> None:
    world = await World(PostgreSQL()).start()
    await world.make(former)
    assert await world.left_to_do(former) == ()
    await world.make(desired)
    assert await world.left_to_do(desired) == ()
    fresh = await World(PostgreSQL()).start()
    await fresh.make(desired)
    told = dict.fromkeys((fresh, world), fresh.model.inside["shop"].privileges)
    assert told[fresh] == told[world], "what was before is nowhere seen in what may be done"


_tables = st.builds(
    DesiredGrant,
    database=st.just("shop"),
    privileges=st.lists(st.sampled_from(["SELECT", "INSERT", "ALL"]), min_size=1).map(frozenset),
    kind=st.sampled_from([ObjectKind.DATABASE, ObjectKind.TABLE]),
    names=st.sampled_from([("*",), ("orders",)]),
    with_grant_option=st.booleans(),
)
_on_server = st.builds(
    DesiredGrant,
    database=st.just("*"),
    privileges=st.sampled_from([frozenset({"PROCESS"}), frozenset({"ALL"})]),
    kind=st.just(ObjectKind.SERVER),
)
_accounts = st.builds(
    DesiredUser,
    name=st.just("clerk"),
    password=st.sampled_from(["p1", "p2"]),
    second=st.none() | st.builds(SecondCredential, password=st.sampled_from(["p3", NoPassword.UNCHANGED])),
    login=st.booleans(),
    inherit=st.booleans(),
    replication=st.booleans(),
    connection_limit=st.sampled_from([-1, 5]),
    limits=st.sampled_from([HourlyLimits(), HourlyLimits(updates=7)]),
    roles=st.lists(st.builds(DesiredMembership, role=st.just("reader"), admin=st.booleans()), max_size=1).map(tuple),
    grants=st.lists(_tables | _on_server, max_size=3).map(tuple),
    claim=st.just(CLAIM),
)


@settings(max_examples=10, deadline=None)
@given(former=_accounts, desired=_accounts)
async def test_the_same_on_mysql(former: DesiredUser, desired: DesiredUser) -> None:
    world = await World(MySQL()).start()
    await world.make(former)
    await world.make(desired)
    assert await world.left_to_do(desired) == ()
    assert world.model.opens(Credentials("clerk", str(desired.password))) == desired.login


async def test_who_was_locked_out_is_let_in_with_the_declared_password_only() -> None:
    engine = MySQL()
    former = UserState("clerk", mark=CLAIM.text, verifier=engine.new_verifier("former"), login=True, locked=True)
    survey = Survey("MySQL", (9, 7), "admin", users={"clerk": former})
    plan = engine.plan_user(survey, DesiredUser("clerk", "declared", claim=CLAIM))
    assert [step.change.reason for step in plan.steps if step.change] == ["PasswordReset", "UserUnlocked"]


async def test_two_credentials_are_one_user(world: World) -> None:
    grant = DesiredGrant("shop", frozenset({"CONNECT"}))
    schema = DesiredGrant("shop", frozenset({"ALL"}), ObjectKind.SCHEMA, "public")
    clerk = DesiredUser("clerk", "p1", grants=(grant, schema), claim=CLAIM)
    await world.make(replace(clerk, second=SecondCredential("p2")))
    world.model.create_table(Credentials("clerk~", "p2"), "shop", "till")
    assert world.model.reads_table(Credentials("clerk", "p1"), "shop", "till"), "what one makes is the other's"
    await world.make(replace(clerk, password=NoPassword.NONE, second=SecondCredential("p2")))
    assert not world.model.opens(Credentials("clerk", "p1"), "shop")
    assert world.model.opens(Credentials("clerk~", "p2"), "shop")
    await world.make(clerk)
    assert "clerk~" not in world.model.users


async def test_what_is_missing_is_told_and_the_rest_is_granted(world: World) -> None:
    grants = (
        DesiredGrant("shop", frozenset({"CONNECT"})),
        DesiredGrant("shop", frozenset({"SELECT"}), ObjectKind.TABLE, "public", ("later",)),
    )
    clerk = DesiredUser("clerk", "p1", grants=grants)
    with pytest.raises(ObjectsMissing, match=r"table shop\.public\.later is not there yet"):
        await world.make(clerk)
    assert world.model.opens(Credentials("clerk", "p1"), "shop")
    world.model.create_table(Credentials("owner", "pw"), "shop", "later")
    assert await world.make(clerk) == ["Granted"]


async def test_only_what_bears_our_mark_is_taken_and_dropped(world: World) -> None:
    other = replace(CLAIM, name="other")
    await world.make(DesiredUser("clerk", "p1", claim=CLAIM))
    with pytest.raises(Claimed):
        await world.make(DesiredUser("clerk", "p2", claim=other, adopt=True))
    with pytest.raises(AlreadyExists):
        await world.make(DesiredUser("clerk", "p2", claim=replace(CLAIM, cluster="c2")))
    with pytest.raises(AlreadyExists):
        await world.make(DesiredUser("reader", "p2", claim=CLAIM))
    assert await world.drop_user("clerk", other) == []
    assert "UserAdopted" in await world.make(DesiredUser("reader", "p2", claim=CLAIM, adopt=True))
    assert await world.drop_user("clerk", CLAIM) == ["UserDropped"]


async def test_what_a_dropped_user_owns_has_an_heir(world: World) -> None:
    schema = DesiredGrant("shop", frozenset({"ALL"}), ObjectKind.SCHEMA, "public")
    await world.make(
        DesiredUser("clerk", "p1", claim=CLAIM, grants=(DesiredGrant("shop", frozenset({"ALL"})), schema))
    )
    world.model.create_table(Credentials("clerk", "p1"), "shop", "till")
    for mighty in ("postgres", "pg_execute_server_program", "steersman_superuser"):
        with pytest.raises(HeirMissing, match="rights over the whole server"):
            await world.drop_user("clerk", CLAIM, heir=mighty)
    assert await world.drop_user("clerk", CLAIM) == ["UserDropped"]
    assert world.model.reads_table(Credentials("owner", "pw"), "shop", "till")


async def test_nobody_is_taken_for_the_owner_of_what_was_not_seen(world: World) -> None:
    """Who makes an end of it there would do so for good, though there may be an heir."""
    await world.make(DesiredUser("clerk", "p1", claim=CLAIM))
    survey = await world.contents.survey(world.sessions, Scope(users=frozenset({"clerk"})))
    clerk = replace(survey.users["clerk"], stands_in=frozenset({"shop"}), owns_in=frozenset({"shop"}))
    gone = replace(survey, users={**survey.users, "clerk": clerk}, databases={})
    with pytest.raises(Raced, match="database shop"):
        world.contents.plan_drop_user(gone, "clerk", CLAIM, None)


async def test_schemas_are_there_and_their_owners(world: World) -> None:
    wanted = DesiredDatabase("shop", "owner", schemas=(DesiredSchema("till"), DesiredSchema("books", "reader")))
    assert await world.make(wanted) == ["SchemaCreated", "SchemaCreated"]
    assert await world.left_to_do(wanted) == ()
    assert await world.make(replace(wanted, schemas=(DesiredSchema("till", present=False),))) == ["SchemaDropped"]


@pytest.mark.parametrize(
    ("desired", "error"),
    [
        (DesiredUser("steersman_operator", "p"), InvalidName),
        (DesiredUser("clerk", "p", roles=(DesiredMembership("postgres"),)), InvalidName),
        (DesiredUser("clerk", "p", roles=(DesiredMembership("steersman_superuser"),)), InvalidName),
        (DesiredUser("clerk", "p", roles=(DesiredMembership("pg_execute_server_program"),)), InvalidName),
        (DesiredUser("x" * 63, "p", second=SecondCredential("q")), InvalidName),
        (DesiredUser("clerk", "p", second=SecondCredential("q"), replication=True), NotSupported),
        (
            DesiredUser(
                "clerk",
                "p",
                grants=(DesiredGrant("shop", frozenset({"EXECUTE"}), ObjectKind.FUNCTION, "pg_catalog", ("*",)),),
            ),
            InvalidName,
        ),
        (DesiredUser("clerk", "p", grants=(DesiredGrant("shop", frozenset({"SELECT; DROP"})),)), ObjectsMissing),
    ],
)
async def test_what_nobody_gets(world: World, desired: DesiredUser, error: type[Exception]) -> None:
    with pytest.raises(error):
        await world.make(desired)


async def test_what_a_server_does_not_have_keeps_nobody_from_losing_the_rest(world: World) -> None:
    select, insert = (
        DesiredGrant("shop", frozenset({what}), ObjectKind.TABLE, "public", ("orders",))
        for what in ("SELECT", "INSERT")
    )
    clerk = DesiredUser("clerk", "p", claim=CLAIM, roles=(DesiredMembership("reader"),), grants=(select, insert))
    await world.make(clerk)
    more = replace(select, privileges=frozenset({"SELECT", "FLY"}))
    wanted = replace(clerk, roles=(), connection_limit=3, grants=(more,))
    with pytest.raises(ObjectsMissing, match="has no FLY on a table") as told:
        await world.make(wanted)
    reasons = [change.reason for change in told.value.changes]
    assert sorted(reasons) == ["GrantRevoked", "MembershipRevoked", "UserAltered"]
    assert await world.left_to_do(wanted) == ()


async def test_a_role_that_has_become_mighty_is_nobodys(world: World) -> None:
    clerk = DesiredUser("clerk", "p", claim=CLAIM, roles=(DesiredMembership("reader"),))
    await world.make(clerk)
    world.model.users["reader"] = replace(world.model.users["reader"], superuser=True)
    with pytest.raises(ObjectsMissing, match="role reader has rights over the whole server") as told:
        await world.make(replace(clerk, connection_limit=3))
    assert sorted(change.reason for change in told.value.changes) == ["MembershipRevoked", "UserAltered"]


@pytest.mark.parametrize("mighty", ["pg_execute_server_program", "dba"])
async def test_a_role_that_is_mighty_by_another_is_nobodys(world: World, mighty: str) -> None:
    clerk = DesiredUser("clerk", "p1", claim=CLAIM, roles=(DesiredMembership("reader"),))
    await world.make(clerk)
    world.model.users[mighty] = UserState(mighty, superuser=mighty == "dba")
    world.model.users["between"] = UserState("between", memberships=frozenset({Membership(mighty, "postgres")}))
    world.model.spoil_user("reader", memberships=frozenset({Membership("between", "postgres")}))
    told = f"role reader has rights over the whole server by {mighty}: revoke them, or leave it out"
    with pytest.raises(ObjectsMissing, match=told):
        await world.make(clerk)
    # Nor is it anybody's heir.
    schema = DesiredGrant("shop", frozenset({"ALL"}), ObjectKind.SCHEMA, "public")
    await world.make(replace(clerk, roles=(), grants=(DesiredGrant("shop", frozenset({"ALL"})), schema)))
    world.model.create_table(Credentials("clerk", "p1"), "shop", "till")
    with pytest.raises(HeirMissing, match="reader has rights over the whole server"):
        await world.drop_user("clerk", CLAIM, heir="reader")
    # Nor is it taken over.
    with pytest.raises(InvalidName, match=f"may act as {mighty}, with rights over the whole server"):
        await world.make(DesiredUser("reader", "p2", claim=CLAIM, adopt=True))


async def test_what_is_taken_over_keeps_its_letters_unless_others_are_declared() -> None:
    world = await World(MySQL()).start()
    world.model.apply(AlterDatabase("shop", "", encoding="latin1"))
    taken = DesiredDatabase("shop", "owner", claim=CLAIM, adopt=True)
    with pytest.raises(ImmutableOnServer, match='encoding is "latin1" on the server and "utf8mb4"'):
        await world.make(replace(taken, encoding="utf8mb4"))
    assert await world.make(taken) == ["DatabaseAdopted"]
    assert await world.make(taken) == []
    assert await world.make(replace(taken, encoding="utf8mb4")) == ["DatabaseAltered"]
    assert world.model.databases["shop"].encoding == "utf8mb4"


async def test_a_guest_copies_no_database_of_others() -> None:
    world = await World(PostgreSQL()).start()
    of_others, claim = Claim("c1", "Database", "shop", "ledger"), Claim("c1", "Database", "guests", "till")
    await world.make(DesiredUser("shop", "pw", claim=of_others))
    await world.make(DesiredDatabase("ledger", "shop", claim=of_others))
    await world.make(DesiredUser("till", "pw", claim=claim))
    copy = DesiredDatabase("copy", "till", template="ledger", claim=claim, guest=True)
    with pytest.raises(NotPermitted, match="ledger"):
        await world.make(copy)
    await world.make(DesiredDatabase("till", "till", claim=claim, guest=True))
    made = replace(copy, template="till")
    assert "DatabaseCreated" in await world.make(made)
    # What it was copied from once is no reason to leave it alone.
    assert await world.make(copy) == []


@pytest.mark.parametrize("version", [None, "1.2"])
async def test_a_guest_gets_trusted_extensions_only(version: str | None) -> None:
    world = await World(PostgreSQL()).start()
    claim = Claim("c1", "Database", "guests", "till")
    await world.make(DesiredUser("till", "pw", claim=claim))
    till = DesiredDatabase("till", "till", claim=claim, guest=True)
    await world.make(replace(till, extensions=(DesiredExtension("pgcrypto", version),)))
    untrusted = replace(till, extensions=(DesiredExtension("pageinspect"),))
    with pytest.raises(NotPermitted, match="extension pageinspect is not trusted, so only objects from the cluster"):
        await world.make(untrusted)
    assert await world.make(replace(untrusted, guest=False)) == ["ExtensionCreated"]
    # What somebody who may has put there is no reason to complain.
    assert await world.make(untrusted) == []
    with pytest.raises(NotPermitted):
        await world.make(replace(till, extensions=(DesiredExtension("pageinspect", present=False),)))


async def test_a_guest_changes_no_extension_of_others() -> None:
    """What a superuser has put into its database is dropped by SQL by nobody else, trusted or not."""
    world = await World(PostgreSQL()).start()
    claim = Claim("c1", "Database", "guests", "till")
    for owner in ("till", "former"):
        await world.make(DesiredUser(owner, "pw", claim=claim))
    till = DesiredDatabase("till", "till", claim=claim, guest=True)
    wanted = replace(till, extensions=(DesiredExtension("pgcrypto", "1.2"),))
    dropped = replace(till, extensions=(DesiredExtension("pgcrypto", present=False),))
    await world.make(wanted)
    made = world.model.inside["till"].extensions["pgcrypto"]
    world.model.inside["till"].extensions["pgcrypto"] = replace(made, owner="postgres")
    assert await world.make(wanted) == []
    for changed in (dropped, replace(till, extensions=(DesiredExtension("pgcrypto", "1.3"),))):
        with pytest.raises(NotPermitted, match="extension pgcrypto belongs to postgres, so only objects from the"):
            await world.make(changed)
    assert await world.make(replace(dropped, guest=False)) == ["ExtensionDropped"]


async def test_no_database_is_without_what_grants_in_it_need() -> None:
    world = await World(PostgreSQL()).start()
    without = DesiredDatabase("till", "till", extensions=(DesiredExtension("plpgsql", present=False),))
    with pytest.raises(InvalidName, match=r"plpgsql.*every database needs it"):
        await world.make(without)
