"""Real servers keep what roles of PostgreSQL may have."""

from __future__ import annotations

import pytest

from database_support.contracts.postgresql_roles import TestRoles, at
from database_support.servers.postgresql import RealPostgreSQLServer

__all__ = ["TestRoles", "at"]


@pytest.fixture
def like_postgresql(postgresql: RealPostgreSQLServer) -> RealPostgreSQLServer:
    return postgresql
