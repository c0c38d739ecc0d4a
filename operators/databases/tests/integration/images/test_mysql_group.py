"""Three agents with real MySQL servers, and nobody who looks after them: who leads, who joins, who may not."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pymysql
import pytest

from database_support.mysql_members import Member, Members, members, until
from database_support.planned_cluster import VIEW
from database_support.server_process import data_directory
from devcluster import database_servers
from framework_support.certificates import CertificateAuthority
from steersman_databases.engines.mysql.parameters import server_parameters
from steersman_testing.envtest import Envtest

pytestmark = [pytest.mark.xdist_group("mysql-group"), pytest.mark.timeout(600)]

PAGE = 16384  # bytes, of InnoDB


@pytest.fixture(scope="module")
def group(envtest: Envtest) -> Generator[Members]:
    """One that all tests share; each leaves it whole."""
    root = database_servers.root(database_servers.SID)
    if root is None:
        pytest.skip("Debian sid cannot be had; python -m devcluster servers says why")
    with data_directory() as directory, members(envtest, root, directory) as group:
        directory.chmod(0o755)
        yield group
        # What pytest shows of a test that fails.
        sys.stdout.write(group.logs())


@pytest.fixture
def primary(group: Members) -> Member:
    """The primary of the whole group."""
    for one in group.all:
        if one.container is None:
            one.start()
    return settled(group)


def settled(group: Members) -> Member:
    try:
        return until("all are online", group.settled, 240)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{group.logs()}") from None


def replicas(group: Members, primary: Member) -> list[Member]:
    return [one for one in group.all if one is not primary]


def kept(member: Member) -> int:
    """The rows that clients have been told are written."""
    return member.sql("SELECT COUNT(*) FROM shop.kept")[0][0]


def write(member: Member, rows: int = 10) -> None:
    member.sql(
        "CREATE DATABASE IF NOT EXISTS shop",
        "CREATE TABLE IF NOT EXISTS shop.kept (id INT AUTO_INCREMENT PRIMARY KEY)",
        *["INSERT INTO shop.kept VALUES ()"] * rows,
    )


def test_the_first_instance_founds_the_group_once_all_were_seen(group: Members) -> None:
    first, *others = group.all
    first.start()
    until("it has data and waits", lambda: "instance 1 has not been seen" in str(first.says().get("because")))
    assert group.epoch() == 0
    for one in others:
        one.start()
    assert settled(group) is first
    assert group.epoch() == 1
    write(first)
    for one in others:
        assert "Clone: instance" in one.log
        until("it has them", lambda one=one: kept(one) == 10)
    assert len({one.says()["uuid"] for one in group.all}) == 3
    assert first.says()["version"].startswith("9.7.")


def test_a_killed_server_is_followed_by_another(group: Members, primary: Member) -> None:
    write(primary)
    rows = kept(primary)
    primary.kill_server()
    successor = until("another leads", lambda: group.another(primary))
    write(successor)
    assert settled(group) is successor
    until("it has caught up", lambda: kept(primary) == rows + 10)
    assert group.epoch() == 1


def test_who_is_told_to_end_hands_over(group: Members, primary: Member) -> None:
    write(primary)
    assert primary.end() == 0
    assert "HandOver: this pod is about to end" in primary.log
    successor = until("another leads", lambda: group.another(primary))
    primary.start()
    assert settled(group) is successor


def test_a_switchover_that_is_asked_for(group: Members, primary: Member) -> None:
    [wanted, *_] = replicas(group, primary)
    group.annotate(switchover_to=str(wanted.number))
    until("it leads", lambda: group.primary() is wanted)
    until("the request is gone", lambda: not any("switchover" in name for name in group.annotations()))


def test_all_that_are_killed_come_back_with_everything(group: Members, primary: Member) -> None:
    write(primary)
    rows, epoch = kept(primary), group.epoch()
    for one in group.all:
        one.kill()
    for one in group.all:
        one.start()
    # What stands at the pods is from before, so it must not be asked first.
    until("a group is founded", lambda: group.epoch() == epoch + 1)
    again = settled(group)
    until("all have them", lambda: all(kept(one) == rows for one in group.all))
    write(again)


def test_who_joins_a_group_as_everybody_leaves_it_does_not_keep_them_waiting(group: Members, primary: Member) -> None:
    """The server tries it for one or two minutes, and as long nobody else may found a group."""
    late, epoch = replicas(group, primary)[0], group.epoch()
    late.end()
    write(primary)
    rows, others = kept(primary), [one for one in group.all if one is not late]
    late.start()
    until("it joins", lambda: late.says()["state"] == "Joining")
    for one in others:
        one.kill()
    for one in others:
        one.start()
    until("a group is founded", lambda: group.epoch() == epoch + 1, 60)
    settled(group)
    until("all have them", lambda: all(kept(one) == rows for one in group.all))


def test_a_store_that_is_deleted_while_the_group_lives_is_written_anew(group: Members, primary: Member) -> None:
    epoch, name, (replica, *_) = group.epoch(), group.name(), replicas(group, primary)
    assert group.agreed()["members"] == [0, 1, 2]
    replica.kill()
    group.make_store_anew(group_name="00000000-1111-2222-3333-444444444444")
    replica.start()
    # What stands at its pod is from before.
    until("it starts", lambda: replica.says()["state"] != "Online")
    assert settled(group) is primary
    assert group.epoch() == epoch and group.name() == name


@pytest.mark.skipif(os.environ.get("FAULTS") != "whole", reason="it takes minutes: make faults")
def test_a_group_that_was_given_up_ends_once_it_reads_of_the_other(group: Members, primary: Member) -> None:
    write(primary)
    rows, epoch = kept(primary), group.epoch()
    survivor, other = replicas(group, primary)
    until("it has them", lambda: kept(survivor) == rows)
    lost = [primary, other]
    for one in lost:
        one.freeze()
    try:
        said = until("it says what may be lost", lambda: survivor.says() if survivor.says().get("unseen") else None)
        assert said["unseen"] == sorted(one.number for one in lost) and not said["lacks"]
        group.annotate(consent=str(survivor.number))
        until("it has founded another", lambda: group.epoch() == epoch + 1)
        until("clients find it", lambda: group.endpoint() == survivor.pod.name)
        write(survivor)
    finally:
        for one in lost:
            one.freeze(thaw=True)
    assert settled(group) is survivor
    assert group.epoch() == epoch + 1
    for one in lost:
        until("it has them", lambda one=one: kept(one) == rows + 10)
        assert "leads in view" not in one.log.rpartition("another group was founded since")[2]


@pytest.mark.skipif(os.environ.get("FAULTS") != "whole", reason="it takes minutes: make faults")
def test_what_was_given_up_is_told_apart_from_what_is_written_since(group: Members, primary: Member) -> None:
    write(primary)
    rows, name = kept(primary), group.name()
    survivor, other = replicas(group, primary)
    until("it has them", lambda: kept(survivor) == rows)
    assert survivor.end() == 0
    write(primary, 5)
    until("it has them", lambda: kept(other) == rows + 5)
    lost = [primary, other]
    for one in lost:
        one.freeze()
    try:
        survivor.start()
        until("it says what may be lost", lambda: survivor.says().get("unseen") == sorted(one.number for one in lost))
        group.annotate(consent=str(survivor.number))
        until("clients find it", lambda: group.endpoint() == survivor.pod.name)
        assert group.name() != name
        # More than was given up: under the same name its numbers would be used by now.
        write(survivor, 10)
    finally:
        for one in lost:
            one.freeze(thaw=True)
    for one in lost:
        said = until("it says what it has", lambda one=one: one.says() if one.says().get("errant") else None)
        assert said["errant"].startswith(f"{name}:") and said["state"] == "Offline"
        one.lose_volume()
        one.start()
    assert settled(group) is survivor
    for one in lost:
        until("it has them", lambda one=one: kept(one) == rows + 10)


def test_who_has_what_the_group_has_not_stays_out_and_says_so(group: Members, primary: Member) -> None:
    [one, *_] = replicas(group, primary)
    one.signal(signal.SIGSTOP)
    one.sql("STOP GROUP_REPLICATION", "SET GLOBAL super_read_only = OFF", "CREATE DATABASE stray")
    one.signal(signal.SIGCONT)
    said = until("it says what it has", lambda: one.says() if one.says().get("errant") else None)
    assert said["state"] == "Offline" and said["errant"] in said["because"]
    # One that waits for the same reason for longer is no other case; that it is rebuilt is the operator's part.
    one.lose_volume()
    one.start()
    settled(group)
    assert one.sql("SHOW DATABASES LIKE 'stray'") == ()


def test_a_replica_with_other_rows_than_its_group_says_that_it_diverged(group: Members, primary: Member) -> None:
    write(primary)
    [one, *_] = replicas(group, primary)
    until("it has them", lambda: kept(one) == kept(primary))
    one.sql("SET GLOBAL super_read_only = OFF", "SET SESSION sql_log_bin = OFF", "DELETE FROM shop.kept")
    primary.sql("DELETE FROM shop.kept ORDER BY id LIMIT 1")
    said = until("it says so", lambda: one.says() if one.says().get("diverged") else None)
    assert "error 1032" in said["failing"] and not said["errant"]
    # Who comes back with the same data finds the same.
    assert one.end() == 0
    one.start()
    until("it says it again", lambda: one.says() if one.says().get("diverged") else None)
    # As the operator does then.
    one.lose_volume()
    one.start()
    settled(group)
    assert kept(one) == kept(primary) and not one.says()["diverged"]


def test_a_replica_with_broken_pages_never_serves_and_says_so(group: Members, primary: Member) -> None:
    """Its server starts well: not before it comes to them it ends, or leaves the group."""
    write(primary)
    [one, *_] = replicas(group, primary)
    until("it has them", lambda: kept(one) == kept(primary))
    assert one.end() == 0
    table = one.directory / "volume/mysql/shop/kept.ibd"
    with table.open("r+b") as pages:
        pages.seek(4 * PAGE)
        pages.write(b"\xff" * (table.stat().st_size - 4 * PAGE))
    write(primary)
    one.start()
    said = until("it says so", lambda: one.says() if one.says().get("diverged") or one.says()["unstarted"] else None)
    assert said["state"] != "Online"
    one.lose_volume()
    one.start()
    settled(group)
    assert kept(one) == kept(primary)


def test_what_others_have_not_applied_yet_is_no_reason_to_stay_out(group: Members, primary: Member) -> None:
    write(primary)
    early, late = replicas(group, primary)
    rows = kept(primary)
    until("it has them", lambda: kept(late) == rows)
    with late.session() as ask:
        ask("LOCK TABLES shop.kept READ")
        write(primary)
        until("it has them", lambda: kept(early) == rows + 10)
        before = len(early.log)
        for one in (early, primary):
            one.signal(signal.SIGSTOP)
            one.sql("STOP GROUP_REPLICATION")
        # The only one that had executed them, too.
        primary.kill_server()
        early.signal(signal.SIGCONT)
        try:
            until("it joins", lambda: "Join: instance" in early.log[before:])
        finally:
            primary.signal(signal.SIGCONT)
    settled(group)
    assert "that the group has not" not in early.log[before:]
    assert all(kept(one) == rows + 10 for one in group.all)


def test_who_lacks_what_nobody_has_logs_of_takes_another_copy(group: Members, primary: Member) -> None:
    write(primary)
    [one, *_] = replicas(group, primary)
    until("it has them", lambda: kept(one) == kept(primary))
    assert one.end() == 0
    write(primary)
    for other in group.all:
        if other is not one:
            until("it has them", lambda other=other: kept(other) == kept(primary))
            other.sql("FLUSH BINARY LOGS", "PURGE BINARY LOGS BEFORE '2099-01-01'")
    before = len(one.log)
    one.start()
    words = "nobody in the group has the binary logs of"
    until("it says so", lambda: str(one.says().get("because")).startswith(words))
    settled(group)
    until("it has them", lambda: kept(one) == kept(primary))
    said = one.log[before:]
    assert f"Clone: {words}" in said
    # By its own hands: Group Replication's would drop the data before it has others.
    assert "Shutdown complete" in said and "RESTART failed" not in said
    assert not (one.directory / "volume/mysql.former").exists()


def test_what_a_large_change_sorts_is_on_the_volume(group: Members, primary: Member) -> None:
    volume = primary.directory / "volume"
    [places] = primary.sql("SELECT @@tmpdir, @@replica_load_tmpdir, @@innodb_tmpdir, @@innodb_temp_tablespaces_dir")
    assert all((volume / "mysql" / place).resolve().is_relative_to(volume) for place in places), places
    # What is sorted has no name there; without the directory it cannot be sorted.
    temporary = Path(places[0])
    temporary.chmod(0)
    rows = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT i, UUID() FROM n"
    try:
        with pytest.raises(pymysql.MySQLError, match=str(temporary)):
            primary.sql(
                "CREATE DATABASE IF NOT EXISTS large",
                "CREATE TABLE large.sorted (id INT PRIMARY KEY, word CHAR(200))",
                f"INSERT INTO large.sorted {rows}",
                "SET SESSION innodb_ddl_buffer_size = 65536",
                "ALTER TABLE large.sorted ADD INDEX (word)",
            )
    finally:
        temporary.chmod(0o700)
        primary.sql("DROP DATABASE large")
    (temporary / "left").touch()
    primary.sql("SHUTDOWN")
    until("it has been started", lambda: primary.says()["state"] != "Online")
    settled(group)
    assert not (temporary / "left").exists()
    assert not any("temporary" in name for (name,) in primary.sql("SHOW DATABASES"))


def test_parameters_change_while_it_runs(group: Members, primary: Member) -> None:
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
    said = until("it says what does not", lambda: primary.says() if primary.says()["refused"] else None)
    assert said["pending"]["innodb_read_io_threads"][1] == "2"
    assert "nonsense" in said["refused"]["binlog_row_image"]
    # A restart in its pod is what the operator does then.
    primary.sql("SHUTDOWN")
    until("it has been started", lambda: primary.says()["state"] != "Online")
    settled(group)
    assert primary.sql("SELECT @@innodb_read_io_threads, @@max_connections") == ((2, 77),)
    assert primary.says()["pending"] == {} and "nonsense" in primary.says()["refused"]["binlog_row_image"]
    group.annotate(parameters="{}")
    until("they are the image's", lambda: primary.sql(statement)[0][2] == 400)
    assert primary.sql(statement)[0][:2] == (151, 262144)


def test_a_table_without_a_primary_key_gets_one_that_nobody_sees(group: Members, primary: Member) -> None:
    cluster = replace(VIEW, kind="MySQLCluster", engine="mysql")
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


def test_the_agents_see_all_whatever_is_set_for_all_sessions(group: Members, primary: Member) -> None:
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
        until("it is missed", lambda: "Clone: instance" in lost.log[before:] and lost.says()["state"] != "Online")
        assert settled(group) is again
        assert [kept(one) for one in group.all] == [rows] * 3
    finally:
        group.annotate(parameters="{}")
        for one in group.all:
            until("it has its own", lambda one=one: one.sql("SELECT @@GLOBAL.sql_select_limit") != ((1,),))


def test_new_certificates_are_shown(group: Members, primary: Member) -> None:
    before = {one.number: one.shows() for one in group.all}
    servers = CertificateAuthority()
    for one in group.all:
        one.show(servers)
    for one in group.all:
        until("it shows the new one", lambda one=one: one.shows() != before[one.number])
    # Nobody was restarted, and who comes knows them by the new authority.
    [one, *_] = replicas(group, primary)
    one.kill_server()
    until("it is missed", lambda: one.says()["state"] != "Online")
    assert settled(group) is primary


def test_what_the_authority_of_servers_has_signed_opens_nothing(
    group: Members, primary: Member, tmp_path: Path
) -> None:
    """It may be anybody's, and give any name to its customers."""
    servers = CertificateAuthority()
    primary.show(servers)
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
        one.show(servers)


def test_without_the_last_primarys_data_a_person_decides(group: Members, primary: Member) -> None:
    write(primary)
    rows, epoch = kept(primary), group.epoch()
    chosen = replicas(group, primary)[-1]
    until("it has everything", lambda: kept(chosen) == rows)
    for one in group.all:
        one.kill()
    primary.lose_volume()
    for one in group.all:
        one.start()
    for one in replicas(group, primary):
        until("it waits", lambda one=one: "the data of the last primary" in str(one.says().get("because")))
    assert group.epoch() == epoch
    group.annotate(consent=str(chosen.number))
    until("a group is founded", lambda: group.epoch() == epoch + 1)
    settled(group)
    assert not any("consent" in name for name in group.annotations())
    assert kept(primary) == rows
