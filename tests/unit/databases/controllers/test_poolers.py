"""Poolers of a cluster: their objects, and that their clients wait while the primary is handed over."""

from __future__ import annotations

from dataclasses import replace

from cluster_world import KEY, ClusterWorld
from steersman.api.apps_v1 import Deployment
from steersman.api.core_v1 import ConfigMap, Pod, ResourceRequirements, Secret, Service
from steersman.client import MergePatch
from steersman.controller import Context
from steersman.meta import ObjectKey, decode_builtins
from steersman.testing import virtual_time
from steersman_databases.api.cluster_parts import Pooler
from steersman_databases.controllers import ClusterParts
from steersman_databases.engines.postgresql.console import Command
from steersman_databases.engines.server import ClientCertificate, Endpoint


class PooledWorld(ClusterWorld):
    """With one pod of PgBouncer, which remembers what it was asked for."""

    commands: tuple[tuple[str, Command], ...] = ()

    def parts(self, context: Context) -> ClusterParts:
        return replace(super().parts(context), console=self.console)

    async def console(self, endpoint: Endpoint, login: ClientCertificate, trusted: bytes, command: Command) -> None:
        assert b"PRIVATE KEY" in login.key and b"CERTIFICATE" in trusted
        self.commands = (*self.commands, (endpoint.host, command))

    async def start_pooler(self) -> None:
        """As the controller of Deployments and a kubelet would."""
        deployment = self.server.read(Deployment, ObjectKey(KEY.namespace, "orders-pooler-rw"))
        assert deployment is not None and deployment.spec.selector is not None
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
        status = {"podIP": "10.1.2.3", "conditions": [{"type": "Ready", "status": "True"}]}
        key = ObjectKey(KEY.namespace, "pooler")
        await self.client.patch(Pod, key, MergePatch({"status": status}), subresource="status")


def names(world: ClusterWorld) -> set[str]:
    kinds = (Deployment, Service, ConfigMap, Secret)
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
        kinds = ("Deployment", "Service", "ConfigMap")
        both = {f"{kind} orders-pooler-{role}" for kind in kinds for role in ("rw", "ro")}
        await world.until("made", lambda: names(world) == {*both, "Secret orders-pooler"})
        deployment = world.server.read(Deployment, ObjectKey(KEY.namespace, "orders-pooler-rw"))
        assert deployment is not None and deployment.spec.replicas == 3
        labels = deployment.spec.template.metadata.labels
        # Patroni takes whatever bears its label for a member.
        assert not any("member-of" in label for label in labels)
        await world.change(pooler={"replicas": 3, "readOnly": False})
        await world.until("no -ro", lambda: not any(name.endswith("-ro") for name in names(world)))
        await world.change(pooler=None)
        await world.until("gone", lambda: names(world) <= {"Secret orders-pooler"})


@virtual_time
async def test_clients_wait_while_the_primary_is_handed_over() -> None:
    world = PooledWorld()
    async with world.operator():
        await world.create(instances=2, pooler=Pooler())
        await world.ready()
        await world.start_pooler()
        # One that a former operator may have left waiting goes on.
        await world.until("told", lambda: world.commands == (("10.1.2.3", "RESUME"),))
        await world.annotate(switchover="any")
        await world.until("handed over", lambda: len(world.commands) >= 3)
        await world.runtime.clock.sleep(30)
        assert [command for _, command in world.commands] == ["RESUME", "PAUSE", "RESUME"]


@virtual_time
async def test_a_refused_switchover_is_asked_for_once_and_clients_go_on() -> None:
    world = PooledWorld()
    world.hosts.refuses |= {"orders-1-0"}
    async with world.operator():
        await world.create(instances=2, pooler=Pooler())
        await world.ready()
        await world.start_pooler()
        await world.until("told", lambda: len(world.commands) == 1)
        await world.change(shmSize="64Mi")
        await world.until("refused", lambda: world.condition("Ready") == "False/SwitchoverRefused")
        await world.rest(600)
        assert [command for _, command in world.commands] == ["RESUME", "PAUSE", "RESUME"]
        assert world.status.last_switchover.outcome.startswith("refused: ")
        assert "its log says why" in world.message("Ready")
        assert "databases.steersman.dev/switchover" in world.message("Ready")
        await world.annotate(switchover="orders-1")
        await world.until("asked again", lambda: len(world.commands) == 5)
        await world.until("told", lambda: "SwitchoverRefused" in world.events())
        await world.rest(600)
        assert len(world.commands) == 5
        world.hosts.refuses.clear()
        await world.change(shmSize="128Mi")
        await world.ready(2)
        assert (world.status.primary, world.status.last_switchover.outcome) == ("orders-1", "Succeeded")


@virtual_time
async def test_a_switchover_that_somebody_asked_for_and_was_refused_leaves_no_request_behind() -> None:
    world = PooledWorld()
    world.hosts.refuses |= {"orders-1-0"}
    async with world.operator():
        await world.create(instances=2, pooler=Pooler())
        await world.ready()
        await world.start_pooler()
        await world.until("told", lambda: len(world.commands) == 1)
        for times in (1, 2):
            await world.annotate(switchover="orders-1")
            await world.until("refused", lambda: "SwitchoverRefused" in world.events() and not asked(world))
            await world.rest(120)
            assert len(world.commands) == 1 + 2 * times
        await world.ready(2)


@virtual_time
async def test_clients_wait_while_the_data_are_upgraded() -> None:
    world = PooledWorld()
    world.hosts.upgrade_hangs = True
    async with world.operator():
        await world.create(instances=1, version="15", pooler=Pooler())
        await world.ready()
        await world.start_pooler()
        await world.until("told", lambda: len(world.commands) == 1)
        await world.change(version="17")
        await world.until("stopped", lambda: world.condition("Available") == "False/Upgrading" and not world.pods())
        await world.rest(300)
        assert [command for _, command in world.commands] == ["RESUME", "PAUSE"]
        world.hosts.upgrade_hangs = False
        await world.ready(1)
        await world.until("told", lambda: [command for _, command in world.commands] == ["RESUME", "PAUSE", "RESUME"])


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
