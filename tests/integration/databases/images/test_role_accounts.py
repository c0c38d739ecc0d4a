"""The accounts that Patroni's callback has on a real server, by the real psql."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

import steersman_databases.engines.postgresql
from image_script import script
from postgresql_server import PostgreSQLServer, newest_programs, start_postgresql
from real_server import ADMINISTRATOR

pytestmark = pytest.mark.xdist_group("role-accounts")

role = script("postgresql", "role")
STATEMENTS = Path(steersman_databases.engines.postgresql.__file__).with_name("roles.sql")
MADE = "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'steersman%'"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Generator[PostgreSQLServer]:
    """One that psql finds as it does in its pod."""
    programs = newest_programs()
    with contextmanager(start_postgresql)(programs) as started:
        where = {
            "PGHOST": started.endpoint.host,
            "PGPORT": str(started.endpoint.port),
            "PGUSER": ADMINISTRATOR.username,
            "PGPASSWORD": ADMINISTRATOR.password,
            "PATH": f"{programs}:{os.environ['PATH']}",
        }
        for name, value in where.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(role, "ROLES", str(STATEMENTS))
        yield started


def test_they_are_made_whatever_is_set_for_all_sessions(server: PostgreSQLServer) -> None:
    for setting in ("statement_timeout = 1", "default_transaction_read_only = on"):
        server.administer(f"ALTER ROLE {{}} SET {setting}", ADMINISTRATOR.username)
    for _ in range(2):
        role.have_accounts()
        assert server.administer(MADE) == [(5,)]
