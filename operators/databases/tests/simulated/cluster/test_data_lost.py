"""Clusters whose volumes are all lost: they never bootstrap again without a user's consent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from database_support.unit.cluster_harness import KEY, NAMES, ClusterHarness
from database_support.unit.fake_patroni import FakeVolume
from database_support.unit.group_harness import GroupHarness
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, Secret
from steersman.client import MergePatch
from steersman.errors import NotFound
from steersman.meta import ObjectKey, to_builtins
from steersman_databases.cluster.state import AWAITING_COPY
from steersman_databases.engines.naming import CLUSTER_LABEL
from steersman_testing import virtual_time

EACH_ENGINE = pytest.mark.parametrize("world_of", [ClusterHarness, GroupHarness])


def bootstraps(world: ClusterHarness) -> int:
    """Return how often data were initialized."""
    return world.fake_group.initialised if isinstance(world, GroupHarness) else world.hosts.systems


def passwords(world: ClusterHarness) -> dict[str, str]:
    """Return the passwords of all Secrets by name."""
    found = world.server.read_all(Secret)
    return {s.metadata.name: s.data["password"].decode() for s in found if "password" in s.data}


def awaiting_copy(world: ClusterHarness) -> list[str]:
    """Return the PVCs of new replicas whose copy is not complete."""
    found = world.server.read_all(PersistentVolumeClaim)
    return sorted(c.metadata.name for c in found if AWAITING_COPY in c.metadata.labels)


async def lose_volumes(world: ClusterHarness, numbers: Sequence[int]) -> None:
    """Delete PVCs in this order, and the pods that use them at once."""
    for number in numbers:
        await world.client.delete(PersistentVolumeClaim, NAMES.data_pvc(number))
    for number in numbers:
        pod = NAMES.pod(number)
        try:
            await world.client.delete(Pod, pod)
            await world.client.patch(Pod, pod, MergePatch({"metadata": {"finalizers": None}}))
        except NotFound:
            continue
    for number in numbers:
        pvc = NAMES.data_pvc(number)
        if world.server.read(PersistentVolumeClaim, pvc) is not None:
            await world.client.patch(PersistentVolumeClaim, pvc, MergePatch({"metadata": {"finalizers": None}}))


async def data_lost(world: ClusterHarness) -> None:
    """Wait until the loss is reported."""
    await world.until("the loss is reported", lambda: world.condition("Ready") == "False/DataLost")


def restore_volume(world: ClusterHarness, labels: dict[str, str], number: int = 0) -> PersistentVolumeClaim:
    """Create a PVC with the name of an instance's."""
    key = NAMES.data_pvc(number)
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": key.name, "namespace": key.namespace, "labels": labels}
    world.server.load(
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec},
    )
    found = world.server.read(PersistentVolumeClaim, key)
    assert found is not None
    return found


@EACH_ENGINE
@pytest.mark.parametrize("order", [(0,), (0, 1, 2), (2, 1, 0), (1, 0, 2)], ids=str)
@virtual_time
async def test_all_volumes_lost_reports_data_lost(world_of: type[ClusterHarness], order: Sequence[int]) -> None:
    world = world_of()
    async with world.operator():
        await world.create_ready(len(order), instances=len(order))
        await world.wait()
        before, identity = passwords(world), world.status.data_identity
        assert identity and before
        await lose_volumes(world, order)
        await data_lost(world)
        await world.wait(300)
        assert world.condition("Ready") == "False/DataLost" and world.status.phase == "Failed"
        assert world.condition("Available") == "False/NoPrimary"
        message = world.message("Ready")
        # Instances that lost their volume first were being replaced by others.
        assert all(f"PVC data-{name} " in message for name in world.statefulsets()) and world.statefulsets()
        assert f"databases.steersman.dev/accept-data-loss to {identity}" in message
        assert "spec.bootstrap.recovery" in message
        assert bootstraps(world) == 1 and awaiting_copy(world) == world.pvc_names()
        assert passwords(world) == before
        assert len(world.warnings("DataLost")) == 1


@EACH_ENGINE
@virtual_time
async def test_only_volume_deleted_then_pod_ends_data_lost(world_of: type[ClusterHarness]) -> None:
    world = world_of()
    async with world.operator():
        await world.create_ready(1, instances=1)
        before = passwords(world)
        await world.client.delete(PersistentVolumeClaim, NAMES.data_pvc(0))
        await world.wait(60)
        assert world.condition("Available") == "True/PrimaryAvailable", "it serves until its pod ends"
        await world.client.delete(Pod, NAMES.pod(0))
        await data_lost(world)
        await world.wait(600)
        assert bootstraps(world) == 1 and passwords(world) == before


@EACH_ENGINE
@pytest.mark.parametrize("instances", [1, 3])
@virtual_time
async def test_volumes_lost_while_operator_is_down(world_of: type[ClusterHarness], instances: int) -> None:
    world = world_of()
    async with world.operator():
        await world.create_ready(instances, instances=instances)
        await world.wait()
    before = passwords(world)
    await lose_volumes(world, range(instances))
    world.server.collect_garbage()
    assert passwords(world) == before, "the garbage collector keeps them for the cluster"
    async with world.operator():
        await data_lost(world)
    async with world.operator():
        await world.wait(300)
        assert world.condition("Ready") == "False/DataLost"
        assert bootstraps(world) == 1 and passwords(world) == before
        assert len(world.warnings("DataLost")) == 1


@EACH_ENGINE
@pytest.mark.parametrize("instances", [1, 3])
@virtual_time
async def test_accepted_loss_starts_empty_with_old_passwords(world_of: type[ClusterHarness], instances: int) -> None:
    world = world_of()
    async with world.operator():
        await world.create_ready(instances, instances=instances)
        before, identity = passwords(world), world.status.data_identity
        await lose_volumes(world, range(instances))
        await data_lost(world)
        await world.annotate(accept_data_loss="true")
        await world.wait(120)
        assert bootstraps(world) == 1 and "which is true now" in world.message("Ready")
        await world.annotate(accept_data_loss=identity)
    async with world.operator():
        await world.ready(instances)
        assert bootstraps(world) == 2 and passwords(world) == before
        await world.wait()
        assert world.status.data_identity not in (None, identity)
        await lose_volumes(world, [int(name.rpartition("-")[2]) for name in world.pvc_names()])
        await data_lost(world)
        await world.wait(300)
        assert bootstraps(world) == 2, "the annotation accepted the first loss only"


@EACH_ENGINE
@pytest.mark.parametrize("lost", ["status", "Secrets"])
@virtual_time
async def test_one_record_lost_loss_is_reported(world_of: type[ClusterHarness], lost: str) -> None:
    world = world_of()
    async with world.operator():
        await world.create_ready(1, instances=1)
        await world.wait()
        identity = world.status.data_identity
    await lose_volumes(world, [0])
    if lost == "status":
        emptied = MergePatch({"status": dict.fromkeys(to_builtins(world.status))})
        await world.client.patch(world.kind, KEY, emptied, subresource="status")
        await world.client.delete(StatefulSet, NAMES.statefulset(0))
    else:
        for secret in world.server.read_all(Secret):
            await world.client.delete(Secret, secret.key)
    async with world.operator():
        await data_lost(world)
        await world.wait(300)
        assert bootstraps(world) == 1 and identity in world.message("Ready")


@EACH_ENGINE
@virtual_time
async def test_cluster_of_earlier_version_reports_data_lost(world_of: type[ClusterHarness]) -> None:
    world = world_of()
    async with world.operator():
        await world.create_ready(1, instances=1)
    unrecorded = MergePatch({"status": {"dataIdentity": None}})
    await world.client.patch(world.kind, KEY, unrecorded, subresource="status")
    await lose_volumes(world, [0])
    for secret in world.server.read_all(Secret):
        await world.client.delete(Secret, secret.key)
    async with world.operator():
        await data_lost(world)
        await world.annotate(accept_data_loss=world.cluster.metadata.uid)
        await world.ready(1)
        assert bootstraps(world) == 2


@EACH_ENGINE
@virtual_time
async def test_volume_lost_before_first_server_bootstraps(world_of: type[ClusterHarness]) -> None:
    world = world_of()
    world.hosts.pod_rejection = "exceeded quota"
    async with world.operator():
        await world.create(instances=1)
        await world.until("the volume exists", lambda: world.statefulsets() == ["orders-0"])
        await lose_volumes(world, [0])
        world.hosts.pod_rejection = ""
        await world.ready(1)
        assert bootstraps(world) == 1 and not world.warnings("DataLost")


@EACH_ENGINE
@virtual_time
async def test_deleted_cluster_and_volumes_new_cluster_bootstraps(world_of: type[ClusterHarness]) -> None:
    world = world_of()
    async with world.operator():
        await world.create_ready(1, instances=1)
        await world.client.delete(world.kind, KEY)
        await world.until("it is deleted", lambda: world.cluster is None)
        await world.client.delete(PersistentVolumeClaim, NAMES.data_pvc(0))
        await world.create(instances=1)
        await world.ready(1)
        assert bootstraps(world) == 2 and not world.warnings("DataLost")


@EACH_ENGINE
@virtual_time
async def test_hibernated_cluster_keeps_its_condition(world_of: type[ClusterHarness]) -> None:
    world = world_of()
    async with world.operator():
        await world.create_ready(2, instances=2)
        await world.change(hibernated=True)
        await world.until("it is hibernated", lambda: world.status.phase == "Hibernated" and not world.pods())
        await world.wait(120)
        assert world.condition("Ready") == "False/Hibernated"
        await lose_volumes(world, [0])
        await world.wait(120)
        assert world.condition("Ready") == "False/Hibernated", "the other instance has the data"
        await lose_volumes(world, [1])
        await data_lost(world)


@EACH_ENGINE
@virtual_time
async def test_data_lost_cluster_can_be_deleted(world_of: type[ClusterHarness]) -> None:
    world = world_of()
    async with world.operator():
        await world.create_ready(1, instances=1)
        await lose_volumes(world, [0])
        await data_lost(world)
        await world.client.delete(world.kind, KEY)
        await world.until("it is deleted", lambda: world.cluster is None)
        await world.until("no Secret remains", lambda: not passwords(world))
        await world.create(instances=1)
        await world.ready(1)
        assert bootstraps(world) == 2


@virtual_time
async def test_incomplete_copy_is_no_data() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        identity = world.status.data_identity
        await world.change(instances=2)
        await world.until("the PVC exists", lambda: "data-orders-1" in world.pvc_names())
        replica = await world.client.get(PersistentVolumeClaim, NAMES.data_pvc(1))
        assert AWAITING_COPY in replica.metadata.labels
        world.hosts.volumes[replica.metadata.uid] = FakeVolume(broken=True)
        await lose_volumes(world, [0])
        await data_lost(world)
        assert "PVC data-orders-1 has no complete copy of the data" in world.message("Ready")
        await world.annotate(accept_data_loss=identity)
        await world.ready(2)
        assert bootstraps(world) == 2


@EACH_ENGINE
@virtual_time
async def test_completed_copy_is_recorded(world_of: type[ClusterHarness]) -> None:
    world = world_of()
    async with world.operator():
        await world.create_ready(3, instances=3)
        await world.until("all are recorded", lambda: awaiting_copy(world) == [], 60)
        await lose_volumes(world, [0, 1])
        await world.ready(3)
        assert bootstraps(world) == 1 and not world.warnings("DataLost")


def labels_of(world: ClusterHarness, number: int) -> dict[str, str]:
    """Return the labels of an instance's PVC."""
    found = world.server.read(PersistentVolumeClaim, NAMES.data_pvc(number))
    assert found is not None
    return dict(found.metadata.labels)


@EACH_ENGINE
@virtual_time
async def test_empty_volume_with_our_labels_is_not_initialized(world_of: type[ClusterHarness]) -> None:
    world = world_of()
    async with world.operator():
        await world.create_ready(1, instances=1)
        await world.wait()
        labels = labels_of(world, 0)
        await lose_volumes(world, [0])
        await data_lost(world)
        restore_volume(world, labels)
        await world.until("a server waits", lambda: world.condition("Ready") != "False/DataLost")
        await world.wait(600)
        assert bootstraps(world) == 1 and world.condition("Available") == "False/NoPrimary"


@EACH_ENGINE
@virtual_time
async def test_volume_brought_back_serves_its_data(world_of: type[ClusterHarness]) -> None:
    world = world_of()
    async with world.operator():
        await world.create_ready(1, instances=1)
        await world.wait()
        labels, before = labels_of(world, 0), passwords(world)
        uid = world.server.read(PersistentVolumeClaim, NAMES.data_pvc(0)).metadata.uid  # type: ignore[union-attr]
        await lose_volumes(world, [0])
        await data_lost(world)
        kept: Any = world.fake_group.servers if isinstance(world, GroupHarness) else world.hosts.volumes
        restored = restore_volume(world, labels)
        kept[restored.metadata.uid] = kept.pop(uid)
        await world.ready(1)
        assert bootstraps(world) == 1 and passwords(world) == before


@EACH_ENGINE
@virtual_time
async def test_foreign_volume_is_reported(world_of: type[ClusterHarness]) -> None:
    world = world_of()
    async with world.operator():
        await world.create_ready(1, instances=1)
        await lose_volumes(world, [0])
        restore_volume(world, {})
        await data_lost(world)
        await world.wait(60)
        assert "PVC data-orders-0 exists and does not belong to this cluster" in world.message("Ready")
        assert bootstraps(world) == 1


@virtual_time
async def test_unlabelled_volume_is_named_and_not_lost() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
    await world.client.delete(StatefulSet, NAMES.statefulset(0))
    unlabel = MergePatch({"metadata": {"labels": {CLUSTER_LABEL: None}}})
    await world.client.patch(PersistentVolumeClaim, NAMES.data_pvc(0), unlabel)
    async with world.operator():
        await world.until("it is named", lambda: f"lacks the labels {CLUSTER_LABEL}=orders" in world.message("Ready"))
        assert bootstraps(world) == 1


@virtual_time
async def test_members_state_recreated_with_identity() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(2, instances=2)
        await world.wait()
        identity = world.status.data_identity
    for pod in world.pods().values():
        await world.client.delete(Pod, pod.key)
        await world.client.patch(Pod, pod.key, MergePatch({"metadata": {"finalizers": None}}))
    for key in NAMES.dcs_of("postgresql").all_keys:
        if world.server.read(ConfigMap, key) is not None:
            await world.client.delete(ConfigMap, key)
    async with world.operator():
        await world.until("it exists", lambda: world.server.read(ConfigMap, NAMES.dcs_config) is not None)
        store = world.server.read(ConfigMap, NAMES.dcs_config)
        assert store is not None and store.metadata.annotations["initialize"] == identity
        await world.until("both serve", lambda: all(i.ready for i in world.status.members))
        assert bootstraps(world) == 1


def secret_owners(world: ClusterHarness, name: str) -> set[str]:
    """Return the kinds of the owners of a Secret."""
    found = world.server.read(Secret, ObjectKey("default", name))
    assert found is not None
    return {owner.kind for owner in found.metadata.owner_references}


@EACH_ENGINE
@virtual_time
async def test_secrets_have_cluster_and_volumes_as_owners(world_of: type[ClusterHarness]) -> None:
    world = world_of()
    async with world.operator():
        await world.create_ready(1, instances=1)
        for name in ("orders-admin", "orders-ca"):
            assert secret_owners(world, name) == {"PersistentVolumeClaim", world.kind.api_resource.kind}
            found = world.server.read(Secret, ObjectKey("default", name))
            assert found is not None and found.controller_reference is None
            assert found.metadata.annotations["databases.steersman.dev/data-identity"] == world.status.data_identity
