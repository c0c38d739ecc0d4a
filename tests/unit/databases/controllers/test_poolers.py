"""Poolers of a cluster: their objects, and that their clients wait while the primary is handed over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cluster_world import KEY, ClusterWorld
from steersman.api.apiextensions_v1 import CustomResourceDefinition
from steersman.api.apps_v1 import Deployment
from steersman.api.core_v1 import ConfigMap, Pod, ResourceRequirements, Secret, Service
from steersman.api.policy_v1 import PodDisruptionBudget
from steersman.client import MergePatch
from steersman.controller import Context
from steersman.crd import violations
from steersman.meta import ObjectKey, ObjectMeta, decode_builtins, to_builtins
from steersman.testing import virtual_time
from steersman_databases.api import PostgreSQLCluster, PostgreSQLClusterSpec
from steersman_databases.api.cluster_parts import Pooler, Services, ServiceTemplate
from steersman_databases.controllers import ClusterParts
from steersman_databases.engines.postgresql.console import Command
from steersman_databases.engines.server import ClientCertificate, Endpoint


class PooledWorld(ClusterWorld):
    """With one pod of PgBouncer, which remembers what it was asked for."""

    commands: tuple[tuple[str, Command], ...] = ()

    def parts(self, context: Context) -> ClusterParts:
        return replace(super().parts(context), console=self.console)

    @property
    def told(self) -> list[Command]:
        return [command for _, command in self.commands]

    @property
    def waits(self) -> list[Command]:
        """What was said of clients that wait."""
        return [command for command in self.told if command != "RECONNECT"]

    def deployment(self, role: str = "rw") -> Deployment:
        found = self.server.read(Deployment, ObjectKey(KEY.namespace, f"orders-pooler-{role}"))
        assert found is not None
        return found

    async def console(self, endpoint: Endpoint, login: ClientCertificate, trusted: bytes, command: Command) -> None:
        assert b"PRIVATE KEY" in login.key and b"CERTIFICATE" in trusted
        self.commands = (*self.commands, (endpoint.host, command))

    async def begin(self) -> None:
        """Two instances and a pooler are there and serve."""
        await self.create(instances=2, pooler=Pooler())
        await self.ready()
        await self.start_pooler()

    async def start_pooler(self, **status: Any) -> None:
        """As the controller of Deployments and a kubelet would."""
        deployment = self.deployment()
        assert deployment.spec.selector is not None
        self.server.load(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": "pooler",
                    "namespace": KEY.namespace,
                    "labels": dict(deployment.spec.selector.match_labels),
                },
                "spec": {"containers": [{"name": "pgbouncer", "image": "pgbouncer"}]},
            }
        )
        status = status or {"podIP": "10.1.2.3", "conditions": [{"type": "Ready", "status": "True"}]}
        key = ObjectKey(KEY.namespace, "pooler")
        await self.client.patch(Pod, key, MergePatch({"status": status}), subresource="status")


def names(world: ClusterWorld) -> set[str]:
    kinds = (Deployment, Service, ConfigMap, Secret, PodDisruptionBudget)
    return {
        f"{kind.api_resource.kind} {o.metadata.name}"
        for kind in kinds
        for o in world.server.read_all(kind)
        if "pooler" in o.metadata.name
    }


@virtual_time
async def test_poolers_come_and_go_with_their_declaration() -> None:
    world = PooledWorld()
    async with world.operator():
        await world.create(instances=1)
        await world.ready()
        assert names(world) == set()
        await world.change(pooler={"replicas": 3})
        kinds = ("Deployment", "Service", "ConfigMap", "PodDisruptionBudget")
        both = {f"{kind} orders-pooler-{role}" for kind in kinds for role in ("rw", "ro")}
        await world.until("made", lambda: names(world) == {*both, "Secret orders-pooler"})
        deployment = world.server.read(Deployment, ObjectKey(KEY.namespace, "orders-pooler-rw"))
        assert deployment is not None and deployment.spec.replicas == 3
        labels = deployment.spec.template.metadata.labels
        # Patroni takes whatever bears its label for a member.
        assert not any("member-of" in label for label in labels)
        await world.change(pooler={"replicas": 3, "readOnly": False})
        await world.until("no -ro", lambda: not any(name.endswith("-ro") for name in names(world)))
        # Of one there is nothing to keep back.
        await world.change(pooler={"replicas": 1, "readOnly": False})
        budget = "PodDisruptionBudget orders-pooler-rw"
        await world.until("no budget", lambda: budget not in names(world))
        await world.change(pooler=None)
        await world.until("gone", lambda: names(world) == set())


NO_REPLICAS = Services(ro=ServiceTemplate(enabled=False))


def test_who_pools_connections_to_replicas_needs_their_service() -> None:
    def refused(**spec: Any) -> tuple[str, ...]:
        metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
        return violations(PostgreSQLCluster(metadata=metadata, spec=PostgreSQLClusterSpec(**spec)))

    [words] = refused(services=NO_REPLICAS, pooler=Pooler())
    assert words == (
        ".spec.pooler.readOnly: pooler.readOnly needs services.ro: enable it, or set pooler.readOnly to false"
    )
    assert refused(services=NO_REPLICAS, pooler=Pooler(read_only=False)) == ()
    assert refused(services=NO_REPLICAS) == refused(pooler=Pooler()) == ()


@virtual_time
async def test_no_pooler_leads_to_a_service_that_is_not_there() -> None:
    """As a cluster may say that was stored before it was refused."""
    world = PooledWorld()
    name = ObjectKey("", "postgresqlclusters.databases.steersman.dev")
    found = to_builtins(world.server.read(CustomResourceDefinition, name))
    schema = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    schema["x-kubernetes-validations"] = []
    await world.client.patch(CustomResourceDefinition, name, MergePatch({"spec": found["spec"]}))
    async with world.operator():
        await world.create(instances=1, services=NO_REPLICAS, pooler=Pooler())
        await world.until("made", lambda: "Deployment orders-pooler-rw" in names(world))
        await world.rest()
        assert not any(each.endswith("-ro") for each in names(world))


@virtual_time
async def test_clients_wait_while_the_primary_is_handed_over() -> None:
    world = PooledWorld()
    async with world.operator():
        await world.begin()
        # One that a former operator may have left waiting goes on, without what it had.
        await world.until("told", lambda: world.told == ["RECONNECT", "RESUME"])
        await world.annotate(switchover="any")
        await world.until("handed over", lambda: "RESUME" in world.told[2:])
        await world.runtime.clock.sleep(30)
        assert world.told[:3] == ["RECONNECT", "RESUME", "PAUSE"]
        # Its former primary may have taken connections again before all nodes knew who leads.
        assert set(world.told[3:]) == {"RESUME", "RECONNECT"} and world.waits == ["RESUME", "PAUSE", "RESUME"]


@virtual_time
async def test_clients_go_on_as_soon_as_they_are_led_to_who_leads() -> None:
    """Members say of themselves what they are with their next loop only."""
    world = PooledWorld()
    async with world.operator():
        await world.begin()
        await world.until("told", lambda: world.waits == ["RESUME"])
        world.hosts.silent = True
        await world.annotate(switchover="orders-1")
        # Sooner than a switchover counts as failed.
        await world.until("told", lambda: world.waits == ["RESUME", "PAUSE", "RESUME"], seconds=15)
        assert world.hosts.history == ["orders-0-0", "orders-1-0"]
        assert world.status.primary != "orders-1"


@virtual_time
async def test_a_refused_switchover_is_asked_for_once_and_clients_go_on() -> None:
    world = PooledWorld()
    world.hosts.refuses |= {"orders-1-0"}
    async with world.operator():
        await world.begin()
        await world.until("told", lambda: world.waits == ["RESUME"])
        await world.change(shmSize="64Mi")
        await world.until("refused", lambda: world.condition("Ready") == "False/SwitchoverRefused")
        await world.rest(600)
        assert world.waits == ["RESUME", "PAUSE", "RESUME"]
        assert world.status.last_switchover.outcome.startswith("refused: ")
        assert "its log says why" in world.message("Ready")
        assert "databases.steersman.dev/switchover" in world.message("Ready")
        await world.annotate(switchover="orders-1")
        await world.until("asked again", lambda: len(world.waits) == 5)
        await world.until("told", lambda: "SwitchoverRefused" in world.events())
        await world.rest(600)
        assert len(world.waits) == 5
        world.hosts.refuses.clear()
        await world.change(shmSize="128Mi")
        await world.ready(2)
        assert (world.status.primary, world.status.last_switchover.outcome) == ("orders-1", "Succeeded")


@virtual_time
async def test_a_switchover_that_somebody_asked_for_and_was_refused_leaves_no_request_behind() -> None:
    world = PooledWorld()
    world.hosts.refuses |= {"orders-1-0"}
    async with world.operator():
        await world.begin()
        await world.until("told", lambda: world.waits == ["RESUME"])
        for times in (1, 2):
            await world.annotate(switchover="orders-1")
            await world.until("refused", lambda: "SwitchoverRefused" in world.events() and not asked(world))
            await world.rest(120)
            assert len(world.waits) == 1 + 2 * times
        await world.ready(2)


@virtual_time
async def test_clients_wait_while_the_data_are_upgraded() -> None:
    world = PooledWorld()
    world.hosts.upgrade_hangs = True
    async with world.operator():
        await world.create(instances=1, version="15", pooler=Pooler())
        await world.ready()
        await world.start_pooler()
        await world.until("told", lambda: world.waits == ["RESUME"])
        await world.change(version="17")
        await world.until("stopped", lambda: world.condition("Available") == "False/Upgrading" and not world.pods())
        await world.rest(300)
        assert world.waits == ["RESUME", "PAUSE"]
        world.hosts.upgrade_hangs = False
        await world.ready(1)
        await world.until("told", lambda: world.waits == ["RESUME", "PAUSE", "RESUME"])


@virtual_time
async def test_clients_wait_while_the_primary_restarts_where_it_is() -> None:
    """Whoever asks PgBouncer for something meanwhile would be ended, since nobody takes connections."""
    world = PooledWorld()
    async with world.operator():
        await world.begin()
        await world.until("told", lambda: world.waits == ["RESUME"])
        await world.change(postgresql={"parameters": {"max_connections": "200"}})
        await world.until("pending", lambda: world.condition("ParametersApplied") == "False/RestartPending")
        await world.until("raised", lambda: world.condition("ParametersApplied") == "True/Applied")
        await world.ready(2)
        assert world.waits == ["RESUME", "PAUSE", "RESUME"], "for the switchover, and not for a replica's restart"

        world.hosts.restarting = True
        await world.change(postgresql={"parameters": {"max_connections": "100"}})
        await world.until("held", lambda: len(world.waits) == 4)
        assert world.hosts.restarts == [f"{world.status.primary}-0"]
        await world.rest(12)
        assert world.waits[3:] == ["PAUSE"], "until it serves"
        world.hosts.restarting = False
        await world.until("told", lambda: world.waits[3:] == ["PAUSE", "RESUME"], seconds=15)
        await world.ready(2)
        assert world.waits[3:] == ["PAUSE", "RESUME"]


@virtual_time
async def test_clients_do_not_wait_for_ever_for_a_restart() -> None:
    world = PooledWorld()
    async with world.operator():
        await world.create(instances=1, pooler=Pooler(read_only=False))
        await world.ready()
        await world.start_pooler()
        await world.until("told", lambda: world.waits == ["RESUME"])
        world.hosts.restarting = True
        await world.change(postgresql={"parameters": {"max_connections": "200"}})
        await world.until("held", lambda: world.waits[1:] == ["PAUSE"])
        await world.until("given up", lambda: world.waits[1:] == ["PAUSE", "RESUME"], seconds=40)


def asked(world: ClusterWorld) -> str | None:
    assert world.cluster is not None
    return world.cluster.metadata.annotations.get("databases.steersman.dev/switchover")


@virtual_time
async def test_all_resources_that_are_declared_are_the_poolers() -> None:
    """What is no pod's to have is refused by the API server then, and not left out in silence."""
    world = ClusterWorld()
    declared = {"limits": {"memory": "1Gi"}, "requests": {"cpu": "5m"}, "claims": [{"name": "gpu"}]}
    async with world.operator():
        await world.create(pooler=Pooler(resources=decode_builtins(declared, ResourceRequirements)))
        key = ObjectKey(KEY.namespace, "orders-pooler-rw")
        await world.until("they are there", lambda: world.server.read(Deployment, key) is not None)
        deployment = world.server.read(Deployment, key)
        assert deployment is not None
        (container,) = deployment.spec.template.spec.containers
        assert container.resources is not None
        assert dict(container.resources.limits) == declared["limits"]
        assert [claim.name for claim in container.resources.claims] == ["gpu"]


@virtual_time
async def test_whoever_takes_over_poolers_connect_anew() -> None:
    """A connection to a former primary, now a replica, would stay in the pool for as long as an hour."""
    world = PooledWorld()
    async with world.operator():
        await world.begin()
        await world.until("told", lambda: world.told == ["RECONNECT", "RESUME"])
        await world.rest(120)
        # Once more when every node leads to who serves.
        assert world.told == ["RECONNECT", "RESUME", "RECONNECT"]
        await world.client.delete(Pod, world.pods()[world.status.primary].key)
        await world.until("another leads", lambda: world.told.count("RECONNECT") >= 3)
        await world.ready(2)
        assert world.waits == ["RESUME"]


@virtual_time
async def test_a_pooler_of_the_primary_keeps_its_connections_when_a_replica_goes_and_comes() -> None:
    """Whoever asks for something while they are made anew may be ended."""
    world = PooledWorld()
    async with world.operator():
        await world.begin()
        await world.rest(120)
        before = world.told
        (replica,) = world.pods().keys() - {world.status.primary}
        await world.client.delete(Pod, world.pods()[replica].key)
        await world.until("it is missed", lambda: world.condition("Ready").startswith("False"))
        await world.ready(2)
        await world.rest(120)
        assert world.told == before


@virtual_time
async def test_a_pooler_that_ends_is_told_to_go_on_too() -> None:
    """Its clients wait like all others."""
    world = PooledWorld()
    async with world.operator():
        await world.begin()
        await world.until("told", lambda: world.waits == ["RESUME"])
        key = ObjectKey(KEY.namespace, "pooler")
        await world.client.patch(Pod, key, MergePatch({"metadata": {"finalizers": ["kubelet.test/ends"]}}))
        await world.annotate(switchover="any")
        await world.until("held", lambda: "PAUSE" in world.told)
        await world.client.delete(Pod, key)
        await world.until("told", lambda: world.waits == ["RESUME", "PAUSE", "RESUME"])


@virtual_time
async def test_poolers_do_not_wait_while_the_operator_keeps_its_hands_off() -> None:
    world = PooledWorld()
    world.hosts.upgrade_hangs = True
    async with world.operator():
        await world.create(instances=1, version="15", pooler=Pooler())
        await world.ready()
        await world.start_pooler()
        await world.until("told", lambda: world.waits == ["RESUME"])
        await world.change(version="17")
        await world.until("stopped", lambda: world.condition("Available") == "False/Upgrading" and not world.pods())
        assert world.waits == ["RESUME", "PAUSE"]
        await world.annotate(paused="true")
        await world.until("told", lambda: world.waits == ["RESUME", "PAUSE", "RESUME"])
        await world.annotate(paused=None)
        await world.until("held again", lambda: world.waits[3:] == ["PAUSE"])
        world.hosts.upgrade_hangs = False
        await world.ready(1)
        await world.until("told", lambda: world.waits[4:] == ["RESUME"])


def image(world: PooledWorld) -> str | None:
    return world.deployment().spec.template.spec.containers[0].image


@virtual_time
async def test_another_release_of_the_operator_replaces_no_pooler(monkeypatch: pytest.MonkeyPatch) -> None:
    world = PooledWorld()
    async with world.operator():
        await world.create(instances=2, pooler=Pooler())
        await world.ready()
        before = world.deployment().spec.template
    monkeypatch.setenv("STEERSMAN_IMAGE_POSTGRESQL_17", "steersman.dev/postgresql:17-newer")
    async with world.operator():
        await world.until("seen", lambda: world.condition("Upgraded") == "False/MinorAvailable")
        await world.rest()
        assert world.deployment().spec.template == before
        await world.change(minorUpgrades="Automatic")
        await world.until("renewed", lambda: image(world) == "steersman.dev/postgresql:17-newer")
        assert world.status.image == "steersman.dev/postgresql:17-newer"


@virtual_time
async def test_no_pooler_is_replaced_while_clients_wait_for_the_upgrade() -> None:
    world = PooledWorld()
    world.hosts.upgrade_hangs = True
    async with world.operator():
        await world.create(instances=1, version="15", pooler=Pooler(), image="example.org/mine:15")
        await world.ready()
        before = world.deployment().spec.template
        await world.change(version="17", image="example.org/mine:17")
        await world.until("stopped", lambda: world.condition("Available") == "False/Upgrading" and not world.pods())
        await world.rest(30)
        assert world.deployment().spec.template == before
        world.hosts.upgrade_hangs = False
        while image(world) == "example.org/mine:15":
            await world.rest(0.5)
        # Not before somebody serves again.
        assert world.condition("Available") != "False/Upgrading" and world.pods()
        await world.ready(1)
        assert image(world) == "example.org/mine:17"


@virtual_time
async def test_poolers_run_where_the_cluster_does() -> None:
    world = PooledWorld()
    nodes = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    async with world.operator():
        await world.create(instances=1, pooler=Pooler())
        await world.ready()
        await world.change(
            nodeSelector={"for": "databases"},
            tolerations=[{"key": "databases", "operator": "Exists"}],
            priorityClassName="high",
            imagePullSecrets=[{"name": "registry"}],
            imagePullPolicy="Always",
            affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": nodes}},
            topologySpreadConstraints=[spread, {**spread, "labelSelector": {"matchLabels": {"app": "other"}}}],
        )
        await world.until("renewed", lambda: world.deployment().spec.template.spec.priority_class_name == "high")
        pod, labels = world.deployment().spec.template.spec, world.deployment().spec.template.metadata.labels
        assert dict(pod.node_selector) == {"for": "databases"}
        assert [t.key for t in pod.tolerations] == ["databases"]
        assert [s.name for s in pod.image_pull_secrets] == ["registry"]
        assert pod.containers[0].image_pull_policy == "Always"
        assert pod.affinity is not None and pod.affinity.node_affinity is not None and pod.affinity.pod_anti_affinity
        (only,) = pod.topology_spread_constraints
        assert only.label_selector is not None and only.label_selector.match_labels == labels


CRASHING = {
    "containerStatuses": [
        {
            "name": "pgbouncer",
            "image": "pgbouncer",
            "imageID": "",
            "ready": False,
            "restartCount": 4,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        }
    ]
}
NOWHERE = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}]}


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        (
            CRASHING,
            "PoolerCrashing",
            "0 of 2 poolers ready: the server in pod pooler ended 4 times",
        ),
        (NOWHERE, "Unschedulable", "0/2 nodes are available: add a node"),
    ],
)
@virtual_time
async def test_poolers_that_do_not_run_are_told_of(status: dict[str, Any], reason: str, words: str) -> None:
    world = PooledWorld()
    world.hosts.unrolled = {"replicas": 0}
    async with world.operator():
        await world.create(instances=1, pooler=Pooler(read_only=False))
        await world.until("they are missed", lambda: world.condition("PoolersReady") == "False/RollingOut")
        await world.start_pooler(**status)
        await world.until("told", lambda: world.condition("PoolersReady") == f"False/{reason}", 60)
        assert words in world.message("PoolersReady")
        await world.until("missing", lambda: world.condition("Ready") == "False/Degraded", 60)
        assert "PoolersReady: " in world.message("Ready")
        assert world.condition("Available") == "True/PrimaryAccepts"
        world.hosts.unrolled = {}
        await world.client.delete(Pod, ObjectKey(KEY.namespace, "pooler"))
        await world.ready()
        assert world.condition("PoolersReady") == "True/Serving"
        await world.change(pooler=None)
        await world.until("not declared", lambda: world.condition("PoolersReady") == "")


REFUSED = (
    'pods "orders-pooler-rw-5d8-" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1'
)
FAILURE = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": REFUSED}


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        ({"conditions": [FAILURE]}, "PoolersRefused", f"has 0 of 2 poolers ready: {REFUSED}: do what the API server"),
        (
            {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "conditions": [FAILURE]},
            "PoolersRefused",
            f"has 1 of 2 poolers ready: {REFUSED}",
        ),
        (
            {"replicas": 2, "updatedReplicas": 2, "readyReplicas": 1},
            "PoolerNotReady",
            "has 1 of 2 poolers ready: see the logs of the pooler",
        ),
    ],
    ids=["none is taken", "one is not taken", "one takes no connections"],
)
@virtual_time
async def test_poolers_that_are_too_few_are_told_of(status: dict[str, Any], reason: str, words: str) -> None:
    world = PooledWorld()
    async with world.operator():
        await world.create(instances=1, pooler=Pooler(read_only=False))
        await world.ready()
        world.hosts.unrolled = status
        await world.until("told", lambda: world.condition("PoolersReady") == f"False/{reason}", 60)
        assert f"orders-pooler-rw {words}" in world.message("PoolersReady")
        await world.until("missing", lambda: world.condition("Ready") == "False/Degraded", 60)
        assert world.condition("Available") == "True/PrimaryAccepts"
        assert reason in world.events()
        world.hosts.unrolled = {}
        await world.ready()
        assert world.condition("PoolersReady") == "True/Serving"


@virtual_time
async def test_of_both_poolers_what_somebody_must_mend_is_told_first() -> None:
    world = PooledWorld()
    async with world.operator():
        await world.create(instances=1, pooler=Pooler())
        await world.ready()
        world.hosts.unrolled = {"replicas": 2, "updatedReplicas": 2}
        await world.until("told", lambda: world.condition("PoolersReady") == "False/PoolerNotReady", 60)
        await world.start_pooler(**CRASHING)
        await world.until("told", lambda: world.condition("PoolersReady") == "False/PoolerCrashing", 60)
        for role in ("rw", "ro"):
            assert f"orders-pooler-{role} has 0 of 2 poolers ready" in world.message("PoolersReady")
