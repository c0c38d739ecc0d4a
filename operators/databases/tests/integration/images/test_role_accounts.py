"""The accounts that Patroni's callback has on a real server, by the real psql."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

import steersman_databases.engines.postgresql
from database_support.servers.postgresql import RealPostgreSQLServer, start_postgresql
from database_support.servers.real_server import ADMINISTRATOR
from database_support.unit.image_script import script
from devcluster import database_servers

pytestmark = pytest.mark.xdist_group("role-accounts")

role = script("postgresql", "role")
STATEMENTS = Path(steersman_databases.engines.postgresql.__file__).with_name("roles.sql")
MADE = "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'steersman%'"


PROGRAMS = {
    path.parent.name: path
    for root in (Path("/"), database_servers.root(database_servers.TRIXIE))
    if root is not None
    for path in sorted(root.glob("usr/lib/postgresql/*/bin"))
}
"""By the major version."""


@pytest.fixture(params=sorted(PROGRAMS))
def server(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Generator[RealPostgreSQLServer]:
    """One that psql finds as it does in its pod."""
    programs = PROGRAMS[request.param]
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
        monkeypatch.setattr(role, "ROLES", str(tmp_path / "roles.sql"))
        # Longer than any limit below, however fast the machine is.
        long = "SELECT pg_sleep(0.3);\nCOMMIT;"
        (tmp_path / "roles.sql").write_text(STATEMENTS.read_text().replace("COMMIT;", long))
        yield started


def test_accounts_created_despite_session_defaults(server: RealPostgreSQLServer) -> None:
    settings = ["statement_timeout = 1", "default_transaction_read_only = on"]
    if server.administer("SELECT current_setting('transaction_timeout', true) <> ''") == [(True,)]:
        settings.append("transaction_timeout = 200")
    for setting in settings:
        server.administer(f"ALTER ROLE {{}} SET {setting}", ADMINISTRATOR.username)
    for _ in range(2):
        role.ensure_accounts()
        assert server.administer(MADE) == [(7,)]
