"""The controller of clusters on the in-memory API server, its members a model, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from database_support.cluster_world import KEY, NAMES, ClusterWorld
from database_support.group_world import GroupWorld
from steersman.api.core_v1 import ConfigMap, Pod, Secret, Service
from steersman.api.discovery_v1 import EndpointSlice
from steersman.client import MergePatch
from steersman_databases.api import PostgreSQLCluster
from steersman_databases.controllers.instances import Instances, Seen
from steersman_testing import matching, virtual_time


@virtual_time
async def test_three_instances_become_ready_and_then_nothing_is_written() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        assert world.statefulsets() == ["orders-0", "orders-1", "orders-2"]
        status = world.status
        assert (status.instances, status.ready_instances, status.primary, status.timeline) == (3, 3, "orders-0", 1)
        assert status.selector == "databases.steersman.dev/member-of=orders"
        assert [(m.name, m.role) for m in status.members] == [
            ("orders-0", "Primary"),
            ("orders-1", "Replica"),
            ("orders-2", "Replica"),
        ]
        await world.rest()
        assert [m.synchronous for m in world.status.members] == [None, True, True]
        version = world.server.resource_version
        await world.rest(600)
        assert world.server.resource_version == version, "ten quiet minutes change no object"


@virtual_time
async def test_one_instance_becomes_ready() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        assert world.claims() == ["data-orders-0"]
        assert world.condition("Available") == "True/PrimaryAccepts"
        assert world.condition("Synchronous") == "", "nothing synchronous is declared"


@virtual_time
async def test_who_is_synchronous_no_more_is_shown_so() -> None:
    world = ClusterWorld()

    def synchronous() -> list[str]:
        return [m.name for m in world.status.members if m.synchronous]

    async with world.operator():
        await world.create()
        await world.ready(3)
        await world.until("all are", lambda: synchronous() == ["orders-1", "orders-2"])
        await world.annotate(fenced="orders-1")
        await world.until("one is not", lambda: synchronous() == ["orders-2"])
        await world.change(postgresql={"synchronous": {"mode": "Off"}})
        await world.until("none is", lambda: synchronous() == [])


@virtual_time
async def test_a_first_start_that_is_cut_off_begins_anew() -> None:
    world = ClusterWorld()
    world.hosts.cut = True
    async with world.operator():
        await world.create()
        await world.ready(3)
        assert world.claims() == ["data-orders-0", "data-orders-1", "data-orders-2"]
        assert world.hosts.systems == 1


@virtual_time
async def test_others_start_only_once_there_is_a_primary() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create()
        await world.until("more than one", lambda: len(world.pods()) > 1)
        assert world.hosts.history == ["orders-0-0"], "the others had nobody to copy before"


@virtual_time
async def test_switchover_to_a_named_instance() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        await world.annotate(switchover="orders-1")
        await world.until(
            "told",
            lambda: world.status.last_switchover is not None and world.status.last_switchover.outcome == "Succeeded",
        )
        assert world.status.primary == "orders-1"
        assert (world.status.last_switchover.former, world.status.last_switchover.to) == ("orders-0", "orders-1")
        await world.rest()
        assert world.cluster is not None
        assert "databases.steersman.dev/switchover" not in world.cluster.metadata.annotations
        assert world.status.timeline == 2
        assert world.hosts.history == ["orders-0-0", "orders-1-0"], "once"


@virtual_time
async def test_switchover_to_any() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        await world.annotate(switchover="any")
        await world.until("switched", lambda: world.status.primary in ("orders-1", "orders-2"))
        await world.rest()
        assert len(world.hosts.history) == 2, "once"


@virtual_time
async def test_an_impossible_switchover_is_refused_with_its_reason() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        for wanted in ("orders-7", "somebody", "any"):
            await world.annotate(switchover=wanted)
            await world.until(
                "refused",
                lambda wanted=wanted: world.status.last_switchover and world.status.last_switchover.to == wanted,
            )
            assert world.status.last_switchover.outcome.startswith("refused: ")
        await world.until("told", lambda: "SwitchoverRefused" in world.events())


@virtual_time
async def test_fencing_takes_an_instance_out_and_back() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        await world.annotate(fenced="orders-0")
        await world.until("failed over", lambda: world.status.primary in ("orders-1", "orders-2"))
        pod = world.pods()["orders-0"]
        assert pod.spec.containers[0].command == ("/usr/local/bin/steersman-start", "fenced")
        assert "databases.steersman.dev/member-of" not in pod.metadata.labels, "no Service selects it"
        await world.until("told", lambda: any(m.fenced for m in world.status.members))
        await world.annotate(fenced=None)
        await world.ready(3)
        assert not any(m.fenced for m in world.status.members)


@virtual_time
async def test_a_cluster_with_a_fenced_instance_is_not_ready() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=2)
        await world.ready(2)
        await world.annotate(fenced="orders-1")
        await world.until("fenced", lambda: any(m.fenced for m in world.status.members))
        await world.rest()
        assert (world.status.phase, world.condition("Ready")) == ("Degraded", "False/Fenced")
        assert world.message("Ready").startswith("orders-1 is fenced: remove the annotation")
        assert world.condition("Available") == "True/PrimaryAccepts"
        await world.annotate(fenced=None)
        await world.ready(2)


@virtual_time
async def test_fencing_all_leaves_no_endpoint() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        assert _addresses(world)
        await world.annotate(fenced="*")
        await world.until("fenced", lambda: world.condition("Available") == "False/Fenced")
        await world.until("nobody", lambda: not _addresses(world))
        await world.annotate(fenced=None)
        await world.ready(3)
        assert _addresses(world)


def _addresses(world: ClusterWorld) -> list[str]:
    found = world.server.read(EndpointSlice, NAMES.slices("orders-rw")[0])
    assert found is not None
    return [a for e in found.endpoints or () for a in e.addresses]


@virtual_time
async def test_a_slice_that_the_operator_corrects_tells_whose_leadership_it_is() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        held = {"transitions": "7", "acquireTime": "2026-11-22T00:00:00+00:00"}
        await world.client.patch(ConfigMap, NAMES.store_leader, MergePatch({"metadata": {"annotations": held}}))
        key = NAMES.slices("orders-rw")[0]
        await world.rest()
        wrong = [{"addresses": ["10.9.9.9"]}]
        world.hosts.slow = True
        await world.client.patch(EndpointSlice, key, MergePatch({"endpoints": wrong}))
        await world.until("corrected", lambda: _addresses(world) != ["10.9.9.9"])
        found = world.server.read(EndpointSlice, key)
        assert found is not None
        assert found.metadata.annotations["databases.steersman.dev/leadership"] == "7 2026-11-22T00:00:00+00:00"


@virtual_time
async def test_hibernation_stops_the_primary_last_and_wakes_it_first() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
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
        await world.rest()
        version = world.server.resource_version
        await world.rest(300)
        assert world.server.resource_version == version
        await world.change(hibernated=False)
        await world.until("first", lambda: world.pods())
        assert set(world.pods()) == {"orders-1"}, "the former primary first"
        await world.ready(3)
        assert world.status.primary == "orders-1"


@pytest.mark.parametrize("made", [ClusterWorld, GroupWorld])
@virtual_time
async def test_paused_changes_nothing(made: Callable[[], ClusterWorld]) -> None:
    world = made()
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        await world.annotate(paused="true")
        await world.until("paused", lambda: world.condition("Paused") == "True/ByAnnotation")
        assert world.status.phase == "Ready", "nobody looks, and it is as it was"
        applied = world.cluster.metadata.generation
        await world.change(instances=3)
        await world.client.delete(Service, NAMES.service("ro"))
        await world.client.delete(Pod, NAMES.pod(0))
        await world.until("that is seen", lambda: world.condition("Available").startswith("False"))
        await world.rest(120)
        assert world.status.observed_generation == applied, "who waits for three waits on"
        assert list(world.pods()) == ["orders-0"]
        assert world.server.read(Service, NAMES.service("ro")) is None
        await world.annotate(paused=None)
        await world.ready(3)
        assert world.condition("Paused") == ""
        assert world.server.read(Service, NAMES.service("ro")) is not None


@virtual_time
async def test_an_unsupported_version_is_told() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1, version="16")
        await world.until("told", lambda: world.condition("Ready") == "False/UnsupportedVersion")
        await world.client.delete(PostgreSQLCluster, KEY)
        await world.until("gone", lambda: world.cluster is None)


@virtual_time
async def test_a_stuck_pod_is_renewed_when_something_else_is_declared() -> None:
    world = ClusterWorld()
    async with world.operator():
        world.unschedulable.add("nowhere")
        await world.create(instances=1, node_selector={"zone": "nowhere"})
        await world.until("told", lambda: world.condition("Ready") == "False/Unschedulable")
        await world.change(nodeSelector=None)
        await world.ready(1)


@virtual_time
async def test_a_pod_that_is_refused_says_why_until_it_is_taken() -> None:
    """Quotas and admission policies: the StatefulSet's controller tells it in an Event, and nobody else does."""
    world = ClusterWorld()
    async with world.operator():
        world.hosts.refused = 'pods "orders-0-0" is forbidden: exceeded quota: none, requested: pods=1'
        await world.create(instances=2)
        await world.until("told", lambda: world.condition("Ready") == "False/InstanceRefused")
        said = 'the API server takes no pod of orders-0: pods "orders-0-0" is forbidden: exceeded quota: none'
        assert world.message("Ready").startswith(said)
        assert world.status.phase == "Pending"
        assert "InstanceRefused" in world.events()
        world.hosts.refused = ""
        await world.ready(2)
        world.hosts.refused = "no more of them"
        await world.client.delete(Pod, NAMES.pod(1))
        await world.until("told", lambda: world.condition("Ready") == "False/InstanceRefused")
        assert world.status.primary == "orders-0"
        world.hosts.refused = ""
        await world.ready(2)


@virtual_time
@pytest.mark.parametrize("status", [403, 503])
async def test_what_is_known_is_told_though_nobody_may_read_events(status: int) -> None:
    world = ClusterWorld()
    async with world.operator():
        world.hosts.refused = "it is not known by whom"
        world.server.fail_next(matching("GET", "/events"), status, times=1000)
        await world.create(instances=1)
        await world.rest(60)
        assert world.condition("Ready") == "False/Creating"


@virtual_time
async def test_a_crash_of_the_primary_is_a_failover() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        await world.client.delete(Pod, NAMES.pod(0))
        await world.until("nobody leads", lambda: world.condition("Available") == "False/FailingOver")
        assert world.status.phase == "Degraded"
        await world.until("failed over", lambda: world.status.primary in ("orders-1", "orders-2"))
        await world.ready(3)
        assert world.condition("Available") == "True/PrimaryAccepts"
        assert world.warnings("FailingOver") and world.warnings("Failover")
        found = world.server.read(EndpointSlice, NAMES.slices("orders-rw")[0])
        primary = world.pods()[world.status.primary]
        assert found is not None
        assert [a for e in found.endpoints or () for a in e.addresses] == [primary.status.pod_ip]


@virtual_time
async def test_a_service_of_somebody_else_is_left_alone() -> None:
    world = ClusterWorld()
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
        await world.until("told", lambda: world.condition("Ready") == "False/NameTaken")
        await world.rest()
        found = world.server.read(Service, key)
        assert found is not None
        assert [p.port for p in found.spec.ports] == [1]


@virtual_time
async def test_a_blocked_cluster_is_looked_at_no_more_often_than_one_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    look = Instances.look

    async def counted(self: Instances) -> Seen:
        looks.append(world.runtime.clock.monotonic())
        return await look(self)

    monkeypatch.setattr(Instances, "look", counted)
    world = ClusterWorld()
    metadata = {"name": NAMES.service("rw").name, "namespace": KEY.namespace}
    taken = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 1}]}}
    world.server.load(taken)
    async with world.operator():
        await world.create(instances=1)
        await world.until("told", lambda: world.condition("Ready") == "False/NameTaken")
        await world.rest()
        looks.clear()
        await world.rest(300)
        assert 20 < len(looks) < 40
        await world.client.delete(Service, NAMES.service("rw"))
        await world.ready(1)


@virtual_time
async def test_data_of_a_database_of_the_same_name_are_left_alone() -> None:
    world = ClusterWorld()
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
        await world.until("told", lambda: world.condition("Ready") == "False/NameTaken")
        await world.client.delete(PostgreSQLCluster, KEY)
        await world.until("gone", lambda: world.cluster is None)
        await world.rest(30)
        assert world.claims() == ["data-orders-0"]
        secret = world.server.read(Secret, NAMES.administrator_secret)
        assert secret is not None
        assert not secret.data
