"""Poolers of a cluster: their objects, and what is told of those that do not run."""

from __future__ import annotations

from typing import Any

import pytest

from database_support.unit.cluster_harness import KEY, ClusterHarness
from database_support.unit.pooler_harness import PoolerHarness
from steersman.api.apiextensions_v1 import CustomResourceDefinition
from steersman.api.apps_v1 import Deployment
from steersman.api.core_v1 import ConfigMap, Pod, ResourceRequirements, Secret, Service
from steersman.api.networking_v1 import NetworkPolicy
from steersman.api.policy_v1 import PodDisruptionBudget
from steersman.client import MergePatch
from steersman.meta import ObjectKey, ObjectMeta, decode_builtins, to_builtins
from steersman_databases.api import PostgreSQLCluster, PostgreSQLClusterSpec
from steersman_databases.api.cluster_common import PoolerSettings, ServiceSettings, ServicesSettings
from steersman_databases.features.pooler.pgbouncer import PORT
from steersman_manifests.crd import violations
from steersman_testing import virtual_time


def names(world: ClusterHarness) -> set[str]:
    kinds = (Deployment, Service, ConfigMap, Secret, PodDisruptionBudget, NetworkPolicy)
    return {
        f"{kind.api_resource.kind} {o.metadata.name}"
        for kind in kinds
        for o in world.server.read_all(kind)
        if "pooler" in o.metadata.name
    }


@virtual_time
async def test_poolers_follow_the_declaration() -> None:
    world = PoolerHarness()
    async with world.operator():
        await world.create_ready(instances=1)
        assert names(world) == set()
        await world.change(pooler={"replicas": 3})
        kinds = ("Deployment", "Service", "ConfigMap", "PodDisruptionBudget")
        both = {f"{kind} orders-pooler-{role}" for kind in kinds for role in ("rw", "ro")}
        of_both = {"Secret orders-pooler", "NetworkPolicy orders-pooler"}
        await world.until("made", lambda: names(world) == both | of_both)
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


@virtual_time
async def test_policy_opens_pooler_port_to_all() -> None:
    """The operator, who has clients wait, among them. What poolers reach themselves is as open as with servers."""
    world, key = PoolerHarness(), ObjectKey(KEY.namespace, "orders-pooler")
    async with world.operator():
        await world.create_ready(instances=1, pooler=PoolerSettings())
        policy = world.server.read(NetworkPolicy, key)
        assert policy is not None and policy.controller_reference is not None
        assert policy.controller_reference.name == KEY.name
        wire = to_builtins(policy.spec)
        assert wire["ingress"] == [{"ports": [{"port": PORT, "protocol": "TCP"}]}]
        assert wire["policyTypes"] == ["Ingress"] and "egress" not in wire
        chosen = wire["podSelector"]["matchLabels"].items()
        for role in ("rw", "ro"):
            assert chosen <= world.deployment(role).spec.template.metadata.labels.items()
        assert not any(chosen <= pod.metadata.labels.items() for pod in world.pods().values())
        assert chosen <= policy.metadata.labels.items()


@virtual_time
async def test_policy_exists_when_network_policy_managed() -> None:
    world, policy = PoolerHarness(), "NetworkPolicy orders-pooler"
    key = ObjectKey(KEY.namespace, "orders-pooler")
    async with world.operator():
        await world.create_ready(instances=1, pooler=PoolerSettings(read_only=False))
        assert policy in names(world)
        await world.client.delete(NetworkPolicy, key)
        await world.until("back", lambda: policy in names(world), 30)
        closed = MergePatch({"spec": {"ingress": [{"ports": [{"port": 1, "protocol": "TCP"}]}]}})
        await world.client.patch(NetworkPolicy, key, closed)

        def opened() -> list[object]:
            found = world.server.read(NetworkPolicy, key)
            return [p.port for rule in found.spec.ingress for p in rule.ports] if found else []

        await world.until("open again", lambda: opened() == [PORT], 30)
        await world.change(networkPolicy="None")
        await world.until("gone", lambda: policy not in names(world))
        assert "Deployment orders-pooler-rw" in names(world)
        await world.change(networkPolicy="Managed")
        await world.until("back", lambda: policy in names(world))


NO_REPLICAS = ServicesSettings(ro=ServiceSettings(enabled=False))


def test_ro_pooler_requires_ro_service() -> None:
    def refused(**spec: Any) -> tuple[str, ...]:
        metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
        return violations(PostgreSQLCluster(metadata=metadata, spec=PostgreSQLClusterSpec(**spec)))

    [words] = refused(services=NO_REPLICAS, pooler=PoolerSettings())
    assert words == (
        ".spec.pooler.readOnly: pooler.readOnly needs services.ro: enable it, or set pooler.readOnly to false"
    )
    assert refused(services=NO_REPLICAS, pooler=PoolerSettings(read_only=False)) == ()
    assert refused(services=NO_REPLICAS) == refused(pooler=PoolerSettings()) == ()


@virtual_time
async def test_disabled_service_has_no_pooler() -> None:
    """As a cluster may say that was stored before it was refused."""
    world = PoolerHarness()
    name = ObjectKey("", "postgresqlclusters.databases.steersman.dev")
    found = to_builtins(world.server.read(CustomResourceDefinition, name))
    schema = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    schema["x-kubernetes-validations"] = []
    await world.client.patch(CustomResourceDefinition, name, MergePatch({"spec": found["spec"]}))
    async with world.operator():
        await world.create(instances=1, services=NO_REPLICAS, pooler=PoolerSettings())
        await world.until("made", lambda: "Deployment orders-pooler-rw" in names(world))
        await world.wait()
        assert not any(each.endswith("-ro") for each in names(world))


@virtual_time
async def test_declared_resources_apply_to_pooler() -> None:
    """What is no pod's to have is refused by the API server then, and not left out in silence."""
    world = ClusterHarness()
    declared = {"limits": {"memory": "1Gi"}, "requests": {"cpu": "5m"}, "claims": [{"name": "gpu"}]}
    async with world.operator():
        await world.create(pooler=PoolerSettings(resources=decode_builtins(declared, ResourceRequirements)))
        key = ObjectKey(KEY.namespace, "orders-pooler-rw")
        await world.until("they are there", lambda: world.server.read(Deployment, key) is not None)
        deployment = world.server.read(Deployment, key)
        assert deployment is not None
        (container,) = deployment.spec.template.spec.containers
        assert container.resources is not None
        assert dict(container.resources.limits) == declared["limits"]
        assert [claim.name for claim in container.resources.claims] == ["gpu"]


def image(world: PoolerHarness) -> str | None:
    return world.deployment().spec.template.spec.containers[0].image


@virtual_time
async def test_operator_upgrade_replaces_no_pooler(monkeypatch: pytest.MonkeyPatch) -> None:
    world = PoolerHarness()
    async with world.operator():
        await world.create(instances=2, pooler=PoolerSettings())
        await world.ready()
        before = world.deployment().spec.template
    monkeypatch.setenv("STEERSMAN_IMAGE_POSTGRESQL_17", "steersman.dev/postgresql:17-newer")
    async with world.operator():
        await world.until("seen", lambda: world.condition("UpToDate") == "False/MinorUpgradeAvailable")
        await world.wait()
        assert world.deployment().spec.template == before
        await world.change(maintenance={"minorUpgrades": "Automatic"})
        await world.until("renewed", lambda: image(world) == "steersman.dev/postgresql:17-newer")
        assert world.status.image == "steersman.dev/postgresql:17-newer"


@virtual_time
async def test_pooler_is_not_replaced_during_upgrade_pause() -> None:
    world = PoolerHarness()
    world.hosts.upgrade_hangs = True
    async with world.operator():
        await world.create_ready(instances=1, version="15", pooler=PoolerSettings(), image="example.org/mine:15")
        before = world.deployment().spec.template
        await world.change(version="17", image="example.org/mine:17")
        await world.until("stopped", lambda: world.condition("Available") == "False/Upgrading" and not world.pods())
        await world.wait(30)
        assert world.deployment().spec.template == before
        world.hosts.upgrade_hangs = False
        while image(world) == "example.org/mine:15":
            await world.wait(0.5)
        # Not before somebody serves again.
        assert world.condition("Available") != "False/Upgrading" and world.pods()
        await world.ready(1)
        assert image(world) == "example.org/mine:17"


@virtual_time
async def test_poolers_use_cluster_scheduling() -> None:
    world = PoolerHarness()
    nodes = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    async with world.operator():
        await world.create_ready(instances=1, pooler=PoolerSettings())
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
            "0 of 2 poolers ready: the server in pod pooler restarted 4 times",
        ),
        (NOWHERE, "Unschedulable", "0/2 nodes are available. Add a node"),
    ],
)
@virtual_time
async def test_failing_poolers_are_reported(status: dict[str, Any], reason: str, words: str) -> None:
    world = PoolerHarness()
    world.hosts.not_rolled_out = {"replicas": 0}
    async with world.operator():
        await world.create(instances=1, pooler=PoolerSettings(read_only=False))
        await world.until("they are missed", lambda: world.condition("PoolersReady") == "False/RollingOut")
        await world.start_pooler(**status)
        await world.until("told", lambda: world.condition("PoolersReady") == f"False/{reason}", 60)
        assert words in world.message("PoolersReady")
        await world.until("missing", lambda: world.condition("Ready") == "False/Degraded", 60)
        assert "PoolersReady: " in world.message("Ready")
        assert world.condition("Available") == "True/PrimaryAvailable"
        world.hosts.not_rolled_out = {}
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
        ({"conditions": [FAILURE]}, "PodRejected", f"has 0 of 2 poolers ready: {REFUSED}. Remove the cause"),
        (
            {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "conditions": [FAILURE]},
            "PodRejected",
            f"has 1 of 2 poolers ready: {REFUSED}",
        ),
        (
            {"replicas": 2, "updatedReplicas": 2, "readyReplicas": 1},
            "PoolerNotReady",
            "has 1 of 2 poolers ready. Read the logs of the pooler",
        ),
    ],
    ids=["none is taken", "one is not taken", "one takes no connections"],
)
@virtual_time
async def test_missing_poolers_are_reported(status: dict[str, Any], reason: str, words: str) -> None:
    world = PoolerHarness()
    async with world.operator():
        await world.create_ready(instances=1, pooler=PoolerSettings(read_only=False))
        world.hosts.not_rolled_out = status
        await world.until("told", lambda: world.condition("PoolersReady") == f"False/{reason}", 60)
        assert f"orders-pooler-rw {words}" in world.message("PoolersReady")
        await world.until("missing", lambda: world.condition("Ready") == "False/Degraded", 60)
        assert world.condition("Available") == "True/PrimaryAvailable"
        assert reason in world.events()
        world.hosts.not_rolled_out = {}
        await world.ready()
        assert world.condition("PoolersReady") == "True/Serving"


@virtual_time
async def test_pooler_problem_needing_user_is_reported_first() -> None:
    world = PoolerHarness()
    async with world.operator():
        await world.create_ready(instances=1, pooler=PoolerSettings())
        world.hosts.not_rolled_out = {"replicas": 2, "updatedReplicas": 2}
        await world.until("told", lambda: world.condition("PoolersReady") == "False/PoolerNotReady", 60)
        await world.start_pooler(**CRASHING)
        await world.until("told", lambda: world.condition("PoolersReady") == "False/PoolerCrashing", 60)
        for role in ("rw", "ro"):
            assert f"orders-pooler-{role} has 0 of 2 poolers ready" in world.message("PoolersReady")
