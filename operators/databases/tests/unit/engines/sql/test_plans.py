"""Plans lead to what is declared, whatever is found, and then there is nothing left to do."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from database_support.fake_server.server import FakeServer, FakeSqlEngine
from steersman_databases.engines import ServerEndpoint, SqlCredentials
from steersman_databases.engines.errors import (
    AlreadyExists,
    ConcurrentChange,
    ImmutableProperty,
    InvalidName,
    NoReassignTarget,
    NotPermitted,
    NotSupported,
    ObjectsMissing,
    OwnedByAnother,
)
from steersman_databases.engines.mysql.sql.engine import MySQLSqlEngine
from steersman_databases.engines.postgresql.sql.engine import PostgreSQLSqlEngine
from steersman_databases.engines.server import DatabaseServer, Login, TLSMode, Verification
from steersman_databases.engines.sql.desired import (
    AccountLimits,
    DesiredDatabase,
    DesiredExtension,
    DesiredGrant,
    DesiredMembership,
    DesiredSchema,
    DesiredUser,
    OwnershipMark,
    PasswordDirective,
    SecondCredential,
    SecurableKind,
)
from steersman_databases.engines.sql.inspection import Inspection, InspectionScope, RoleMembership, UserState
from steersman_databases.engines.sql.reconcile_sql import reconcile
from steersman_databases.engines.sql.sql_actions import AlterDatabase

ENDPOINT = ServerEndpoint("model", 5432)
ADMINISTRATOR = SqlCredentials("postgres", "4dmin")
CLAIM = OwnershipMark("c1", "DatabaseUser", "shop", "clerk")


_STARTED: dict[type, Any] = {}
"""By engine, what a server holds at the start: verifiers take their time."""


class World:
    """A server in memory with one database, `shop`, of `owner`, with two tables."""

    def __init__(self, like: PostgreSQLSqlEngine | MySQLSqlEngine) -> None:
        self.model = FakeServer(like, ADMINISTRATOR)
        self.contents = FakeSqlEngine(like, {ENDPOINT: self.model})
        login = Login(ADMINISTRATOR.username, ADMINISTRATOR.password)
        server = DatabaseServer(like.name, ENDPOINT, login, Verification(TLSMode.REQUIRE))
        self.sessions = self.contents.connect(server)

    async def start(self) -> World:
        kept = _STARTED.get(type(self.contents.like))
        if kept is not None:
            self.model.users, self.model.databases, self.model.contents = deepcopy(kept)
            return self
        await self.make(DesiredUser("owner", "pw"))
        await self.make(DesiredUser("reader", "pw"))
        await self.make(DesiredDatabase("shop", "owner"))
        for table in ("orders", "goods"):
            self.model.create_table(SqlCredentials("owner", "pw"), "shop", table)
        kept = (self.model.users, self.model.databases, self.model.contents)
        _STARTED[type(self.contents.like)] = deepcopy(kept)
        return self

    async def make(self, desired: DesiredUser | DesiredDatabase) -> list[str]:
        return [change.reason for change in await reconcile(self.contents, self.sessions, desired)]

    async def left_to_do(self, desired: DesiredUser | DesiredDatabase) -> object:
        survey = await self.contents.inspect(self.sessions, InspectionScope.of([desired]))
        if isinstance(desired, DesiredDatabase):
            return self.contents.plan_database(survey, desired).steps
        return self.contents.plan_user(survey, desired).steps

    async def drop_user(self, name: str, claim: OwnershipMark | None, heir: str | None = None) -> list[str]:
        scope = InspectionScope(users=frozenset({name, *([heir] if heir else [])}))
        survey = await self.contents.inspect(self.sessions, scope)
        plan = self.contents.plan_drop_user(survey, name, claim, heir)
        return [change.reason for change in await self.contents.execute(self.sessions, plan)]


@pytest.fixture
async def world() -> World:
    return await World(PostgreSQLSqlEngine()).start()


_passwords = st.sampled_from(["p1", "p2", PasswordDirective.UNCHANGED, PasswordDirective.NONE])
_ON = [
    (SecurableKind.DATABASE, None, (), ["CONNECT", "CREATE", "TEMPORARY", "ALL"]),
    (SecurableKind.SCHEMA, "public", (), ["USAGE", "CREATE", "ALL"]),
    (SecurableKind.TABLE, "public", ("*",), ["SELECT", "INSERT", "ALL"]),
    (SecurableKind.TABLE, "public", ("orders",), ["SELECT", "UPDATE"]),
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
    second_credential=st.none() | st.builds(SecondCredential, password=_passwords),
    login=st.booleans(),
    inherit=st.booleans(),
    create_database=st.booleans(),
    connection_limit=st.sampled_from([-1, 5]),
    roles=st.lists(st.builds(DesiredMembership, role=st.just("reader"), admin=st.booleans()), max_size=1).map(tuple),
    grants=st.lists(_grants(), max_size=4).map(tuple),
    revoke_undeclared=st.just(True),
    mark=st.just(CLAIM),
)


@settings(max_examples=12, deadline=None)
@given(former=_users, desired=_users)
async def test_executed_plan_leaves_nothing(former: DesiredUser, desired: DesiredUser) -> None:
    world = await World(PostgreSQLSqlEngine()).start()
    await world.make(former)
    assert await world.left_to_do(former) == ()
    await world.make(desired)
    assert await world.left_to_do(desired) == ()
    fresh = await World(PostgreSQLSqlEngine()).start()
    await fresh.make(desired)
    told = dict.fromkeys((fresh, world), fresh.model.contents["shop"].privileges)
    assert told[fresh] == told[world], "what was before is nowhere seen in what may be done"


_tables = st.builds(
    DesiredGrant,
    database=st.just("shop"),
    privileges=st.lists(st.sampled_from(["SELECT", "INSERT", "ALL"]), min_size=1).map(frozenset),
    kind=st.sampled_from([SecurableKind.DATABASE, SecurableKind.TABLE]),
    names=st.sampled_from([("*",), ("orders",)]),
    with_grant_option=st.booleans(),
)
_on_server = st.builds(
    DesiredGrant,
    database=st.just("*"),
    privileges=st.sampled_from([frozenset({"PROCESS"}), frozenset({"ALL"})]),
    kind=st.just(SecurableKind.SERVER),
)
_accounts = st.builds(
    DesiredUser,
    name=st.just("clerk"),
    password=st.sampled_from(["p1", "p2"]),
    second_credential=st.none()
    | st.builds(SecondCredential, password=st.sampled_from(["p3", PasswordDirective.UNCHANGED])),
    login=st.booleans(),
    inherit=st.booleans(),
    replication=st.booleans(),
    connection_limit=st.sampled_from([-1, 5]),
    limits=st.sampled_from([AccountLimits(), AccountLimits(updates=7)]),
    roles=st.lists(st.builds(DesiredMembership, role=st.just("reader"), admin=st.booleans()), max_size=1).map(tuple),
    grants=st.lists(_tables | _on_server, max_size=3).map(tuple),
    mark=st.just(CLAIM),
)


@settings(max_examples=10, deadline=None)
@given(former=_accounts, desired=_accounts)
async def test_executed_plan_leaves_nothing_on_mysql(former: DesiredUser, desired: DesiredUser) -> None:
    world = await World(MySQLSqlEngine()).start()
    await world.make(former)
    await world.make(desired)
    assert await world.left_to_do(desired) == ()
    assert world.model.can_log_in(SqlCredentials("clerk", str(desired.password))) == desired.login


async def test_locked_user_returns_with_declared_password() -> None:
    engine = MySQLSqlEngine()
    former = UserState("clerk", mark=CLAIM.text, verifier=engine.new_verifier("former"), login=True, locked=True)
    survey = Inspection("MySQL", (9, 7), "admin", users={"clerk": former})
    plan = engine.plan_user(survey, DesiredUser("clerk", "declared", mark=CLAIM))
    assert [step.change.reason for step in plan.steps if step.change] == ["PasswordReset", "UserUnlocked"]


async def test_two_credentials_share_one_user(world: World) -> None:
    grant = DesiredGrant("shop", frozenset({"CONNECT"}))
    schema = DesiredGrant("shop", frozenset({"ALL"}), SecurableKind.SCHEMA, "public")
    clerk = DesiredUser("clerk", "p1", grants=(grant, schema), mark=CLAIM)
    await world.make(replace(clerk, second_credential=SecondCredential("p2")))
    world.model.create_table(SqlCredentials("clerk~", "p2"), "shop", "till")
    assert world.model.reads_table(SqlCredentials("clerk", "p1"), "shop", "till"), "what one makes is the other's"
    await world.make(replace(clerk, password=PasswordDirective.NONE, second_credential=SecondCredential("p2")))
    assert not world.model.can_log_in(SqlCredentials("clerk", "p1"), "shop")
    assert world.model.can_log_in(SqlCredentials("clerk~", "p2"), "shop")
    await world.make(clerk)
    assert "clerk~" not in world.model.users


async def test_missing_objects_are_reported_rest_granted(world: World) -> None:
    grants = (
        DesiredGrant("shop", frozenset({"CONNECT"})),
        DesiredGrant("shop", frozenset({"SELECT"}), SecurableKind.TABLE, "public", ("later",)),
    )
    clerk = DesiredUser("clerk", "p1", grants=grants)
    with pytest.raises(ObjectsMissing, match=r"table shop\.public\.later does not exist yet"):
        await world.make(clerk)
    assert world.model.can_log_in(SqlCredentials("clerk", "p1"), "shop")
    world.model.create_table(SqlCredentials("owner", "pw"), "shop", "later")
    assert await world.make(clerk) == ["PrivilegesGranted"]


async def test_only_marked_objects_are_adopted_and_dropped(world: World) -> None:
    other = replace(CLAIM, name="other")
    await world.make(DesiredUser("clerk", "p1", mark=CLAIM))
    with pytest.raises(OwnedByAnother):
        await world.make(DesiredUser("clerk", "p2", mark=other, adopt=True))
    with pytest.raises(AlreadyExists):
        await world.make(DesiredUser("clerk", "p2", mark=replace(CLAIM, cluster="c2")))
    with pytest.raises(AlreadyExists):
        await world.make(DesiredUser("reader", "p2", mark=CLAIM))
    assert await world.drop_user("clerk", other) == []
    assert "UserAdopted" in await world.make(DesiredUser("reader", "p2", mark=CLAIM, adopt=True))
    assert await world.drop_user("clerk", CLAIM) == ["UserDropped"]


async def test_dropped_user_objects_need_new_owner(world: World) -> None:
    schema = DesiredGrant("shop", frozenset({"ALL"}), SecurableKind.SCHEMA, "public")
    await world.make(
        DesiredUser("clerk", "p1", mark=CLAIM, grants=(DesiredGrant("shop", frozenset({"ALL"})), schema))
    )
    world.model.create_table(SqlCredentials("clerk", "p1"), "shop", "till")
    for mighty in ("postgres", "pg_execute_server_program", "steersman_superuser"):
        with pytest.raises(NoReassignTarget, match="privileges on the whole server"):
            await world.drop_user("clerk", CLAIM, heir=mighty)
    assert await world.drop_user("clerk", CLAIM) == ["UserDropped"]
    assert world.model.reads_table(SqlCredentials("owner", "pw"), "shop", "till")


async def test_unseen_owner_is_not_assumed(world: World) -> None:
    """Who makes an end of it there would do so for good, though there may be an heir."""
    await world.make(DesiredUser("clerk", "p1", mark=CLAIM))
    survey = await world.contents.inspect(world.sessions, InspectionScope(users=frozenset({"clerk"})))
    clerk = replace(survey.users["clerk"], has_privileges_in=frozenset({"shop"}), owns_in=frozenset({"shop"}))
    gone = replace(survey, users={**survey.users, "clerk": clerk}, databases={})
    with pytest.raises(ConcurrentChange, match="database shop"):
        world.contents.plan_drop_user(gone, "clerk", CLAIM, None)


async def test_schemas_and_owners_match_declaration(world: World) -> None:
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
        (DesiredUser("x" * 63, "p", second_credential=SecondCredential("q")), InvalidName),
        (DesiredUser("clerk", "p", second_credential=SecondCredential("q"), replication=True), NotSupported),
        (
            DesiredUser(
                "clerk",
                "p",
                grants=(DesiredGrant("shop", frozenset({"EXECUTE"}), SecurableKind.FUNCTION, "pg_catalog", ("*",)),),
            ),
            InvalidName,
        ),
        (DesiredUser("clerk", "p", grants=(DesiredGrant("shop", frozenset({"SELECT; DROP"})),)), ObjectsMissing),
    ],
)
async def test_forbidden_privileges_are_never_granted(
    world: World, desired: DesiredUser, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await world.make(desired)


async def test_unsupported_grant_does_not_block_revokes(world: World) -> None:
    select, insert = (
        DesiredGrant("shop", frozenset({what}), SecurableKind.TABLE, "public", ("orders",))
        for what in ("SELECT", "INSERT")
    )
    clerk = DesiredUser("clerk", "p", mark=CLAIM, roles=(DesiredMembership("reader"),), grants=(select, insert))
    await world.make(clerk)
    more = replace(select, privileges=frozenset({"SELECT", "FLY"}))
    wanted = replace(clerk, roles=(), connection_limit=3, grants=(more,))
    with pytest.raises(ObjectsMissing, match="has no FLY on a table") as told:
        await world.make(wanted)
    reasons = [change.reason for change in told.value.changes]
    assert sorted(reasons) == ["GrantRevoked", "MembershipRevoked", "UserAltered"]
    assert await world.left_to_do(wanted) == ()


async def test_superuser_role_is_rejected(world: World) -> None:
    clerk = DesiredUser("clerk", "p", mark=CLAIM, roles=(DesiredMembership("reader"),))
    await world.make(clerk)
    world.model.users["reader"] = replace(world.model.users["reader"], superuser=True)
    with pytest.raises(ObjectsMissing, match="role reader has privileges on the whole server") as told:
        await world.make(replace(clerk, connection_limit=3))
    assert sorted(change.reason for change in told.value.changes) == ["MembershipRevoked", "UserAltered"]


@pytest.mark.parametrize("mighty", ["pg_execute_server_program", "dba"])
async def test_role_superuser_via_other_is_rejected(world: World, mighty: str) -> None:
    clerk = DesiredUser("clerk", "p1", mark=CLAIM, roles=(DesiredMembership("reader"),))
    await world.make(clerk)
    world.model.users[mighty] = UserState(mighty, superuser=mighty == "dba")
    world.model.users["between"] = UserState("between", memberships=frozenset({RoleMembership(mighty, "postgres")}))
    world.model.spoil_user("reader", memberships=frozenset({RoleMembership("between", "postgres")}))
    told = f"role reader has privileges on the whole server by {mighty}: revoke them, or remove the role"
    with pytest.raises(ObjectsMissing, match=told):
        await world.make(clerk)
    # Nor is it anybody's heir.
    schema = DesiredGrant("shop", frozenset({"ALL"}), SecurableKind.SCHEMA, "public")
    await world.make(replace(clerk, roles=(), grants=(DesiredGrant("shop", frozenset({"ALL"})), schema)))
    world.model.create_table(SqlCredentials("clerk", "p1"), "shop", "till")
    with pytest.raises(NoReassignTarget, match="reader has privileges on the whole server"):
        await world.drop_user("clerk", CLAIM, heir="reader")
    # Nor is it taken over.
    with pytest.raises(InvalidName, match=f"can act as {mighty}, with privileges on the whole server"):
        await world.make(DesiredUser("reader", "p2", mark=CLAIM, adopt=True))


async def test_adopted_database_keeps_charset() -> None:
    world = await World(MySQLSqlEngine()).start()
    world.model.apply(AlterDatabase("shop", "", encoding="latin1"))
    taken = DesiredDatabase("shop", "owner", mark=CLAIM, adopt=True)
    with pytest.raises(ImmutableProperty, match='encoding is "latin1" on the server and "utf8mb4"'):
        await world.make(replace(taken, encoding="utf8mb4"))
    assert await world.make(taken) == ["DatabaseAdopted"]
    assert await world.make(taken) == []
    assert await world.make(replace(taken, encoding="utf8mb4")) == ["DatabaseAltered"]
    assert world.model.databases["shop"].encoding == "utf8mb4"


async def test_cross_namespace_template_copy_is_rejected() -> None:
    world = await World(PostgreSQLSqlEngine()).start()
    of_others, claim = (
        OwnershipMark("c1", "Database", "shop", "ledger"),
        OwnershipMark("c1", "Database", "guests", "till"),
    )
    await world.make(DesiredUser("shop", "pw", mark=of_others))
    await world.make(DesiredDatabase("ledger", "shop", mark=of_others))
    await world.make(DesiredUser("till", "pw", mark=claim))
    copy = DesiredDatabase("copy", "till", template="ledger", mark=claim, cross_namespace=True)
    with pytest.raises(NotPermitted, match="ledger"):
        await world.make(copy)
    await world.make(DesiredDatabase("till", "till", mark=claim, cross_namespace=True))
    made = replace(copy, template="till")
    assert "DatabaseCreated" in await world.make(made)
    # What it was copied from once is no reason to leave it alone.
    assert await world.make(copy) == []


@pytest.mark.parametrize("version", [None, "1.2"])
async def test_cross_namespace_allows_trusted_extensions_only(version: str | None) -> None:
    world = await World(PostgreSQLSqlEngine()).start()
    claim = OwnershipMark("c1", "Database", "guests", "till")
    await world.make(DesiredUser("till", "pw", mark=claim))
    till = DesiredDatabase("till", "till", mark=claim, cross_namespace=True)
    await world.make(replace(till, extensions=(DesiredExtension("pgcrypto", version),)))
    untrusted = replace(till, extensions=(DesiredExtension("pageinspect"),))
    with pytest.raises(NotPermitted, match="extension pageinspect is not trusted, so only objects from the cluster"):
        await world.make(untrusted)
    assert await world.make(replace(untrusted, cross_namespace=False)) == ["ExtensionCreated"]
    # What somebody who may has put there is no reason to complain.
    assert await world.make(untrusted) == []
    with pytest.raises(NotPermitted):
        await world.make(replace(till, extensions=(DesiredExtension("pageinspect", present=False),)))


async def test_cross_namespace_extension_change_is_rejected() -> None:
    """What a superuser has put into its database is dropped by SQL by nobody else, trusted or not."""
    world = await World(PostgreSQLSqlEngine()).start()
    claim = OwnershipMark("c1", "Database", "guests", "till")
    for owner in ("till", "former"):
        await world.make(DesiredUser(owner, "pw", mark=claim))
    till = DesiredDatabase("till", "till", mark=claim, cross_namespace=True)
    wanted = replace(till, extensions=(DesiredExtension("pgcrypto", "1.2"),))
    dropped = replace(till, extensions=(DesiredExtension("pgcrypto", present=False),))
    await world.make(wanted)
    made = world.model.contents["till"].extensions["pgcrypto"]
    world.model.contents["till"].extensions["pgcrypto"] = replace(made, owner="postgres")
    assert await world.make(wanted) == []
    for changed in (dropped, replace(till, extensions=(DesiredExtension("pgcrypto", "1.3"),))):
        with pytest.raises(NotPermitted, match="extension pgcrypto belongs to postgres, so only objects from the"):
            await world.make(changed)
    assert await world.make(replace(dropped, cross_namespace=False)) == ["ExtensionDropped"]


async def test_database_inspection_scope_covers_grants() -> None:
    world = await World(PostgreSQLSqlEngine()).start()
    without = DesiredDatabase("till", "till", extensions=(DesiredExtension("plpgsql", present=False),))
    with pytest.raises(InvalidName, match=r"plpgsql.*every database needs it"):
        await world.make(without)
