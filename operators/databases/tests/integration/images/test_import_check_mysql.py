"""Dry run of an import from real MySQL and MariaDB servers."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from database_support.dumps.job_runs import DumpJobs
from database_support.servers.matrix import like_mysql
from database_support.servers.mysql import RealMySQLServer
from database_support.servers.real_server import ADMINISTRATOR
from devcluster import database_servers
from steersman_databases.engines import SqlCredentials
from steersman_instance.dump.mysql_client import MysqlClient, is_mariadb
from steersman_instance.dump.server import Login, ServerAddress

ROOT = database_servers.root(database_servers.SID)
pytestmark = [
    pytest.mark.skipif(ROOT is None, reason="MySQL is not unpacked: run python -m devcluster servers"),
]
SOURCE, READER = "old_orders", SqlCredentials("import'er", 'r3"ader\\ s')


@pytest.fixture(scope="module", params=[pytest.param(n, marks=pytest.mark.xdist_group(n)) for n in like_mysql()])
def server(request: pytest.FixtureRequest) -> Generator[RealMySQLServer]:
    with contextmanager(like_mysql()[request.param])() as found:
        assert isinstance(found, RealMySQLServer)
        yield found


def program(directory: Path, name: str, content: str) -> Path:
    """Write a program."""
    path = directory / name
    path.write_text(f"#!/bin/sh\n{content}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def jobs(server: RealMySQLServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DumpJobs:
    assert ROOT is not None
    plugins = f"--plugin-dir={ROOT}/usr/lib/mysql/plugin"
    programs = {
        "mysql": program(tmp_path, "mysql", f'file=$1; shift\nexec {ROOT}/usr/bin/mysql "$file" {plugins} "$@"'),
        "mysqld": program(tmp_path, "mysqld", "echo '/usr/sbin/mysqld  Ver 9.7.4 for Linux on x86_64'"),
    }
    found = DumpJobs(tmp_path / "pods", None, "mysql", server.endpoint, ADMINISTRATOR, programs)
    found.directory.mkdir()
    found.install(monkeypatch)
    return found


@pytest.fixture
def client(jobs: DumpJobs) -> Generator[MysqlClient]:
    """The administrator in the source, which is dropped afterwards."""
    endpoint = jobs.endpoint
    address = ServerAddress(
        host=endpoint.host, port=endpoint.port, database="mysql", tls="Require", files=jobs.directory
    )
    login = Login(username=ADMINISTRATOR.username, password=ADMINISTRATOR.password)
    found = MysqlClient(address, login, jobs.directory, dict(os.environ))
    password = READER.password.replace("\\", "\\\\")
    sql(found, f"CREATE DATABASE `{SOURCE}`; CREATE USER `{READER.username}`@'%' IDENTIFIED BY '{password}'")
    yield found
    sql(found, f"DROP DATABASE `{SOURCE}`; DROP USER IF EXISTS `{READER.username}`@'%', 'auditor'@'10.%', 'watch'")
    sql(found, "DROP ROLE IF EXISTS audits")


def sql(client: MysqlClient, text: str) -> None:
    """Run statements."""
    client.script().run(text)


def test_check_lists_all_that_an_import_cannot_take(jobs: DumpJobs, client: MysqlClient) -> None:
    sql(
        client,
        f"CREATE TABLE `{SOURCE}`.a (id int) ENGINE=MyISAM; CREATE TABLE `{SOURCE}`.b (id int) ENGINE=MyISAM;"
        f" CREATE TABLE `{SOURCE}`.c (id int); CREATE PROCEDURE `{SOURCE}`.tidy() SELECT 1;"
        f" GRANT SELECT, TRIGGER, EXECUTE ON `{SOURCE}`.* TO `{READER.username}`@'%';"
        " CREATE USER watch; GRANT SELECT ON *.* TO watch;",
    )
    report = jobs.check(SOURCE, READER, {"storage_engines": "InnoDB", "storage_bytes": 1})
    problems = {each["reason"]: each for each in report["problems"]}
    # The last one of a reason.
    assert "cannot read the text of routine tidy" in problems["RightsMissing"]["message"]
    assert any("lacks SHOW VIEW, EVENT" in each["message"] for each in report["problems"])
    assert (problems["StorageEngine"]["count"], problems["StorageEngine"]["names"]) == (
        2,
        ["a (MyISAM)", "b (MyISAM)"],
    )
    assert ("SourceMismatch" in problems) is is_mariadb(client.version())
    assert report["accounts"] == []
    assert any("does not show its accounts" in note for note in report["notes"])
    alone = jobs.check(SOURCE, READER, {"storage_engines": "Any"})["problems"]
    assert "StorageEngine" not in {each["reason"] for each in alone}


def test_check_of_a_readable_source_has_no_problem(jobs: DumpJobs, client: MysqlClient) -> None:
    sql(client, f"CREATE TABLE `{SOURCE}`.c (id int); CREATE USER watch; GRANT SELECT ON *.* TO watch;")
    report = jobs.check(SOURCE, ADMINISTRATOR, server=True)
    assert report["problems"] == []
    assert report["source"]["version"] == report["target"]["version"]
    assert "'watch'@'%'" in report["leftOut"][0]["names"]


def test_check_lists_accounts_with_exact_privileges(jobs: DumpJobs, client: MysqlClient) -> None:
    sql(
        client,
        f"CREATE TABLE `{SOURCE}`.orders (id int, note text); CREATE TABLE `{SOURCE}`.items (id int);"
        f" CREATE PROCEDURE `{SOURCE}`.tidy() SELECT 1; CREATE ROLE audits;"
        f" GRANT SELECT, INSERT ON `{SOURCE}`.* TO audits;"
        " CREATE USER 'auditor'@'10.%' IDENTIFIED BY 'never-shown' WITH MAX_USER_CONNECTIONS 3;"
        f" GRANT DELETE ON `{SOURCE}`.orders TO 'auditor'@'10.%';"
        f" GRANT DELETE ON `{SOURCE}`.items TO 'auditor'@'10.%';"
        f" GRANT UPDATE (note) ON `{SOURCE}`.orders TO 'auditor'@'10.%';"
        f" GRANT EXECUTE ON PROCEDURE `{SOURCE}`.tidy TO 'auditor'@'10.%';"
        " GRANT audits TO 'auditor'@'10.%';",
    )
    report = jobs.check(SOURCE, ADMINISTRATOR, server=True)
    assert "never-shown" not in str(report)
    accounts: dict[str, Any] = {each["name"]: each for each in report["accounts"]}
    auditor, audits = accounts["auditor"], accounts["audits"]
    assert (auditor["host"], auditor["login"], auditor["connectionLimit"]) == ("10.%", True, 3)
    assert auditor["roles"] == [{"name": "audits", "admin": False}]
    granted = [(g["kind"], g["objects"], g["columns"], g["privileges"]) for g in auditor["grants"]]
    assert granted == [
        ("function", ["tidy"], [], ["EXECUTE"]),
        ("table", ["items", "orders"], [], ["DELETE"]),
        ("table", ["orders"], ["note"], ["UPDATE"]),
    ]
    assert audits["login"] is False
    assert [(g["kind"], g["privileges"]) for g in audits["grants"]] == [("database", ["INSERT", "SELECT"])]
