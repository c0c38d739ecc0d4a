"""The contract's server, real.

PostgreSQL and MariaDB come from Debian packages (`make test` installs them), whose services are not used. Where
`STEERSMAN_MYSQL_ROOT` names a root file system with MySQL in it, as the image of this repository has, MySQL
takes part as well.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from mysql_server import MySQLServer, start_mariadb, start_mysql
from postgresql_server import PostgreSQLServer, start_postgresql
from real_server import RealServer

pytest.register_assert_rewrite("engine_contract")


@pytest.fixture(scope="session")
def postgresql() -> Generator[PostgreSQLServer]:
    yield from start_postgresql()


@pytest.fixture(scope="session")
def mariadb() -> Generator[MySQLServer]:
    yield from start_mariadb()


@pytest.fixture(scope="session")
def mysql() -> Generator[MySQLServer]:
    yield from start_mysql(Path(os.environ["STEERSMAN_MYSQL_ROOT"]))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    # One worker a server, so that each is started once.
    like_mysql = ["mariadb", *(["mysql"] if "STEERSMAN_MYSQL_ROOT" in os.environ else [])]
    for fixture, names in (("server", ["postgresql", *like_mysql]), ("mysql_server", like_mysql)):
        if fixture in metafunc.fixturenames:
            params = [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in names]
            metafunc.parametrize(fixture, params, indirect=True)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> RealServer:
    return request.getfixturevalue(request.param)


@pytest.fixture
def mysql_server(request: pytest.FixtureRequest) -> MySQLServer:
    return request.getfixturevalue(request.param)
