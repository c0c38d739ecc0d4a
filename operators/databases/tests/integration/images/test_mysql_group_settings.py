"""Parameters, sessions and certificates of group members."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pymysql
import pytest

from database_support.servers.mysql_group_fixtures import group, kept, primary, replicas, settled, write
from database_support.servers.mysql_members import MemberProcess, MemberProcesses, until
from database_support.unit.planned_cluster import DECLARED
from framework_support.certificates import CertificateAuthority
from steersman_databases.engines.cluster_engine import InstanceResources
from steersman_databases.engines.mysql.config.parameters import server_parameters
from steersman_databases.engines.mysql.config.sizing import sized_parameters

__all__ = ["group", "primary"]

pytestmark = [pytest.mark.xdist_group("mysql-group-settings"), pytest.mark.timeout(600)]


def test_parameters_change_at_runtime(group: MemberProcesses, primary: MemberProcess) -> None:
    declared = {
        "max-connections": "77",
        "table_open_cache": "500",
        "sort_buffer_size": "1M",
        "innodb_read_io_threads": "2",
        "binlog_row_image": "nonsense",
    }
    group.annotate(parameters=json.dumps(declared))
    statement = "SELECT @@max_connections, @@GLOBAL.sort_buffer_size, @@table_open_cache"
    until("they count", lambda: primary.sql(statement)[0] == (77, 1 << 20, 500))
    said = until(
        "it says what does not",
        lambda: primary.published_status() if primary.published_status()["rejectedParameters"] else None,
    )
    assert said["pendingRestart"]["innodb_read_io_threads"][1] == "2"
    assert "nonsense" in said["rejectedParameters"]["binlog_row_image"]
    # A restart in its pod is what the operator does then.
    primary.sql("SHUTDOWN")
    until("it has been started", lambda: primary.published_status()["state"] != "Online")
    settled(group)
    assert primary.sql("SELECT @@innodb_read_io_threads, @@max_connections") == ((2, 77),)
    assert (
        primary.published_status()["pendingRestart"] == {}
        and "nonsense" in primary.published_status()["rejectedParameters"]["binlog_row_image"]
    )
    group.annotate(parameters="{}")
    until("they are the image's", lambda: primary.sql(statement)[0][2] == 400)
    assert primary.sql(statement)[0][:2] == (151, 262144)


def test_sized_parameters_apply_at_once_and_after_restart(group: MemberProcesses, primary: MemberProcess) -> None:
    resources = InstanceResources(memory=1 << 30, smallest_memory=1 << 30)
    sized = {one.name: one.value for one in sized_parameters(resources, {}, 8 << 30)}
    statement = "SELECT @@innodb_buffer_pool_size, @@temptable_max_ram, @@group_replication_message_cache_size"
    expected = ((256 << 20, 64 << 20, 128 << 20),)
    group.annotate(parameters=json.dumps(sized))
    until("they are applied", lambda: primary.sql(statement) == expected)
    # The status of the previous parameters is replaced a moment later.
    until("none is rejected", lambda: primary.published_status()["rejectedParameters"] == {})
    primary.sql("SHUTDOWN")
    until("it has been started", lambda: primary.published_status()["state"] != "Online")
    settled(group)
    assert primary.sql(statement) == expected
    status = primary.published_status()
    assert status["pendingRestart"] == status["rejectedParameters"] == {}
    group.annotate(parameters="{}")


def test_every_member_has_named_time_zones(group: MemberProcesses, primary: MemberProcess) -> None:
    for one in group.all:
        noon = one.sql("SELECT CAST(CONVERT_TZ('2026-07-01 12:00', '+00:00', 'Africa/Lagos') AS CHAR)")
        assert noon == (("2026-07-01 13:00:00",),)
        assert one.published_status()["state"] == "Online"
    assert settled(group) is primary


def test_transaction_size_limit_is_declared(group: MemberProcesses, primary: MemberProcess) -> None:
    """A message of the group has at most 10 MiB. A larger transaction is divided."""
    limit = "group_replication_transaction_size_limit"
    row = f"INSERT INTO large.t (b) SELECT REPEAT('x', {6 << 20})"

    def write_large() -> None:
        with primary.session(read_seconds=120) as ask:
            for statement in ("BEGIN", row, row, "COMMIT"):
                ask(statement)

    def declare(parameters: dict[str, str], effective: int) -> None:
        group.annotate(parameters=json.dumps(parameters))
        for one in group.all:
            until("it counts", lambda one=one: one.sql(f"SELECT @@{limit}") == ((effective,),))

    primary.sql("CREATE DATABASE large", "CREATE TABLE large.t (id INT AUTO_INCREMENT PRIMARY KEY, b LONGBLOB)")
    try:
        declare({limit: "11M"}, 11 << 20)
        with pytest.raises(pymysql.MySQLError, match="3100"):
            write_large()
        declare({limit: "20M"}, 20 << 20)
        write_large()
        declare({}, 150_000_000)
        write_large()
        for one in replicas(group, primary):
            until("it has the rows", lambda one=one: one.sql("SELECT COUNT(*) FROM large.t") == ((4,),))
        assert settled(group) is primary
    finally:
        primary.sql("DROP DATABASE large")


def test_table_without_primary_key_gets_invisible_one(group: MemberProcesses, primary: MemberProcess) -> None:
    cluster = replace(DECLARED, kind="MySQLCluster", engine="mysql")
    group.annotate(parameters=json.dumps(server_parameters(cluster)))
    for one in group.all:
        until("it counts", lambda one=one: one.sql("SELECT @@sql_generate_invisible_primary_key") == ((1,),))
    try:
        primary.sql("CREATE DATABASE keyless", "CREATE TABLE keyless.t (who INT)", "INSERT INTO keyless.t VALUES (7)")
        for one in replicas(group, primary):
            until("it has the row", lambda one=one: one.sql("SELECT * FROM keyless.t") == ((7,),))
            assert "PRIMARY KEY" in one.sql("SHOW CREATE TABLE keyless.t")[0][1]
        with primary.session() as ask:
            ask("SET SESSION sql_generate_invisible_primary_key = OFF")
            ask("CREATE TABLE keyless.old (who INT)")
        # As docs/reference/mysqlcluster.md says it.
        with pytest.raises(pymysql.MySQLError, match="3098"):
            primary.sql("INSERT INTO keyless.old VALUES (7)")
        column = "my_row_id BIGINT UNSIGNED AUTO_INCREMENT INVISIBLE PRIMARY KEY FIRST"
        primary.sql(f"ALTER TABLE keyless.old ADD COLUMN {column}", "INSERT INTO keyless.old VALUES (7)")
    finally:
        primary.sql("DROP DATABASE IF EXISTS keyless")
        group.annotate(parameters="{}")
        until("it is the server's", lambda: primary.sql("SELECT @@sql_generate_invisible_primary_key") == ((0,),))


def test_session_defaults_do_not_affect_agent(group: MemberProcesses, primary: MemberProcess) -> None:
    """Nobody's group is what one row tells of it."""
    write(primary)
    rows = kept(primary)
    declared = {
        "completion_type": "RELEASE",
        "max_join_size": "1",
        "sql_mode": "ANSI_QUOTES",
        "sql_select_limit": "1",
        "wait_timeout": "1",
    }
    group.annotate(parameters=json.dumps(declared))
    try:
        for one in group.all:
            until("it has them", lambda one=one: one.sql("SELECT @@GLOBAL.sql_select_limit") == ((1,),))
        # Connections from before go on with what they began with.
        for one in group.all:
            assert one.end() == 0
        for one in group.all:
            one.start()
        again = settled(group)
        [lost, *_] = replicas(group, again)
        before = len(lost.log)
        lost.lose_volume()
        lost.start()
        until(
            "it is missed",
            lambda: "Clone: instance" in lost.log[before:] and lost.published_status()["state"] != "Online",
        )
        assert settled(group) is again
        assert [kept(one) for one in group.all] == [rows] * 3
    finally:
        group.annotate(parameters="{}")
        for one in group.all:
            until("it has its own", lambda one=one: one.sql("SELECT @@GLOBAL.sql_select_limit") != ((1,),))


def test_new_certificates_are_served(group: MemberProcesses, primary: MemberProcess) -> None:
    before = {one.number: one.served_certificate() for one in group.all}
    servers = CertificateAuthority()
    for one in group.all:
        one.mount_certificate(servers)
    for one in group.all:
        until("it shows the new one", lambda one=one: one.served_certificate() != before[one.number])
    # Nobody was restarted, and who comes knows them by the new authority.
    [one, *_] = replicas(group, primary)
    one.kill_server()
    until("it is missed", lambda: one.published_status()["state"] != "Online")
    assert settled(group) is primary


def test_server_ca_certificate_opens_no_account(
    group: MemberProcesses, primary: MemberProcess, tmp_path: Path
) -> None:
    """It may be anybody's, and give any name to its customers."""
    servers = CertificateAuthority()
    primary.mount_certificate(servers)
    until("the server knows it", lambda: primary.trusts(servers))

    def log_in(certificate: bytes, key: bytes) -> None:
        (tmp_path / "tls.crt").write_bytes(certificate)
        (tmp_path / "tls.key").write_bytes(key)
        primary.log_in_as("steersman_replication", tmp_path)

    log_in(*group.clients.issue("steersman_replication"))
    with pytest.raises(pymysql.MySQLError):
        log_in(*servers.issue("steersman_replication"))
    with pytest.raises(pymysql.MySQLError):
        log_in(*group.clients.issue("somebody"))
    for one in group.all:
        one.mount_certificate(servers)
