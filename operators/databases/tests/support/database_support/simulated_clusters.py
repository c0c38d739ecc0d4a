"""Clusters in a simulation: what users do with a ``PostgreSQLCluster``, and what is made of it around."""

from __future__ import annotations

from typing import Any

from database_support.cluster_kubelet import ClusterKubelet
from database_support.contents_in_memory import ContentsInMemory
from database_support.patroni_model import Hosts, ModelTopology
from steersman.api.apply import core, meta
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, Secret
from steersman.client import MergePatch
from steersman.controller import ReconcilerContext
from steersman.manager import Manager, ManagerOptions
from steersman.meta import ObjectKey, ObjectMeta
from steersman_databases.api import Database, DatabaseUser, MySQLCluster, PostgreSQLCluster, PostgreSQLClusterSpec
from steersman_databases.api.cluster_parts import SqlReferences
from steersman_databases.api.postgresql_cluster import Bootstrap, InitDb
from steersman_databases.api.references import KeySelector
from steersman_databases.clusters.observed import is_retired
from steersman_databases.controllers import ClusterParts, setup
from steersman_databases.engines import Endpoint
from steersman_databases.engines.cluster_names import MEMBER_OF_LABEL, ClusterNames
from steersman_databases.engines.postgresql.cluster import PostgreSQLCluster as PostgreSQLServers
from steersman_databases.engines.postgresql.topology import ASKED
from steersman_testing import World, simulate
from steersman_testing.simulation import SimulationReport
from steersman_testing.virtual_clock import VirtualClock

KEY = ObjectKey("default", "orders")
NAMES = ClusterNames(KEY)
Clusters = World[Hosts]


def sweep(scenario: Any, **effort: Any) -> SimulationReport:
    """Plays ``scenario`` with the operator under every fault."""
    return simulate(
        _setup,
        scenario,
        outside=Hosts,
        observe=contents,
        kinds=[Database, DatabaseUser, MySQLCluster, PostgreSQLCluster],
        actors=[surroundings],
        invariants=[data_have_their_keys, one_history, right_version],
        adjust=_without_versions,
        options=ManagerOptions(name="steersman-databases"),
        **effort,
    )


def _without_versions(obj: dict[str, Any]) -> dict[str, Any]:
    """Without the version of the store that the last switchover was asked for on: another in each run."""
    metadata: dict[str, Any] = obj["metadata"]
    annotations: dict[str, str] = metadata.get("annotations") or {}
    return {**obj, "metadata": {**metadata, "annotations": {k: v for k, v in annotations.items() if k != ASKED}}}


def _setup(manager: Manager, hosts: Hosts) -> None:
    def contents(engine: str) -> ContentsInMemory:
        return ContentsInMemory({Endpoint("orders-rw.default.svc", 5432): hosts.sql}, engine)

    def parts(context: ReconcilerContext) -> ClusterParts:
        return ClusterParts(PostgreSQLServers(), ModelTopology(context.client, hosts))

    setup(manager, contents=contents, parts=parts)


async def surroundings(world: Clusters) -> None:
    """Volumes, pods and members."""
    await ClusterKubelet(world.server, world.client, world.outside).run(VirtualClock())


def contents(hosts: Hosts) -> dict[str, Any]:
    """What is compared: how often data were made and configured, and what is in them."""
    owners = {name: state.owner for name, state in hosts.sql.databases.items()}
    return {"systems": hosts.systems, "applied": hosts.applied, "databases": owners}


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


def right_version(world: Clusters) -> None:
    """No server is started on data of another version."""
    assert not world.outside.unreadable


async def create(world: Clusters, **spec: Any) -> None:
    """Creates the cluster and waits until it is of use."""
    metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
    await world.client.create(PostgreSQLCluster(metadata=metadata, spec=PostgreSQLClusterSpec(**spec)))
    await ready(world)


async def ready(world: Clusters) -> None:
    """Waits until the cluster is as declared."""

    def is_ready() -> bool:
        found = world.read(PostgreSQLCluster, KEY)
        if found is None or found.status.phase != "Ready":
            return False
        generations = found.status.observed_generation, found.metadata.generation
        return generations[0] == generations[1] and found.status.ready_instances == found.spec.instances

    await world.wait_until("Ready", is_ready)
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
    await world.wait_until("gone", lambda: world.read(PostgreSQLCluster, KEY) is None)
    await world.wait_until(
        "stopped", lambda: not [p for p in world.read_all(Pod) if MEMBER_OF_LABEL in p.metadata.labels]
    )
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
    await world.wait_until("switched", lambda: _asked(world) is None)
    await change(world, shmSize="64Mi")
    await ready(world)
    await change(world, hibernated=True)
    await world.wait_until("asleep", lambda: not list(world.read_all(Pod)))
    await change(world, hibernated=False)
    await ready(world)


async def replaced(world: Clusters) -> None:
    """A replica loses its volume."""
    await create(world, instances=2)
    await world.client.delete(PersistentVolumeClaim, NAMES.data_claim(1))
    await world.wait_until("replaced", lambda: world.read(Pod, NAMES.pod(2)) is not None)
    await ready(world)


async def configured(world: Clusters) -> None:
    """With a first database and SQL for it, which is refused at first."""
    await world.client.apply(core.Namespace(metadata=meta.ObjectMeta(name="kube-system")))
    sql = core.ConfigMap(metadata=meta.ObjectMeta(name="sql", namespace="default"), data={"a.sql": "BROKEN"})
    await world.client.apply(sql)
    refs = SqlReferences(config_map_refs=(KeySelector(name="sql", key="a.sql"),))
    bootstrap = Bootstrap(initdb=InitDb(post_init_application_sql_refs=refs))
    metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
    spec = PostgreSQLClusterSpec(instances=1, bootstrap=bootstrap)
    await world.client.create(PostgreSQLCluster(metadata=metadata, spec=spec))
    await world.wait_until("refused", lambda: _told(world, "InitialConfiguration") == "Failed")
    await world.client.patch(
        ConfigMap, ObjectKey("default", "sql"), MergePatch({"data": {"a.sql": "CREATE TABLE a"}})
    )
    await ready(world)
    assert world.outside.applied == ["CREATE TABLE a"]


def _told(world: Clusters, type_: str) -> str:
    found = world.read(PostgreSQLCluster, KEY)
    conditions = found.status.conditions if found is not None else ()
    return next((c.reason for c in conditions if c.type == type_), "")


async def upgraded(world: Clusters) -> None:
    """Brought to another version of PostgreSQL: first that fails, then it does not."""
    world.outside.upgrade_fails = "no"
    await create(world, instances=1, version="15")
    await change(world, version="17")
    await world.wait_until("returned", lambda: _upgraded(world) == "RolledBack")
    world.outside.upgrade_fails = ""
    await world.client.delete(Job, NAMES.upgrade_job)
    await ready(world)


def _upgraded(world: Clusters) -> str:
    found = world.read(PostgreSQLCluster, KEY)
    conditions = found.status.conditions if found and found.status else ()
    return next((c.reason for c in conditions if c.type == "Upgraded"), "")


def _asked(world: Clusters) -> str | None:
    found = world.read(PostgreSQLCluster, KEY)
    return found.metadata.annotations.get("databases.steersman.dev/switchover") if found else None


SCENARIOS = {scenario.__name__: scenario for scenario in (life, retained, operated, replaced, configured, upgraded)}
