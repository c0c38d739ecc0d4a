"""Clusters in a simulation: what users do with a ``PostgreSQLCluster``, and what is made of it around."""

from __future__ import annotations

import json
from typing import Any

from database_support.fake_server.engine import InMemorySqlEngine
from database_support.simulation.cluster_kubelet import ClusterKubelet
from database_support.simulation.cluster_scenarios import KEY, ClusterUser
from database_support.unit.backup_objects import create_backup, create_store
from database_support.unit.fake_patroni import FakeHosts, FakePatroniBackend
from steersman.api.apply import core, meta
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, ResourceRequirements, Secret
from steersman.client import MergePatch
from steersman.controller import ReconcilerContext
from steersman.manager import Manager, ManagerOptions
from steersman.meta import FrozenDict, ObjectKey, ObjectMeta, Quantity
from steersman_databases.api import (
    Backup,
    BackupStore,
    Database,
    DatabaseUser,
    MySQLCluster,
    PostgreSQLCluster,
    PostgreSQLClusterSpec,
    Restore,
)
from steersman_databases.api.autopilot.automation import AutogrowSettings
from steersman_databases.api.backups.backup_common import ARCHIVE_PATH_ANNOTATION, BackupReference, RecoverySettings
from steersman_databases.api.cluster_common import SqlReferences, VolumeSettings
from steersman_databases.api.postgresql_cluster import Bootstrap, InitDb
from steersman_databases.api.references import KeySelector
from steersman_databases.cluster.parts.engine_parts import EngineParts
from steersman_databases.cluster.state import is_retired
from steersman_databases.engines import ServerEndpoint
from steersman_databases.engines.naming import ClusterNames
from steersman_databases.engines.postgresql.cluster_engine import PostgreSQLEngine as PostgreSQLServers
from steersman_databases.engines.postgresql.ha.backend import SWITCHOVER_VERSION_ANNOTATION
from steersman_databases.features.backup.archive_objects import ARCHIVE_UID_ANNOTATION
from steersman_databases.features.in_place_resize.model import RESIZE
from steersman_databases.features.parameters.changes import RECORD_KEY
from steersman_databases.features.storage.usage import GROWN, USAGE
from steersman_databases.setup import setup
from steersman_testing import World, simulate
from steersman_testing.simulation import SimulationReport
from steersman_testing.virtual_clock import VirtualClock

NAMES = ClusterNames(KEY)
Clusters = World[FakeHosts]
_ANNOTATIONS_OF_RUN = frozenset(
    {SWITCHOVER_VERSION_ANNOTATION, ARCHIVE_PATH_ANNOTATION, ARCHIVE_UID_ANNOTATION, GROWN, RESIZE}
)
# A delayed write of a previous process may remove the last switchover, which only informs.
_STATUS_OF_RUN = frozenset({"backup", "automation", "lastSwitchover"})


def sweep(scenario: Any, **effort: Any) -> SimulationReport:
    """Plays ``scenario`` with the operator under every fault."""
    return simulate(
        _setup,
        scenario,
        outside=FakeHosts,
        observe=summary,
        kinds=[Backup, BackupStore, Database, DatabaseUser, MySQLCluster, PostgreSQLCluster, Restore],
        actors=[simulated_kubernetes],
        invariants=[data_has_its_secrets, one_history, right_version, final_backup_precedes_deletion],
        adjust=_without_versions,
        options=ManagerOptions(name="steersman-databases"),
        **effort,
    )


def _without_versions(obj: dict[str, Any]) -> dict[str, Any] | None:
    """Return an object without what differs in each run: versions, times, and UIDs in paths."""
    if obj.get("kind") == "Backup":
        return None
    metadata: dict[str, Any] = obj["metadata"]
    annotations: dict[str, str] = metadata.get("annotations") or {}
    kept = {k: v for k, v in annotations.items() if k not in _ANNOTATIONS_OF_RUN}
    if "config" in kept:
        kept["config"] = _without_changes(kept["config"])
    adjusted = {**obj, "metadata": {**metadata, "annotations": kept}}
    status: dict[str, Any] = obj.get("status") or {}
    if not _STATUS_OF_RUN.isdisjoint(status):
        adjusted["status"] = {k: v for k, v in status.items() if k not in _STATUS_OF_RUN}
    return adjusted


def _without_changes(config: str) -> str:
    """Return the settings without the times at which they were changed."""
    settings: dict[str, Any] = json.loads(config)
    settings.get(RECORD_KEY, {}).pop("changed", None)
    return json.dumps({key: value for key, value in settings.items() if key != RECORD_KEY or value})


def _setup(manager: Manager, hosts: FakeHosts) -> None:
    def contents(engine: str) -> InMemorySqlEngine:
        return InMemorySqlEngine({ServerEndpoint("orders-rw.default.svc", 5432): hosts.sql}, engine)

    def parts(context: ReconcilerContext) -> EngineParts:
        return EngineParts(PostgreSQLServers(), FakePatroniBackend(context.client, hosts))

    setup(manager, sql_engine_for=contents, postgresql_factory=parts)


async def simulated_kubernetes(world: Clusters) -> None:
    """Volumes, pods and members."""
    await ClusterKubelet(world.server, world.client, world.outside).run(VirtualClock())


def summary(hosts: FakeHosts) -> dict[str, Any]:
    """What is compared: how often data were made and configured, and what is in them."""
    owners = {name: state.owner for name, state in hosts.sql.databases.items()}
    backed_up = bool(hosts.programs.final_backups)
    return {"systems": hosts.systems, "applied": hosts.applied, "databases": owners, "backed_up": backed_up}


def data_has_its_secrets(world: Clusters) -> None:
    """As long as there are data in use, there are their authorities, the administrator's password, and the store."""
    for claim in world.read_all(PersistentVolumeClaim):
        volume = world.outside.volumes.get(claim.metadata.uid)
        if volume is None or not volume.system or claim.metadata.deletion_timestamp or is_retired(claim):
            continue
        for key in (NAMES.ca_secret, NAMES.administrator_secret):
            assert world.read(Secret, key) is not None, f"{claim.key} has lost {key.name}"
        assert world.read(ConfigMap, NAMES.dcs_config) is not None, f"{claim.key} has lost who led"


def one_history(world: Clusters) -> None:
    """Nobody makes other data while there are data."""
    assert world.outside.systems <= 1


def right_version(world: Clusters) -> None:
    """No server is started on data of another version."""
    assert not world.outside.unreadable


def final_backup_precedes_deletion(world: Clusters) -> None:
    """No volume goes before the final backup of its cluster is complete."""
    completed = any(backup.status.phase == "Completed" for backup in world.read_all(Backup))
    if completed or not world.outside.programs.needs_final_backup:
        return
    present = {p.metadata.uid for p in world.read_all(PersistentVolumeClaim) if p.metadata.deletion_timestamp is None}
    for uid, volume in world.outside.volumes.items():
        assert uid in present or not volume.system, f"PVC {uid} is deleted before the final backup"


user = ClusterUser(PostgreSQLCluster, PostgreSQLClusterSpec)
create, ready, change, annotate, delete = user.create, user.ready, user.change, user.annotate, user.delete


async def operated(world: Clusters) -> None:
    """Switched over, rolled, hibernated and woken."""
    await create(world, instances=2)
    await annotate(world, switchover="orders-1")
    await world.wait_until("switched", lambda: user.annotation(world, "switchover") is None)
    await change(world, shmSize="64Mi")
    await ready(world)
    await change(world, hibernated=True)
    await world.wait_until("asleep", lambda: not list(world.read_all(Pod)))
    await change(world, hibernated=False)
    await ready(world)


async def replaced(world: Clusters) -> None:
    """A replica loses its volume."""
    await create(world, instances=2)
    await world.client.delete(PersistentVolumeClaim, NAMES.data_pvc(1))
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
    await world.wait_until("refused", lambda: user.reason(world, "PostInitSQLApplied") == "Failed")
    await world.client.patch(
        ConfigMap, ObjectKey("default", "sql"), MergePatch({"data": {"a.sql": "CREATE TABLE a"}})
    )
    await ready(world)
    assert world.outside.applied == ["CREATE TABLE a"]


async def upgraded(world: Clusters) -> None:
    """Brought to another version of PostgreSQL: first that fails, then it does not."""
    world.outside.upgrade_fails = "no"
    await create(world, instances=1, version="15")
    await change(world, version="17")
    await world.wait_until("returned", lambda: user.reason(world, "UpToDate") == "RolledBack")
    world.outside.upgrade_fails = ""
    await world.client.delete(Job, NAMES.upgrade_job)
    await ready(world)


async def recovered(world: Clusters) -> None:
    """Created from a backup of another cluster."""
    await create_store(world.client)
    await create_backup(world.client)
    bootstrap = Bootstrap(recovery=RecoverySettings(backup=BackupReference(name="before")))
    await create(world, instances=2, bootstrap=bootstrap)
    assert world.outside.systems == 0, "a server created data in place of the recovery"


async def maintained(world: Clusters) -> None:
    """An unrequested restart waits for a window, which an annotation opens."""
    window = {"days": ["Mon"], "start": "12:00", "duration": "1h"}
    await create(world, instances=2)
    await change(world, maintenance={"windows": [window]}, postgresql={"sizing": "Defaults"})
    await world.wait_until("waiting", lambda: user.reason(world, "ParametersApplied") == "WaitingForWindow")
    await annotate(world, **{"maintenance-until": "2031-01-01T00:00:00Z"})
    await world.wait_until("applied", lambda: user.reason(world, "ParametersApplied") == "Applied")
    await ready(world)


async def grown(world: Clusters) -> None:
    """A full volume grows, its driver follows, and a new instance has the same size."""
    storage = VolumeSettings(size=Quantity("10Gi"), autogrow=AutogrowSettings(max_size=Quantity("100Gi")))
    await create(world, instances=1, storage=storage)
    await _resized(world, 0, "10Gi")
    await _reported(world, size=10, available=1)
    await world.wait_until("requested", lambda: _requested(world, 0) == "12Gi")
    await world.settle()
    await _resized(world, 0, "12Gi")
    await _reported(world, size=12, available=3)
    await change(world, instances=2)
    await ready(world)
    await world.wait_until("alike", lambda: _requested(world, 1) == "12Gi")


async def resized(world: Clusters) -> None:
    """Resources grow in place, then by a rolling update, and shrink."""
    await create(world, instances=2, resources=_memory("1Gi"))
    before = _uids(world)
    await change(world, resources={"limits": {"memory": "1536Mi"}})
    await world.wait_until("resized", lambda: _limits(world) == {"1536Mi"})
    await ready(world)
    assert _uids(world) == before, "a resize recreated a pod"
    world.outside.resizes.blocked["orders-1-0"] = "PodResizePending", "Infeasible", "the node is too small"
    await change(world, resources={"limits": {"memory": "2Gi"}})
    await world.wait_until("recreated", lambda: _uids(world)[1] != before[1])
    await ready(world)
    await change(world, resources={"limits": {"memory": "1Gi"}})
    await world.wait_until("shrunk", lambda: _limits(world) == {"1Gi"})
    await ready(world)


async def unresizable(world: Clusters) -> None:
    """The API server or the nodes cannot resize pods."""
    world.outside.resizes.supported = False
    await create(world, instances=2, resources=_memory("1Gi"))
    await change(world, resources={"limits": {"memory": "1536Mi"}})
    await world.wait_until("recreated", lambda: _limits(world) == {"1536Mi"})
    await ready(world)


def _memory(limit: str) -> ResourceRequirements:
    return ResourceRequirements(limits=FrozenDict({"memory": limit}))


def _instance_pods(world: Clusters) -> list[Pod]:
    keys = [NAMES.pod(number) for number in range(2)]
    return [pod for key in keys if (pod := world.read(Pod, key)) is not None]


def _uids(world: Clusters) -> list[str]:
    return [pod.metadata.uid for pod in _instance_pods(world)]


def _limits(world: Clusters) -> set[str]:
    pods = _instance_pods(world)
    return {str(pod.spec.containers[0].resources.limits.get("memory")) for pod in pods} if len(pods) == 2 else set()


async def _resized(world: Clusters, number: int, size: str) -> None:
    status = {"phase": "Bound", "capacity": {"storage": size}}
    key = NAMES.data_pvc(number)
    await world.client.patch(PersistentVolumeClaim, key, MergePatch({"status": status}), subresource="status")


async def _reported(world: Clusters, *, size: int, available: int) -> None:
    """The agent of the first instance reports its volume, in GiB."""
    report = json.dumps({"data": {"size": size << 30, "available": available << 30}})
    body = MergePatch({"metadata": {"annotations": {USAGE: report}}})
    await world.client.patch(Pod, NAMES.pod(0), body)


def _requested(world: Clusters, number: int) -> str:
    pvc = world.read(PersistentVolumeClaim, NAMES.data_pvc(number))
    return "" if pvc is None else str(pvc.spec.resources.requests["storage"])


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        *(user.life, user.retained, operated, replaced, configured, upgraded, user.backed_up, recovered),
        *(maintained, grown, resized, unresizable),
    )
}
