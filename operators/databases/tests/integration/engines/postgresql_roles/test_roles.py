"""Roles of PostgreSQL as they are declared, and what the server's own catalogues say came of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from database_support.servers.postgresql_admins import DATABASE, MARK, OWNER, SHOP, PostgreSQLHarness, role, user
from steersman_databases.engines import SqlCredentials
from steersman_databases.engines.errors import NoReassignTarget, ObjectsMissing, SqlFailed
from steersman_databases.engines.sql.desired import DesiredGrant, DesiredMembership, SecondCredential, SecurableKind
from steersman_databases.engines.sql.inspection import InspectionScope
from steersman_databases.engines.sql.sql_plan import SqlPlan

CLERK = SqlCredentials('the "clerk"; %s \\ żółw', "s3cret")
PRIVILEGED = ("superuser", "operator")


def anyone_mighty(at: PostgreSQLHarness) -> bool:
    return at.rank in PRIVILEGED


ATTRIBUTES = """
SELECT rolcreatedb, rolreplication, rolbypassrls, rolinherit, rolcanlogin, rolconnlimit,
       CASE WHEN isfinite(rolvaliduntil) THEN rolvaliduntil END
FROM pg_roles WHERE rolname = {}
"""


async def attributes(at: PostgreSQLHarness, name: str) -> tuple[object, ...]:
    literal = name.replace("'", "''")
    [row] = at.postgresql.administer(ATTRIBUTES.replace("{}", f"'{literal}'"))
    return row


END = datetime(2031, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
PLAIN = (False, False, False, True, True, -1, None)


async def test_attributes_set_changed_and_restored(at: PostgreSQLHarness) -> None:
    mighty = anyone_mighty(at)
    wanted = user(
        CLERK.username,
        create_database=True,
        replication=mighty,
        bypass_row_level_security=mighty,
        inherit=False,
        connection_limit=7,
        valid_until=END,
    )
    all_of_it = (True, mighty, mighty, False, True, 7, END)
    await at.reconcile(wanted)
    assert await attributes(at, CLERK.username) == all_of_it
    await at.reconcile(user(CLERK.username))
    assert await attributes(at, CLERK.username) == PLAIN
    await at.reconcile(wanted)
    assert await attributes(at, CLERK.username) == all_of_it
    at.postgresql.administer(
        "ALTER ROLE {} NOCREATEDB INHERIT NOLOGIN CONNECTION LIMIT 0 VALID UNTIL '2001-01-01'", CLERK.username
    )
    assert await at.reconcile(wanted) == ["UserUnlocked"]
    assert await attributes(at, CLERK.username) == all_of_it


@pytest.mark.parametrize("attribute", ["SUPERUSER", "CREATEROLE", "REPLICATION", "BYPASSRLS"])
async def test_superuser_attribute_is_removed(at: PostgreSQLHarness, attribute: str) -> None:
    if not anyone_mighty(at):
        return
    await at.reconcile(user(CLERK.username))
    at.postgresql.administer(f"ALTER ROLE {{}} {attribute} CONNECTION LIMIT 3 PASSWORD 'another'", CLERK.username)
    assert set(await at.reconcile(user(CLERK.username))) == {"PasswordReset", "UserAltered"}
    assert await attributes(at, CLERK.username) == PLAIN
    mighty = "SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = 'the \"clerk\"; %s \\ żółw'"
    assert at.postgresql.administer(mighty) == [(False,)]
    assert await at.postgresql.can_log_in(CLERK, "postgres")
    at.postgresql.administer(f"ALTER ROLE {{}} {attribute}", CLERK.username)
    assert await at.drop(CLERK.username) == ["UserDropped"]


async def test_rotation_login_superuser_attribute_is_removed(at: PostgreSQLHarness) -> None:
    if not anyone_mighty(at):
        return
    rotating = user(CLERK.username, second_credential=SecondCredential("s3cond"))
    second = SqlCredentials(CLERK.username + "~", "s3cond")
    for then in (lambda: at.reconcile(user(CLERK.username)), lambda: at.drop(CLERK.username)):
        await at.reconcile(rotating)
        spoilt = "ALTER ROLE {} SUPERUSER REPLICATION; ALTER ROLE {} RESET role"
        at.postgresql.administer(spoilt, second.username, second.username)
        await at.reconcile(rotating)
        assert await attributes(at, second.username) == PLAIN
        assert await at.sql("SELECT current_user::text", who=second, database="postgres") == CLERK.username
        await at.close_connections()
        at.postgresql.administer("ALTER ROLE {} SUPERUSER REPLICATION", second.username)
        await then()
        assert not await is_there(at, second.username)


async def test_replication_role_is_altered_and_dropped(at: PostgreSQLHarness) -> None:
    if not anyone_mighty(at):
        return
    wanted = user(CLERK.username, replication=True)
    await at.reconcile(wanted)
    assert await at.reconcile(replace(wanted, password="another", connection_limit=3)) == [
        "PasswordReset",
        "UserAltered",
    ]
    assert await attributes(at, CLERK.username) == (False, True, False, True, True, 3, None)
    assert await at.drop(CLERK.username) == ["UserDropped"]


@pytest.mark.parametrize(
    "end",
    [
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(2001, 1, 1, tzinfo=UTC),
    ],
    ids=str,
)
async def test_valid_until_accepts_any_timestamp(at: PostgreSQLHarness, end: datetime) -> None:
    await at.reconcile(user(CLERK.username, valid_until=end))
    assert await at.postgresql.can_log_in(CLERK, "postgres") is (end.year > 2100)


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "<+12>+12"])
async def test_valid_until_compares_as_instant(at: PostgreSQLHarness, zone: str) -> None:
    login = at.sessions.server.login.username
    at.postgresql.administer(f"ALTER ROLE {{}} SET timezone = '{zone}'", login)
    at.postgresql.administer("ALTER ROLE {} SET datestyle = 'SQL, DMY'", login)
    try:
        # New ones, for which it counts.
        await at.sessions.close()
        for end in (
            datetime(9998, 12, 31, 20, tzinfo=UTC),
            datetime(9999, 1, 1, tzinfo=UTC),
            datetime(2, 1, 1, 4, tzinfo=UTC),
            datetime(2035, 3, 4, 23, 30, tzinfo=timezone(timedelta(hours=-5))),
        ):
            await at.reconcile(user(CLERK.username, valid_until=end))
    finally:
        for name in ("timezone", "datestyle"):
            at.postgresql.administer(f"ALTER ROLE {{}} RESET {name}", login)


MEMBERSHIPS = """
SELECT r.rolname, a.admin_option,
       (to_jsonb(a) ->> 'inherit_option')::bool, (to_jsonb(a) ->> 'set_option')::bool
FROM pg_auth_members a JOIN pg_roles m ON m.oid = a.member JOIN pg_roles r ON r.oid = a.roleid
WHERE m.rolname LIKE 'the "clerk%' ORDER BY 1
"""


def memberships(at: PostgreSQLHarness) -> list[tuple[object, ...]]:
    return at.postgresql.administer(MEMBERSHIPS)


JANE = "jane's"
# 63 bytes, and no more fit.
READER, WRITER = 'the "reader" %s' + "ż" * 24, "writer's"


async def test_memberships_match_the_declaration(at: PostgreSQLHarness) -> None:
    await at.reconcile(role(READER))
    await at.reconcile(role(WRITER))
    clerk = user(CLERK.username)
    two = (DesiredMembership(READER, admin=True), DesiredMembership(WRITER))
    options = (True, True) if at.version >= 16 else (None, None)
    await at.reconcile(replace(clerk, roles=two))
    assert memberships(at) == [(READER, True, *options), (WRITER, False, *options)]
    await at.reconcile(replace(clerk, roles=(DesiredMembership(READER), DesiredMembership(WRITER, admin=True))))
    assert memberships(at) == [(READER, False, *options), (WRITER, True, *options)]
    at.postgresql.administer("REVOKE {} FROM {}", READER, CLERK.username)
    at.postgresql.administer("GRANT pg_monitor TO {}", CLERK.username)
    if anyone_mighty(at):
        await at.reconcile(replace(clerk, roles=two))
        assert memberships(at) == [(READER, True, *options), (WRITER, False, *options)]
        await at.reconcile(clerk)
        assert memberships(at) == []
    await at.reconcile(replace(clerk, roles=two, revoke_undeclared=False))
    assert {name for name, *_ in memberships(at)} >= {READER, WRITER}


async def test_predefined_roles_granted_by_capable_administrator(at: PostgreSQLHarness) -> None:
    wanted = user(CLERK.username, roles=(DesiredMembership("pg_read_all_data", admin=True),))
    if at.rank == "modest" and at.version >= 16:
        with pytest.raises(SqlFailed, match="permission denied to grant role"):
            await at.reconcile(wanted)
        return
    await at.reconcile(wanted)
    assert [(name, admin) for name, admin, *_ in memberships(at)] == [("pg_read_all_data", True)]
    await at.reconcile(user(CLERK.username))
    assert memberships(at) == []


@pytest.mark.parametrize("mighty", ["pg_execute_server_program", "SUPERUSER", "CREATEROLE"])
async def test_indirect_superuser_membership_is_rejected(at: PostgreSQLHarness, mighty: str) -> None:
    """Whoever may grant it: the cluster's superuser would, where the operator may not."""
    await at.reconcile(user(CLERK.username))
    for name in (READER, WRITER):
        at.postgresql.administer("CREATE ROLE {} NOLOGIN", name)
    at.postgresql.administer("GRANT {} TO {}", WRITER, READER)
    wanted = user(CLERK.username, roles=(DesiredMembership(READER),))
    if anyone_mighty(at):
        at.postgresql.administer("GRANT pg_read_all_stats TO {}", WRITER)
        await at.reconcile(wanted)
    named = mighty.startswith("pg_")
    at.postgresql.administer(f"GRANT {mighty} TO {{}}" if named else f"ALTER ROLE {{}} {mighty}", WRITER)
    with pytest.raises(ObjectsMissing, match=f"privileges on the whole server by {mighty if named else WRITER}"):
        await at.reconcile(wanted)
    assert READER not in {name for name, *_ in memberships(at)}
    await at.reconcile(replace(DATABASE, owner=CLERK.username))
    with pytest.raises(NoReassignTarget, match="privileges on the whole server"):
        await at.drop(CLERK.username, READER)


async def test_unsupported_membership_option_is_reported(at: PostgreSQLHarness) -> None:
    await at.reconcile(role(READER))
    without = user(CLERK.username, roles=(DesiredMembership(READER),))
    for options in ({"inherit": False}, {"set_role": False}):
        wanted = replace(without, roles=(DesiredMembership(READER, **options),))
        if at.version >= 16:
            await at.reconcile(wanted)
            continue
        for former in (user(CLERK.username), without):
            await at.reconcile(former)
            there = memberships(at)
            with pytest.raises(
                ObjectsMissing, match=r"PostgreSQL 15 does not support inherit and set of the membership"
            ):
                await at.reconcile(wanted)
            assert memberships(at) == there
    if at.version >= 16:
        assert memberships(at) == [(READER, False, True, False)]


async def test_membership_without_inherit_removes_rights(at: PostgreSQLHarness) -> None:
    await at.reconcile(DATABASE)
    await at.reconcile(role(READER, grants=(DesiredGrant(SHOP, frozenset({"CREATE"})),)))
    clerk = user(
        CLERK.username, roles=(DesiredMembership(READER),), grants=(DesiredGrant(SHOP, frozenset({"CONNECT"})),)
    )
    await at.reconcile(clerk)
    assert await at.is_allowed(CLERK, "CREATE SCHEMA one")
    await at.reconcile(replace(clerk, inherit=False))
    assert not await at.is_allowed(CLERK, "CREATE SCHEMA two")
    await at.reconcile(clerk)
    assert await at.is_allowed(CLERK, "CREATE SCHEMA two")


async def test_member_who_granted_others_is_removed_last(at: PostgreSQLHarness) -> None:
    """Since version 16; before, nobody remembers who let whom in."""
    await at.reconcile(role(READER))
    await at.reconcile(user(CLERK.username, roles=(DesiredMembership(READER, admin=True),)))
    await at.reconcile(user(JANE))
    await at.sql("GRANT {} TO {}", READER, JANE, who=CLERK, database="postgres")
    for roles in ((), (DesiredMembership(READER),)):
        wanted = user(CLERK.username, roles=roles, connection_limit=3)
        if at.version < 16:
            await at.reconcile(wanted)
            continue
        with pytest.raises(
            ObjectsMissing, match=rf"keeps the membership in .*, because it granted it to {JANE}: revoke"
        ):
            await at.reconcile(wanted)
        assert memberships(at) == [(READER, True, True, True)]
    assert (await attributes(at, CLERK.username))[5] == 3, "the rest is done"
    assert await at.reconcile(user(JANE)) == ["MembershipRevoked"]
    await at.reconcile(user(CLERK.username, roles=(DesiredMembership(READER),)))
    assert [admin for _, admin, *_ in memberships(at)] == [False]


async def test_self_granted_membership_is_removed(at: PostgreSQLHarness) -> None:
    """Since version 16 that is a membership of its own, which hangs on the one with the admin option."""
    await at.reconcile(role(READER))
    admin = user(CLERK.username, roles=(DesiredMembership(READER, admin=True),))
    for then in (user(CLERK.username, roles=(DesiredMembership(READER),)), user(CLERK.username)):
        await at.reconcile(admin)
        await at.sql("GRANT {} TO {}", READER, CLERK.username, who=CLERK, database="postgres")
        await at.reconcile(then)
        assert [(name, admin) for name, admin, *_ in memberships(at)] == [(one.role, False) for one in then.roles]


async def test_foreign_membership_is_removed_though_delegated(at: PostgreSQLHarness) -> None:
    """Two who let each other in: what the one has from the other goes, then what the other has from the one."""
    if at.version < 16:
        return
    await at.reconcile(role(READER))
    await at.reconcile(user(CLERK.username, roles=(DesiredMembership(READER, admin=True),)))
    await at.reconcile(user(JANE, revoke_undeclared=False))
    jane = SqlCredentials(JANE, "s3cret")
    await at.sql("GRANT {} TO {} WITH ADMIN OPTION", READER, JANE, who=CLERK, database="postgres")
    await at.sql("GRANT {} TO {}", READER, CLERK.username, who=jane, database="postgres")
    assert len(memberships(at)) == 2
    with pytest.raises(ObjectsMissing, match=f"because it granted it to {JANE}: revoke"):
        await at.reconcile(user(CLERK.username))
    assert memberships(at) == [(READER, True, True, True)]
    await at.reconcile(user(JANE))
    await at.reconcile(user(CLERK.username))
    assert memberships(at) == []


async def test_member_who_granted_others_is_dropped(at: PostgreSQLHarness) -> None:
    await at.reconcile(role(READER))
    await at.reconcile(user(CLERK.username, roles=(DesiredMembership(READER, admin=True),)))
    await at.reconcile(user(JANE))
    await at.sql("GRANT {} TO {}", READER, JANE, who=CLERK, database="postgres")
    assert await at.drop(CLERK.username) == ["UserDropped"]
    assert not await is_there(at, CLERK.username)


async def test_user_with_grants_only_needs_no_new_owner(at: PostgreSQLHarness) -> None:
    """Not even where a superuser owns the database."""
    await at.reconcile(user(CLERK.username))
    at.postgresql.administer("GRANT CONNECT ON DATABASE postgres TO {}", CLERK.username)
    at.postgresql.administer("GRANT SET ON PARAMETER log_statement TO {}", CLERK.username)
    await at.sql("GRANT SELECT ON pg_database TO {}", CLERK.username, database="postgres")
    if at.rank == "modest":
        # It may not take away what a superuser gave, and says of what.
        with pytest.raises(SqlFailed, match=r"cannot be dropped .* privileges for parameter log_statement"):
            await at.drop(CLERK.username)
        return
    assert await at.drop(CLERK.username) == ["UserDropped"]
    assert not await is_there(at, CLERK.username)


async def test_dropped_user_objects_go_to_new_owner(at: PostgreSQLHarness) -> None:
    """In each database: what it owned goes over, what it granted in advance and was granted is gone."""
    other = replace(DATABASE, name="the other's")
    places = [SHOP, other.name]
    create = DesiredGrant("", frozenset({"CREATE", "USAGE"}), SecurableKind.SCHEMA, "public")
    for database in (DATABASE, other):
        await at.reconcile(database)
    grants = [replace(create, database=place) for place in places]
    grants += [DesiredGrant(place, frozenset({"CONNECT", "CREATE"})) for place in places]
    await at.reconcile(user(CLERK.username, grants=tuple(grants)))
    await at.reconcile(user(JANE))
    statement = "CREATE TABLE {0} (); CREATE SCHEMA {0}; ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO {1}"
    for place in places:
        await at.sql(statement, CLERK.username, JANE, who=CLERK, database=place)
    heirs = {None: OWNER.username, JANE: JANE}
    heir = JANE if at.rank == "operator" else None
    assert await at.drop(CLERK.username, heir) == ["UserDropped"]
    for place in places:
        owners = "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class WHERE relname LIKE 'the \"clerk%'"
        assert await at.sql(owners, database=place) == heirs[heir]
        owners = "SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname LIKE 'the \"clerk%'"
        assert await at.sql(owners, database=place) == heirs[heir]
        assert await at.sql("SELECT oid FROM pg_default_acl", database=place) == []
    assert not await is_there(at, CLERK.username)


async def test_database_owner_is_dropped_with_new_owner_only(at: PostgreSQLHarness) -> None:
    await at.reconcile(user(CLERK.username))
    await at.reconcile(user(JANE))
    await at.reconcile(replace(DATABASE, owner=CLERK.username))
    with pytest.raises(NoReassignTarget, match="it owns the database itself"):
        await at.drop(CLERK.username)
    with pytest.raises(NoReassignTarget, match="privileges on the whole server"):
        await at.drop(CLERK.username, at.postgresql.administrator.username)
    assert await at.drop(CLERK.username, JANE) == ["UserDropped"]
    assert at.postgresql.administer(
        "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname LIKE 'the \"shop%'"
    ) == [(JANE,)]


async def test_superuser_is_removed_before_drop(at: PostgreSQLHarness) -> None:
    """The operator's everyday login must not be able to act as a superuser, not even for a moment."""
    if not anyone_mighty(at):
        return
    taken = "REVOKE {} FROM {} CASCADE" if at.version >= 16 else "REVOKE {} FROM {}"
    mighty = "ALTER ROLE {} SUPERUSER CREATEROLE REPLICATION BYPASSRLS"
    await at.reconcile(user(CLERK.username))
    await at.reconcile(replace(DATABASE, owner=CLERK.username))
    for heir in (None, OWNER.username):
        at.postgresql.administer(taken, CLERK.username, at.sessions.server.login.username)
        at.postgresql.administer(mighty, CLERK.username)
        survey = await at.sql_engine.inspect(
            at.sessions, InspectionScope(frozenset({CLERK.username, OWNER.username}))
        )
        for plan in (
            at.sql_engine.plan_user(survey, user(CLERK.username)),
            at.sql_engine.plan_drop_user(survey, CLERK.username, MARK, heir),
        ):
            at.postgresql.administer(mighty, CLERK.username)
            await at.sql_engine.execute(at.sessions, SqlPlan(plan.steps[:1]))
            assert rights(at, CLERK.username) == (False, False, False, False)
        assert not (await attributes(at, CLERK.username))[4], "it does not log in any more"
        at.postgresql.administer(mighty + " LOGIN", CLERK.username)
        if heir is None:
            for _ in range(2):
                with pytest.raises(NoReassignTarget, match="it owns the database itself"):
                    await at.drop(CLERK.username)
                assert rights(at, CLERK.username) == (False, False, False, False)
            assert not await at.postgresql.can_log_in(CLERK, "postgres")
    assert await at.drop(CLERK.username, OWNER.username) == ["UserDropped"]


RIGHTS = """
SELECT rolsuper, rolcreaterole, rolreplication, rolbypassrls FROM pg_roles WHERE rolname = '{}'
"""


def rights(at: PostgreSQLHarness, name: str) -> tuple[object, ...]:
    [row] = at.postgresql.administer(RIGHTS.replace("{}", name.replace("'", "''")))
    return row


async def test_role_created_by_hand_is_adopted_and_dropped(at: PostgreSQLHarness) -> None:
    at.postgresql.administer("CREATE ROLE {} LOGIN PASSWORD 'theirs' CONNECTION LIMIT 3", CLERK.username)
    wanted = user(CLERK.username, adopt=True, revoke_undeclared=False)
    if at.rank == "modest" and at.version >= 16:
        with pytest.raises(SqlFailed, match="permission denied"):
            await at.reconcile(wanted)
        return
    assert "UserAdopted" in await at.reconcile(wanted)
    assert await attributes(at, CLERK.username) == PLAIN
    assert await at.drop(CLERK.username) == ["UserDropped"]


async def test_lost_admin_option_is_regained(at: PostgreSQLHarness) -> None:
    """Altered and dropped, too: whose object is deleted is looked at no more before."""
    taken = "REVOKE {} FROM {} CASCADE" if at.version >= 16 else "REVOKE {} FROM {}"
    me = at.sessions.server.login.username
    for then in (lambda: at.reconcile(user(CLERK.username, connection_limit=3)), lambda: at.drop(CLERK.username)):
        await at.reconcile(user(CLERK.username))
        at.postgresql.administer(taken, CLERK.username, me)
        if at.rank == "modest" and at.version >= 16:
            with pytest.raises(SqlFailed, match="permission denied"):
                await then()
            return
        assert await then() in (["UserAltered"], ["UserDropped"])


async def is_there(at: PostgreSQLHarness, name: str) -> bool:
    return (name,) in at.postgresql.administer("SELECT rolname FROM pg_roles")
