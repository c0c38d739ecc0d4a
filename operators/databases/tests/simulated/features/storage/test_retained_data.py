"""What data and the Secrets that open them are to each other: retired volumes, lost labels, data that never were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from database_support.unit.cluster_harness import KEY, NAMES, ClusterHarness
from database_support.unit.group_harness import GroupHarness
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, Secret
from steersman.client import MergePatch
from steersman_databases.api.cluster_common import PoolerSettings, VolumeSettings
from steersman_testing import matching, virtual_time

MANAGED_BY = "app.kubernetes.io/managed-by"
INSTANCE = "databases.steersman.dev/instance"


def secrets(world: ClusterHarness) -> dict[str, Sequence[str]]:
    """Return the PVCs that own each Secret."""
    return {
        s.metadata.name: [o.name for o in s.metadata.owner_references if o.kind == "PersistentVolumeClaim"]
        for s in world.server.read_all(Secret)
    }


async def accept_loss(world: ClusterHarness) -> None:
    """Accept the loss of all data once it is reported."""
    await world.until("the loss is reported", lambda: world.condition("Ready") == "False/DataLost", seconds=900)
    await world.annotate(accept_data_loss=world.status.data_identity)


def store(world: ClusterHarness) -> Sequence[ConfigMap]:
    """What Patroni agrees in."""
    return [c for c in world.server.read_all(ConfigMap) if c.key in NAMES.dcs_of("postgresql").all_keys]


async def scaled_in(world: ClusterHarness) -> None:
    """One instance is there, and the retired volume of another."""
    await world.create_ready(2, instances=2)
    await world.change(instances=1)
    await world.ready(1)
    await world.until("retired", lambda: world.statefulsets() == ["orders-0"])


async def deleted(world: ClusterHarness) -> None:
    """The cluster is gone."""
    await world.client.delete(world.kind, KEY)
    await world.until("gone", lambda: world.cluster is None)


async def label(world: ClusterHarness, name: str, value: str | None) -> None:
    """Somebody changes a label of the first volume's claim."""
    body = {"metadata": {"labels": {name: value}}}
    await world.client.patch(PersistentVolumeClaim, NAMES.data_pvc(0), MergePatch(body))


async def lose(world: ClusterHarness) -> None:
    """The first volume goes, and who uses it."""
    await world.client.delete(PersistentVolumeClaim, NAMES.data_pvc(0))
    for pod in world.pods().values():
        await world.client.delete(Pod, pod.key)


@virtual_time
async def test_retired_volume_does_not_block_bootstrap() -> None:
    world = ClusterHarness()
    async with world.operator():
        await scaled_in(world)
        password = world.secret("orders-admin")
        await lose(world)
        await accept_loss(world)
        await world.until("made anew", lambda: world.hosts.systems == 2, seconds=900)
        await world.ready(1)
        assert world.pvc_names() == ["data-orders-1", "data-orders-2"]
        await world.until(
            "owned", lambda: all(o == ["data-orders-1", "data-orders-2"] for o in secrets(world).values())
        )
        assert world.secret("orders-admin") == password, "it opens what is retained, too"


@virtual_time
@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("cut_off", [False, True])
async def test_retained_wal_volume_does_not_block_bootstrap(instances: int, *, cut_off: bool) -> None:
    """What the store says is about data that are gone, and one of the claims that own it is not."""
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(instances, instances=instances, wal_storage=VolumeSettings())
        for number in range(instances):
            await world.client.delete(PersistentVolumeClaim, NAMES.data_pvc(number))
        if cut_off:
            world.server.fail_next(matching("DELETE", "/configmaps"), 500, times=3)
        for pod in world.pods().values():
            await world.client.delete(Pod, pod.key)
        await accept_loss(world)
        await world.until("made anew", lambda: world.hosts.systems == 2, seconds=900)
        await world.ready(instances)
        kept = [f"wal-orders-{n}" for n in range(instances)]
        assert set(kept) < set(world.pvc_names())
        owners = {o.name for c in store(world) for o in c.metadata.owner_references}
        assert owners == set(world.pvc_names()) - set(kept)


@virtual_time
@pytest.mark.parametrize("world_of", [ClusterHarness, GroupHarness])
@pytest.mark.parametrize("policy", ["Retain", "Delete"])
async def test_retired_volume_does_not_block_new_cluster(world_of: type[ClusterHarness], policy: Any) -> None:
    world = world_of()
    async with world.operator():
        await scaled_in(world)
        await deleted(world)
        await world.client.delete(PersistentVolumeClaim, NAMES.data_pvc(0))
        await world.wait()
        await world.create(instances=1, deletion_policy=policy)
        await world.ready(1)
        kept = ["data-orders-1"] if policy == "Retain" else []
        await world.until("settled", lambda: world.pvc_names() == [*kept, "data-orders-2"])


@virtual_time
async def test_data_without_wal_volume_is_not_adopted() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1, wal_storage=VolumeSettings())
        await deleted(world)
        await world.create(instances=1)
        await world.until("refused", lambda: world.condition("Ready") == "False/RetainedDataMismatch")
        said = world.message("Ready")
        assert "PVC wal-orders-0 has the WAL" in said and "with spec.walStorage" in said
        await world.wait(600)
        assert world.pvc_names() == ["data-orders-0", "wal-orders-0"] and not world.pods()
        await deleted(world)
        await world.create(instances=1, wal_storage=VolumeSettings())
        await world.ready(1)
        assert world.hosts.systems == 1


@virtual_time
async def test_data_with_inner_wal_rejects_wal_volume() -> None:
    """They would go on with the log beside them, and the volume would stay empty."""
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(2, instances=2)
        await deleted(world)
        await world.create(instances=2, wal_storage=VolumeSettings())
        await world.until("refused", lambda: world.condition("Ready") == "False/RetainedDataMismatch")
        said = world.message("Ready")
        assert "PVC data-orders-0, data-orders-1 has retained data with their WAL" in said
        assert "new cluster of this name without spec.walStorage" in said
        await world.wait(600)
        assert world.pvc_names() == ["data-orders-0", "data-orders-1"] and not world.pods()
        await deleted(world)
        await world.create(instances=2)
        await world.ready(2)
        assert world.hosts.systems == 1


@virtual_time
async def test_interrupted_first_instance_gets_wal_volume() -> None:
    world = ClusterHarness()
    async with world.operator():
        makes = matching("POST", "/persistentvolumeclaims")
        world.server.fail_next(lambda r: makes(r) and b"wal-orders-0" in (r.body or b""), 500, times=12)
        await world.create(instances=1, wal_storage=VolumeSettings())
        await world.until("cut", lambda: world.pvc_names() == ["data-orders-0"])
        await world.ready(1)
        assert world.pvc_names() == ["data-orders-0", "wal-orders-0"]
        assert "RetainedDataMismatch" not in world.events()


@virtual_time
@pytest.mark.parametrize("world_of", [ClusterHarness, GroupHarness])
async def test_adopted_volume_of_other_class_is_reported(world_of: type[ClusterHarness]) -> None:
    world = world_of()
    async with world.operator():
        await world.create_ready(1, instances=1, storage=VolumeSettings(storage_class="slow"))
        assert world.condition("VolumesResized") == "True/SizeMatches"
        await deleted(world)
        await world.create(instances=1, storage=VolumeSettings(storage_class="fast"))
        await world.until("told", lambda: world.condition("VolumesResized") == "False/StorageClassMismatch")
        await world.degraded(1)
        told = "volume data-orders-0 has StorageClass slow, and fast is declared"
        assert world.message("VolumesResized").startswith(f"{told}. Delete the PVCs of one replica")
        assert world.warnings("StorageClassMismatch")


@virtual_time
@pytest.mark.parametrize(
    ("name", "value"),
    [(MANAGED_BY, "steersman-databases"), (INSTANCE, "0"), ("app.kubernetes.io/name", "postgresql")],
)
async def test_unused_pvc_missing_label_is_named(name: str, value: str) -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        before = secrets(world)
        await deleted(world)
        await label(world, name, None)
        await world.create(instances=1)
        said = f"belongs to PVC data-orders-0, which lacks the labels {name}={value}: restore them"
        await world.until("told", lambda: said in world.message("Ready"))
        await world.wait(600)
        assert secrets(world) == before and world.pvc_names() == ["data-orders-0"] and not world.pods()
        await label(world, name, value)
        await world.ready(1)
        assert world.hosts.systems == 1


@virtual_time
async def test_unlabelled_pvc_blocks_bootstrap() -> None:
    world = ClusterHarness()
    async with world.operator():
        await scaled_in(world)
        await deleted(world)
        await label(world, MANAGED_BY, None)
        await world.create(instances=1)
        await world.until("told", lambda: "restore them" in world.message("Ready"))
        await world.wait(900)
        assert world.pvc_names() == ["data-orders-0", "data-orders-1"] and world.hosts.systems == 1
        await label(world, MANAGED_BY, "steersman-databases")
        await world.ready(1)
        assert world.hosts.systems == 1


@virtual_time
@pytest.mark.parametrize("policy", ["Retain", "Delete"])
async def test_secrets_without_data_are_deleted_with_cluster(policy: Any) -> None:
    world = ClusterHarness()
    async with world.operator():
        world.server.fail_next(matching("POST", "/persistentvolumeclaims"), 403, times=10**6)
        await world.create(instances=1, deletion_policy=policy, pooler=PoolerSettings())
        await world.until("refused", lambda: world.condition("Ready") == "False/Forbidden")
        made = sorted(secrets(world))
        assert "orders-admin" in made and "orders-pooler" in made
        await deleted(world)
        assert secrets(world) == {}
        (told,) = world.messages("DataDeleted")
        assert told.startswith(f"deleted Secret {made[0]}, ") and all(name in told for name in made)
        assert "DataRetained" not in world.events()


@virtual_time
async def test_secrets_of_unlabelled_pvc_are_retained() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        before = secrets(world)
        world.hosts.hanging.add(NAMES.pod(0).name)
        await world.client.delete(world.kind, KEY)
        await world.until("going", lambda: not world.statefulsets())
        await label(world, MANAGED_BY, None)
        world.hosts.hanging.clear()
        await world.until("gone", lambda: world.cluster is None)
        await world.wait()
        assert secrets(world) == before


@virtual_time
async def test_delete_policy_deletes_unlabelled_pvc() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1, deletion_policy="Delete")
        await world.annotate(paused="true")
        await label(world, MANAGED_BY, None)
        await world.wait()
        await deleted(world)
        await world.until("gone", lambda: not world.pvc_names())


@virtual_time
async def test_pooler_certificate_is_deleted_with_poolers() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1, pooler=PoolerSettings())
        before = set(secrets(world))
        await world.change(pooler=None)
        await world.until("gone", lambda: set(secrets(world)) == before - {"orders-pooler"})
        await world.ready(1)
        await world.change(pooler={})
        await world.until("back", lambda: set(secrets(world)) == before)
        await world.ready(1)
