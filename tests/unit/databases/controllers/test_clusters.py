"""The controller of clusters on the in-memory API server, its members a model, in virtual time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cluster_world import KEY, NAMES, ClusterWorld
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount
from steersman.api.discovery_v1 import EndpointSlice
from steersman.api.networking_v1 import NetworkPolicy
from steersman.api.policy_v1 import PodDisruptionBudget
from steersman.api.rbac_v1 import Role, RoleBinding
from steersman.client import MergePatch
from steersman.meta import ObjectKey, Quantity
from steersman.testing import virtual_time
from steersman_databases.api import PostgreSQLCluster
from steersman_databases.api.cluster_parts import Storage
from steersman_databases.api.postgresql_cluster import Bootstrap, InitDb
from steersman_databases.engines import versions
from steersman_databases.engines.postgresql import pod


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
async def test_others_start_only_once_there_is_a_primary() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create()
        await world.until("more than one", lambda: len(world.pods()) > 1)
        assert world.hosts.history == ["orders-0-0"], "the others had nobody to copy before"


@virtual_time
async def test_scales_out_and_in() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=2)
        await world.ready(2)
        before = world.uids()
        await world.change(instances=4)
        await world.ready(4)
        assert {name: world.uids()[name] for name in before} == before, "nobody restarts"
        await world.change(instances=2)
        await world.ready(2)
        assert world.statefulsets() == ["orders-0", "orders-1"]
        assert world.claims() == [f"data-orders-{n}" for n in range(4)], "retained"
        await world.change(instances=3)
        await world.ready(3)
        assert "orders-4" in world.pods(), "retained claims are not used again"


@virtual_time
async def test_claims_of_removed_instances_go_where_data_are_deleted() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=3, deletion_policy="Delete")
        await world.ready(3)
        await world.change(instances=1)
        await world.ready(1)
        await world.until("claims gone", lambda: world.claims() == ["data-orders-0"])


@virtual_time
async def test_the_primary_hands_over_before_it_is_scaled_in() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=3)
        await world.ready(3)
        await world.annotate(switchover="orders-2")
        await world.until("switched", lambda: world.status.primary == "orders-2")
        await world.change(instances=1)
        await world.ready(1)
        assert world.status.primary == "orders-2", "the primary is the last to go, whatever its number"


@virtual_time
async def test_a_changed_pod_rolls_replicas_first_and_one_at_a_time() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        before, order = world.uids(), list[str]()

        def renewed() -> bool:
            now = world.uids()
            assert len(now) >= 2, "two at once"
            order.extend(n for n in now if n not in order and now[n] != before[n])
            return len(order) == 3

        await world.change(resources={"requests": {"cpu": "50m"}})
        await world.until("all renewed", renewed)
        await world.ready(3)
        assert order[-1] == "orders-0", "the former primary is the last"
        assert world.status.primary != "orders-0"
        assert "Failover" not in world.events(), "it was handed over"


@virtual_time
async def test_a_lone_instance_is_restarted_in_place() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        before = world.uids()
        await world.change(shmSize="512Mi")
        await world.until("renewed", lambda: world.uids().get("orders-0", before["orders-0"]) != before["orders-0"])
        await world.ready(1)


@virtual_time
async def test_a_requested_restart_renews_all_once() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        before = world.uids()
        await world.annotate(restart="2026-11-22T00:00:00Z")
        await world.until("all renewed", lambda: all(world.uids().get(n) not in (None, u) for n, u in before.items()))
        await world.ready(3)
        after = world.uids()
        await world.rest(120)
        assert world.uids() == after


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


@virtual_time
async def test_paused_changes_nothing() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        await world.annotate(paused="true")
        await world.until("paused", lambda: world.condition("Paused") == "True/ByAnnotation")
        await world.change(instances=3)
        await world.client.delete(Service, NAMES.service("ro"))
        await world.rest(120)
        assert list(world.pods()) == ["orders-0"]
        assert world.server.read(Service, NAMES.service("ro")) is None
        await world.annotate(paused=None)
        await world.ready(3)
        assert world.condition("Paused") == ""
        assert world.server.read(Service, NAMES.service("ro")) is not None


@virtual_time
async def test_a_replica_whose_volume_is_gone_is_replaced() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        await world.client.delete(PersistentVolumeClaim, NAMES.data_claim(2))
        await world.until("replaced", lambda: "orders-3" in world.pods())
        await world.ready(3)
        assert world.statefulsets() == ["orders-0", "orders-1", "orders-3"]
        assert "InstanceReplaced" in world.events()


@virtual_time
async def test_the_last_instance_is_never_replaced() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        for volume in world.hosts.volumes.values():
            volume.broken = True
        await world.rest(1200)
        assert world.statefulsets() == ["orders-0"]
        assert world.claims() == ["data-orders-0"]


@virtual_time
async def test_a_replica_is_not_replaced_where_that_is_on_request() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(replace_failed_instances="OnRequest")
        await world.ready(3)
        await world.client.delete(PersistentVolumeClaim, NAMES.data_claim(2))
        await world.until("told", lambda: world.condition("StorageAsDeclared") == "False/VolumeLost")
        await world.rest(300)
        assert "orders-3" not in world.pods()


@virtual_time
async def test_another_template_of_the_operator_restarts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
    before = world.uids()
    monkeypatch.setitem(pod._FIELDS, "ANOTHER", "metadata.name")  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setitem(versions.SUPPORTED_VERSIONS["postgresql"], "17", "steersman.dev/postgresql:17-newer")  # type: ignore[arg-type]
    async with world.operator():
        await world.until("told", lambda: world.condition("Upgraded") == "False/MinorAvailable")
        assert world.status.available_image == "steersman.dev/postgresql:17-newer"
        await world.rest(120)
        assert world.uids() == before
        await world.change(minorUpgrades="Automatic")
        await world.until("renewed", lambda: world.condition("Upgraded") == "True/Current")
        await world.ready(3)
        images = {p.spec.containers[0].image for p in world.pods().values()}
        assert images == {"steersman.dev/postgresql:17-newer"}


@virtual_time
async def test_a_volume_grows_and_says_what_it_waits_for() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1, storage=Storage(size=Quantity("1Gi")))
        await world.ready(1)
        assert world.condition("StorageAsDeclared") == "True/Sized"
        await world.change(storage={"size": "2Gi"})

        def requested() -> str:
            claim = world.server.read(PersistentVolumeClaim, NAMES.data_claim(0))
            assert claim is not None
            return str(claim.spec.resources.requests["storage"])

        await world.until("requested", lambda: requested() == "2Gi")
        body = {"status": {"capacity": {"storage": "1Gi"}}}
        await world.client.patch(PersistentVolumeClaim, NAMES.data_claim(0), MergePatch(body), subresource="status")
        await world.until("told", lambda: world.condition("StorageAsDeclared") == "False/Resizing")
        body = {"status": {"conditions": [{"type": "FileSystemResizePending", "status": "True"}]}}
        await world.client.patch(PersistentVolumeClaim, NAMES.data_claim(0), MergePatch(body), subresource="status")
        await world.until("told", lambda: world.condition("StorageAsDeclared") == "False/FileSystemResizePending")


@virtual_time
async def test_what_is_deleted_or_changed_behind_our_back_comes_back_within_thirty_seconds() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(bootstrap=Bootstrap(initdb=InitDb()))
        await world.ready(3)
        uids = world.uids()
        rw, leads = NAMES.service("rw"), NAMES.slices("orders-rw")[0]
        for kind, key in (
            (Service, rw),
            (EndpointSlice, leads),
            (Role, KEY),
            (RoleBinding, KEY),
            (ServiceAccount, KEY),
            (PodDisruptionBudget, KEY),
            (NetworkPolicy, KEY),
            (ConfigMap, NAMES.local_configuration),
            (Secret, NAMES.application_secret),
            (Secret, NAMES.server_certificate),
        ):
            await world.client.delete(kind, key)
            await world.until(f"{kind.__name__} is back", lambda k=kind, n=key: world.server.read(k, n), 30)
        await world.until("it leads to the primary", lambda: _addresses(world), 30)
        body = {"spec": {"ports": [{"name": "postgresql", "port": 1, "protocol": "TCP", "targetPort": 5432}]}}
        await world.client.patch(Service, rw, MergePatch(body))

        def ports() -> list[int]:
            service = world.server.read(Service, rw)
            return [p.port for p in service.spec.ports] if service else []

        await world.until("the port is back", lambda: ports() == [5432], 30)
        await world.client.patch(
            ConfigMap, NAMES.store_config, MergePatch({"metadata": {"annotations": {"config": "{}"}}})
        )
        await world.until("the settings are back", lambda: _settings(world).get("ttl") == 20, 30)
        assert world.uids() == uids, "none of it restarts an instance"


def _settings(world: ClusterWorld) -> dict[str, Any]:
    found = world.server.read(ConfigMap, NAMES.store_config)
    return json.loads(found.metadata.annotations["config"]) if found else {}


@virtual_time
async def test_a_statefulset_that_is_deleted_comes_back_on_the_same_claim() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        await world.client.delete(StatefulSet, NAMES.statefulset(1))
        await world.until("back", lambda: "orders-1" in world.statefulsets())
        await world.ready(3)
        assert world.claims() == ["data-orders-0", "data-orders-1", "data-orders-2"]


@virtual_time
async def test_parameters_are_written_and_restarts_are_done_replicas_first() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        uids = world.uids()
        await world.change(postgresql={"parameters": {"work_mem": "8MB"}})
        await world.until("written", lambda: _parameters(world).get("work_mem") == "8MB")
        await world.ready(3)
        assert world.hosts.history == ["orders-0-0"], "a reload disturbs nobody"
        await world.change(postgresql={"parameters": {"work_mem": "8MB", "max_connections": "200"}})
        await world.until("pending", lambda: world.condition("ParametersApplied") == "False/RestartPending")
        await world.until("applied", lambda: world.condition("ParametersApplied") == "True/Applied")
        await world.ready(3)
        assert len(world.hosts.history) == 2, "the former primary restarts as a replica"
        await world.change(postgresql={"parameters": {"max_connections": "100"}})
        await world.until("pending", lambda: world.condition("ParametersApplied") == "False/Lowering")
        await world.until("applied", lambda: world.condition("ParametersApplied") == "True/Applied")
        await world.ready(3)
        assert len(world.hosts.history) == 2, "it is lowered on the primary first, in place"
        assert world.uids() == uids, "servers restart, not pods"


def _parameters(world: ClusterWorld) -> dict[str, str]:
    return _settings(world).get("postgresql", {}).get("parameters", {})


@virtual_time
async def test_no_budget_for_one_instance() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        assert world.server.read(PodDisruptionBudget, KEY) is None
        await world.change(instances=2)
        await world.ready(2)
        assert world.server.read(PodDisruptionBudget, KEY) is not None
        await world.change(podDisruptionBudget={"enabled": False}, networkPolicy="None")
        await world.until("gone", lambda: world.server.read(PodDisruptionBudget, KEY) is None)
        await world.until("gone", lambda: world.server.read(NetworkPolicy, KEY) is None)


@virtual_time
async def test_services_as_declared() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        additional = [{"name": "orders-public", "role": "rw", "type": "LoadBalancer", "annotations": {"a": "b"}}]
        await world.change(services={"ro": {"enabled": False}, "additional": additional})
        public = ObjectKey(KEY.namespace, "orders-public")
        await world.until("made", lambda: world.server.read(Service, public))
        await world.until("gone", lambda: world.server.read(Service, NAMES.service("ro")) is None)
        found = world.server.read(Service, public)
        assert found is not None
        assert (found.spec.type, found.metadata.annotations["a"], dict(found.spec.selector)) == (
            "LoadBalancer",
            "b",
            {},
        )
        assert world.server.read(EndpointSlice, NAMES.slices("orders-public")[0]) is not None
        await world.change(services=None)
        await world.until("gone", lambda: world.server.read(Service, public) is None)
        await world.until("gone", lambda: world.server.read(EndpointSlice, NAMES.slices("orders-public")[0]) is None)
        await world.until("back", lambda: world.server.read(Service, NAMES.service("ro")))


@virtual_time
async def test_deleted_with_its_data() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(deletion_policy="Delete")
        await world.ready(3)
        await world.client.delete(PostgreSQLCluster, KEY)
        await world.until("gone", lambda: world.cluster is None)
        await world.rest(30)
        assert (world.claims(), world.pods()) == ([], {})
        assert not list(world.server.read_all(Secret))
        assert not list(world.server.read_all(ConfigMap))
        assert not list(world.server.read_all(Service))


@virtual_time
async def test_retained_data_are_adopted_by_the_next_of_the_name() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(bootstrap=Bootstrap(initdb=InitDb()))
        await world.ready(3)
        await world.annotate(switchover="orders-1")
        await world.until("switched", lambda: world.status.primary == "orders-1")
        await world.ready(3)
        password = world.secret("orders-app")
        await world.client.delete(PostgreSQLCluster, KEY)
        await world.until("gone", lambda: world.cluster is None)
        await world.rest(30)
        assert world.pods() == {}
        assert "DataRetained" in world.events()
        await world.create(bootstrap=Bootstrap(initdb=InitDb()))
        await world.ready(3)
        assert world.status.primary == "orders-1", "who led last has all that was committed"
        assert world.secret("orders-app") == password
        assert world.hosts.systems == 1, "nothing was made anew"


@virtual_time
async def test_after_all_claims_are_gone_a_new_cluster_is_made() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=2)
        await world.ready(2)
        for number in (0, 1):
            await world.client.delete(PersistentVolumeClaim, NAMES.data_claim(number))
        for pod_ in world.pods().values():
            await world.client.delete(Pod, pod_.key)
        await world.until("made anew", lambda: world.hosts.systems == 2)
        await world.ready(2)


@virtual_time
async def test_data_of_another_version_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(versions.SUPPORTED_VERSIONS["postgresql"], "15", "steersman.dev/postgresql:15")  # type: ignore[arg-type]
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1, version="15")
        await world.ready(1)
        await world.client.delete(PostgreSQLCluster, KEY)
        await world.until("gone", lambda: world.cluster is None)
        await world.create(instances=1, version="17")
        await world.until("told", lambda: world.condition("Ready") == "False/RetainedDataMismatch")
        assert world.pods() == {}


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
async def test_a_crash_of_the_primary_is_a_failover() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create()
        await world.ready(3)
        await world.client.delete(Pod, NAMES.pod(0))
        await world.until("failed over", lambda: world.status.primary in ("orders-1", "orders-2"))
        await world.ready(3)
        assert "Failover" in world.events()
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
