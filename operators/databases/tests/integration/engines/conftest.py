"""The contract's servers, real, and of every supported version: `every_server` says which.

Those of this machine come from Debian packages, whose services are not used; those of other Debian releases from
`python -m devcluster servers`. `make test` does both.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import ExitStack, contextmanager

import pytest

from database_support.servers import postgresql_admins
from database_support.servers.matrix import administrated, every_server, mariadbs, mysqls, postgresqls
from database_support.servers.mysql import RealMySQLServer
from database_support.servers.postgresql import RealPostgreSQLServer
from database_support.servers.postgresql_admins import RANKS, PostgreSQLHarness, Rank
from database_support.servers.real_server import RealServer

pytest.register_assert_rewrite("engine_contract", "accounts_contract", "roles_contract")

FIXTURES = {
    "server": every_server,
    "postgresql": postgresqls,
    "mysql_server": administrated,
    "mysql": mysqls,
    "mariadb": mariadbs,
}
"""The servers that the tests with each of these fixtures run on."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for fixture, servers in FIXTURES.items():
        if fixture in metafunc.fixturenames:
            # One worker a server, so that each is started once.
            params = [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in servers()]
            metafunc.parametrize(fixture, params, indirect=True)


@pytest.fixture(scope="session")
def started() -> Generator[Callable[[str], RealServer]]:
    """Gives a server by its name, started once."""
    running: dict[str, RealServer] = {}
    known = {**every_server(), **administrated()}
    with ExitStack() as stack:

        def start(name: str) -> RealServer:
            if name not in running:
                running[name] = stack.enter_context(contextmanager(known[name])())
            return running[name]

        yield start


@pytest.fixture
def server(request: pytest.FixtureRequest, started: Callable[[str], RealServer]) -> RealServer:
    return started(request.param)


@pytest.fixture
def postgresql(request: pytest.FixtureRequest, started: Callable[[str], RealServer]) -> RealPostgreSQLServer:
    found = started(request.param)
    assert isinstance(found, RealPostgreSQLServer)
    return found


@pytest.fixture(params=RANKS)
async def at(request: pytest.FixtureRequest, postgresql: RealPostgreSQLServer) -> AsyncGenerator[PostgreSQLHarness]:
    """A PostgreSQL as an administrator of each rank works at it."""
    rank: Rank = request.param
    async with postgresql_admins.administrated(postgresql, rank) as found:
        yield found


def _like_mysql(request: pytest.FixtureRequest, started: Callable[[str], RealServer]) -> RealMySQLServer:
    found = started(request.param)
    assert isinstance(found, RealMySQLServer)
    return found


mysql_server = pytest.fixture(_like_mysql, name="mysql_server")
mysql = pytest.fixture(_like_mysql, name="mysql")
mariadb = pytest.fixture(_like_mysql, name="mariadb")
