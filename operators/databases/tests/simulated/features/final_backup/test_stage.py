"""The final backup of a cluster that is deleted with its data."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from database_support.unit.backup_objects import MONTH, backup_settings, create_store, final_backup_of
from database_support.unit.cluster_harness import KEY, NAMES, ClusterHarness
from database_support.unit.database_harness import CuttableTransport
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.client import HttpRequest, HttpResponse
from steersman.errors import NotFound
from steersman_databases.api import Backup, PostgreSQLCluster
from steersman_testing import virtual_time

UNREACHABLE = "StoreUnreachable", "host backups.s3.amazonaws.com does not respond"


async def serving(world: ClusterHarness, instances: int = 1, **spec: Any) -> str:
    """Create a cluster with backups that is deleted with its data. Return its UID."""
    await create_store(world.client)
    spec = {"backup": backup_settings(), "deletion_policy": "Delete", **spec}
    await world.create_ready(instances, instances=instances, **spec)
    return world.cluster.metadata.uid


async def delete(world: ClusterHarness) -> None:
    await world.client.delete(PostgreSQLCluster, KEY)


async def gone(world: ClusterHarness, seconds: float = 300) -> None:
    await world.until("gone", lambda: world.cluster is None, seconds)
    await world.wait(10)


def failed(world: ClusterHarness) -> bool:
    return world.condition("Ready") == "False/FinalBackupFailed"


@pytest.mark.requirement("pattern/final-backup")
@virtual_time
async def test_deletion_completes_final_backup_before_data_go() -> None:
    world = ClusterHarness()
    async with world.operator():
        uid = await serving(world, 3)
        system = next(iter(world.hosts.volumes.values())).system
        world.hosts.stuck_jobs = {"orders-final-backup": {}}
        await delete(world)
        await world.until("the Job exists", lambda: world.server.read(Job, NAMES.final_backup_job))
        await world.wait(60)
        assert len(world.pvc_names()) == len(world.statefulsets()) == 3 and world.pods() == {}
        world.hosts.stuck_jobs = {}
        await gone(world)
        assert (world.pvc_names(), world.statefulsets(), world.pods()) == ([], [], {})
        assert world.hosts.programs.final_backups == [system]
        backup = await final_backup_of(world.client, uid)
        assert (backup.status.phase, backup.status.trigger) == ("Completed", "Final")
        conditions = {c.type: c.reason for c in backup.status.conditions}
        assert conditions == {"Complete": "Completed", "Verified": "NeverVerified"}
        assert backup.status.instance == "orders-0" and backup.metadata.owner_references == ()
        assert backup.status.store is not None and backup.status.store.namespace == "default"
        assert backup.status.backup_id and backup.status.path
        assert backup.spec.retain_until is not None
        assert abs(backup.spec.retain_until - world.runtime.clock.now() - MONTH).total_seconds() < 600
        assert "FinalBackupCompleted" in world.events()


@virtual_time
async def test_final_backup_uses_volume_of_last_primary() -> None:
    world = ClusterHarness()
    async with world.operator():
        uid = await serving(world, 2)
        await world.annotate(switchover="orders-1")
        await world.until("switched", lambda: world.status.primary == "orders-1")
        await world.ready(2)
        await delete(world)
        await gone(world)
        assert (await final_backup_of(world.client, uid)).status.instance == "orders-1"


@virtual_time
async def test_unreachable_store_blocks_deletion_until_it_is_back() -> None:
    world = ClusterHarness()
    world.hosts.programs.final_backup_failure = UNREACHABLE
    async with world.operator():
        uid = await serving(world)
        await delete(world)
        await world.until("failed", lambda: failed(world))
        assert UNREACHABLE[1] in world.message("Ready")
        assert "databases.steersman.dev/skip-final-backup" in world.message("Ready")
        await world.wait(300)
        assert failed(world) and world.pvc_names() == ["data-orders-0"]
        world.hosts.programs.final_backup_failure = None
        await gone(world)
        assert world.pvc_names() == []
        assert (await final_backup_of(world.client, uid)).status.phase == "Completed"


@virtual_time
async def test_skipped_final_backup_retains_volumes() -> None:
    world = ClusterHarness()
    world.hosts.programs.final_backup_failure = UNREACHABLE
    async with world.operator():
        uid = await serving(world)
        await delete(world)
        await world.until("failed", lambda: failed(world))
        await world.annotate(**{"skip-final-backup": "true"})
        await gone(world)
        assert world.pvc_names() == ["data-orders-0"] and world.statefulsets() == []
        assert world.warnings("FinalBackupSkipped") and "DataRetained" in world.events()
        skipped = await final_backup_of(world.client, uid)
        assert (skipped.status.phase, skipped.status.conditions[0].reason) == ("Failed", "Skipped")


@virtual_time
async def test_if_possible_gives_up_after_ten_minutes() -> None:
    world = ClusterHarness()
    world.hosts.programs.final_backup_failure = UNREACHABLE
    async with world.operator():
        await serving(world, backup=backup_settings(final_backup="IfPossible"))
        await delete(world)
        await world.wait(540)
        assert world.cluster is not None
        await gone(world)
        assert world.pvc_names() == ["data-orders-0"] and world.warnings("FinalBackupSkipped")


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        ({"backup": None}, "spec.backup is not set"),
        ({"backup": backup_settings(final_backup="Disabled")}, "spec.backup.finalBackup is Disabled"),
    ],
    ids=["no backup", "disabled"],
)
@virtual_time
async def test_undeclared_final_backup_is_reported_by_event(spec: dict[str, Any], cause: str) -> None:
    world = ClusterHarness()
    async with world.operator():
        uid = await serving(world, **spec)
        await delete(world)
        await gone(world)
        assert world.pvc_names() == [] and world.hosts.programs.final_backups == []
        assert world.messages("FinalBackupSkipped") == {f"deleted without a final backup: {cause}"}
        with pytest.raises(NotFound):
            await final_backup_of(world.client, uid)


@virtual_time
async def test_retained_data_need_no_final_backup() -> None:
    world = ClusterHarness()
    async with world.operator():
        await serving(world, deletion_policy="Retain")
        await delete(world)
        await gone(world)
        assert world.pvc_names() == ["data-orders-0"] and world.hosts.programs.final_backups == []
        assert "FinalBackupSkipped" not in world.events()


@virtual_time
async def test_cluster_that_never_served_needs_no_final_backup() -> None:
    world = ClusterHarness()
    world.hosts.pod_rejection = "exceeded quota"
    async with world.operator():
        await create_store(world.client)
        await world.create(instances=1, backup=backup_settings(), deletion_policy="Delete")
        await world.until("refused", lambda: world.condition("Ready") == "False/PodRejected")
        await delete(world)
        await gone(world)
        assert world.pvc_names() == [] and world.hosts.programs.final_backups == []


@virtual_time
async def test_hibernated_cluster_is_backed_up() -> None:
    world = ClusterHarness()
    async with world.operator():
        await serving(world, 2)
        await world.change(hibernated=True)
        await world.until("hibernated", lambda: world.condition("Ready") == "False/Hibernated")
        await delete(world)
        await gone(world)
        assert world.pvc_names() == [] and len(world.hosts.programs.final_backups) == 1


class TerminatingNamespace(CuttableTransport):
    """Shows the namespace as one that is being deleted, once that is set."""

    terminating = False

    async def request(self, request: HttpRequest) -> HttpResponse:
        response = await super().request(request)
        if not self.terminating or (
            not request.path.startswith(f"/api/v1/namespaces/{KEY.namespace}?")
            and (request.path != f"/api/v1/namespaces/{KEY.namespace}")
        ):
            return response
        document = json.loads(response.body)
        document["metadata"]["deletionTimestamp"] = "2026-11-28T12:00:00Z"
        return msgspec.structs.replace(response, body=json.dumps(document).encode())


@virtual_time
async def test_terminating_namespace_is_released_without_job() -> None:
    world = ClusterHarness()
    transport = TerminatingNamespace(world.server)
    async with world.operator(transport):
        await serving(world)
        transport.terminating = True
        await delete(world)
        await gone(world, 30)
        assert world.server.read(Job, NAMES.final_backup_job) is None
        assert not list(world.server.read_all(Backup))


@virtual_time
async def test_pod_on_lost_node_blocks_deletion_with_advice() -> None:
    world = ClusterHarness()
    async with world.operator():
        await serving(world, 2)
        world.hosts.hanging = {"orders-0-0"}
        await delete(world)
        await world.until("reported", lambda: failed(world))
        assert "node.kubernetes.io/out-of-service" in world.message("Ready")
        await world.wait(600)
        assert "data-orders-0" in world.pvc_names() and world.server.read(Job, NAMES.final_backup_job) is None
        world.hosts.hanging = set()
        await gone(world)
        assert world.pvc_names() == [] and len(world.hosts.programs.final_backups) == 1


@virtual_time
async def test_replica_on_lost_node_does_not_block_final_backup() -> None:
    world = ClusterHarness()
    async with world.operator():
        await serving(world, 2)
        # A member on a lost node does not reach the lock.
        replica = await world.client.get(PersistentVolumeClaim, NAMES.data_pvc(1))
        world.hosts.volumes[replica.metadata.uid].broken = True
        world.hosts.hanging = {"orders-1-0"}
        await delete(world)
        await gone(world, 600)
        assert len(world.hosts.programs.final_backups) == 1


@virtual_time
async def test_lost_report_repeats_job() -> None:
    world = ClusterHarness()
    world.hosts.programs.lost_reports = 1
    async with world.operator():
        uid = await serving(world)
        await delete(world)
        await gone(world)
        assert (await final_backup_of(world.client, uid)).status.phase == "Completed"


@virtual_time
async def test_lost_volume_of_primary_blocks_deletion_of_replicas() -> None:
    world = ClusterHarness()
    async with world.operator():
        await serving(world, 2)
        world.hosts.hanging = {"orders-0-0"}
        await world.client.delete(PersistentVolumeClaim, NAMES.data_pvc(0))
        await delete(world)
        await world.wait(30)
        world.hosts.hanging = set()
        await world.until("reported", lambda: failed(world) or world.cluster is None)
        assert world.cluster is not None and world.pvc_names() == ["data-orders-1"]
        assert "no longer exists" in world.message("Ready")
