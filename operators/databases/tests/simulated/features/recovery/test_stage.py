"""Recovery of a new cluster by a Job, before any server starts."""

from __future__ import annotations

from typing import Any

import pytest

from database_support.unit.backup_objects import create_backup, create_store
from database_support.unit.cluster_harness import KEY, NAMES, ClusterHarness
from steersman.api.apply import core, meta
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Secret
from steersman_databases.api import PostgreSQLCluster
from steersman_databases.api.backups.backup_common import (
    BackupReference,
    RecoverySettings,
    StorePath,
    StoreReference,
)
from steersman_databases.api.postgresql_cluster import Bootstrap
from steersman_testing import matching, virtual_time

FROM_BACKUP = RecoverySettings(backup=BackupReference(name="before"))
RECOVERY_OBJECTS: tuple[type[Any], ...] = (Job, ConfigMap, Secret)


def from_store(path: str, namespace: str | None = None) -> RecoverySettings:
    return RecoverySettings(store=StorePath(store_ref=StoreReference(name="main", namespace=namespace), path=path))


async def create(world: ClusterHarness, recovery: RecoverySettings = FROM_BACKUP, **spec: Any) -> None:
    """Create the cluster orders, which recovers its data."""
    await world.create(bootstrap=Bootstrap(recovery=recovery), **spec)


def ended(world: ClusterHarness) -> bool:
    return world.condition("Ready") == "False/RecoveryFailed"


@pytest.mark.requirement("overview/level-3-backups")
@virtual_time
async def test_recovered_data_serve_and_replicas_copy_them() -> None:
    world = ClusterHarness()
    await create_store(world.client)
    await create_backup(world.client)
    async with world.operator():
        await create(world, instances=2)
        await world.ready(2)
        assert world.hosts.programs.recovered == ["data-orders-0"]
        assert world.hosts.systems == 0, "no server created data"
        assert world.condition("Recovered") == "True/RecoveryCompleted"
        assert "2026-11-28T10:30:00Z" in world.message("Recovered")
        assert "RecoveryCompleted" in world.events()
        for kind in RECOVERY_OBJECTS:
            assert world.server.read(kind, NAMES.recovery_job) is None, "the Job's objects are deleted"


@virtual_time
async def test_failed_recovery_ends_with_reason_and_retries_without_job() -> None:
    world = ClusterHarness()
    world.hosts.programs.recovery_failure = "TargetNotReached", "the archive ends at 10:30"
    await create_store(world.client)
    await create_backup(world.client)
    async with world.operator():
        await create(world, instances=1)
        await world.until("ended", lambda: ended(world))
        assert "TargetNotReached: the archive ends at 10:30" in world.message("Recovered")
        assert world.status.phase == "Failed" and world.warnings("RecoveryFailed")
        assert world.pods() == {} and world.statefulsets() == []
        world.hosts.programs.recovery_failure = None
        await world.client.delete(Job, NAMES.recovery_job)
        await world.ready(1)
        assert world.hosts.systems == 0


@pytest.mark.parametrize("refused", ["pods exceed the quota", ""], ids=["quota", "unschedulable"])
@virtual_time
async def test_job_without_pod_reports_cause(refused: str) -> None:
    world = ClusterHarness()
    unscheduled = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes"}
    nowhere = {"phase": "Pending", "conditions": [unscheduled]}
    world.hosts.stuck_jobs = {"orders-recovery": refused or nowhere}
    await create_store(world.client)
    await create_backup(world.client)
    async with world.operator():
        await create(world, instances=1)
        reason = "PodRejected" if refused else "Unschedulable"
        await world.until("reported", lambda: world.condition("Recovered") == f"Unknown/{reason}")
        assert (refused or "0/2 nodes") in world.message("Recovered")


@virtual_time
async def test_refused_job_is_reported_by_api_server_reason() -> None:
    world = ClusterHarness()
    await create_store(world.client)
    await create_backup(world.client)
    world.server.fail_next(matching("POST", "/jobs"), 403, times=1000)
    async with world.operator():
        await create(world, instances=1)
        await world.until("reported", lambda: world.condition("Ready") == "False/Forbidden")


@pytest.mark.parametrize(
    ("recovery", "reason"),
    [
        (RecoverySettings(backup=BackupReference(name="absent")), "SourceNotFound"),
        (from_store("default/postgresqlcluster.source/0123abcd", "closed"), "StoreNotFound"),
        (from_store("tenant/postgresqlcluster.source/0123abcd", "shared"), "SourceNotPermitted"),
    ],
    ids=["absent", "closed store", "path of another tenant"],
)
@virtual_time
async def test_unavailable_source_is_refused(recovery: RecoverySettings, reason: str) -> None:
    world = ClusterHarness()
    for namespace, allowed in (("closed", ()), ("shared", ("default",))):
        await world.client.apply(core.Namespace(metadata=meta.ObjectMeta(name=namespace)))
        await create_store(world.client, namespace, allowed_namespaces=allowed)
    async with world.operator():
        await create(world, recovery, instances=1)
        await world.until("refused", lambda: world.condition("Recovered") == f"False/{reason}")
        assert world.server.read(Job, NAMES.recovery_job) is None


@virtual_time
async def test_own_path_of_permitted_store_is_recovered() -> None:
    world = ClusterHarness()
    await world.client.apply(core.Namespace(metadata=meta.ObjectMeta(name="shared")))
    await create_store(world.client, "shared", allowed_namespaces=("default",))
    async with world.operator():
        await create(world, from_store("default/postgresqlcluster.source/0123abcd", "shared"), instances=1)
        await world.ready(1)


@pytest.mark.parametrize("status", [{"engine": "mysql"}, {"version": "15.4"}], ids=["engine", "version"])
@virtual_time
async def test_backup_of_other_engine_or_version_is_refused(status: dict[str, Any]) -> None:
    world = ClusterHarness()
    await create_store(world.client)
    await create_backup(world.client, **status)
    async with world.operator():
        await create(world, instances=1)
        await world.until("refused", lambda: world.condition("Recovered") == "False/SourceMismatch")


@virtual_time
async def test_retained_data_are_not_mixed_with_recovery() -> None:
    world = ClusterHarness()
    await create_store(world.client)
    await create_backup(world.client)
    async with world.operator():
        await world.create_ready(1, instances=1)
        await world.client.delete(PostgreSQLCluster, KEY)
        await world.until("gone", lambda: world.cluster is None)
        await create(world, instances=1)
        await world.until("refused", lambda: world.condition("Ready") == "False/RetainedDataMismatch")
        assert "spec.bootstrap.recovery" in world.message("Ready") and world.pods() == {}
        await world.client.delete(PersistentVolumeClaim, NAMES.data_pvc(0))
        await world.ready(1)
        assert world.hosts.programs.recovered == ["data-orders-0"]


@virtual_time
async def test_deletion_removes_unrecovered_volume() -> None:
    world = ClusterHarness()
    world.hosts.programs.recovery_failure = "NoUsableBackup", "there is none"
    await create_store(world.client)
    await create_backup(world.client)
    async with world.operator():
        await create(world, instances=1, deletion_policy="Retain")
        await world.until("ended", lambda: ended(world))
        await world.client.delete(PostgreSQLCluster, KEY)
        await world.until("gone", lambda: world.cluster is None)
        await world.wait(10)
        assert world.pvc_names() == [], "half-restored data are not adopted by the next cluster"


@virtual_time
async def test_cluster_that_served_never_recovers_again() -> None:
    world = ClusterHarness()
    await create_store(world.client)
    await create_backup(world.client)
    async with world.operator():
        await create(world, instances=1)
        await world.ready(1)
        await world.change(hibernated=True)
        await world.until("hibernated", lambda: world.condition("Ready") == "False/Hibernated")
        await world.client.delete(PersistentVolumeClaim, NAMES.data_pvc(0))
        await world.change(hibernated=False)
        await world.until("the loss is reported", lambda: world.condition("Ready") == "False/DataLost")
        await world.annotate(accept_data_loss=world.status.data_identity)
        await world.until("created again", lambda: world.hosts.systems == 1)
        assert world.hosts.programs.recovered == ["data-orders-0"]
