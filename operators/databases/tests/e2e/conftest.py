"""Databases to test on the cluster."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from database_support.cluster_engines import POSTGRESQL, Engine
from database_support.cluster_under_test import ClusterUnderTest, Place
from database_support.database_under_test import DatabaseUnderTest
from database_support.referred_server import ReferredServer
from devcluster.images import POSTGRESQL_15, UPGRADE_15_17, ensure, load
from devcluster.progress import Progress
from devcluster.target import Target
from framework_support.cluster_fixtures import bare_cluster, cluster, namespace, only_loopback

__all__ = ["bare_cluster", "cluster", "namespace", "only_loopback"]


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


@pytest.fixture(scope="module")
def of(request: pytest.FixtureRequest) -> Engine:
    """The engine of a module's cluster: PostgreSQL, unless tests ask for others by `cluster_engines.EACH`."""
    return getattr(request, "param", POSTGRESQL)


@pytest.fixture(scope="module")
def shared(cluster: Target, request: pytest.FixtureRequest, of: Engine) -> Generator[Place]:
    """A namespace for all tests of a module."""
    name = f"e2e-{request.path.stem.replace('_', '-')}{'' if of is POSTGRESQL else '-on-mysql'}"
    cluster.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=180s", seconds=200)
    cluster.kubectl("create", "namespace", name)
    yield Place(cluster, name)
    cluster.kubectl("delete", "namespace", name, "--timeout=180s", seconds=200)


@pytest.fixture(scope="module")
def three(shared: Place, of: Engine) -> ClusterUnderTest:
    """Three instances and the database ``shop``, for all tests of a module: each leaves them well."""
    made = ClusterUnderTest(shared, spec=dict(of.small), engine=of)
    made.apply()
    shared.declare("Database", "shop", made.reference(deletionPolicy="Delete"))
    made.wait_ready()
    shared.wait_reason("database", "shop", "DatabaseReady")
    return made


@pytest.fixture(scope="module")
def server(shared: Place, of: Engine) -> ReferredServer:
    """One of somebody else, for all tests of a module: each leaves it well."""
    made = ReferredServer(shared, of)
    made.start()
    return made


@pytest.fixture
def place(cluster: Target, namespace: str) -> Place:
    """A namespace of the test's own."""
    return Place(cluster, namespace)


@pytest.fixture
def place_of_15(place: Place) -> Place:
    """As ``place``, with the images of 15 and of its upgrade in the nodes."""
    if place.target.is_devcluster:
        for recipe in (POSTGRESQL_15, UPGRADE_15_17):
            load(ensure(recipe, Progress()))
    return place
