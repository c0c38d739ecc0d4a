"""What users of PostgreSQL may do to sequences, functions and what is to come, and may pass on."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest

from database_support.servers.postgresql_admins import DATABASE, OWNER, SHOP, PostgreSQLHarness, role, user
from steersman_databases.engines import SqlCredentials
from steersman_databases.engines.errors import ObjectsMissing, SqlFailed
from steersman_databases.engines.naming import OPERATOR_ROLE
from steersman_databases.engines.sql.desired import DesiredGrant, DesiredMembership, SecurableKind

CLERK = SqlCredentials('the "clerk"; %s \\ żółw', "s3cret")
JANE = SqlCredentials("jane's", "s3cret")
PLACE, NAME, TICKETS, COLOUR = 'till "1"; %s', 'it\'s, \\ "%s"', "tickets; %s 'żółte'", 'colour "%s, 1"'
THINGS = """
CREATE SCHEMA {0};
CREATE TABLE {0}.{1} (id int);
CREATE SEQUENCE {0}.{2};
CREATE TYPE {0}.{3} AS ENUM ('red');
CREATE FUNCTION {0}.{1}(integer, {0}.{3}) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION {0}.{1}() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE PROCEDURE {0}.proc(text) LANGUAGE sql AS 'SELECT 1';
CREATE AGGREGATE {0}.agg(int) (SFUNC = int4pl, STYPE = int);
CREATE AGGREGATE {0}.none(*) (SFUNC = int8inc, STYPE = bigint, INITCOND = '0')
"""


@pytest.fixture
async def at(at: PostgreSQLHarness) -> PostgreSQLHarness:
    await at.reconcile(DATABASE)
    await at.sql(THINGS, PLACE, NAME, TICKETS, COLOUR, who=OWNER)
    await at.reconcile(user(CLERK.username))
    await at.reconcile(user(JANE.username))
    return at


CONNECT = DesiredGrant(SHOP, frozenset({"CONNECT"}))
USE = DesiredGrant(SHOP, frozenset({"USAGE"}), SecurableKind.SCHEMA, PLACE)


def on(kind: SecurableKind, *names: str, privileges: tuple[str, ...] = ("ALL",), **fields: Any) -> DesiredGrant:
    return DesiredGrant(SHOP, frozenset(privileges), kind, PLACE, names, **fields)


HELD = """
SELECT what, privilege_type, pg_get_userbyid(grantor), is_grantable FROM (
    SELECT relkind::text || ' ' || relname AS what, relacl AS list FROM pg_class
  UNION ALL SELECT 'f ' || proname, proacl FROM pg_proc
  UNION ALL SELECT 'n ' || nspname, nspacl FROM pg_namespace
  UNION ALL SELECT 'd ' || datname, datacl FROM pg_database
  UNION ALL SELECT 'later ' || defaclobjtype::text, defaclacl FROM pg_default_acl
) found, aclexplode(list) WHERE pg_get_userbyid(grantee) = '{}' ORDER BY 1, 2, 3
"""


async def held(at: PostgreSQLHarness, who: SqlCredentials = CLERK) -> list[tuple[str, str, str, bool]]:
    literal = who.username.replace("'", "''")
    rows = await at.postgresql.execute(HELD.replace("{}", literal), database=SHOP)
    return [tuple(row) for row in rows]


async def test_sequence_and_function_grants_apply(at: PostgreSQLHarness) -> None:
    signature = f'{NAME}(integer, "till ""1""; %s"."colour ""%s, 1""")'
    grants = (
        CONNECT,
        USE,
        on(SecurableKind.SEQUENCE, TICKETS, privileges=("USAGE", "SELECT")),
        on(SecurableKind.FUNCTION, signature, "proc(text)", "agg(integer)", "none()", privileges=("EXECUTE",)),
    )
    await at.reconcile(user(CLERK.username, grants=grants))
    found = {(what, privilege) for what, privilege, *_ in await held(at)}
    assert (f"S {TICKETS}", "USAGE") in found and (f"S {TICKETS}", "UPDATE") not in found
    assert [what for what, _ in sorted(found) if what[0] == "f"] == ["f agg", f"f {NAME}", "f none", "f proc"]
    every = (CONNECT, USE, on(SecurableKind.SEQUENCE, "*"), on(SecurableKind.FUNCTION, "*"))
    await at.reconcile(user(CLERK.username, grants=every))
    assert {what[0] for what, *_ in await held(at)} == {"d", "n", "S", "f"}
    assert len([what for what, *_ in await held(at) if what[0] == "f"]) == 5
    await at.reconcile(user(CLERK.username))
    assert await held(at) == []


PAIR = """
CREATE FUNCTION {0}.pair(integer, integer) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE PROCEDURE {0}.pair(integer, OUT integer) LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION {0}.pair(VARIADIC {0}.{1}[]) RETURNS int LANGUAGE sql AS 'SELECT 1'
"""


async def test_function_name_matching_two_is_rejected(at: PostgreSQLHarness) -> None:
    """With its OUT arguments a procedure has the types of a function: in each schema anybody may plant such two."""
    await at.sql(PAIR, PLACE, COLOUR, who=OWNER)
    variadic = 'pair("till ""1""; %s"."colour ""%s, 1"""[])'
    by_types = on(SecurableKind.FUNCTION, "pair(integer, integer)", "pair(integer)", variadic, "agg(integer)")
    await at.reconcile(user(CLERK.username, grants=(CONNECT, by_types)))
    assert [what for what, *_ in await held(at) if what[0] == "f"] == ["f agg", "f pair", "f pair", "f pair"]
    await at.reconcile(user(CLERK.username))
    assert await held(at) == []


async def test_function_without_types_reports_signature(at: PostgreSQLHarness) -> None:
    with pytest.raises(
        ObjectsMissing, match=r"agg does not exist yet; add the argument types, as in agg\(integer\)$"
    ):
        await at.reconcile(user(CLERK.username, grants=(CONNECT, on(SecurableKind.FUNCTION, "agg"))))
    with pytest.raises(ObjectsMissing, match=r"other does not exist yet$"):
        await at.reconcile(user(CLERK.username, grants=(CONNECT, on(SecurableKind.FUNCTION, "other"))))


async def test_maintain_privilege_since_version_17(at: PostgreSQLHarness) -> None:
    tables = on(SecurableKind.TABLE, NAME)
    await at.reconcile(user(CLERK.username, grants=(CONNECT, USE, tables)))
    privileges = {privilege for what, privilege, *_ in await held(at) if what[0] == "r"}
    assert ("MAINTAIN" in privileges) is (at.version >= 17) and "TRUNCATE" in privileges
    maintain = on(SecurableKind.TABLE, NAME, privileges=("MAINTAIN",))
    if at.version < 17:
        with pytest.raises(ObjectsMissing, match="has no MAINTAIN on a table"):
            await at.reconcile(user(CLERK.username, grants=(CONNECT, USE, maintain)))
        assert [what for what, *_ in await held(at) if what[0] == "r"] == [], "the rest is revoked all the same"
        return
    await at.reconcile(user(CLERK.username, grants=(maintain,)))
    assert [privilege for _, privilege, *_ in await held(at)] == ["MAINTAIN"]


FUTURE = {
    SecurableKind.TABLE: "CREATE TABLE {}.later (id int)",
    SecurableKind.SEQUENCE: "CREATE SEQUENCE {}.later",
    SecurableKind.FUNCTION: "CREATE FUNCTION {}.later() RETURNS int LANGUAGE sql AS 'SELECT 1'",
}


@pytest.mark.parametrize("kind", FUTURE, ids=lambda kind: kind.value)
async def test_default_privileges_apply(at: PostgreSQLHarness, kind: SecurableKind) -> None:
    creators = (OWNER.username, JANE.username)
    option = on(kind, "*", future=True, created_by=creators, with_grant_option=True)
    await at.reconcile(user(JANE.username, grants=(CONNECT, replace(USE, privileges=frozenset({"ALL"})))))
    await at.reconcile(user(CLERK.username, grants=(option,)))
    later = {(grantor, grantable) for what, _, grantor, grantable in await held(at) if what.startswith("later")}
    assert later == {(creator, True) for creator in creators}
    for who in (OWNER, JANE):
        await at.sql(FUTURE[kind], PLACE, who=who)
        assert await at.reconcile(user(CLERK.username, grants=(option,))) == []
        await at.sql(f"DROP {kind.name} {{}}.later", PLACE, who=who)
    without = replace(option, with_grant_option=False, created_by=())
    await at.reconcile(user(CLERK.username, grants=(without,)))
    assert {(grantor, grantable) for _, _, grantor, grantable in await held(at)} == {(OWNER.username, False)}
    await at.sql(f"ALTER DEFAULT PRIVILEGES GRANT ALL ON {kind.name}S TO {{}}", CLERK.username, who=JANE)
    await at.sql(FUTURE[kind], PLACE, who=JANE)
    assert set(await at.reconcile(user(CLERK.username))) == {"GrantRevoked"}
    assert await held(at) == []


TABLE = on(SecurableKind.TABLE, NAME, privileges=("SELECT",))
PASSED_ON = replace(TABLE, with_grant_option=True)
GIVE = "GRANT SELECT ON {}.{} TO {}"


async def test_grant_option_granted_and_revoked(at: PostgreSQLHarness) -> None:
    await at.reconcile(user(CLERK.username, grants=(CONNECT, USE, PASSED_ON)))
    assert (f"r {NAME}", "SELECT", OWNER.username, True) in await held(at)
    assert await at.reconcile(user(CLERK.username, grants=(CONNECT, USE, TABLE))) == ["GrantRevoked"]
    assert (f"r {NAME}", "SELECT", OWNER.username, False) in await held(at)
    assert await at.reconcile(user(CLERK.username, grants=(CONNECT, USE, PASSED_ON))) == ["PrivilegesGranted"]
    for wanted in (CONNECT, USE):
        await at.reconcile(user(CLERK.username, grants=(replace(wanted, with_grant_option=True), CONNECT, USE)))
        assert {option for *_, option in await held(at)} == {True, False}
        await at.reconcile(user(CLERK.username, grants=(CONNECT, USE)))
        assert {option for *_, option in await held(at)} == {False}


@pytest.mark.parametrize("kept", [(), (TABLE,)], ids=["all of it", "the option only"])
async def test_delegated_grant_is_reported_rest_revoked(
    at: PostgreSQLHarness, kept: tuple[DesiredGrant, ...]
) -> None:
    sequence = on(SecurableKind.SEQUENCE, TICKETS)
    await at.reconcile(user(CLERK.username, grants=(CONNECT, USE, PASSED_ON, sequence)))
    await at.reconcile(user(JANE.username, revoke_undeclared=False))
    await at.sql(GIVE, PLACE, NAME, JANE.username, who=CLERK)
    wanted = user(CLERK.username, grants=kept)
    with pytest.raises(ObjectsMissing, match=r"SELECT on table .* because it granted it to jane's: revoke"):
        await at.reconcile(wanted)
    assert await held(at) == [(f"r {NAME}", "SELECT", OWNER.username, True)]
    assert await held(at, JANE) == [(f"r {NAME}", "SELECT", CLERK.username, False)], "never by CASCADE"
    assert await at.reconcile(user(JANE.username)) == ["GrantRevoked"]
    assert await at.reconcile(wanted) == ["GrantRevoked"]
    assert await held(at) == [(f"r {NAME}", "SELECT", OWNER.username, False)] * len(kept)


COLUMN = on(SecurableKind.TABLE, NAME, privileges=("SELECT",), columns=("id",), with_grant_option=True)


@pytest.mark.parametrize("kept", [(COLUMN,), ()], ids=["the column", "nothing"])
async def test_delegated_column_keeps_table_grant_only(at: PostgreSQLHarness, kept: tuple[DesiredGrant, ...]) -> None:
    """What is revoked on a table goes from its columns too."""
    sequence = on(SecurableKind.SEQUENCE, TICKETS)
    await at.reconcile(user(CLERK.username, grants=(CONNECT, USE, COLUMN, sequence)))
    await at.sql("GRANT SELECT (id) ON {}.{} TO {}", PLACE, NAME, JANE.username, who=CLERK)
    await at.sql(GIVE, PLACE, NAME, CLERK.username, who=OWNER)
    await at.sql("GRANT INSERT, SELECT (id) ON {}.{} TO {}", PLACE, NAME, CLERK.username, who=OWNER)
    wanted = user(CLERK.username, grants=(*kept, on(SecurableKind.FUNCTION, "none()")))
    with pytest.raises(ObjectsMissing, match=r"SELECT on table .* because it granted it to jane's: revoke"):
        await at.reconcile(wanted)
    assert {(what, privilege) for what, privilege, *_ in await held(at)} == {
        (f"r {NAME}", "SELECT"),
        ("f none", "EXECUTE"),
    }
    assert await at.reconcile(user(JANE.username)) == ["GrantRevoked"]
    await at.reconcile(wanted)
    assert {what for what, *_ in await held(at)} == {"f none"}


async def test_function_owner_without_schema_usage_is_handled(at: PostgreSQLHarness) -> None:
    await at.sql("CREATE SCHEMA closed", who=OWNER)
    for schema in ("closed", PLACE):
        await at.sql("GRANT ALL ON SCHEMA {} TO {}", schema, JANE.username, who=OWNER)
    await at.sql("GRANT CONNECT ON DATABASE {} TO {}", SHOP, JANE.username, who=OWNER)
    await at.sql("CREATE TYPE closed.colour AS ENUM ('red')", who=JANE)
    await at.sql("CREATE FUNCTION {}.f(closed.colour) RETURNS int LANGUAGE sql AS 'SELECT 1'", PLACE, who=JANE)
    await at.sql("GRANT EXECUTE ON FUNCTION {}.f TO {}", PLACE, CLERK.username, who=JANE)
    await at.sql("GRANT ALL ON SEQUENCE {}.{} TO {}", PLACE, TICKETS, CLERK.username, who=OWNER)
    for schema in ("closed", PLACE):
        await at.sql("REVOKE ALL ON SCHEMA {} FROM {}", schema, JANE.username, who=OWNER)
    await at.reconcile(user(CLERK.username))
    assert await held(at) == []
    f = on(SecurableKind.FUNCTION, "f(closed.colour)")
    await at.reconcile(user(CLERK.username, grants=(f,)))
    assert [what for what, *_ in await held(at)] == ["f f"]


@pytest.mark.parametrize("kept", [(), (TABLE,)], ids=["all of it", "the option only"])
async def test_self_delegated_grant_is_revoked(at: PostgreSQLHarness, kept: tuple[DesiredGrant, ...]) -> None:
    await at.reconcile(user(CLERK.username, grants=(CONNECT, USE, PASSED_ON)))
    await at.sql(GIVE, PLACE, NAME, CLERK.username, who=CLERK)
    await at.sql("GRANT SELECT (id) ON {}.{} TO {}", PLACE, NAME, CLERK.username, who=CLERK)
    assert len([what for what, *_ in await held(at) if what[0] == "r"]) == 2
    assert set(await at.reconcile(user(CLERK.username, grants=kept))) == {"GrantRevoked"}
    assert await held(at) == [(f"r {NAME}", "SELECT", OWNER.username, False)] * len(kept)


async def test_column_narrowing_revokes_self_delegated_grant(at: PostgreSQLHarness) -> None:
    column = replace(TABLE, columns=("id",))
    await at.reconcile(user(CLERK.username, grants=(CONNECT, USE, PASSED_ON)))
    await at.sql("GRANT SELECT (id), SELECT ON {}.{} TO {}", PLACE, NAME, CLERK.username, who=CLERK)
    await at.reconcile(user(CLERK.username, grants=(CONNECT, USE, column)))
    assert [what for what, *_ in await held(at) if what[0] == "r"] == []
    assert await at.is_allowed(CLERK, "SELECT id FROM {}.{}", PLACE, NAME)


async def test_delegated_database_and_schema_grants_are_reported(at: PostgreSQLHarness) -> None:
    both = (CONNECT, USE)
    await at.reconcile(user(CLERK.username, grants=tuple(replace(one, with_grant_option=True) for one in both)))
    await at.sql("GRANT CONNECT ON DATABASE {} TO {}", SHOP, JANE.username, who=CLERK)
    await at.sql("GRANT USAGE ON SCHEMA {} TO PUBLIC", PLACE, who=CLERK)
    with pytest.raises(
        ObjectsMissing, match=r"on database .* to jane's: .* on schema .* to everybody: revoke"
    ) as caught:
        await at.reconcile(user(CLERK.username, grants=both))
    assert len(caught.value.missing) == 2 and caught.value.changes == ()
    await at.sql("REVOKE USAGE ON SCHEMA {} FROM PUBLIC", PLACE, who=CLERK)
    await at.reconcile(user(JANE.username))
    assert await at.reconcile(user(CLERK.username, grants=both)) == ["GrantRevoked", "GrantRevoked"]
    assert {option for *_, option in await held(at)} == {False}


async def test_mutually_delegated_grants_are_revoked(at: PostgreSQLHarness) -> None:
    """Each has it from the owner, too: what one has from the other can go at once."""
    both = (CLERK, JANE)
    for who in both:
        await at.reconcile(user(who.username, grants=(CONNECT, USE, PASSED_ON)))
    for one, other in (both, both[::-1]):
        await at.sql(GIVE + " WITH GRANT OPTION", PLACE, NAME, other.username, who=one)
    with pytest.raises(ObjectsMissing, match="because it granted it to jane's: revoke that first"):
        await at.reconcile(user(CLERK.username))
    assert await held(at) == [(f"r {NAME}", "SELECT", OWNER.username, True)]
    for who in (JANE, CLERK):
        await at.reconcile(user(who.username))
        assert await held(at, who) == []


async def test_delegating_user_is_dropped(at: PostgreSQLHarness) -> None:
    await at.reconcile(user(CLERK.username, grants=(CONNECT, USE, PASSED_ON)))
    await at.sql(GIVE, PLACE, NAME, JANE.username, who=CLERK)
    assert await at.drop(CLERK.username) == ["UserDropped"]
    assert await held(at, JANE) == []


EVERYTHING = """
GRANT SELECT, INSERT ON {0}.{1} TO {4} WITH GRANT OPTION;
GRANT UPDATE (id) ON {0}.{1} TO {4} WITH GRANT OPTION;
GRANT USAGE ON SEQUENCE {0}.{2} TO {4} WITH GRANT OPTION;
GRANT EXECUTE ON FUNCTION {0}.{1}(integer, {0}.{3}) TO {4} WITH GRANT OPTION;
GRANT EXECUTE ON PROCEDURE {0}.proc(text) TO {4} WITH GRANT OPTION;
GRANT USAGE ON TYPE {0}.{3} TO {4} WITH GRANT OPTION;
GRANT USAGE ON SCHEMA {0} TO {4} WITH GRANT OPTION;
GRANT CONNECT ON DATABASE {5} TO {4} WITH GRANT OPTION
"""


async def test_user_with_grant_of_non_owner_is_dropped(at: PostgreSQLHarness) -> None:
    """DROP OWNED takes what owners granted, and no more."""
    ada = SqlCredentials("ada", "s3cret")
    await at.reconcile(user(ada.username))
    chain = (OWNER, JANE, CLERK, ada)
    for giver, taker in itertools.pairwise(chain):
        await at.sql(EVERYTHING, PLACE, NAME, TICKETS, COLOUR, taker.username, SHOP, who=giver)
    # Who has it from her gives it back; and by what she has from its owner, too, and to herself.
    await at.sql("GRANT INSERT ON {0}.{1} TO {2}", PLACE, NAME, CLERK.username, who=ada)
    await at.sql(GIVE, PLACE, NAME, CLERK.username, who=OWNER)
    await at.sql("GRANT SELECT ON {0}.{1} TO {2}", PLACE, NAME, CLERK.username, who=CLERK)
    await at.sql("CREATE TABLE {}.hers (id int)", PLACE, who=OWNER)
    await at.sql("ALTER TABLE {}.hers OWNER TO {}", PLACE, CLERK.username)
    kept = await held(at, JANE)
    assert await at.drop(CLERK.username, heir=OWNER.username) == ["UserDropped"]
    assert await held(at, JANE) == kept
    assert await held(at, ada) == []
    assert await at.sql("SELECT pg_get_userbyid(relowner) FROM pg_class WHERE relname = 'hers'") == OWNER.username


async def test_user_with_grant_of_unprivileged_grantor_is_dropped(at: PostgreSQLHarness) -> None:
    if at.rank == "modest":
        return
    at.postgresql.administer("CREATE ROLE stranger LOGIN PASSWORD 's3cret'")
    stranger = SqlCredentials("stranger", "s3cret")
    await at.sql(EVERYTHING, PLACE, NAME, TICKETS, COLOUR, "stranger", SHOP, who=OWNER)
    await at.sql(GIVE, PLACE, NAME, CLERK.username, who=stranger)
    execute = "GRANT EXECUTE ON FUNCTION {0}.{1}(integer, {0}.{2}) TO {3}"
    await at.sql(execute, PLACE, NAME, COLOUR, CLERK.username, who=stranger)
    at.postgresql.administer('GRANT SET ON PARAMETER tickets."select" TO stranger WITH GRANT OPTION')
    await at.sql('GRANT SET ON PARAMETER tickets."select" TO {}', CLERK.username, who=stranger)
    await at.sql("REVOKE ALL ON SCHEMA {} FROM stranger", PLACE, who=OWNER)
    kept = await held(at, stranger)
    assert await at.drop(CLERK.username) == ["UserDropped"]
    assert await held(at, stranger) == kept
    at.postgresql.administer('REVOKE SET ON PARAMETER tickets."select" FROM stranger')


async def test_grant_from_two_grantors_is_revoked_from_both(at: PostgreSQLHarness) -> None:
    await at.reconcile(user(JANE.username, grants=(CONNECT, USE, PASSED_ON)))
    await at.reconcile(user(CLERK.username, grants=(CONNECT, USE, TABLE)))
    await at.sql(GIVE, PLACE, NAME, CLERK.username, who=JANE)
    assert len([grantor for what, _, grantor, _ in await held(at) if what[0] == "r"]) == 2
    await at.reconcile(user(CLERK.username))
    assert await held(at) == []


async def test_grant_of_foreign_grantor_is_revoked(at: PostgreSQLHarness) -> None:
    """By somebody as whom the operator may not act, and who does not own it either."""
    if at.rank == "modest":
        return
    at.postgresql.administer("CREATE ROLE stranger LOGIN PASSWORD 's3cret'")
    await at.sql(GIVE + " WITH GRANT OPTION", PLACE, NAME, "stranger", who=OWNER)
    await at.sql(
        "GRANT USAGE ON SCHEMA {} TO stranger; GRANT CONNECT ON DATABASE {} TO stranger", PLACE, SHOP, who=OWNER
    )
    await at.sql(GIVE, PLACE, NAME, CLERK.username, who=SqlCredentials("stranger", "s3cret"))
    assert await held(at) == [(f"r {NAME}", "SELECT", "stranger", False)]
    assert await at.reconcile(user(CLERK.username)) == ["GrantRevoked"]
    assert await held(at) == []


REFUSING = """
CREATE FUNCTION public.refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN IF current_query() ~ 'GRANT.* ON (SEQUENCE|ROUTINE)' THEN RAISE 'not here'; END IF; END $$;
CREATE EVENT TRIGGER refuse ON ddl_command_start WHEN TAG IN ('GRANT') EXECUTE FUNCTION public.refuse()
"""


REFUSED = (on(SecurableKind.SEQUENCE, TICKETS), on(SecurableKind.FUNCTION, "none()"))


async def test_operator_sessions_run_no_event_triggers(at: PostgreSQLHarness) -> None:
    if at.rank != "operator" or await at.sql("SELECT current_setting('event_triggers', true)") is None:
        return
    await at.sql(REFUSING)
    await at.reconcile(user(CLERK.username, grants=(CONNECT, USE, *REFUSED)))
    assert {privilege for what, privilege, *_ in await held(at) if what[0] in "Sf"} >= {"SELECT", "EXECUTE"}


@pytest.fixture
def runs_triggers(at: PostgreSQLHarness) -> Generator[PostgreSQLHarness]:
    """Administrator whose sessions run event triggers, as those before version 17."""
    [(off,)] = at.postgresql.administer("SELECT count(*) FROM pg_roles WHERE 'event_triggers=off' = ANY(rolconfig)")
    if off:
        at.postgresql.administer(f"ALTER ROLE {OPERATOR_ROLE} RESET event_triggers")
    yield at
    if off:
        at.postgresql.administer(f"ALTER ROLE {OPERATOR_ROLE} SET event_triggers = off")


async def test_rejected_grant_does_not_block_others(runs_triggers: PostgreSQLHarness) -> None:
    """Who is to lose something must not keep it because something else cannot be given."""
    at = runs_triggers
    await at.reconcile(user(CLERK.username, grants=(CONNECT, USE, TABLE)))
    await at.sql(REFUSING)
    given = on(SecurableKind.TABLE, NAME, privileges=("INSERT",))
    with pytest.raises(
        SqlFailed,
        match=r"(?s)granting .* on sequence .*granting .*not here. It was raised by event trigger refuse",
    ) as caught:
        await at.reconcile(user(CLERK.username, grants=(CONNECT, USE, *REFUSED, given)))
    assert sorted(change.reason for change in caught.value.changes) == ["GrantRevoked", "PrivilegesGranted"]
    assert [privilege for what, privilege, *_ in await held(at) if what[0] in "rSf"] == ["INSERT"]


async def test_unreadable_event_triggers_hide_no_error(runs_triggers: PostgreSQLHarness) -> None:
    at = runs_triggers
    await at.sql(REFUSING)
    await at.sql("REVOKE EXECUTE ON FUNCTION pg_catalog.strpos(text, text) FROM PUBLIC")
    with pytest.raises(SqlFailed, match="not here"):
        await at.reconcile(user(CLERK.username, grants=(CONNECT, USE, *REFUSED)))


async def test_rejected_attribute_does_not_block_revoke(at: PostgreSQLHarness) -> None:
    if at.rank != "modest":
        return
    await at.reconcile(role("reader"))
    await at.reconcile(user(CLERK.username, grants=(CONNECT, TABLE), roles=(DesiredMembership("reader"),)))
    given = on(SecurableKind.TABLE, NAME, privileges=("INSERT",))
    wanted = user(CLERK.username, grants=(given,), bypass_row_level_security=True)
    with pytest.raises(SqlFailed, match="altering user") as caught:
        await at.reconcile(wanted)
    assert sorted(change.reason for change in caught.value.changes) == [
        *("GrantRevoked", "GrantRevoked", "MembershipRevoked"),
    ]
    assert await held(at) == []


async def test_undeclared_grants_are_kept_if_requested(at: PostgreSQLHarness) -> None:
    await at.sql(GIVE + " WITH GRANT OPTION", PLACE, NAME, CLERK.username, who=OWNER)
    await at.reconcile(role("reader"))
    await at.reconcile(user(CLERK.username, roles=(DesiredMembership("reader"),), revoke_undeclared=False))
    keeping = user(CLERK.username, grants=(CONNECT, TABLE), revoke_undeclared=False)
    assert await at.reconcile(keeping) == ["PrivilegesGranted"]
    there = {(f"r {NAME}", "SELECT", OWNER.username, True), (f"d {SHOP}", "CONNECT", OWNER.username, False)}
    assert set(await held(at)) == there
    assert (
        await at.sql(
            "SELECT pg_has_role({}, 'reader', 'MEMBER')".replace("{}", "rolname") + " FROM pg_roles"
            " WHERE rolname LIKE 'the \"clerk%'"
        )
        is True
    )
    await at.reconcile(replace(keeping, revoke_undeclared=True))
    assert set(await held(at)) == {(what, p, g, False) for what, p, g, _ in there}


async def test_table_owner_without_schema_usage_does_not_block(at: PostgreSQLHarness) -> None:
    await at.sql("GRANT ALL ON SCHEMA {} TO {}", PLACE, JANE.username, who=OWNER)
    await at.sql("GRANT CONNECT ON DATABASE {} TO {}", SHOP, JANE.username, who=OWNER)
    await at.sql("CREATE TABLE {}.hers (id int)", PLACE, who=JANE)
    await at.sql("REVOKE ALL ON SCHEMA {} FROM {}", PLACE, JANE.username, who=OWNER)
    await at.sql("REVOKE CONNECT ON DATABASE {} FROM {}", SHOP, JANE.username, who=OWNER)
    hers = on(SecurableKind.TABLE, "hers", privileges=("SELECT",))
    await at.reconcile(user(CLERK.username, grants=(hers,)))
    assert await held(at) == [("r hers", "SELECT", JANE.username, False)]
    await at.reconcile(user(CLERK.username))
    assert await held(at) == []


async def test_grant_in_closed_database_is_revoked_once_open(at: PostgreSQLHarness) -> None:
    await at.sql("GRANT USAGE ON SCHEMA {} TO {}", PLACE, CLERK.username, who=OWNER)
    await at.close_connections()
    at.postgresql.administer("ALTER DATABASE {} ALLOW_CONNECTIONS false", SHOP)
    assert await at.reconcile(user(CLERK.username)) == []
    at.postgresql.administer("ALTER DATABASE {} ALLOW_CONNECTIONS true", SHOP)
    assert await at.reconcile(user(CLERK.username)) == ["GrantRevoked"]
