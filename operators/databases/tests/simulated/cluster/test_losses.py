"""Instances of a cluster lose their volumes or their nodes: who is replaced by a copy, when, and who never is."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from database_support.unit.cluster_harness import NAMES, ClusterHarness
from database_support.unit.group_harness import GroupHarness
from steersman.api.core_v1 import Node, PersistentVolumeClaim, Pod
from steersman.client import MergePatch
from steersman.meta import ObjectKey
from steersman_databases.api.cluster_common import VolumeSettings
from steersman_databases.cluster.state import RETIRED
from steersman_databases.engines.naming import CLUSTER_LABEL
from steersman_databases.engines.naming import INSTANCE_LABEL as INSTANCE
from steersman_testing import virtual_time

MANAGED_BY = "app.kubernetes.io/managed-by"


@pytest.mark.requirement("overview/level-5-recovery")
@virtual_time
async def test_replica_with_lost_volume_is_replaced() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(3)
        await world.client.delete(PersistentVolumeClaim, NAMES.data_pvc(2))
        await world.until("replaced", lambda: "orders-3" in world.pods())
        await world.ready(3)
        assert world.statefulsets() == ["orders-0", "orders-1", "orders-3"]
        assert "InstanceReplaced" in world.events()


def labels(world: ClusterHarness) -> dict[str, Mapping[str, str]]:
    """Those of each claim."""
    return {c.metadata.name: c.metadata.labels for c in world.server.read_all(PersistentVolumeClaim)}


async def unlabel(world: ClusterHarness, key: ObjectKey, *names: str) -> None:
    """Somebody takes labels from a claim."""
    body = {"metadata": {"labels": dict.fromkeys(names)}}
    await world.client.patch(PersistentVolumeClaim, key, MergePatch(body))


@virtual_time
@pytest.mark.parametrize("world_of", [ClusterHarness, GroupHarness])
@pytest.mark.parametrize("number", [0, 1], ids=["primary", "replica"])
async def test_pvc_label_lost_is_restored_without_replacement(world_of: type[ClusterHarness], number: int) -> None:
    world = world_of()
    async with world.operator():
        await world.create_ready(2, instances=2)
        await world.wait(30)
        uids, before = world.uids(), labels(world)
        expected: set[str] = set()
        for name in (MANAGED_BY, INSTANCE, CLUSTER_LABEL, "app.kubernetes.io/name"):
            await unlabel(world, NAMES.data_pvc(number), name)
            await world.until("back", lambda: labels(world) == before, 30)
            label = f"{name}={before[f'data-orders-{number}'][name]}"
            expected.add(f"restored the labels {label} of PersistentVolumeClaim data-orders-{number}")
        await world.wait(300)
        assert world.uids() == uids and labels(world) == before
        assert world.status.primary == "orders-0" and world.condition("Ready") == "True/AllInstancesReady"
        assert not {"InstanceReplaced", "Switchover", "VolumeLost"} & set(world.events())
        assert {said for said in world.messages("Updated") if "PersistentVolumeClaim" in said} == expected


@virtual_time
async def test_all_pvc_labels_lost_are_restored_with_version() -> None:
    world = ClusterHarness()
    world.hosts.upgrade_fails = "no"
    async with world.operator():
        await world.create_ready(2, instances=2, version="15", wal_storage=VolumeSettings())
        await world.change(version="17")
        await world.until("told", lambda: world.condition("UpToDate") == "False/RolledBack")
        await world.until("serves", lambda: world.status.ready_instances == 2)
        await world.wait(60)
        uids, before = world.uids(), labels(world)
        for claim, there in before.items():
            await unlabel(world, ObjectKey("default", claim), *there)
        await world.until("back", lambda: labels(world) == before, 30)
        await world.wait(300)
        assert world.uids() == uids and labels(world) == before and world.hosts.unreadable == []


@virtual_time
async def test_pvc_labels_lost_in_hibernation_are_restored() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1, hibernated=False)
        await world.change(hibernated=True)
        await world.until("asleep", lambda: world.condition("Available") == "False/Hibernated" and not world.pods())
        before = labels(world)
        await world.annotate(paused="true")
        await unlabel(world, NAMES.data_pvc(0), MANAGED_BY)
        await world.wait(60)
        assert labels(world) != before, "it is paused"
        await world.annotate(paused=None)
        await world.until("back", lambda: labels(world) == before, 30)
        await world.change(hibernated=False)
        await world.ready(1)
        assert world.hosts.systems == 1 and world.pvc_names() == ["data-orders-0"]


@virtual_time
async def test_foreign_pvc_under_lost_name_is_kept() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(2, instances=2, replace_failed_instances="OnRequest")
        key = NAMES.data_pvc(1)
        await world.client.delete(PersistentVolumeClaim, key)
        await world.client.delete(Pod, NAMES.pod(1))
        await world.until("gone", lambda: key.name not in world.pvc_names())
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        metadata = {"name": key.name, "namespace": key.namespace}
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
        world.server.load(claim)
        await world.wait(60)
        assert world.condition("VolumesResized") == "False/VolumeLost"
        assert labels(world)[key.name] == {}


@virtual_time
async def test_retired_pvc_without_labels_reserves_its_ordinal() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(2, instances=2)
        await world.change(instances=1)
        await world.until("retired", lambda: world.statefulsets() == ["orders-0"])
        await world.ready(1)
        await unlabel(world, NAMES.data_pvc(1), MANAGED_BY)
        await world.wait()
        await world.change(instances=2)
        await world.ready(2)
        assert world.pvc_names() == ["data-orders-0", "data-orders-1", "data-orders-2"]
        assert labels(world)["data-orders-1"][MANAGED_BY] and RETIRED in labels(world)["data-orders-1"]


@pytest.mark.parametrize("tainted", [True, False])
@virtual_time
async def test_replica_on_lost_node_is_replaced(tainted: bool) -> None:
    """Which somebody says by a taint, or by deleting the Node: until then it may."""
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(3)
        hostname = {"kubernetes.io/hostname": "node-3"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "third", "labels": hostname}}
        term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-3"]}]}
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "volume-2"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
                "hostPath": {"path": "/volumes/2"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            },
        }
        world.server.load(node, volume)
        bound = await world.client.patch(
            PersistentVolumeClaim, NAMES.data_pvc(2), MergePatch({"spec": {"volumeName": "volume-2"}})
        )
        world.hosts.volumes[bound.metadata.uid].broken = True
        await world.client.delete(Pod, NAMES.pod(2))
        await world.wait(120)
        assert "InstanceReplaced" not in world.events()
        if tainted:
            lost = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
            await world.client.patch(Node, ObjectKey("", "third"), MergePatch({"spec": {"taints": [lost]}}))
        else:
            await world.client.delete(Node, ObjectKey("", "third"))
        await world.until("replaced", lambda: "orders-3" in world.pods(), 60)
        await world.ready(3)
        assert any("its node is lost" in said for said in world.messages("InstanceReplaced"))


@virtual_time
async def test_terminating_volume_of_single_instance_is_copied() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        await world.client.delete(PersistentVolumeClaim, NAMES.data_pvc(0))
        await world.until("told", lambda: world.condition("VolumesResized") == "False/VolumeLost")
        await world.wait()
        assert world.condition("Ready") == "False/Degraded"
        assert "the volume of orders-0 is lost or being deleted" in world.message("Ready")
        assert world.condition("Available") == "True/PrimaryAvailable"
        await world.change(instances=2)
        await world.until("handed over", lambda: world.status.primary == "orders-1")
        await world.until("replaced", lambda: world.statefulsets() == ["orders-1", "orders-2"])
        await world.ready(2)
        assert world.hosts.systems == 1
        assert "Failover" not in world.events()


@virtual_time
async def test_replica_with_lost_wal_volume_is_replaced() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(2, instances=2, wal_storage=VolumeSettings())
        gone = MergePatch({"metadata": {"finalizers": None}})
        await world.client.patch(PersistentVolumeClaim, NAMES.wal_pvc(1), gone)
        await world.client.delete(PersistentVolumeClaim, NAMES.wal_pvc(1))
        await world.until("replaced", lambda: "orders-2" in world.pods())
        await world.ready(2)


@virtual_time
async def test_last_instance_is_never_replaced() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        for volume in world.hosts.volumes.values():
            volume.broken = True
        await world.wait(420)
        assert world.statefulsets() == ["orders-0"]
        assert world.pvc_names() == ["data-orders-0"]


@virtual_time
async def test_manual_replacement_policy_keeps_replica() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(3, replace_failed_instances="OnRequest")
        await world.client.delete(PersistentVolumeClaim, NAMES.data_pvc(2))
        await world.until("told", lambda: world.condition("VolumesResized") == "False/VolumeLost")
        await world.wait(300)
        assert "orders-3" not in world.pods()
        await world.client.delete(PersistentVolumeClaim, NAMES.data_pvc(0))
        await world.wait(300)
        assert world.status.primary == "orders-0"


@virtual_time
@pytest.mark.parametrize("world_of", [ClusterHarness, GroupHarness])
@pytest.mark.parametrize("request_", ["restart", "hibernate", "fence", "resources"])
async def test_pod_of_last_terminating_volume_is_kept(world_of: type[ClusterHarness], request_: str) -> None:
    world = world_of()
    async with world.operator():
        await world.create_ready(1, instances=1)
        uids = world.uids()
        await world.client.delete(PersistentVolumeClaim, NAMES.data_pvc(0))
        await world.until("it is reported", lambda: world.condition("VolumesResized") == "False/VolumeLost")
        match request_:
            case "restart":
                await world.annotate(restarted_at="now")
            case "hibernate":
                await world.change(hibernated=True)
            case "fence":
                await world.annotate(fenced_instances="orders-0")
            case _:
                await world.change(podMetadata={"labels": {"team": "shop"}})
        await world.wait(300)
        assert world.uids() == uids and world.pvc_names() == ["data-orders-0"]
        assert "Raise spec.instances" in world.message("Ready")
