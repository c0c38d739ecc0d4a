"""An object store, and a cluster that archives into it."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from database_support.e2e.backups import BACKUP
from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient
from database_support.e2e.engines import POSTGRESQL, EngineCommands
from devcluster.progress import Progress
from devcluster.store import ObjectStore, cluster_store, manifests


@pytest.fixture(scope="module")
def store(shared: NamespaceClient) -> Generator[ObjectStore]:
    """The object store of the devcluster, with a ``BackupStore`` in the namespace of the module."""
    if not shared.target.is_devcluster:
        pytest.skip("the object store is one of the devcluster")
    started = cluster_store.start(Progress())
    shared.target.apply(manifests.render(started, shared.namespace), shared.namespace)
    shared.wait_reason("backupstore", manifests.STORE, "Reachable", seconds=120)
    yield started


@pytest.fixture(scope="module")
def archived(shared: NamespaceClient, store: ObjectStore, of: EngineCommands) -> ClusterUnderTest:
    """A cluster that archives, with its first full backup. Backups are declared after it serves."""
    instances = 2 if of is POSTGRESQL else 3
    spec = {**of.small, "instances": instances, "deletionPolicy": "Retain"}
    cluster = ClusterUnderTest(shared, "shop", spec, of)
    cluster.apply()
    cluster.wait_ready()
    before = cluster.pods()
    cluster.apply(backup=BACKUP)
    cluster.wait_reason("Archiving", "ContinuousArchiving", 240)
    cluster.wait_reason("UpToDate", "BackedUp", 400)
    assert cluster.pods() == before, "declaring backups restarts nothing"
    assert store.keys(cluster.status["backup"]["path"])
    return cluster
