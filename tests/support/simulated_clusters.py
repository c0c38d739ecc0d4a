"""Clusters in a simulation: what users do with a ``PostgreSQLCluster``, and what is made of it around."""

from __future__ import annotations

from typing import Any

from cluster_kubelet import ClusterKubelet
from patroni_model import Hosts, ModelTopology
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, Secret
from steersman.client import MergePatch
from steersman.manager import Manager, ManagerOptions
from steersman.meta import ObjectKey, ObjectMeta
from steersman.testing import World, simulate
from steersman.testing.simulation import Report
from steersman.testing.virtual_time import VirtualClock
from steersman_databases.api import Database, DatabaseUser, PostgreSQLCluster, PostgreSQLClusterSpec
from steersman_databases.clusters.observed import is_retired
from steersman_databases.controllers import ClusterParts, setup
from steersman_databases.engines.cluster_names import MEMBER_OF_LABEL, ClusterNames
from steersman_databases.engines.postgresql.cluster import PostgreSQLCluster as PostgreSQLServers

KEY = ObjectKey("default", "orders")
NAMES = ClusterNames(KEY)
Clusters = World[Hosts]


def sweep(scenario: Any, **effort: Any) -> Report:
    """Plays ``scenario`` with the operator under every fault."""
    return simulate(
        _setup,
        scenario,
        outside=Hosts,
        observe=contents,
        kinds=[Database, DatabaseUser, PostgreSQLCluster],
        actors=[surroundings],
        invariants=[data_have_their_keys, one_history],
        options=ManagerOptions(name="steersman-databases"),
        **effort,
    )


def _setup(manager: Manager, hosts: Hosts) -> None:
    setup(manager, parts=lambda context: ClusterParts(PostgreSQLServers(), ModelTopology(context.client, hosts)))


async def surroundings(world: Clusters) -> None:
    """Volumes, pods and members."""
    await ClusterKubelet(world.server, world.client, world.outside).run(VirtualClock())


def contents(hosts: Hosts) -> dict[str, Any]:
    """What is compared: how often data were made."""
    return {"systems": hosts.systems}


def data_have_their_keys(world: Clusters) -> None:
    """As long as there are data in use, there are their authorities, the administrator's password, and the store."""
    for claim in world.read_all(PersistentVolumeClaim):
        volume = world.outside.volumes.get(claim.metadata.uid)
        if volume is None or not volume.system or claim.metadata.deletion_timestamp or is_retired(claim):
            continue
        for key in (NAMES.authorities, NAMES.administrator_secret):
            assert world.read(Secret, key) is not None, f"{claim.key} has lost {key.name}"
        assert world.read(ConfigMap, NAMES.store_config) is not None, f"{claim.key} has lost who led"


def one_history(world: Clusters) -> None:
    """Nobody makes other data while there are data."""
    assert world.outside.systems <= 1


async def create(world: Clusters, **spec: Any) -> None:
    """Creates the cluster and waits until it is of use."""
    metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
    await world.client.create(PostgreSQLCluster(metadata=metadata, spec=PostgreSQLClusterSpec(**spec)))
    await ready(world)


async def ready(world: Clusters) -> None:
    """Waits until the cluster is as declared."""

    def is_ready() -> bool:
        found = world.read(PostgreSQLCluster, KEY)
        if found is None or found.status is None or found.status.phase != "Ready":
            return False
        generations = found.status.observed_generation, found.metadata.generation
        return generations[0] == generations[1] and found.status.ready_instances == found.spec.instances

    await world.until("Ready", is_ready)
    await world.settle()


async def change(world: Clusters, **spec: Any) -> None:
    """Patches its spec, by the wire's names."""
    await world.client.patch(PostgreSQLCluster, KEY, MergePatch({"spec": spec}))


async def annotate(world: Clusters, **notes: str | None) -> None:
    """Patches our annotations of it."""
    annotations = {f"databases.steersman.dev/{key}": value for key, value in notes.items()}
    await world.client.patch(PostgreSQLCluster, KEY, MergePatch({"metadata": {"annotations": annotations}}))


async def delete(world: Clusters) -> None:
    """Deletes it and waits until it is gone."""
    await world.client.delete(PostgreSQLCluster, KEY)
    await world.until("gone", lambda: world.read(PostgreSQLCluster, KEY) is None)
    await world.until("stopped", lambda: not [p for p in world.read_all(Pod) if MEMBER_OF_LABEL in p.metadata.labels])
    await world.settle()


async def life(world: Clusters) -> None:
    """Created, made larger and smaller, deleted with its data."""
    await create(world, instances=1, deletion_policy="Delete")
    await change(world, instances=2)
    await ready(world)
    await change(world, instances=1)
    await ready(world)
    await delete(world)


async def retained(world: Clusters) -> None:
    """Deleted, its data kept, and found again by the next of the same name."""
    await create(world, instances=2)
    await delete(world)
    await create(world, instances=2)


async def operated(world: Clusters) -> None:
    """Switched over, rolled, hibernated and woken."""
    await create(world, instances=2)
    await annotate(world, switchover="orders-1")
    await world.until("switched", lambda: _asked(world) is None)
    await change(world, shmSize="64Mi")
    await ready(world)
    await change(world, hibernated=True)
    await world.until("asleep", lambda: not list(world.read_all(Pod)))
    await change(world, hibernated=False)
    await ready(world)


async def replaced(world: Clusters) -> None:
    """A replica loses its volume."""
    await create(world, instances=2)
    await world.client.delete(PersistentVolumeClaim, NAMES.data_claim(1))
    await world.until("replaced", lambda: world.read(Pod, NAMES.pod(2)) is not None)
    await ready(world)


def _asked(world: Clusters) -> str | None:
    found = world.read(PostgreSQLCluster, KEY)
    return found.metadata.annotations.get("databases.steersman.dev/switchover") if found else None


SCENARIOS = {scenario.__name__: scenario for scenario in (life, retained, operated, replaced)}
