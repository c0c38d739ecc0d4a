"""What data and the Secrets that open them are to each other: retired volumes, lost labels, data that never were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from database_support.cluster_world import KEY, NAMES, ClusterWorld
from database_support.group_world import GroupWorld
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, Secret
from steersman.client import MergePatch
from steersman_databases.api.cluster_parts import Pooler, Storage
from steersman_testing import matching, virtual_time

MANAGED_BY = "app.kubernetes.io/managed-by"
INSTANCE = "databases.steersman.dev/instance"


def secrets(world: ClusterWorld) -> dict[str, Sequence[str]]:
    """Who owns each Secret."""
    return {s.metadata.name: [o.name for o in s.metadata.owner_references] for s in world.server.read_all(Secret)}


def store(world: ClusterWorld) -> Sequence[ConfigMap]:
    """What Patroni agrees in."""
    return [c for c in world.server.read_all(ConfigMap) if c.key in NAMES.store_of("postgresql").every]


async def scaled_in(world: ClusterWorld) -> None:
    """One instance is there, and the retired volume of another."""
    await world.create(instances=2)
    await world.ready(2)
    await world.change(instances=1)
    await world.ready(1)
    await world.until("retired", lambda: world.statefulsets() == ["orders-0"])


async def deleted(world: ClusterWorld) -> None:
    """The cluster is gone."""
    await world.client.delete(world.kind, KEY)
    await world.until("gone", lambda: world.cluster is None)


async def label(world: ClusterWorld, name: str, value: str | None) -> None:
    """Somebody changes a label of the first volume's claim."""
    body = {"metadata": {"labels": {name: value}}}
    await world.client.patch(PersistentVolumeClaim, NAMES.data_claim(0), MergePatch(body))


async def lose(world: ClusterWorld) -> None:
    """The first volume goes, and who uses it."""
    await world.client.delete(PersistentVolumeClaim, NAMES.data_claim(0))
    for pod in world.pods().values():
        await world.client.delete(Pod, pod.key)


@virtual_time
async def test_data_are_begun_anew_beside_a_retired_volume() -> None:
    world = ClusterWorld()
    async with world.operator():
        await scaled_in(world)
        password = world.secret("orders-admin")
        await lose(world)
        await world.until("made anew", lambda: world.hosts.systems == 2, seconds=900)
        await world.ready(1)
        assert world.claims() == ["data-orders-1", "data-orders-2"]
        await world.until(
            "owned", lambda: all(o == ["data-orders-1", "data-orders-2"] for o in secrets(world).values())
        )
        assert world.secret("orders-admin") == password, "it opens what is retained, too"


@virtual_time
@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("cut_off", [False, True])
async def test_data_are_begun_anew_beside_a_log_volume_that_is_kept(instances: int, *, cut_off: bool) -> None:
    """What the store says is about data that are gone, and one of the claims that own it is not."""
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=instances, wal_storage=Storage())
        await world.ready(instances)
        for number in range(instances):
            await world.client.delete(PersistentVolumeClaim, NAMES.data_claim(number))
        if cut_off:
            world.server.fail_next(matching("DELETE", "/configmaps"), 500, times=3)
        for pod in world.pods().values():
            await world.client.delete(Pod, pod.key)
        await world.until("made anew", lambda: world.hosts.systems == 2, seconds=900)
        await world.ready(instances)
        kept = [f"wal-orders-{n}" for n in range(instances)]
        assert set(kept) < set(world.claims())
        owners = {o.name for c in store(world) for o in c.metadata.owner_references}
        assert owners == set(world.claims()) - set(kept)


@virtual_time
@pytest.mark.parametrize("world_of", [ClusterWorld, GroupWorld])
@pytest.mark.parametrize("policy", ["Retain", "Delete"])
async def test_a_cluster_is_made_again_beside_a_retired_volume(world_of: type[ClusterWorld], policy: Any) -> None:
    world = world_of()
    async with world.operator():
        await scaled_in(world)
        await deleted(world)
        await world.client.delete(PersistentVolumeClaim, NAMES.data_claim(0))
        await world.rest()
        await world.create(instances=1, deletion_policy=policy)
        await world.ready(1)
        kept = ["data-orders-1"] if policy == "Retain" else []
        await world.until("settled", lambda: world.claims() == [*kept, "data-orders-2"])


@virtual_time
async def test_data_are_not_adopted_without_their_log() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1, wal_storage=Storage())
        await world.ready(1)
        await deleted(world)
        await world.create(instances=1)
        await world.until("refused", lambda: world.condition("Ready") == "False/RetainedDataMismatch")
        said = world.message("Ready")
        assert "PersistentVolumeClaim wal-orders-0 holds the log" in said and "with spec.walStorage" in said
        await world.rest(600)
        assert world.claims() == ["data-orders-0", "wal-orders-0"] and not world.pods()
        await deleted(world)
        await world.create(instances=1, wal_storage=Storage())
        await world.ready(1)
        assert world.hosts.systems == 1


@virtual_time
async def test_data_that_hold_their_log_are_not_adopted_with_a_volume_for_it() -> None:
    """They would go on with the log beside them, and the volume would stay empty."""
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=2)
        await world.ready(2)
        await deleted(world)
        await world.create(instances=2, wal_storage=Storage())
        await world.until("refused", lambda: world.condition("Ready") == "False/RetainedDataMismatch")
        said = world.message("Ready")
        assert "PersistentVolumeClaim data-orders-0, data-orders-1 holds retained data with their log" in said
        assert "declare a new cluster of this name without spec.walStorage" in said
        await world.rest(600)
        assert world.claims() == ["data-orders-0", "data-orders-1"] and not world.pods()
        await deleted(world)
        await world.create(instances=2)
        await world.ready(2)
        assert world.hosts.systems == 1


@virtual_time
async def test_a_first_instance_whose_making_was_cut_off_gets_its_log_volume() -> None:
    world = ClusterWorld()
    async with world.operator():
        makes = matching("POST", "/persistentvolumeclaims")
        world.server.fail_next(lambda r: makes(r) and b"wal-orders-0" in (r.body or b""), 500, times=12)
        await world.create(instances=1, wal_storage=Storage())
        await world.until("cut", lambda: world.claims() == ["data-orders-0"])
        await world.ready(1)
        assert world.claims() == ["data-orders-0", "wal-orders-0"]
        assert "RetainedDataMismatch" not in world.events()


@virtual_time
@pytest.mark.parametrize("world_of", [ClusterWorld, GroupWorld])
async def test_adopted_volumes_of_another_class_are_told(world_of: type[ClusterWorld]) -> None:
    world = world_of()
    async with world.operator():
        await world.create(instances=1, storage=Storage(storage_class="slow"))
        await world.ready(1)
        assert world.condition("StorageAsDeclared") == "True/Sized"
        await deleted(world)
        await world.create(instances=1, storage=Storage(storage_class="fast"))
        await world.until("told", lambda: world.condition("StorageAsDeclared") == "False/OtherClass")
        await world.degraded(1)
        told = "volume data-orders-0 is of the storage class slow, and fast is declared"
        assert world.message("StorageAsDeclared").startswith(f"{told}: delete the claims of one replica")
        assert world.warnings("OtherClass")


@virtual_time
@pytest.mark.parametrize(
    ("name", "value"),
    [(MANAGED_BY, "steersman-databases"), (INSTANCE, "0"), ("app.kubernetes.io/name", "postgresql")],
)
async def test_a_claim_that_lost_a_label_and_that_no_instance_uses_is_named_with_it(name: str, value: str) -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        before = secrets(world)
        await deleted(world)
        await label(world, name, None)
        await world.create(instances=1)
        said = (
            f"belongs to PersistentVolumeClaim data-orders-0, which has lost the labels {name}={value}: put them back"
        )
        await world.until("told", lambda: said in world.message("Ready"))
        await world.rest(600)
        assert secrets(world) == before and world.claims() == ["data-orders-0"] and not world.pods()
        await label(world, name, value)
        await world.ready(1)
        assert world.hosts.systems == 1


@virtual_time
async def test_nothing_is_begun_anew_beside_a_claim_that_lost_a_label() -> None:
    world = ClusterWorld()
    async with world.operator():
        await scaled_in(world)
        await deleted(world)
        await label(world, MANAGED_BY, None)
        await world.create(instances=1)
        await world.until("told", lambda: "put them back" in world.message("Ready"))
        await world.rest(900)
        assert world.claims() == ["data-orders-0", "data-orders-1"] and world.hosts.systems == 1
        await label(world, MANAGED_BY, "steersman-databases")
        await world.ready(1)
        assert world.hosts.systems == 1


@virtual_time
@pytest.mark.parametrize("policy", ["Retain", "Delete"])
async def test_secrets_of_data_that_never_were_go_with_the_cluster(policy: Any) -> None:
    world = ClusterWorld()
    async with world.operator():
        world.server.fail_next(matching("POST", "/persistentvolumeclaims"), 403, times=10**6)
        await world.create(instances=1, deletion_policy=policy, pooler=Pooler())
        await world.until("refused", lambda: world.condition("Ready") == "False/Forbidden")
        made = sorted(secrets(world))
        assert "orders-admin" in made and "orders-pooler" in made
        await deleted(world)
        assert secrets(world) == {}
        (told,) = world.messages("DataDeleted")
        assert told.startswith(f"deleted Secret {made[0]}, ") and all(name in told for name in made)
        assert "DataRetained" not in world.events()


@virtual_time
async def test_secrets_of_a_claim_that_lost_its_labels_are_retained() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        before = secrets(world)
        world.hosts.hung.add(NAMES.pod(0).name)
        await world.client.delete(world.kind, KEY)
        await world.until("going", lambda: not world.statefulsets())
        await label(world, MANAGED_BY, None)
        world.hosts.hung.clear()
        await world.until("gone", lambda: world.cluster is None)
        await world.rest()
        assert secrets(world) == before


@virtual_time
async def test_data_of_a_claim_that_lost_its_labels_go_with_a_cluster_that_wants_it() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1, deletion_policy="Delete")
        await world.ready(1)
        await world.annotate(paused="true")
        await label(world, MANAGED_BY, None)
        await world.rest()
        await deleted(world)
        await world.until("gone", lambda: not world.claims())


@virtual_time
async def test_what_poolers_log_in_with_goes_with_them() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1, pooler=Pooler())
        await world.ready(1)
        before = set(secrets(world))
        await world.change(pooler=None)
        await world.until("gone", lambda: set(secrets(world)) == before - {"orders-pooler"})
        await world.ready(1)
        await world.change(pooler={})
        await world.until("back", lambda: set(secrets(world)) == before)
        await world.ready(1)
