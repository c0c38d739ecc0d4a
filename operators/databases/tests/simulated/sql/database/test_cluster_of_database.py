"""The spec that a Database passes to the cluster of its own."""

from __future__ import annotations

from typing import Any

import pytest

from database_support.unit.database_harness import KEY, DatabaseHarness
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import (
    PersistentVolumeClaim,
    Pod,
    ResourceRequirements,
    Secret,
    Service,
    ServiceAccount,
)
from steersman.client import MergePatch
from steersman.meta import FrozenDict, ObjectKey, Quantity, decode_builtins
from steersman_databases.api import Database
from steersman_databases.api.backups.backup_common import BackupSettings
from steersman_databases.api.cluster_common import MonitoringSettings, PodMonitorSettings
from steersman_databases.engines.naming import ClusterNames
from steersman_databases.sql.database.specs import dedicated_cluster
from steersman_testing import virtual_time

ENGINES = pytest.mark.parametrize(("engine", "version"), [("postgresql", "17"), ("mysql", "9.7")])


def _cluster_spec(engine: str, version: str, **spec: Any) -> dict[str, Any]:
    wire = {
        "metadata": {"name": "orders", "namespace": "shop"},
        "spec": {"engine": engine, "version": version, **spec},
    }
    return dict(dedicated_cluster(decode_builtins(wire, Database), Quantity("1Gi")).spec)


@ENGINES
def test_backup_and_recovery_are_passed_to_cluster(engine: str, version: str) -> None:
    backup: dict[str, Any] = {
        "storeRef": {"name": "archive", "namespace": "backups"},
        "archive": {"interval": "10s"},
        "schedules": [{"name": "daily", "schedule": "30 2 * * *", "timeZone": "Europe/Berlin"}],
        "finalBackup": "Required",
    }
    recovery = {"cluster": {"name": "stock"}, "target": {"time": "2026-03-01T12:30:00Z"}}
    passed = _cluster_spec(engine, version, backup=backup, bootstrap={"recovery": recovery})
    assert decode_builtins(passed["backup"], BackupSettings) == decode_builtins(backup, BackupSettings)
    assert passed["bootstrap"] == {"recovery": recovery}


@ENGINES
def test_cluster_spec_has_only_declared_fields(engine: str, version: str) -> None:
    spec = _cluster_spec(engine, version)
    assert not {"backup", "bootstrap", "resources", "maintenance", "monitoring"} & spec.keys()
    assert spec["storage"] == {"size": "1Gi"}


@ENGINES
def test_autogrow_and_maintenance_are_passed_to_cluster(engine: str, version: str) -> None:
    maintenance = {"windows": [{"days": ["Sat"], "start": "02:00", "duration": "2h"}], "timeZone": "Europe/Berlin"}
    passed = _cluster_spec(engine, version, autogrow={"maxSize": "10Gi", "atPercent": 70}, maintenance=maintenance)
    assert passed["storage"]["size"] == "1Gi"
    assert passed["storage"]["autogrow"]["maxSize"] == "10Gi"
    assert passed["storage"]["autogrow"]["atPercent"] == 70
    assert passed["maintenance"]["windows"] == maintenance["windows"]
    assert passed["maintenance"]["timeZone"] == "Europe/Berlin"


@ENGINES
def test_sizing_is_passed_to_cluster(engine: str, version: str) -> None:
    assert _cluster_spec(engine, version, sizing="Defaults")[engine] == {"sizing": "Defaults"}
    assert engine not in _cluster_spec(engine, version), "the cluster keeps its own mode"


@pytest.mark.parametrize("engine", ["postgresql", "mysql"])
@virtual_time
async def test_resources_and_monitoring_follow_the_database(engine: str) -> None:
    world = DatabaseHarness(engine)
    limits = FrozenDict[str, int | str]({"memory": "1Gi"})
    monitor = MonitoringSettings(pod_monitor=PodMonitorSettings(enabled=True, labels=FrozenDict({"team": "shop"})))

    def memory_limit() -> object:
        pod = world.server.read(Pod, ObjectKey("default", "orders-0-0"))
        return pod and pod.spec.containers[0].resources.limits["memory"]

    async with world.operator():
        await world.create_ready(resources=ResourceRequirements(limits=limits), monitoring=monitor)
        cluster = world.cluster
        assert cluster is not None and cluster.status.sizing is not None
        assert (memory_limit(), cluster.spec.monitoring) == ("1Gi", monitor)
        sized = {parameter.name for parameter in cluster.status.sizing.parameters}
        assert sized & {"shared_buffers", "innodb_buffer_pool_size"}

        await world.change(resources={"limits": {"memory": "2Gi"}}, monitoring=None)
        await world.until("the pod has the new limit", lambda: memory_limit() == "2Gi", 600)
        cluster = world.cluster
        assert cluster is not None and cluster.spec.monitoring == MonitoringSettings()
        await world.change(resources=None)
        await world.until("the pod has the default limit", lambda: memory_limit() == "768Mi", 600)
        await world.ready()


async def lose_volume(world: DatabaseHarness) -> None:
    """Delete the volume of the cluster, and the pod that uses it."""
    names = ClusterNames(KEY)
    await world.client.delete(PersistentVolumeClaim, names.data_pvc(0))
    await world.client.delete(Pod, names.pod(0))
    await world.client.patch(Pod, names.pod(0), MergePatch({"metadata": {"finalizers": None}}))


@pytest.mark.parametrize("engine", ["postgresql", "mysql"])
@virtual_time
async def test_lost_volume_is_reported_and_passwords_kept(engine: str) -> None:
    world = DatabaseHarness(engine)
    async with world.operator():
        await world.create_ready()
        passwords = [world.secret(name)["password"] for name in ("orders-admin", "orders-app")]
        await lose_volume(world)
        await world.until("it is reported", lambda: world.reason == "DataLost")
        world.server.collect_garbage()
        assert world.database is not None and world.database.status.phase == "Failed"
        assert "PVC data-orders-0 is missing" in world.message and "accept-data-loss" in world.message
        assert [world.secret(name)["password"] for name in ("orders-admin", "orders-app")] == passwords
        assert world.cluster is not None
        accepted = {"databases.steersman.dev/accept-data-loss": world.cluster.status.data_identity}
        kind = type(world.cluster)
        await world.client.patch(kind, KEY, MergePatch({"metadata": {"annotations": accepted}}))
        await world.ready()
        assert [world.secret(name)["password"] for name in ("orders-admin", "orders-app")] == passwords


@pytest.mark.parametrize("engine", ["postgresql", "mysql"])
@virtual_time
async def test_restored_cluster_is_adopted_by_annotation(engine: str) -> None:
    world = DatabaseHarness(engine)
    async with world.operator():
        await world.create_ready()
    assert world.cluster is not None
    kind, uid = type(world.cluster), world.cluster.metadata.uid
    for each in (kind, StatefulSet, Service, ServiceAccount, Secret):
        for obj in world.server.read_all(each):
            await world.client.patch(each, obj.key, MergePatch({"metadata": {"ownerReferences": None}}))
    async with world.operator():
        await world.until("it is refused", lambda: world.reason == "NameConflict")
        assert "set the annotation databases.steersman.dev/adopt of the Database to true" in world.message
        adopt = {"databases.steersman.dev/adopt": "true"}
        await world.client.patch(Database, KEY, MergePatch({"metadata": {"annotations": adopt}}))
        await world.ready()
        assert world.cluster is not None and world.cluster.metadata.uid == uid
        reference = world.cluster.controller_reference
        assert reference is not None and reference.kind == "Database"
