"""Changes between two moments, from the archived binary log of a real MySQL."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from database_support.servers.mysql_archive import (
    ArchivedServer,
    archive_of,
    archived_server,
    store_document,
    store_of,
)
from database_support.servers.mysql_collecting import collecting, wait_until_stored
from database_support.servers.process import data_directory
from devcluster import database_servers
from devcluster.store import local_store, programs
from steersman_instance.binlog import changes
from steersman_instance.jobs import JobFields, JobRefused
from steersman_instance.paths import InstancePaths
from steersman_instance.recovery.target import format_time

ROOT = database_servers.root(database_servers.SID)
pytestmark = [
    pytest.mark.skipif(ROOT is None, reason="MySQL is not unpacked: run python -m devcluster servers"),
    pytest.mark.skipif(not programs.are_built(), reason="the object store is not built: run devcluster store build"),
    pytest.mark.xdist_group("mysql-changes"),
]


@pytest.fixture(scope="module")
def primary() -> Generator[ArchivedServer]:
    assert ROOT is not None
    with data_directory() as directory, archived_server(ROOT, directory / "pod") as server:
        yield server


def now() -> str:
    """Return the present time of the server's machine."""
    return format_time(datetime.now(UTC))


def test_changes_are_counted_by_table_within_the_period(
    primary: ArchivedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    libraries = ":".join(map(str, primary.root.glob("usr/lib/*-linux-gnu")))
    program = tmp_path / "bin/mysqlbinlog"
    program.write_text(
        f"#!/bin/sh\nexec {next(primary.root.glob('usr/lib*/ld-linux-*'))}"
        f' --library-path {libraries}:{primary.root}/usr/lib/mysql/private {primary.root}/usr/bin/mysqlbinlog "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    primary.sql(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.`o``rders` (id int PRIMARY KEY, note text)",
        "CREATE DATABASE old",
        "CREATE TABLE shop.parents (id int PRIMARY KEY)",
        "CREATE TABLE shop.children (id int PRIMARY KEY, parent int,"
        " FOREIGN KEY (parent) REFERENCES shop.parents (id) ON DELETE CASCADE)",
        "INSERT INTO shop.parents VALUES (1)",
        "INSERT INTO shop.children VALUES (1, 1), (2, 1)",
    )
    with local_store(tmp_path / "store") as store:
        archive = archive_of(store_of(store), primary.root, primary.paths)
        with collecting(primary, archive):
            primary.sql("INSERT INTO shop.`o``rders` VALUES (1, 'before')")
            begin = now()
            primary.sql(
                "INSERT INTO shop.`o``rders` VALUES (2, '### INSERT INTO `a`.`b`'), (3, '\n### UPDATE `a`.`b`\n')",
                "UPDATE shop.`o``rders` SET note = 'changed' WHERE id > 1",
                "SET SESSION binlog_transaction_compression = ON",
                "DELETE FROM shop.`o``rders` WHERE id = 1",
                "SET SESSION binlog_transaction_compression = OFF",
                "CREATE USER hidden IDENTIFIED BY 'never-shown'",
                "/* by hand */ DROP DATABASE old",
                "DELETE FROM shop.parents",
            )
            end = now()
            primary.sql("FLUSH BINARY LOGS", "DELETE FROM shop.`o``rders`")
            wait_until_stored(primary, archive)
        # A second session archives the same transactions again.
        with collecting(primary, archive):
            primary.sql("INSERT INTO shop.`o``rders` VALUES (9, 'after')")
            wait_until_stored(primary, archive)
        (tmp_path / "store.json").write_text(json.dumps(store_document(store)))
        (tmp_path / "run").mkdir()
        paths = InstancePaths(run=tmp_path / "run", store_file=tmp_path / "store.json")
        fields: dict[str, Any] = {"from": begin, "to": end, "max_bytes": 1 << 30}
        found = cast("dict[str, Any]", changes.run(JobFields(fields), paths)["changes"])
        assert found["tables"] == [
            {"database": "shop", "table": "o`rders", "inserted": 2, "updated": 2, "deleted": 1},
            # The server logs what a foreign key deletes.
            {"database": "shop", "table": "children", "deleted": 2},
            {"database": "shop", "table": "parents", "deleted": 1},
        ]
        assert (found["transactions"], found["missing"], found["omittedTables"]) == (6, 0, 0)
        ((definition),) = found["definitions"]
        assert "DROP DATABASE old" in definition["statement"] and begin <= definition["time"] <= end
        assert found["archivedUntil"] > end
        assert "never-shown" not in str(found)
        with pytest.raises(JobRefused, match="Choose a shorter period"):
            changes.run(JobFields({**fields, "max_bytes": 1}), paths)
        with pytest.raises(JobRefused, match="ends before it begins"):
            changes.run(JobFields({**fields, "from": end, "to": begin}), paths)
