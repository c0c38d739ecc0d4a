"""Databases to test on the cluster."""

from __future__ import annotations

import pytest

from database_under_test import DatabaseUnderTest
from devcluster.target import Target


@pytest.fixture(params=["postgresql", "mysql"])
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine in turn."""
    return request.param


@pytest.fixture
def database(cluster: Target, namespace: str, engine: str) -> DatabaseUnderTest:
    """A ``Database`` that is not applied yet."""
    return DatabaseUnderTest(cluster, namespace, "orders", engine)


@pytest.fixture
def postgresql(cluster: Target, namespace: str) -> DatabaseUnderTest:
    """As ``database``, for what does not depend on the engine."""
    return DatabaseUnderTest(cluster, namespace, "orders", "postgresql")
