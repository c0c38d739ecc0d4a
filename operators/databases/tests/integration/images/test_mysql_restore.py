"""Tables and databases of MySQL as they were, next to the present ones, with a real archive."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

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
from devcluster.store import ObjectStore, local_store, programs
from steersman.meta import ObjectMeta, decode_builtins
from steersman_databases.api import Restore, RestoreSpec
from steersman_databases.engines.mysql.sql.restore_account import COPIES
from steersman_databases.engines.server import DatabaseServer, Login, ServerEndpoint, TLSMode, Verification
from steersman_databases.engines.sql.restore_account import CopyNameTaken, CopyOutcome
from steersman_databases.features.restore import model
from steersman_databases.features.restore.specs import request_document
from steersman_instance.backup.mysql_base import BackupRequest, MysqlArchive, back_up
from steersman_instance.jobs import JobFields, JobRefused
from steersman_instance.paths import InstancePaths
from steersman_instance.restore import mysql as mysql_restore

ROOT = database_servers.root(database_servers.SID)
pytestmark = [
    pytest.mark.skipif(ROOT is None, reason="MySQL is not unpacked: run python -m devcluster servers"),
    pytest.mark.skipif(not programs.are_built(), reason="the object store is not built: run devcluster store build"),
    pytest.mark.xdist_group("mysql-restore"),
]
T = TypeVar("T")
PASSWORD = 'a password: with \\ and "'
DATABASE, TABLE = "my `own`_%", "Order; Items"
_QUOTED = "`my ``own``_%`.`Order; Items`"


@dataclass
class World:
    """A primary with its archive, and Jobs of restores."""

    primary: ArchivedServer
    archive: MysqlArchive
    store: ObjectStore
    directory: Path
    jobs: int = 0

    @property
    def server(self) -> DatabaseServer:
        """The primary as the operator connects to it."""
        return DatabaseServer(
            engine="mysql",
            endpoint=ServerEndpoint("127.0.0.1", self.primary.port),
            login=Login("administrator", "admin"),
            verification=Verification(TLSMode.REQUIRE),
        )

    def restore(self, name: str, only: Sequence[Mapping[str, str]], before: str, **fields: Any) -> Restore:
        """Return an object that restores to before a transaction."""
        spec = {
            "clusterRef": {"name": "orders", "kind": "MySQLCluster"},
            "target": {"gtid": {"before": before}},
            "only": list(only),
            **fields,
        }
        metadata = ObjectMeta(name=name, namespace="default", uid=str(uuid.uuid4()))
        return Restore(metadata=metadata, spec=decode_builtins(spec, RestoreSpec))

    def prepare(self, restore: Restore) -> None:
        run(COPIES.prepare(self.server, model.copy_target(restore, PASSWORD)))

    def finish(self, restore: Restore) -> CopyOutcome:
        return run(COPIES.finish(self.server, model.copy_target(restore, ""), ""))

    def discard(self, restore: Restore) -> None:
        run(COPIES.discard(self.server, model.copy_target(restore, "")))

    def job(self, restore: Restore) -> Mapping[str, Any]:
        """Run the program in a pod of its own. Return its result."""
        self.jobs += 1
        pod = self.directory / f"pod-{self.jobs}"
        for name in ("volume", "server", "owner", "run"):
            (pod / name).mkdir(parents=True)
        (pod / "store.json").write_text(json.dumps(store_document(self.store)))
        for name, text in (("username", model.account_name(restore)), ("password", PASSWORD)):
            (pod / "owner" / name).write_text(text)
        paths = InstancePaths(
            volume=pod / "volume",
            run=pod / "run",
            store_file=pod / "store.json",
            server=pod / "server",
            owner=pod / "owner",
        )
        target = restore.spec.target
        assert target is not None and target.gtid is not None
        document: dict[str, Any] = {
            "version": "9.7",
            "target": {"gtid": {"before": target.gtid.before}},
            "server": {"host": "127.0.0.1", "port": self.primary.port, "database": "", "tls": "Require"},
            "restore": request_document(restore),
        }
        result = mysql_restore.run(JobFields(document), paths, self.primary.program)
        assert not [path for path in (pod / "run").rglob("*.cnf") if path.stat().st_mode & 0o077]
        return cast("Mapping[str, Any]", result["restore"])

    def last_gtid(self) -> str:
        """Return the last transaction."""
        source, _, numbers = str(self.primary.server.state().executed).rpartition(":")
        return f"{source.rpartition(',')[2].strip()}:{numbers.rpartition('-')[2]}"

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        return self.primary.sql(statement)

    def accounts(self) -> list[str]:
        """Return the temporary accounts that are left."""
        return [name for (name,) in self.rows("SELECT User FROM mysql.user WHERE User LIKE 'steersman_restore%'")]


def run(operation: Coroutine[Any, Any, T] | Any) -> T:
    async def awaited() -> T:
        return await operation

    return asyncio.run(awaited())


def client(directory: Path, root: Path, name: str) -> None:
    """Write a program that finds its plugins below ``root``, as in the image."""
    script = directory / name
    plugins = f"--plugin-dir={root}/usr/lib/mysql/plugin"
    script.write_text(f'#!/bin/sh\nfile=$1; shift\nexec {root}/usr/bin/{name} "$file" {plugins} "$@"\n')
    script.chmod(0o755)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    """A database with a full backup, from which a table was dropped and another one was changed."""
    assert ROOT is not None
    tools = tmp_path_factory.mktemp("bin")
    (tools / "restic").symlink_to(ROOT / "usr/bin/restic")
    for name in ("mysql", "mysqldump"):
        client(tools, ROOT, name)
    with pytest.MonkeyPatch.context() as patch, data_directory() as directory:
        patch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
        with (
            archived_server(ROOT, directory / "pod") as primary,
            local_store(tmp_path_factory.mktemp("store")) as store,
        ):
            archive = archive_of(store_of(store), primary.root, primary.paths)
            fill(primary)
            with collecting(primary, archive):
                back_up(
                    BackupRequest(donors=[primary.donor()], host="orders"),
                    archive,
                    primary.program,
                    directory / "work",
                    directory / "run",
                )
                yield World(primary, archive, store, directory / "jobs")


def fill(primary: ArchivedServer) -> None:
    primary.sql(
        "CREATE USER administrator IDENTIFIED BY 'admin'",
        "GRANT ALL ON *.* TO administrator WITH GRANT OPTION",
        "CREATE USER clerk IDENTIFIED BY 'x'",
        "CREATE USER reader IDENTIFIED BY 'x'",
        "CREATE DATABASE `my ``own``_%` CHARACTER SET latin1",
        r"GRANT ALL ON `my ``own``\_\%`.* TO clerk",
        r"GRANT SELECT ON `my ``own``\_\%`.* TO reader",
        "CREATE TABLE `my ``own``_%`.customers (id INT PRIMARY KEY)",
        "INSERT INTO `my ``own``_%`.customers VALUES (1)",
        f"CREATE TABLE {_QUOTED} (id INT AUTO_INCREMENT PRIMARY KEY, customer INT, note VARCHAR(20),"
        " raw VARBINARY(9), FOREIGN KEY (customer) REFERENCES customers (id))",
        f"INSERT INTO {_QUOTED} (customer, note, raw) VALUES (1, 'a;\n\\\\', x'00ff'), (1, 'b', NULL)",
        f"CREATE TRIGGER `my ``own``_%`.noted BEFORE INSERT ON {_QUOTED} FOR EACH ROW SET NEW.note = 'x'",
        f"CREATE VIEW `my ``own``_%`.recent AS SELECT * FROM {_QUOTED}",
    )


@pytest.mark.requirement("pattern/backups")
def test_dropped_table_comes_back_with_its_rows(world: World) -> None:
    world.primary.sql(f"DROP TABLE {_QUOTED}")
    dropped = world.last_gtid()
    wait_until_stored(world.primary, world.archive)
    items = [{"database": DATABASE, "table": TABLE}, {"database": DATABASE, "table": "customers"}]
    restore = world.restore("back", items, dropped, into="before_drop")
    world.prepare(restore)
    assert world.job(restore)["sizeBytes"] > 0
    # A pod that was killed at its end: the next one replaces the tables.
    world.prepare(restore)
    world.job(restore)
    assert world.finish(restore).exists == (False, True)
    assert world.accounts() == []
    world.primary.sql(f"RENAME TABLE before_drop.`{TABLE}` TO {_QUOTED}")
    assert world.rows(f"SELECT id, note, raw FROM {_QUOTED} ORDER BY id") == [
        (1, "a;\n\\", b"\0\xff"),
        (2, "b", None),
    ]
    granted = "SELECT User FROM mysql.db WHERE Db = 'before\\\\_drop' ORDER BY User"
    assert world.rows(granted) == [("clerk",)], "those who can only read the present database get nothing"
    # Whatever is repeated after the end changes nothing.
    world.finish(restore)
    world.discard(restore)
    assert world.rows("SELECT COUNT(*) FROM before_drop.customers") == [(1,)]


def test_whole_database_comes_back_as_another_one(world: World) -> None:
    world.primary.sql("UPDATE `my ``own``_%`.customers SET id = 7")
    updated = world.last_gtid()
    wait_until_stored(world.primary, world.archive)
    restore = world.restore("whole", [{"database": DATABASE}], updated)
    world.prepare(restore)
    world.job(restore)
    world.finish(restore)
    copied = "`my ``own``_%_restored_whole`"
    assert world.rows(f"SELECT id FROM {copied}.customers") == [(1,)]
    charset = "SELECT DEFAULT_CHARACTER_SET_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME LIKE '%whole'"
    assert world.rows(charset) == [("latin1",)]


def test_impossible_requests_are_refused(world: World) -> None:
    last = world.last_gtid()
    wait_until_stored(world.primary, world.archive)
    for item, reason, known in (
        ({"database": DATABASE, "table": "nothing"}, "TableNotFound", "customers"),
        ({"database": "nothing"}, "DatabaseNotFound", DATABASE),
    ):
        restore = world.restore("missing", [item], last)
        world.prepare(restore)
        with pytest.raises(JobRefused) as refused:
            world.job(restore)
        assert refused.value.reason == reason and known in refused.value.message
        world.discard(restore)
    restore = world.restore("r", [{"database": DATABASE}], "3e11fa47-71ca-11e1-9e33-c80aa9429562:23")
    world.prepare(restore)
    with pytest.raises(JobRefused) as refused:
        world.job(restore)
    assert refused.value.reason == "TargetNotReached"
    world.discard(restore)
    world.discard(restore)
    assert world.accounts() == []
    assert world.rows("SHOW DATABASES LIKE '%missing'") == []


def test_existing_database_is_never_overwritten(world: World) -> None:
    world.primary.sql("CREATE DATABASE taken")
    with pytest.raises(CopyNameTaken, match="database taken"):
        world.prepare(world.restore("r", [{"database": DATABASE}], world.last_gtid(), into="taken"))
    assert world.accounts() == []
