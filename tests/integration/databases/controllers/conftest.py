"""A real PostgreSQL for the controllers."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from postgresql_server import PostgreSQLServer, start_postgresql


@pytest.fixture(scope="session")
def postgresql() -> Generator[PostgreSQLServer]:
    yield from start_postgresql()
