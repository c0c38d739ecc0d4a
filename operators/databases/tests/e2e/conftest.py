"""Databases to test on the cluster."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient
from database_support.e2e.database import DatabaseUnderTest
from database_support.e2e.engines import POSTGRESQL, EngineCommands
from database_support.e2e.external_server import ExternalServer
from devcluster.images import POSTGRESQL_15, UPGRADE_TO_17, ensure, load
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
def of(request: pytest.FixtureRequest) -> EngineCommands:
    """The engine of a module's cluster: PostgreSQL, unless tests ask for others by `cluster_engines.EACH`."""
    return getattr(request, "param", POSTGRESQL)


@pytest.fixture(scope="module")
def shared(cluster: Target, request: pytest.FixtureRequest, of: EngineCommands) -> Generator[NamespaceClient]:
    """A namespace for all tests of a module."""
    name = f"e2e-{request.path.stem.replace('_', '-')}{'' if of is POSTGRESQL else '-on-mysql'}"
    cluster.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=180s", seconds=200)
    cluster.kubectl("create", "namespace", name)
    yield NamespaceClient(cluster, name)
    cluster.kubectl("delete", "namespace", name, "--timeout=180s", seconds=200)


@pytest.fixture(scope="module")
def three(shared: NamespaceClient, of: EngineCommands) -> ClusterUnderTest:
    """Three instances and the database ``shop``, for all tests of a module: each leaves them well."""
    made = ClusterUnderTest(shared, spec=dict(of.small), engine=of)
    made.apply()
    shared.apply("Database", "shop", made.reference(deletionPolicy="Delete"))
    made.wait_ready()
    shared.wait_reason("database", "shop", "DatabaseReady")
    return made


@pytest.fixture(scope="module")
def server(shared: NamespaceClient, of: EngineCommands) -> ExternalServer:
    """One of somebody else, for all tests of a module: each leaves it well."""
    made = ExternalServer(shared, of)
    made.start()
    return made


@pytest.fixture
def place(cluster: Target, namespace: str) -> NamespaceClient:
    """A namespace of the test's own."""
    return NamespaceClient(cluster, namespace)


@pytest.fixture
def place_of_15(place: NamespaceClient) -> NamespaceClient:
    """As ``place``, with the images of 15 and of its upgrade in the nodes."""
    if place.target.is_devcluster:
        for recipe in (POSTGRESQL_15, UPGRADE_TO_17):
            load(ensure(recipe, Progress()))
    return place
