"""Real servers keep what roles of PostgreSQL may have."""

from __future__ import annotations

import pytest

from postgresql_server import PostgreSQLServer
from roles_contract import TestRoles, at

__all__ = ["TestRoles", "at"]


@pytest.fixture
def like_postgresql(postgresql: PostgreSQLServer) -> PostgreSQLServer:
    return postgresql
