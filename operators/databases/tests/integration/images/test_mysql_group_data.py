"""Data of group members: errant transactions, divergence, corruption, clones."""

from __future__ import annotations

import signal
from pathlib import Path

import pymysql
import pytest

from database_support.servers.mysql_group_fixtures import group, kept, primary, replicas, settled, write
from database_support.servers.mysql_members import MemberProcess, MemberProcesses, until

__all__ = ["group", "primary"]

pytestmark = [pytest.mark.xdist_group("mysql-group-data"), pytest.mark.timeout(600)]

PAGE = 16384  # bytes, of InnoDB


def test_errant_member_stays_out_and_reports(group: MemberProcesses, primary: MemberProcess) -> None:
    [one, *_] = replicas(group, primary)
    one.signal(signal.SIGSTOP)
    one.sql("STOP GROUP_REPLICATION", "SET GLOBAL super_read_only = OFF", "CREATE DATABASE stray")
    one.signal(signal.SIGCONT)
    said = until(
        "it says what it has", lambda: one.published_status() if one.published_status().get("errantGtids") else None
    )
    assert said["state"] == "Offline" and said["errantGtids"] in said["reason"]
    # One that waits for the same reason for longer is no other case; that it is rebuilt is the operator's part.
    one.lose_volume()
    one.start()
    settled(group)
    assert one.sql("SHOW DATABASES LIKE 'stray'") == ()


def test_replica_with_other_rows_reports_divergence(group: MemberProcesses, primary: MemberProcess) -> None:
    write(primary)
    [one, *_] = replicas(group, primary)
    until("it has them", lambda: kept(one) == kept(primary))
    one.sql("SET GLOBAL super_read_only = OFF", "SET SESSION sql_log_bin = OFF", "DELETE FROM shop.kept")
    primary.sql("DELETE FROM shop.kept ORDER BY id LIMIT 1")
    said = until("it says so", lambda: one.published_status() if one.published_status().get("diverged") else None)
    assert "error 1032" in said["failingOperation"] and not said["errantGtids"]
    # Who comes back with the same data finds the same.
    assert one.end() == 0
    one.start()
    until("it says it again", lambda: one.published_status() if one.published_status().get("diverged") else None)
    # As the operator does then.
    one.lose_volume()
    one.start()
    settled(group)
    assert kept(one) == kept(primary) and not one.published_status()["diverged"]


def test_replica_with_corrupt_pages_never_serves(group: MemberProcesses, primary: MemberProcess) -> None:
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
    said = until(
        "it says so",
        lambda: (
            one.published_status()
            if one.published_status().get("diverged") or one.published_status()["startError"]
            else None
        ),
    )
    assert said["state"] != "Online"
    one.lose_volume()
    one.start()
    settled(group)
    assert kept(one) == kept(primary)


def test_unapplied_transactions_do_not_block_join(group: MemberProcesses, primary: MemberProcess) -> None:
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


def test_member_missing_purged_logs_is_cloned(group: MemberProcesses, primary: MemberProcess) -> None:
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
    until("it says so", lambda: str(one.published_status().get("reason")).startswith(words))
    settled(group)
    until("it has them", lambda: kept(one) == kept(primary))
    said = one.log[before:]
    assert f"Clone: {words}" in said
    # By its own hands: Group Replication's would drop the data before it has others.
    assert "Shutdown complete" in said and "RESTART failed" not in said
    assert not (one.directory / "volume/mysql.former").exists()


def test_large_change_sorts_on_volume(group: MemberProcesses, primary: MemberProcess) -> None:
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
    until("it has been started", lambda: primary.published_status()["state"] != "Online")
    settled(group)
    assert not (temporary / "left").exists()
    assert not any("temporary" in name for (name,) in primary.sql("SHOW DATABASES"))
