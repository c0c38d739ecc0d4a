"""Accounts and variables that people drop or set on members of a group."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress

import pymysql
import pytest

from database_support.servers.mysql_group_fixtures import group, kept, primary, replicas, settled, write
from database_support.servers.mysql_members import MemberProcess, MemberProcesses, until

__all__ = ["group", "primary"]

pytestmark = [pytest.mark.xdist_group("mysql-group"), pytest.mark.timeout(600)]

HEALED_SECONDS = 30.0
OWN = "'steersman_replication'@'%', 'steersman_superuser'@'%', 'steersman_operator'@'%'"
FAULTS: dict[str, Sequence[str]] = {
    "dropped": [f"DROP USER {OWN}"],
    "locked": ["ALTER USER steersman_replication@'%' ACCOUNT LOCK", "ALTER USER root@localhost ACCOUNT LOCK"],
    # As a dump of another server's tables.
    "overwritten": [
        "DELETE FROM mysql.user WHERE User LIKE 'steersman%' OR Host = 'localhost' AND User = 'root'",
        "DELETE FROM mysql.global_grants WHERE USER <> 'tester'",
        "DELETE FROM mysql.tables_priv",
        "FLUSH PRIVILEGES",
    ],
    "overwritten without a flush": [
        "DELETE FROM mysql.user WHERE User LIKE 'steersman%' OR Host = 'localhost' AND User = 'root'",
        "DELETE FROM mysql.global_grants WHERE USER <> 'tester'",
    ],
}
USABLE = (
    "SELECT COUNT(*) FROM mysql.user WHERE account_locked = 'N' AND (User LIKE 'steersman%' OR Host = 'localhost' AND"
    " User = 'root')"
)


def has_accounts(member: MemberProcess) -> bool:
    with suppress(pymysql.MySQLError):
        return member.sql(USABLE) == ((7,),)
    return False


def restart(members: Sequence[MemberProcess]) -> None:
    """Start ended containers, and wait until their members are online. Pods show the previous state at first."""
    before = [len(one.log) for one in members]
    for one in members:
        one.start()
    for one, end in zip(members, before, strict=True):
        until("it is online", lambda one=one, end=end: "steersman-agent: Wait: online" in one.log[end:], 240)


@pytest.mark.parametrize("fault", FAULTS)
def test_accounts_restored_on_serving_group(group: MemberProcesses, primary: MemberProcess, fault: str) -> None:
    write(primary)
    primary.sql(*FAULTS[fault])
    for one in group.all:
        until("it has them again", lambda one=one: has_accounts(one), HEALED_SECONDS)
    # Which a joining member needs at all others.
    [lost, *_] = replicas(group, primary)
    lost.lose_volume()
    restart([lost])
    assert settled(group) is primary
    assert kept(lost) == kept(primary)


@pytest.mark.parametrize(
    ("fault", "applied"), [*((fault, True) for fault in FAULTS), ("dropped", False)], ids=[*FAULTS, "dropped late"]
)
def test_accounts_restored_at_start(
    group: MemberProcesses, primary: MemberProcess, fault: str, applied: bool
) -> None:
    write(primary)
    rows = kept(primary)
    with ExitStack() as stack:
        if not applied:
            # Replicas apply the fault after their start, whose SQL is not in the binary log.
            for one in replicas(group, primary):
                stack.enter_context(one.session())("FLUSH TABLES WITH READ LOCK")
        primary.sql(*FAULTS[fault])
        # At once: no agent has checked.
        for one in group.all:
            one.kill()
    restart(group.all)
    settled(group)
    assert [kept(one) for one in group.all] == [rows] * 3
    for one in group.all:
        until("it has them", lambda one=one: has_accounts(one), HEALED_SECONDS)
    assert not any(one.published_status()["errantGtids"] for one in group.all)


def test_agent_locked_out_restarts_its_server(group: MemberProcesses, primary: MemberProcess) -> None:
    [one, *_] = replicas(group, primary)
    # Not of the group, and behind the back of the agent's open connection.
    with one.session() as ask:
        ask("SET SESSION sql_log_bin = OFF")
        ask("SET GLOBAL super_read_only = OFF")
        ask("ALTER USER root@localhost ACCOUNT LOCK")
        for (number,) in ask("SELECT ID FROM performance_schema.processlist WHERE USER = 'root'"):
            ask(f"KILL {number}")
    until("it is let in", lambda: has_accounts(one), HEALED_SECONDS + 20)
    assert settled(group) is primary


@pytest.mark.parametrize(
    "statement",
    [
        "SET GLOBAL super_read_only = ON",
        "SET GLOBAL read_only = ON",
        "SET GLOBAL offline_mode = ON",
        "SET GLOBAL init_connect = 'this is not SQL'",
    ],
)
def test_variables_that_refuse_clients_are_reset(
    group: MemberProcesses, primary: MemberProcess, statement: str
) -> None:
    primary.sql(
        "CREATE DATABASE IF NOT EXISTS shop",
        "CREATE TABLE IF NOT EXISTS shop.kept (id INT AUTO_INCREMENT PRIMARY KEY)",
        "CREATE USER IF NOT EXISTS application@'%' IDENTIFIED BY 'application'",
        "GRANT ALL ON shop.* TO application@'%'",
    )

    def writes() -> bool:
        with suppress(pymysql.MySQLError), primary.session(user="application") as ask:
            ask("INSERT INTO shop.kept VALUES ()")
            return True
        return False

    assert writes()
    primary.sql(statement)
    assert not writes()
    until("it takes writes", writes, HEALED_SECONDS)
    name = statement.split()[2]
    until("it says so", lambda: name in str(primary.published_status()["restoredParameters"]))


def test_replica_stays_read_only(group: MemberProcesses, primary: MemberProcess) -> None:
    [one, *_] = replicas(group, primary)
    one.sql("SET GLOBAL super_read_only = OFF", "SET GLOBAL read_only = OFF")
    until("it refuses writes", lambda: one.sql("SELECT @@super_read_only") == ((1,),), HEALED_SECONDS)


def test_election_is_not_disturbed(group: MemberProcesses, primary: MemberProcess) -> None:
    """The primary of a switchover refuses writes while transactions end."""
    write(primary)
    [target, *_] = replicas(group, primary)
    with primary.session() as ask:
        ask("BEGIN")
        ask("INSERT INTO shop.kept VALUES ()")
        uuid = target.sql("SELECT @@server_uuid")[0][0]
        begun = time.monotonic()
        with target.session(read_seconds=60) as request, suppress(pymysql.MySQLError):
            request(f"SELECT group_replication_set_as_primary('{uuid}', 25)")
        assert time.monotonic() - begun > 20, "it has waited"
    until("it leads", lambda: group.another(primary))
    settled(group)


def error_of(member: MemberProcess) -> str:
    return member.published_status().get("writeError", "")


def test_refused_writes_are_reported(group: MemberProcesses, primary: MemberProcess) -> None:
    assert error_of(primary) == ""
    with primary.session(read_seconds=60) as ask:
        # Writes wait for the lock of a person.
        ask("FLUSH TABLES WITH READ LOCK")
        until("it says so", lambda: "Lock wait timeout exceeded" in error_of(primary), HEALED_SECONDS + 10)
        ask("UNLOCK TABLES")
    until("it takes writes", lambda: error_of(primary) == "", HEALED_SECONDS)
    assert all(error_of(one) == "" for one in replicas(group, primary))


def test_connections_used_up_are_reported(group: MemberProcesses, primary: MemberProcess) -> None:
    before = primary.sql("SELECT @@max_connections")[0][0]
    primary.sql("CREATE USER IF NOT EXISTS tenant@'%' IDENTIFIED BY 'tenant'", "SET GLOBAL max_connections = 15")
    try:
        with ExitStack() as stack:
            with pytest.raises(pymysql.MySQLError):
                while True:
                    stack.enter_context(primary.session(user="tenant"))
            until("it says so", lambda: "Too many connections" in error_of(primary), HEALED_SECONDS)
        until("it takes writes", lambda: error_of(primary) == "", HEALED_SECONDS)
    finally:
        primary.sql(f"SET GLOBAL max_connections = {before}", "DROP USER tenant@'%'")


def test_idle_group_commits_nothing(group: MemberProcesses, primary: MemberProcess) -> None:
    logins = "SELECT TOTAL_CONNECTIONS FROM performance_schema.users WHERE USER = 'steersman_queries'"

    def is_quiet() -> bool:
        """Return True if two writes have left no transaction."""
        before, number = primary.sql("SELECT @@GLOBAL.gtid_executed"), primary.sql(logins)[0][0]
        until("it has tried", lambda: primary.sql(logins)[0][0] > number + 1, HEALED_SECONDS + 10)
        return primary.sql("SELECT @@GLOBAL.gtid_executed") == before

    until(
        "it has written", lambda: primary.sql("SELECT COUNT(*) FROM steersman.heartbeat") == ((1,),), HEALED_SECONDS
    )
    # What others have committed may be followed by one row.
    until("it commits nothing", is_quiet, 2 * HEALED_SECONDS)
    assert is_quiet()
