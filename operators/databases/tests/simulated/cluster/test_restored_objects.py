"""Objects that a backup tool restored without owner references: one annotation lets a cluster adopt them."""

from __future__ import annotations

from typing import Any

import pytest

from database_support.unit.cluster_harness import KEY, NAMES, ClusterHarness
from database_support.unit.group_harness import GroupHarness
from steersman.api.apps_v1 import Deployment, StatefulSet
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Secret, Service, ServiceAccount
from steersman.api.discovery_v1 import EndpointSlice
from steersman.api.networking_v1 import NetworkPolicy
from steersman.api.policy_v1 import PodDisruptionBudget
from steersman.api.rbac_v1 import Role, RoleBinding
from steersman.client import MergePatch
from steersman.meta import Object, ObjectMeta
from steersman_databases.api.cluster_common import PoolerSettings
from steersman_testing import virtual_time

EACH_ENGINE = pytest.mark.parametrize("world_of", [ClusterHarness, GroupHarness])
CONTROLLED: tuple[type[Object], ...] = (
    StatefulSet,
    Deployment,
    Service,
    ServiceAccount,
    Role,
    RoleBinding,
    PodDisruptionBudget,
    NetworkPolicy,
    EndpointSlice,
)
KINDS: tuple[type[Object], ...] = (*CONTROLLED, ConfigMap, Secret, PersistentVolumeClaim)


async def restore_without_owners(world: ClusterHarness, **spec: Any) -> None:
    """Replace the cluster by another object of this name, and remove all owner references, as a backup tool does."""
    for kind in KINDS:
        for obj in world.server.read_all(kind):
            await world.client.patch(kind, obj.key, MergePatch({"metadata": {"ownerReferences": None}}))
    await world.client.patch(world.kind, KEY, MergePatch({"metadata": {"finalizers": None}}))
    await world.client.delete(world.kind, KEY)
    assert world.cluster is None
    await world.create(**spec)


async def with_adoption_requested() -> ClusterHarness:
    """Return a cluster of one instance that was restored without owners and may adopt its objects."""
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
    await restore_without_owners(world, instances=1)
    await world.annotate(adopt="true")
    return world


def controllers(world: ClusterHarness) -> dict[str, str]:
    """Return the UIDs of the controllers of all objects that a cluster controls."""
    found = [obj for kind in CONTROLLED for obj in world.server.read_all(kind)]
    references = ((obj, obj.controller_reference) for obj in found)
    return {
        f"{type(obj).api_resource.kind} {obj.metadata.name}": "" if reference is None else reference.uid
        for obj, reference in references
    }


@EACH_ENGINE
@virtual_time
async def test_annotation_adopts_all_restored_objects(world_of: type[ClusterHarness]) -> None:
    world, spec = world_of(), {} if world_of is GroupHarness else {"pooler": PoolerSettings()}
    async with world.operator():
        await world.create(instances=3, **spec)
        await world.until("all serve", lambda: world.status.ready_instances == 3)
        await world.wait()
    uids = world.uids()
    await restore_without_owners(world, instances=3, **spec)
    async with world.operator():
        await world.until("it is refused", lambda: world.condition("Ready") == "False/NameConflict")
        kind = world.kind.api_resource.kind
        assert f"set the annotation databases.steersman.dev/adopt of the {kind} to true" in world.message("Ready")
        await world.annotate(adopt="true")
        await world.until("all serve", lambda: world.status.ready_instances == 3)
        await world.wait(120)
        assert set(controllers(world).values()) == {world.cluster.metadata.uid}
        assert world.uids() == uids, "no pod was recreated"
        secrets = world.server.read_all(Secret)
        assert secrets and all(len(s.metadata.owner_references) == 4 for s in secrets)


@virtual_time
async def test_foreign_object_is_not_adopted() -> None:
    world = await with_adoption_requested()
    key = NAMES.service("rw")
    foreign = MergePatch({"metadata": {"labels": {"app.kubernetes.io/managed-by": "other"}}})
    await world.client.patch(Service, key, foreign)
    async with world.operator():
        await world.until("it is refused", lambda: world.condition("Ready") == "False/NameConflict")
        await world.wait(120)
        assert world.message("Ready").startswith(
            f"Service {key.name} exists and does not belong to this cluster. Del"
        )
        found = world.server.read(Service, key)
        assert found is not None and found.controller_reference is None


@virtual_time
async def test_object_of_another_controller_is_not_adopted() -> None:
    world = await with_adoption_requested()
    owner = await world.client.create(ConfigMap(metadata=ObjectMeta(name="other", namespace=KEY.namespace)))
    uid = owner.metadata.uid
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": uid, "controller": True}
    taken = MergePatch({"metadata": {"ownerReferences": [other]}})
    await world.client.patch(ServiceAccount, NAMES.service_account, taken)
    async with world.operator():
        await world.until("it is refused", lambda: world.condition("Ready") == "False/NameConflict")
        await world.wait(60)
        assert "adopt" not in world.message("Ready")


@virtual_time
async def test_annotation_without_restored_objects_changes_nothing() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(2, instances=2)
        await world.annotate(adopt="true")
        await world.wait(60)
        version = world.server.resource_version
        await world.wait(300)
        assert world.server.resource_version == version
