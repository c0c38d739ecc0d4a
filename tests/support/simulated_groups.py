"""MySQL clusters in a simulation: what users do with them, and members that decide by the agent's own code."""

from __future__ import annotations

from typing import Any

from cluster_kubelet import ClusterKubelet
from contents_in_memory import ContentsInMemory
from group_model import Agents, Farm, ModelTopology
from patroni_model import Hosts
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, Secret
from steersman.client import MergePatch
from steersman.controller import Context
from steersman.manager import Manager, ManagerOptions
from steersman.meta import ObjectKey, ObjectMeta
from steersman.testing import World, simulate
from steersman.testing.simulation import Report
from steersman.testing.virtual_time import VirtualClock
from steersman_databases.api import Database, DatabaseUser, MySQLCluster, MySQLClusterSpec, PostgreSQLCluster
from steersman_databases.clusters.observed import is_retired
from steersman_databases.controllers import ClusterParts, setup
from steersman_databases.engines import Endpoint
from steersman_databases.engines.cluster_names import MEMBER_OF_LABEL, ClusterNames
from steersman_databases.engines.mysql.cluster import MySQLCluster as MySQLServers
from steersman_databases.engines.mysql.topology import ASKED

KEY = ObjectKey("default", "orders")
NAMES = ClusterNames(KEY)
Groups = World[Farm]


def sweep(scenario: Any, **effort: Any) -> Report:
    """Plays ``scenario`` with the operator under every fault."""
    return simulate(
        _setup,
        scenario,
        outside=Farm,
        observe=_contents,
        kinds=[Database, DatabaseUser, MySQLCluster, PostgreSQLCluster],
        actors=[surroundings],
        invariants=[data_have_their_keys, one_history],
        adjust=without_what_differs,
        options=ManagerOptions(name="steersman-databases"),
        **effort,
    )


def without_what_differs(obj: dict[str, Any]) -> dict[str, Any]:
    """Without versions of the store, and the group's name, which is of a UID: others in each run."""
    metadata: dict[str, Any] = obj["metadata"]
    annotations: dict[str, str] = metadata.get("annotations") or {}
    kept = {k: v for k, v in annotations.items() if k not in (ASKED, "databases.steersman.dev/group-name")}
    return {**obj, "metadata": {**metadata, "annotations": kept}}


def _setup(manager: Manager, farm: Farm) -> None:
    def contents(engine: str) -> ContentsInMemory:
        return ContentsInMemory({Endpoint("orders-rw.default.svc", 3306): farm.sql}, engine)

    def parts(context: Context) -> ClusterParts:
        return ClusterParts(MySQLServers(), ModelTopology(context.client, farm))

    setup(manager, contents=contents, mysql=parts)


async def surroundings(world: Groups) -> None:
    """Volumes, pods and agents."""
    farm = world.outside
    kubelet = ClusterKubelet(
        world.server, world.client, Hosts(sql=farm.sql), Agents(world.server, world.client, farm)
    )
    await kubelet.run(VirtualClock())


def _contents(farm: Farm) -> dict[str, Any]:
    """What is compared: how often data were made, and how often a group was founded."""
    return {"initialised": farm.initialised, "founded": len(farm.founded)}


def data_have_their_keys(world: Groups) -> None:
    """As long as there are data in use, there are their authorities, the administrator's password, and the store."""
    for claim in world.read_all(PersistentVolumeClaim):
        server = world.outside.servers.get(claim.metadata.uid)
        if server is None or not server.uuid or claim.metadata.deletion_timestamp or is_retired(claim):
            continue
        for key in (NAMES.authorities, NAMES.administrator_secret):
            assert world.read(Secret, key) is not None, f"{claim.key} has lost {key.name}"
        assert world.read(ConfigMap, NAMES.group) is not None, f"{claim.key} has lost who led"


def one_history(world: Groups) -> None:
    """Nobody makes other data while there are data."""
    assert world.outside.initialised <= 1


async def create(world: Groups, **spec: Any) -> None:
    """Creates the cluster and waits until it is of use."""
    metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
    await world.client.create(MySQLCluster(metadata=metadata, spec=MySQLClusterSpec(**spec)))
    await ready(world)


async def ready(world: Groups) -> None:
    """Waits until the cluster is as declared."""

    def is_ready() -> bool:
        found = world.read(MySQLCluster, KEY)
        if found is None or found.status is None or found.status.phase != "Ready":
            return False
        generations = found.status.observed_generation, found.metadata.generation
        return generations[0] == generations[1] and found.status.ready_instances == found.spec.instances

    await world.until("Ready", is_ready)
    await world.settle()


async def change(world: Groups, **spec: Any) -> None:
    """Patches its spec, by the wire's names."""
    await world.client.patch(MySQLCluster, KEY, MergePatch({"spec": spec}))


async def annotate(world: Groups, **notes: str | None) -> None:
    """Patches our annotations of it."""
    annotations = {f"databases.steersman.dev/{key}": value for key, value in notes.items()}
    await world.client.patch(MySQLCluster, KEY, MergePatch({"metadata": {"annotations": annotations}}))


async def delete(world: Groups) -> None:
    """Deletes it and waits until it is gone."""
    await world.client.delete(MySQLCluster, KEY)
    await world.until("gone", lambda: world.read(MySQLCluster, KEY) is None)
    await world.until("stopped", lambda: not [p for p in world.read_all(Pod) if MEMBER_OF_LABEL in p.metadata.labels])
    await world.settle()


async def life(world: Groups) -> None:
    """Created, made larger and smaller, deleted with its data."""
    await create(world, instances=1, deletion_policy="Delete")
    await change(world, instances=2)
    await ready(world)
    await change(world, instances=1)
    await ready(world)
    await delete(world)


async def retained(world: Groups) -> None:
    """Deleted, its data kept, and found again by the next of the same name."""
    await create(world, instances=2)
    await delete(world)
    await create(world, instances=2)


async def operated(world: Groups) -> None:
    """Switched over, hibernated and woken, an instance made anew."""
    await create(world, instances=2)
    await annotate(world, switchover="orders-1")
    await world.until("switched", lambda: _asked(world, "switchover") is None)
    await ready(world)
    await change(world, hibernated=True)
    await world.until("asleep", lambda: not list(world.read_all(Pod)))
    await change(world, hibernated=False)
    await ready(world)
    await annotate(world, replace="orders-0")
    await world.until("made anew", lambda: _asked(world, "replace") is None)
    await ready(world)


def _asked(world: Groups, what: str) -> str | None:
    found = world.read(MySQLCluster, KEY)
    return found.metadata.annotations.get(f"databases.steersman.dev/{what}") if found else None


SCENARIOS = {scenario.__name__: scenario for scenario in (life, retained, operated)}
