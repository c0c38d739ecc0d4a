"""Read replicas on the API server in memory."""

from __future__ import annotations

import pytest

from database_support.unit.cluster_harness import KEY
from database_support.unit.read_replica_harness import ReadReplicaHarness
from steersman.api.apply import core, meta
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, Service
from steersman.api.policy_v1 import PodDisruptionBudget
from steersman.meta import Duration, ObjectKey, Quantity
from steersman_databases.api.cluster_common import VolumeSettings
from steersman_databases.api.postgresql_cluster import PostgreSQLSettings, SynchronousSettings
from steersman_databases.api.read_replicas import ReadReplicaSettings, ReadReplicaStabilization, ReadReplicaTarget
from steersman_databases.engines.naming import CLUSTER_LABEL, ROLE_LABEL
from steersman_testing import virtual_time

WINDOWS = ReadReplicaStabilization(scale_out=Duration("1m"), scale_in=Duration("5m"))
BY_CONNECTIONS = ReadReplicaSettings(min=1, max=3, target=ReadReplicaTarget(connections=10), stabilization=WINDOWS)
TWO = ReadReplicaSettings(min=2)


def names(world: ReadReplicaHarness) -> list[str]:
    return [name for name in world.statefulsets() if "read" in name]


@virtual_time
async def test_read_replica_is_added_after_its_slot() -> None:
    world = ReadReplicaHarness()
    async with world.operator():
        await world.create_ready(3, instances=3, wal_storage=VolumeSettings(), read_replicas=TWO)
        await world.until("added", lambda: world.read_replicas.ready == 2)
        assert names(world) == ["orders-read0", "orders-read1"]
        assert world.slots() == {"steersman_read_0", "steersman_read_1"}
        pod = world.read_replica_pods()[0]
        service = world.server.read(Service, ObjectKey(KEY.namespace, "orders-ro"))
        budget = world.server.read(PodDisruptionBudget, KEY)
        assert service is not None and budget is not None
        assert service.spec.selector.items() <= pod.metadata.labels.items()
        assert budget.spec.selector is not None
        assert not budget.spec.selector.match_labels.items() <= pod.metadata.labels.items()
        assert budget.spec.selector.match_labels.items() <= world.pods()["orders-0"].metadata.labels.items()
        pvc = world.server.read(PersistentVolumeClaim, ObjectKey(KEY.namespace, "data-orders-read0"))
        assert pvc is not None and Quantity(str(pvc.spec.resources.requests["storage"])) == Quantity("2Gi")
        assert world.events().count("ReadReplicaAdded") == 2
        assert (world.read_replicas.desired, world.read_replicas.reason) == (2, "Fixed")
        # Instances are what they are without read replicas.
        assert (world.status.instances, world.status.ready_instances) == (3, 3)
        assert [member.name for member in world.status.members] == ["orders-0", "orders-1", "orders-2"]
        assert world.status.selector == f"{CLUSTER_LABEL}=orders,app.kubernetes.io/instance=orders"
        assert world.condition("Synchronous") == "True/InSync"


@virtual_time
async def test_read_replica_is_copied_alone() -> None:
    world = ReadReplicaHarness(copying={0})
    async with world.operator():
        await world.create(instances=1, read_replicas=TWO)
        await world.until("added", lambda: names(world) == ["orders-read0"])
        await world.wait(600)
        assert names(world) == ["orders-read0"], "one is being copied"
        world.copying.clear()
        await world.until("added", lambda: len(names(world)) == 2)


@pytest.mark.requirement("overview/level-5-scaling")
@virtual_time
async def test_number_follows_load_after_the_windows() -> None:
    world = ReadReplicaHarness(connections=8)
    async with world.operator():
        await world.create(instances=1, read_replicas=BY_CONNECTIONS)
        await world.until("added", lambda: world.read_replicas.ready == 1)
        world.connections = 20
        await world.until("noticed", lambda: world.read_replicas.reason == "Stabilizing")
        await world.wait(30)
        assert names(world) == ["orders-read0"]
        await world.until("scaled out", lambda: world.read_replicas.ready == 2, 120)
        assert world.read_replicas.last_scale_time is not None
        await world.until("scaled out", lambda: world.read_replicas.ready == 3, 180)
        await world.until("at its maximum", lambda: world.read_replicas.reason == "AtMaximum")
        world.connections = None
        await world.until("unknown", lambda: world.read_replicas.reason == "LoadUnknown")
        world.connections = 0
        await world.until("scaled in", lambda: len(names(world)) == 2, 400)
        await world.until("its volume is gone", lambda: "data-orders-read2" not in world.pvc_names())
        await world.until("its slot is gone", lambda: world.slots() == {"steersman_read_0", "steersman_read_1"})
        assert world.events().count("ReadReplicaRemoved") == 1
        await world.until("scaled in", lambda: len(names(world)) == 1, 400)
        await world.until("at its minimum", lambda: world.read_replicas.reason == "AtMinimum")
        spec = world.cluster.spec.read_replicas
        assert spec == BY_CONNECTIONS, "the operator writes no spec"


@virtual_time
async def test_windows_survive_a_restart_of_the_operator() -> None:
    world = ReadReplicaHarness(connections=20)
    async with world.operator():
        await world.create(instances=1, read_replicas=BY_CONNECTIONS)
        await world.until("noticed", lambda: world.read_replicas.scale_out_since is not None)
        since = world.read_replicas.scale_out_since
    await world.wait(40)
    async with world.operator():
        await world.wait(5)
        assert world.read_replicas.scale_out_since == since
        await world.until("scaled out", lambda: world.read_replicas.desired == 2, 30)


@virtual_time
async def test_changed_pod_recreates_one_at_a_time() -> None:
    world = ReadReplicaHarness()
    async with world.operator():
        await world.create(instances=1, read_replicas=TWO)
        await world.until("added", lambda: world.read_replicas.ready == 2)
        before = {number: pod.metadata.uid for number, pod in world.read_replica_pods().items()}
        world.copying = {0, 1}
        await world.change(resources={"requests": {"cpu": "200m"}})

        def recreated() -> set[int]:
            return {n for n, pod in world.read_replica_pods().items() if pod.metadata.uid != before[n]}

        # Both are unready by now, so neither is worth waiting for.
        world.copying = set()
        await world.until("recreated", lambda: len(recreated()) == 1)
        world.copying = set(recreated())
        await world.wait(60)
        assert len(recreated()) == 1, "the first has not caught up"
        world.copying = set()
        await world.until("recreated", lambda: len(recreated()) == 2)


@virtual_time
async def test_parameters_reach_read_replicas_without_recreation() -> None:
    world = ReadReplicaHarness()
    key = ObjectKey(KEY.namespace, "orders-read-replicas")

    def declaration() -> str:
        found = world.server.read(ConfigMap, key)
        return "" if found is None else found.data["declaration.json"]

    async with world.operator():
        await world.create(instances=1, read_replicas=TWO)
        await world.until("added", lambda: world.read_replicas.ready == 2)
        before = {pod.metadata.uid for pod in world.read_replica_pods().values()}
        await world.set_parameters(work_mem="5MB")
        await world.until("declared", lambda: '"work_mem": "5MB"' in declaration())
        assert '"maxLagSeconds": 30.0' in declaration()
        assert '"host": "orders-rw.default.svc.cluster.local"' in declaration()
        await world.wait(60)
        assert {pod.metadata.uid for pod in world.read_replica_pods().values()} == before


@virtual_time
async def test_removed_field_removes_all() -> None:
    world = ReadReplicaHarness()
    async with world.operator():
        await world.create(instances=1, read_replicas=TWO)
        await world.until("added", lambda: world.read_replicas.ready == 2)
        await world.change(readReplicas=None)
        await world.until("removed", lambda: not names(world) and not world.read_replica_pods())
        await world.until("no volume", lambda: not [n for n in world.pvc_names() if "read" in n])
        await world.until("no slot", lambda: not world.slots())
        await world.until("no status", lambda: world.status.read_replicas is None)
        assert world.server.read(ConfigMap, ObjectKey(KEY.namespace, "orders-read-replicas")) is None
        await world.ready(1)


@virtual_time
async def test_hibernated_cluster_runs_none_and_keeps_volumes() -> None:
    world = ReadReplicaHarness()
    async with world.operator():
        await world.create(instances=1, read_replicas=TWO)
        await world.until("added", lambda: world.read_replicas.ready == 2)
        await world.change(hibernated=True)
        await world.until("stopped", lambda: not world.read_replica_pods())
        await world.until("reported", lambda: world.read_replicas.reason == "Hibernated")
        assert "data-orders-read1" in world.pvc_names()
        await world.change(hibernated=False)
        await world.until("back", lambda: world.read_replicas.ready == 2)


@virtual_time
async def test_deleted_cluster_removes_read_replicas_and_keeps_instances_data() -> None:
    world = ReadReplicaHarness()
    async with world.operator():
        await world.create(instances=1, read_replicas=TWO)
        await world.until("added", lambda: world.read_replicas.ready == 2)
        await world.client.delete(world.kind, KEY)
        await world.until("deleted", lambda: world.cluster is None)
        assert world.pvc_names() == ["data-orders-0"]
        assert world.statefulsets() == []


@virtual_time
async def test_volume_on_a_lost_node_is_replaced() -> None:
    world = ReadReplicaHarness()
    key = ObjectKey(KEY.namespace, "data-orders-read0")

    def volume() -> str:
        found = world.server.read(PersistentVolumeClaim, key)
        return "" if found is None else found.metadata.uid

    async with world.operator():
        await world.create(instances=1, read_replicas=ReadReplicaSettings())
        await world.until("added", lambda: world.read_replicas.ready == 1)
        lost = volume()
        world.stranded_volumes.add(lost)
        await world.client.delete(Pod, world.read_replica_pods()[0].key)
        await world.wait(600)
        assert volume() == lost, "the node may come back"
        await world.until("replaced", lambda: volume() not in ("", lost), 600)
        await world.until("it serves", lambda: world.read_replicas.ready == 1)
        assert len(world.warnings("InstanceReplaced")) == 1


@virtual_time
async def test_foreign_volume_of_that_name_is_a_conflict() -> None:
    world = ReadReplicaHarness()
    foreign = core.PersistentVolumeClaim(
        metadata=meta.ObjectMeta(name="data-orders-read0", namespace=KEY.namespace),
        spec=core.PersistentVolumeClaimSpec(
            access_modes=["ReadWriteOnce"],
            resources=core.VolumeResourceRequirements(requests={"storage": "1Gi"}),
        ),
    )
    await world.client.apply(foreign)
    async with world.operator():
        await world.create(instances=1, read_replicas=ReadReplicaSettings())
        await world.until("reported", lambda: "data-orders-read0 exists" in world.message("Ready"))
        assert names(world) == []


@virtual_time
async def test_pods_are_no_members_to_patroni() -> None:
    world = ReadReplicaHarness()
    async with world.operator():
        await world.create(
            instances=2,
            read_replicas=TWO,
            postgresql=PostgreSQLSettings(synchronous=SynchronousSettings(mode="Priority")),
        )
        await world.until("added", lambda: world.read_replicas.ready == 2)
        labels = world.read_replica_pods()[0].metadata.labels
        assert (labels[CLUSTER_LABEL], labels[ROLE_LABEL]) == ("orders", "replica")
        assert labels["app.kubernetes.io/instance"] != "orders"
