"""The controller of clusters on the in-memory API server, its members a model, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from database_support.unit.cluster_harness import KEY, NAMES, ClusterHarness
from database_support.unit.group_harness import GroupHarness
from steersman.api.core_v1 import ConfigMap, Pod, Secret, Service
from steersman.api.discovery_v1 import EndpointSlice
from steersman.client import MergePatch
from steersman_databases.api import PostgreSQLCluster
from steersman_databases.cluster.executor import InstanceExecutor, Snapshot
from steersman_testing import matching, virtual_time


@pytest.mark.requirement("overview/idempotence")
@virtual_time
async def test_three_instances_become_ready_then_no_writes() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(3)
        assert world.statefulsets() == ["orders-0", "orders-1", "orders-2"]
        status = world.status
        assert (status.instances, status.ready_instances, status.primary, status.timeline) == (3, 3, "orders-0", 1)
        assert status.selector == "databases.steersman.dev/cluster=orders,app.kubernetes.io/instance=orders"
        assert [(m.name, m.role) for m in status.members] == [
            ("orders-0", "Primary"),
            ("orders-1", "Replica"),
            ("orders-2", "Replica"),
        ]
        await world.wait()
        assert [m.synchronous for m in world.status.members] == [None, True, True]
        version = world.server.resource_version
        await world.wait(600)
        assert world.server.resource_version == version, "ten quiet minutes change no object"


@virtual_time
async def test_single_instance_becomes_ready() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        assert world.pvc_names() == ["data-orders-0"]
        assert world.condition("Available") == "True/PrimaryAvailable"
        assert world.condition("Synchronous") == "", "nothing synchronous is declared"


@virtual_time
async def test_lost_synchronous_standby_is_reported() -> None:
    world = ClusterHarness()

    def synchronous() -> list[str]:
        return [m.name for m in world.status.members if m.synchronous]

    async with world.operator():
        await world.create_ready(3)
        await world.until("all are", lambda: synchronous() == ["orders-1", "orders-2"])
        await world.annotate(fenced_instances="orders-1")
        await world.until("one is not", lambda: synchronous() == ["orders-2"])
        await world.change(postgresql={"synchronous": {"mode": "Disabled"}})
        await world.until("none is", lambda: synchronous() == [])


@virtual_time
async def test_first_start_interrupted_is_retried() -> None:
    world = ClusterHarness()
    world.hosts.interrupt_promotion = True
    async with world.operator():
        await world.create_ready(3)
        assert world.pvc_names() == ["data-orders-0", "data-orders-1", "data-orders-2"]
        assert world.hosts.systems == 1


@virtual_time
async def test_replicas_start_after_the_primary() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create()
        await world.until("more than one", lambda: len(world.pods()) > 1)
        assert world.hosts.history == ["orders-0-0"], "the others had nobody to copy before"


@virtual_time
async def test_switchover_to_named_instance() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(3)
        await world.annotate(switchover="orders-1")
        await world.until(
            "told",
            lambda: world.status.last_switchover is not None and world.status.last_switchover.outcome == "Succeeded",
        )
        assert world.status.primary == "orders-1"
        assert (world.status.last_switchover.former, world.status.last_switchover.to) == ("orders-0", "orders-1")
        await world.wait()
        assert world.cluster is not None
        assert "databases.steersman.dev/switchover" not in world.cluster.metadata.annotations
        assert world.status.timeline == 2
        assert world.hosts.history == ["orders-0-0", "orders-1-0"], "once"


@virtual_time
async def test_switchover_to_any_instance() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(3)
        await world.annotate(switchover="any")
        await world.until("switched", lambda: world.status.primary in ("orders-1", "orders-2"))
        await world.wait()
        assert len(world.hosts.history) == 2, "once"


@virtual_time
async def test_impossible_switchover_is_rejected_with_reason() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        for wanted in ("orders-7", "somebody", "any"):
            await world.annotate(switchover=wanted)
            await world.until(
                "refused",
                lambda wanted=wanted: world.status.last_switchover and world.status.last_switchover.to == wanted,
            )
            assert world.status.last_switchover.outcome.startswith("rejected: ")
        await world.until("told", lambda: "SwitchoverRejected" in world.events())


@virtual_time
async def test_fenced_instance_leaves_and_returns() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(3)
        await world.annotate(fenced_instances="orders-0")
        await world.until("failed over", lambda: world.status.primary in ("orders-1", "orders-2"))
        pod = world.pods()["orders-0"]
        assert pod.spec.containers[0].command == ("/usr/local/bin/steersman-start", "fenced")
        assert "databases.steersman.dev/cluster" not in pod.metadata.labels, "no Service selects it"
        await world.until("told", lambda: any(m.fenced for m in world.status.members))
        await world.annotate(fenced_instances=None)
        await world.ready(3)
        assert not any(m.fenced for m in world.status.members)


@virtual_time
async def test_cluster_with_fenced_instance_is_not_ready() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(2, instances=2)
        await world.annotate(fenced_instances="orders-1")
        await world.until("fenced", lambda: any(m.fenced for m in world.status.members))
        await world.wait()
        assert (world.status.phase, world.condition("Ready")) == ("Degraded", "False/Fenced")
        assert world.message("Ready").startswith("orders-1 is fenced. Remove the annotation")
        assert world.condition("Available") == "True/PrimaryAvailable"
        await world.annotate(fenced_instances=None)
        await world.ready(2)


@virtual_time
async def test_fencing_all_leaves_no_endpoint() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(3)
        assert _addresses(world)
        await world.annotate(fenced_instances="*")
        await world.until("fenced", lambda: world.condition("Available") == "False/Fenced")
        await world.until("nobody", lambda: not _addresses(world))
        await world.annotate(fenced_instances=None)
        await world.ready(3)
        assert _addresses(world)


def _addresses(world: ClusterHarness) -> list[str]:
    found = world.server.read(EndpointSlice, NAMES.endpoint_slices("orders-rw")[0])
    assert found is not None
    return [a for e in found.endpoints or () for a in e.addresses]


@virtual_time
async def test_corrected_endpoint_slice_has_leader_term() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        held = {"transitions": "7", "acquireTime": "2026-11-22T00:00:00+00:00"}
        await world.client.patch(ConfigMap, NAMES.dcs_leader, MergePatch({"metadata": {"annotations": held}}))
        key = NAMES.endpoint_slices("orders-rw")[0]
        await world.wait()
        wrong = [{"addresses": ["10.9.9.9"]}]
        world.hosts.slow = True
        await world.client.patch(EndpointSlice, key, MergePatch({"endpoints": wrong}))
        await world.until("corrected", lambda: _addresses(world) != ["10.9.9.9"])
        found = world.server.read(EndpointSlice, key)
        assert found is not None
        assert found.metadata.annotations["databases.steersman.dev/leader-term"] == "7 2026-11-22T00:00:00+00:00"


@virtual_time
async def test_hibernation_stops_primary_last_starts_it_first() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(3)
        await world.annotate(switchover="orders-1")
        await world.until("switched", lambda: world.status.primary == "orders-1")
        await world.ready(3)
        await world.change(hibernated=True)
        seen: list[set[str]] = []

        def stopped() -> bool:
            seen.append(set(world.pods()))
            return not world.pods()

        await world.until("stopped", stopped)
        assert seen[-2] == {"orders-1"}, "the primary is the last"
        await world.until("told", lambda: world.status.phase == "Hibernated")
        assert world.condition("Available") == "False/Hibernated"
        assert world.condition("Synchronous") == "", "nobody is to look for a standby"
        assert not _addresses(world)
        await world.wait()
        version = world.server.resource_version
        await world.wait(300)
        assert world.server.resource_version == version
        await world.change(hibernated=False)
        await world.until("first", lambda: world.pods())
        assert set(world.pods()) == {"orders-1"}, "the former primary first"
        await world.ready(3)
        assert world.status.primary == "orders-1"


@pytest.mark.parametrize("made", [ClusterHarness, GroupHarness])
@virtual_time
async def test_paused_cluster_is_not_changed(made: Callable[[], ClusterHarness]) -> None:
    world = made()
    async with world.operator():
        await world.create_ready(1, instances=1)
        await world.annotate(paused="true")
        await world.until("paused", lambda: world.condition("Paused") == "True/ByAnnotation")
        assert world.status.phase == "Ready", "nobody looks, and it is as it was"
        applied = world.cluster.metadata.generation
        await world.change(instances=3)
        await world.client.delete(Service, NAMES.service("ro"))
        await world.client.delete(Pod, NAMES.pod(0))
        await world.until("that is seen", lambda: world.condition("Available").startswith("False"))
        await world.wait(120)
        assert world.status.observed_generation == applied, "who waits for three waits on"
        assert list(world.pods()) == ["orders-0"]
        assert world.server.read(Service, NAMES.service("ro")) is None
        await world.annotate(paused=None)
        await world.ready(3)
        assert world.condition("Paused") == ""
        assert world.server.read(Service, NAMES.service("ro")) is not None


@virtual_time
async def test_unsupported_version_is_reported() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create(instances=1, version="16")
        await world.until("told", lambda: world.condition("Ready") == "False/UnsupportedVersion")
        await world.client.delete(PostgreSQLCluster, KEY)
        await world.until("gone", lambda: world.cluster is None)


@virtual_time
async def test_stuck_pod_is_recreated_on_new_declaration() -> None:
    world = ClusterHarness()
    async with world.operator():
        world.unschedulable.add("nowhere")
        await world.create(instances=1, node_selector={"zone": "nowhere"})
        await world.until("told", lambda: world.condition("Ready") == "False/Unschedulable")
        await world.change(nodeSelector=None)
        await world.ready(1)


@virtual_time
async def test_rejected_pod_reports_reason_until_created() -> None:
    """Quotas and admission policies: the StatefulSet's controller tells it in an Event, and nobody else does."""
    world = ClusterHarness()
    async with world.operator():
        world.hosts.pod_rejection = 'pods "orders-0-0" is forbidden: exceeded quota: none, requested: pods=1'
        await world.create(instances=2)
        await world.until("told", lambda: world.condition("Ready") == "False/PodRejected")
        said = 'pod creation for orders-0 was rejected: pods "orders-0-0" is forbidden: exceeded quota: none'
        assert world.message("Ready").startswith(said)
        assert world.status.phase == "Pending"
        assert "PodRejected" in world.events()
        world.hosts.pod_rejection = ""
        await world.ready(2)
        world.hosts.pod_rejection = "no more of them"
        await world.client.delete(Pod, NAMES.pod(1))
        await world.until("told", lambda: world.condition("Ready") == "False/PodRejected")
        assert world.status.primary == "orders-0"
        world.hosts.pod_rejection = ""
        await world.ready(2)


@virtual_time
@pytest.mark.parametrize("status", [403, 503])
async def test_rejection_is_reported_without_events_permission(status: int) -> None:
    world = ClusterHarness()
    async with world.operator():
        world.hosts.pod_rejection = "it is not known by whom"
        world.server.fail_next(matching("GET", "/events"), status, times=1000)
        await world.create(instances=1)
        await world.wait(60)
        assert world.condition("Ready") == "False/Creating"


@pytest.mark.requirement("overview/failover")
@virtual_time
async def test_primary_crash_is_reported_as_failover() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(3)
        await world.client.delete(Pod, NAMES.pod(0))
        await world.until("nobody leads", lambda: world.condition("Available") == "False/FailingOver")
        assert world.status.phase == "Degraded"
        await world.until("failed over", lambda: world.status.primary in ("orders-1", "orders-2"))
        await world.ready(3)
        assert world.condition("Available") == "True/PrimaryAvailable"
        assert world.warnings("FailingOver") and world.warnings("Failover")
        found = world.server.read(EndpointSlice, NAMES.endpoint_slices("orders-rw")[0])
        primary = world.pods()[world.status.primary]
        assert found is not None
        assert [a for e in found.endpoints or () for a in e.addresses] == [primary.status.pod_ip]


@virtual_time
async def test_foreign_service_is_not_changed() -> None:
    world = ClusterHarness()
    key = NAMES.service("rw")
    world.server.load(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": key.name, "namespace": key.namespace},
            "spec": {"ports": [{"port": 1}]},
        }
    )
    async with world.operator():
        await world.create(instances=1)
        await world.until("told", lambda: world.condition("Ready") == "False/NameConflict")
        await world.wait()
        found = world.server.read(Service, key)
        assert found is not None
        assert [p.port for p in found.spec.ports] == [1]


@virtual_time
async def test_blocked_cluster_is_not_reconciled_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    look = InstanceExecutor.observe

    async def counted(self: InstanceExecutor) -> Snapshot:
        looks.append(world.runtime.clock.monotonic())
        return await look(self)

    monkeypatch.setattr(InstanceExecutor, "observe", counted)
    world = ClusterHarness()
    metadata = {"name": NAMES.service("rw").name, "namespace": KEY.namespace}
    taken = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 1}]}}
    world.server.load(taken)
    async with world.operator():
        await world.create(instances=1)
        await world.until("told", lambda: world.condition("Ready") == "False/NameConflict")
        await world.wait()
        looks.clear()
        await world.wait(300)
        assert 20 < len(looks) < 40
        await world.client.delete(Service, NAMES.service("rw"))
        await world.ready(1)


@virtual_time
async def test_data_of_database_with_same_name_is_kept() -> None:
    world = ClusterHarness()
    labels = {f"app.kubernetes.io/{k}": v for k, v in {"name": "postgresql", "instance": "orders"}.items()}
    labels |= {"app.kubernetes.io/managed-by": "steersman-databases", "app.kubernetes.io/component": "database"}
    volume = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    others: list[dict[str, Any]] = [
        {"kind": "PersistentVolumeClaim", "metadata": {"name": "data-orders-0"}, "spec": volume},
        {"kind": "Secret", "metadata": {"name": "orders-admin"}},
    ]
    for other in others:
        metadata = {**other["metadata"], "namespace": KEY.namespace, "labels": labels}
        world.server.load({**other, "apiVersion": "v1", "metadata": metadata})
    async with world.operator():
        await world.create(instances=1, deletion_policy="Delete")
        await world.until("told", lambda: world.condition("Ready") == "False/NameConflict")
        await world.client.delete(PostgreSQLCluster, KEY)
        await world.until("gone", lambda: world.cluster is None)
        await world.wait(30)
        assert world.pvc_names() == ["data-orders-0"]
        secret = world.server.read(Secret, NAMES.administrator_secret)
        assert secret is not None
        assert not secret.data
