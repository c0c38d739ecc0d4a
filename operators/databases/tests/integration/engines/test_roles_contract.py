"""Real servers keep what roles of PostgreSQL may have."""

from __future__ import annotations

import pytest

from database_support.postgresql_server import PostgreSQLServer
from database_support.roles_contract import TestRoles, at

__all__ = ["TestRoles", "at"]


@pytest.fixture
def like_postgresql(postgresql: PostgreSQLServer) -> PostgreSQLServer:
    return postgresql
