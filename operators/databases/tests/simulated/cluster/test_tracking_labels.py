"""Objects without a controller: GitOps tools and Helm do not take them for their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from database_support.unit.backup_harness import BackupHarness, backup_settings
from database_support.unit.cluster_harness import KEY, NAMES, ClusterHarness
from database_support.unit.group_harness import GroupHarness
from database_support.unit.read_replica_harness import ReadReplicaHarness
from steersman.api.core_v1 import PersistentVolumeClaim, Secret
from steersman.client import MergePatch
from steersman.meta import ObjectKey
from steersman_databases.api.cluster_common import PoolerSettings, VolumeSettings
from steersman_databases.api.read_replicas import ReadReplicaSettings
from steersman_databases.core.database_naming import TRACKING_LABEL
from steersman_databases.engines.naming import CLUSTER_LABEL
from steersman_testing import InMemoryApiServer, virtual_time

EACH_ENGINE = pytest.mark.parametrize("world_of", [ClusterHarness, GroupHarness])
PATRONI = {key.name for key in NAMES.dcs_of("postgresql").all_keys}
CREATED_BY_TESTS = {"PostgreSQLCluster", "MySQLCluster", "BackupStore", "Namespace"}
"""Kinds that have no labels of the operator's."""


def uncontrolled(server: InMemoryApiServer) -> Iterator[dict[str, Any]]:
    """Yield all objects without a controller."""
    for manifest in server.manifests():
        owners: Any = manifest["metadata"].get("ownerReferences") or []
        if not any(owner.get("controller") for owner in owners):
            yield manifest


def is_tracked(manifest: dict[str, Any]) -> bool:
    """Return True if a tool takes the object for its own.

    Source: Argo CD, "Resource Tracking"; Helm, "Use of the adoption labels".
    """
    metadata = manifest["metadata"]
    notes: dict[str, str] = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    foreign = any(name.startswith(("argocd.argoproj.io/", "helm.sh/", "meta.helm.sh/")) for name in notes)
    return foreign or TRACKING_LABEL in notes or notes.get("app.kubernetes.io/managed-by") == "Helm"


def assert_untracked(server: InMemoryApiServer) -> set[str]:
    """Check all objects without a controller, and return their kinds."""
    found = list(uncontrolled(server))
    # Patroni writes its selector to its ConfigMaps. A tool does not delete objects with an owner reference.
    exempt = [m for m in found if m["kind"] == "ConfigMap" and m["metadata"]["name"] in PATRONI]
    assert all(m["metadata"].get("ownerReferences") for m in exempt)
    tracked = [f"{m['kind']} {m['metadata']['name']}" for m in found if m not in exempt and is_tracked(m)]
    assert tracked == []
    return {m["kind"] for m in found}


@EACH_ENGINE
@virtual_time
async def test_objects_without_controller_are_untracked(world_of: type[ClusterHarness]) -> None:
    world = world_of()
    extra = {} if world_of is GroupHarness else {"wal_storage": VolumeSettings(), "pooler": PoolerSettings()}
    async with world.operator():
        await world.create(instances=3, **extra)
        await world.until("three instances", lambda: world.status.ready_instances == 3)
        await world.wait()
        assert assert_untracked(world.server) >= {"PersistentVolumeClaim", "Secret", "ConfigMap"}
        await world.change(instances=2)
        await world.until("one is removed", lambda: len(world.statefulsets()) == 2)
        assert_untracked(world.server)
        await world.client.delete(world.kind, KEY)
        await world.until("it is deleted", lambda: world.cluster is None)
        assert assert_untracked(world.server) >= {"PersistentVolumeClaim", "Secret", "ConfigMap"}


@virtual_time
async def test_read_replica_objects_are_untracked() -> None:
    world = ReadReplicaHarness()
    async with world.operator():
        await world.create(instances=1, read_replicas=ReadReplicaSettings(min=1, max=1))
        await world.until("it exists", lambda: len(world.read_replica_pods()) == 1)
        assert_untracked(world.server)


@virtual_time
async def test_objects_of_backups_are_untracked() -> None:
    world = BackupHarness()
    async with world.operator():
        await world.create_store()
        await world.create(instances=1, backup=backup_settings())
        await world.ready(1)
        await world.report()
        await world.request("one")
        await world.until("it is created", lambda: len(world.jobs()) == 1)
        await world.run_jobs()
        assert "Backup" in assert_untracked(world.server)


@EACH_ENGINE
@virtual_time
async def test_label_of_earlier_version_is_removed(world_of: type[ClusterHarness]) -> None:
    world = world_of()
    async with world.operator():
        await world.create_ready(2, instances=2)
    earlier = MergePatch({"metadata": {"labels": {TRACKING_LABEL: "orders", CLUSTER_LABEL: None}}})
    for kind in (PersistentVolumeClaim, Secret):
        for obj in world.server.read_all(kind):
            await world.client.patch(kind, obj.key, earlier)
    uids = world.uids()
    async with world.operator():
        await world.wait(30)
        assert_untracked(world.server)
        found = [*world.server.read_all(PersistentVolumeClaim), *world.server.read_all(Secret)]
        assert all(obj.metadata.labels[CLUSTER_LABEL] == "orders" for obj in found)
        await world.wait(300)
        assert world.uids() == uids and world.condition("Ready") == "True/AllInstancesReady"


@virtual_time
async def test_label_that_a_tool_sets_is_left_alone() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        key = NAMES.data_pvc(0)
        labelled = MergePatch({"metadata": {"labels": {TRACKING_LABEL: "platform"}}})
        await world.client.patch(PersistentVolumeClaim, key, labelled)
        await world.wait(300)
        found = world.server.read(PersistentVolumeClaim, ObjectKey("default", key.name))
        assert found is not None and found.metadata.labels[TRACKING_LABEL] == "platform"
        assert world.condition("Ready") == "True/AllInstancesReady" and world.hosts.systems == 1
