"""The model keeps what roles of PostgreSQL may have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from database_support.roles_contract import TestRoles, at
from steersman_databases.engines import PostgreSQL

__all__ = ["TestRoles", "at"]


@pytest.fixture
def like_postgresql(model_of: Callable[[PostgreSQL], Any]) -> Any:
    return model_of(PostgreSQL())
