"""Dumps, restores and imports of MySQL and MariaDB, with real servers and a real object store."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from database_support.dumps.job_runs import RETENTION, DumpJobs
from database_support.servers.matrix import like_mysql
from database_support.servers.mysql import RealMySQLServer
from database_support.servers.real_server import ADMINISTRATOR
from devcluster import database_servers
from devcluster.store import local_store, programs
from steersman_databases.engines import SqlCredentials
from steersman_instance.dump import mysql_load
from steersman_instance.dump.mysql_client import MARKER, MysqlClient, is_mariadb, quoted
from steersman_instance.dump.server import Login, ServerAddress

ROOT = database_servers.root(database_servers.SID)
pytestmark = [
    pytest.mark.skipif(ROOT is None, reason="MySQL is not unpacked: run python -m devcluster servers"),
    pytest.mark.skipif(not programs.are_built(), reason="the object store is not built: run devcluster store build"),
]
OWNER = SqlCredentials("clerk", 'cl"3rk\\ #s')
READER = SqlCredentials("import'er", 'r3"ader\\ s')
SOURCE, TARGET = "old_orders", "new orders"
FILL = """
CREATE TABLE orders (id int AUTO_INCREMENT PRIMARY KEY, note varchar(100) CHARACTER SET utf8mb4, raw blob);
INSERT INTO orders (note, raw) VALUES ('a', x'00ff'), ('Grüße\nCREATE DEFINER=`x`@`y` FUNCTION', NULL);
CREATE VIEW recent AS SELECT * FROM orders WHERE id > 1;
DELIMITER //
CREATE PROCEDURE tidy() BEGIN DELETE FROM orders WHERE note = 'a'; END //
CREATE FUNCTION total() RETURNS int READS SQL DATA RETURN (SELECT COUNT(*) FROM orders) //
CREATE TRIGGER noted BEFORE INSERT ON orders FOR EACH ROW SET NEW.note = COALESCE(NEW.note, 'none') //
CREATE EVENT nightly ON SCHEDULE EVERY 1 DAY DO SELECT 1 //
DELIMITER ;
"""


@pytest.fixture(scope="module", params=[pytest.param(n, marks=pytest.mark.xdist_group(n)) for n in like_mysql()])
def server(request: pytest.FixtureRequest) -> Generator[RealMySQLServer]:
    with contextmanager(like_mysql()[request.param])() as found:
        assert isinstance(found, RealMySQLServer)
        yield found


class Programs:
    """The client programs against a server."""

    def __init__(self, jobs: DumpJobs) -> None:
        self._jobs = jobs

    def client(self, database: str, user: SqlCredentials = ADMINISTRATOR) -> MysqlClient:
        """Return the client programs as a user."""
        endpoint = self._jobs.endpoint
        address = ServerAddress(
            host=endpoint.host, port=endpoint.port, database=database, tls="Require", files=self._jobs.directory
        )
        login = Login(username=user.username, password=user.password)
        return MysqlClient(address, login, self._jobs.directory, dict(os.environ))

    def sql(self, database: str, text: str, user: SqlCredentials = ADMINISTRATOR) -> list[str]:
        """Run SQL and return the rows of the last statement, with tabs between columns."""
        return self.client(database, user).script().run(text).splitlines()


def client(directory: Path, root: Path, name: str) -> Path:
    """Return a program that finds its plugins below ``root``, as in the image."""
    script = directory / name
    plugins = f"--plugin-dir={root}/usr/lib/mysql/plugin"
    script.write_text(f'#!/bin/sh\nfile=$1; shift\nexec {root}/usr/bin/{name} "$file" {plugins} "$@"\n')
    script.chmod(0o755)
    return script


@pytest.fixture
def jobs(server: RealMySQLServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[DumpJobs]:
    assert ROOT is not None
    clients = {name: client(tmp_path, ROOT, name) for name in ("mysql", "mysqldump")}
    clients["restic"] = ROOT / "usr/bin/restic"
    with local_store(tmp_path / "store") as store:
        found = DumpJobs(tmp_path / "pods", store, "mysql", server.endpoint, ADMINISTRATOR, clients)
        found.directory.mkdir()
        found.install(monkeypatch)
        yield found


@pytest.fixture
def programs_of(jobs: DumpJobs) -> Generator[Programs]:
    """A filled database and an empty one of the owner, dropped afterwards."""
    found = Programs(jobs)
    password = OWNER.password.replace("\\", "\\\\")
    owner = f"'{OWNER.username}'@'%'"
    create = f"CREATE DATABASE {quoted(SOURCE)}; CREATE DATABASE {quoted(TARGET)};"
    grants = "".join(f"GRANT ALL ON {quoted(name)}.* TO {owner};" for name in (SOURCE, TARGET))
    found.sql("mysql", f"SET GLOBAL log_bin_trust_function_creators = ON; {create}")
    found.sql("mysql", f"CREATE USER {owner} IDENTIFIED BY '{password}'; {grants}")
    reader = READER.password.replace("\\", "\\\\")
    found.sql("mysql", f"CREATE USER `{READER.username}`@'%' IDENTIFIED BY '{reader}';")
    yield found
    drop = f"DROP DATABASE IF EXISTS {quoted(SOURCE)}; DROP DATABASE {quoted(TARGET)};"
    found.sql("mysql", f"{drop} DROP USER {owner}; DROP USER IF EXISTS 'auditor'@'10.%';")
    found.sql("mysql", f"DROP USER `{READER.username}`@'%';")


def audit(programs_of: Programs) -> None:
    """Let an auditor read the source."""
    programs_of.sql(
        SOURCE,
        "CREATE USER 'auditor'@'10.%' IDENTIFIED BY 'secret'; GRANT SELECT ON orders TO 'auditor'@'10.%';"
        " GRANT SELECT (id), UPDATE (note) ON recent TO 'auditor'@'10.%';"
        f" GRANT SHOW VIEW ON `{SOURCE}`.* TO 'auditor'@'10.%';",
    )


def test_restore_into_empty_database_returns_objects_and_grants(jobs: DumpJobs, programs_of: Programs) -> None:
    programs_of.sql(SOURCE, FILL)
    audit(programs_of)
    made = jobs.dump(SOURCE)
    assert made["ok"], made
    programs_of.sql("mysql", f"DROP DATABASE {quoted(SOURCE)}; DROP USER 'auditor'@'10.%'")
    loaded = jobs.load(TARGET, OWNER, backup_id=made["backup"]["id"])
    assert loaded == {"ok": True, "restore": {"backup": made["backup"]["id"], "version": made["backup"]["version"]}}
    rows = programs_of.sql(TARGET, "SELECT id, HEX(raw), REPLACE(note, '\\n', '|') FROM orders ORDER BY id", OWNER)
    assert rows == ["1\t00FF\ta", "2\tNULL\tGrüße|CREATE DEFINER=`x`@`y` FUNCTION"]
    assert programs_of.sql(TARGET, "SELECT total(), (SELECT COUNT(*) FROM recent)", OWNER) == ["2\t1"]
    definers = (
        "SELECT DEFINER FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = DATABASE()"
        " UNION SELECT DEFINER FROM information_schema.VIEWS WHERE TABLE_SCHEMA = DATABASE()"
        " UNION SELECT DEFINER FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE()"
        " UNION SELECT DEFINER FROM information_schema.EVENTS WHERE EVENT_SCHEMA = DATABASE()"
    )
    assert programs_of.sql(TARGET, definers) == ["clerk@%"]
    granted = sorted(
        row for row in programs_of.sql("mysql", "SHOW GRANTS FOR 'auditor'@'10.%'") if "USAGE" not in row
    )
    assert len(granted) == 3
    assert all("new orders" in row for row in granted)
    assert MARKER not in programs_of.client(TARGET).objects()


def test_restore_into_database_with_objects_is_refused(jobs: DumpJobs, programs_of: Programs) -> None:
    programs_of.sql(SOURCE, FILL)
    assert jobs.dump(SOURCE)["ok"]
    programs_of.sql(TARGET, "CREATE TABLE mine (n int)", OWNER)
    refused = jobs.load(TARGET, OWNER)
    assert refused["reason"] == "DatabaseNotEmpty"
    assert "such as mine" in refused["message"]
    assert programs_of.client(TARGET).objects() == ["mine"]


def test_interrupted_restore_is_continued(
    jobs: DumpJobs, programs_of: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs_of.sql(SOURCE, FILL)
    assert jobs.dump(SOURCE)["ok"]

    def interrupted(lines: Iterator[bytes]) -> Iterator[bytes]:
        for line in lines:
            yield line
            if line.startswith(b"UNLOCK TABLES"):
                raise RuntimeError("the pod was killed")

    with monkeypatch.context() as patched:
        patched.setattr(mysql_load, "without_definers", interrupted)
        assert not jobs.load(TARGET, OWNER)["ok"]
    assert MARKER in programs_of.client(TARGET).objects()
    assert jobs.load(TARGET, OWNER)["ok"]
    assert programs_of.sql(TARGET, "SELECT total()", OWNER) == ["2"]


def test_retention_and_second_pod(jobs: DumpJobs, programs_of: Programs) -> None:
    backup: dict[str, Any] = {"name": "n", "uid": "8b6b1c8e-0000-0000-0000-000000000000", "trigger": "Schedule"}
    first, second = (jobs.dump(SOURCE, backup=backup) for _ in range(2))
    assert second["backup"]["id"] == first["backup"]["id"]
    last = jobs.dump(SOURCE, retention=RETENTION)
    assert last["expired"] in ([first["backup"]["id"]], [])


def test_failures_are_reported_in_one_sentence(jobs: DumpJobs, programs_of: Programs) -> None:
    assert jobs.load(TARGET, OWNER)["reason"] == "BackupNotFound"
    missing = jobs.dump("no such database")
    assert missing["reason"] == "ServerUnreachable"
    assert "no such database" in missing["message"]
    jobs.administrator = SqlCredentials(ADMINISTRATOR.username, "wrong")
    rejected = jobs.dump(SOURCE)
    assert "Access denied" in rejected["message"]
    assert "wrong" not in rejected["message"]


def grant(programs_of: Programs, privileges: str, level: str = f"`{SOURCE}`.*") -> None:
    """Grant privileges to the account of imports."""
    programs_of.sql("mysql", f"GRANT {privileges} ON {level} TO `{READER.username}`@'%'")


READABLE = "SELECT, SHOW VIEW, TRIGGER, EVENT, EXECUTE"


def test_import_copies_objects_and_grants(jobs: DumpJobs, programs_of: Programs) -> None:
    programs_of.sql(SOURCE, FILL)
    audit(programs_of)
    grant(programs_of, READABLE)
    grant(programs_of, "SELECT", "mysql.*")
    if not is_mariadb(programs_of.client(SOURCE).version()):
        grant(programs_of, "SHOW_ROUTINE", "*.*")
    imported = jobs.import_database(SOURCE, TARGET, OWNER, READER)
    version = programs_of.client(SOURCE).version()
    assert imported == {"ok": True, "restore": {"version": version}}
    rows = programs_of.sql(TARGET, "SELECT id, HEX(raw), REPLACE(note, '\\n', '|') FROM orders ORDER BY id", OWNER)
    assert rows == ["1\t00FF\ta", "2\tNULL\tGrüße|CREATE DEFINER=`x`@`y` FUNCTION"]
    assert programs_of.sql(TARGET, "SELECT total(), (SELECT COUNT(*) FROM recent)", OWNER) == ["2\t1"]
    granted = [row for row in programs_of.sql("mysql", "SHOW GRANTS FOR 'auditor'@'10.%'") if "new orders" in row]
    assert len(granted) == 3
    assert MARKER not in programs_of.client(TARGET).objects()
    assert programs_of.sql(SOURCE, "SELECT total()") == ["2"]


def test_import_by_account_of_one_database_lacks_grants_only(jobs: DumpJobs, programs_of: Programs) -> None:
    programs_of.sql(SOURCE, "CREATE TABLE orders (id int PRIMARY KEY); INSERT INTO orders VALUES (1);")
    grant(programs_of, READABLE)
    imported = jobs.import_database(SOURCE, TARGET, OWNER, READER)
    assert imported["ok"], imported
    assert "the source does not show grants" in imported["restore"]["warning"]
    assert programs_of.sql(TARGET, "SELECT * FROM orders", OWNER) == ["1"]


@pytest.mark.parametrize(
    ("privileges", "message"),
    [
        ("SELECT, TRIGGER, EXECUTE", "lacks SHOW VIEW, EVENT on Database old_orders of"),
        (READABLE, "cannot read the text of routine"),
    ],
)
def test_incomplete_import_is_refused_before_writing(
    jobs: DumpJobs, programs_of: Programs, privileges: str, message: str
) -> None:
    programs_of.sql(SOURCE, FILL)
    grant(programs_of, privileges)
    refused = jobs.import_database(SOURCE, TARGET, OWNER, READER)
    assert refused["reason"] == "RightsMissing"
    assert message in refused["message"]
    assert programs_of.client(TARGET).objects() == []


@pytest.mark.parametrize(
    ("account", "changes", "message"),
    [
        (SqlCredentials(READER.username, "wr0ng"), {}, "Check credentials in spec.bootstrap.import."),
        (ADMINISTRATOR, {"database": "no such"}, "Check databaseName and credentials in spec.bootstrap.import."),
        (READER, {"tls": "VerifyFull"}, "Check tls in spec.bootstrap.import."),
        (READER, {"port": 1}, "Check host and port in spec.bootstrap.import."),
    ],
)
def test_unreachable_source_names_the_field(
    jobs: DumpJobs, programs_of: Programs, account: SqlCredentials, changes: dict[str, Any], message: str
) -> None:
    refused = jobs.import_database(SOURCE, TARGET, OWNER, account, changes)
    assert not refused["ok"]
    assert refused["message"].endswith(message), refused
    assert "wr0ng" not in refused["message"]


def test_import_into_database_with_objects_is_refused(jobs: DumpJobs, programs_of: Programs) -> None:
    programs_of.sql(TARGET, "CREATE TABLE mine (n int)", OWNER)
    assert jobs.import_database(SOURCE, TARGET, OWNER, ADMINISTRATOR)["reason"] == "DatabaseNotEmpty"


def test_import_of_a_source_that_fails_is_repeated(jobs: DumpJobs, programs_of: Programs) -> None:
    programs_of.sql(SOURCE, FILL)
    program = jobs.directory / "bin" / "mysqldump"
    real = program.resolve()
    program.unlink()
    program.write_text(
        f'#!/bin/sh\n{real} "$@" | head -c 2500\necho "mysqldump: Got error: lost connection" >&2; exit 2\n'
    )
    program.chmod(0o755)
    failed = jobs.import_database(SOURCE, TARGET, OWNER, ADMINISTRATOR)
    assert failed["reason"] == "RestoreFailed"
    assert "lost connection" in failed["message"]
    program.unlink()
    program.symlink_to(real)
    assert jobs.import_database(SOURCE, TARGET, OWNER, ADMINISTRATOR)["ok"]
    assert programs_of.sql(TARGET, "SELECT total()", OWNER) == ["2"]
