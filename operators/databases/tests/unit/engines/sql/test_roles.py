"""The model keeps what roles of PostgreSQL may have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from database_support.contracts.postgresql_roles import TestRoles, at
from steersman_databases.engines.postgresql.sql.engine import PostgreSQLSqlEngine

__all__ = ["TestRoles", "at"]


@pytest.fixture
def like_postgresql(model_of: Callable[[PostgreSQLSqlEngine], Any]) -> Any:
    return model_of(PostgreSQLSqlEngine())
