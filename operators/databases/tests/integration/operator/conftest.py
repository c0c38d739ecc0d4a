"""A real PostgreSQL for the controllers, and a real API server with their kinds and role."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

import pytest

from database_support.servers.operator_on_api_server import install
from database_support.servers.postgresql import RealPostgreSQLServer, start_postgresql
from steersman_testing.envtest import Envtest


@pytest.fixture(scope="session")
def postgresql() -> Generator[RealPostgreSQLServer]:
    yield from start_postgresql()


@pytest.fixture(scope="module")
def installed(envtest: Envtest) -> Envtest:
    """An API server with the CRDs, and the generated role bound to a user who may do nothing else."""
    asyncio.run(install(envtest))
    return envtest
