"""Statuses of simulated objects in each phase, computed by the library of kstatus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from database_support.unit.backup_harness import BackupHarness, backup_settings
from database_support.unit.backup_stores import ARCHIVE, CREDENTIALS, StoresHarness, secret, store
from database_support.unit.cluster_harness import KEY, NAMES, ClusterHarness
from database_support.unit.database_harness import DatabaseHarness
from database_support.unit.group_harness import GroupHarness
from database_support.unit.in_place import InPlace
from database_support.unit.restore_harness import NAME
from database_support.unit.users_harness import CLERK, UsersHarness
from framework_support import kstatus
from steersman.api.core_v1 import ConfigMap
from steersman.client import HttpRequest, MergePatch
from steersman.errors import ApiStatus, error_from_status
from steersman.meta import ObjectKey, Quantity, to_builtins
from steersman_databases.api import Backup, BackupStore, Database, DatabaseUser, Restore
from steersman_databases.api.cluster_common import VolumeSettings
from steersman_databases.features.backup_store.report import ProbeReport
from steersman_testing import matching, run_virtual, virtual_time

pytestmark = pytest.mark.timeout(600)


class Recorder:
    """All versions of one object that a status was written to, by the phase of the story."""

    def __init__(self, server: Any, kind: type[Any], key: ObjectKey) -> None:
        self._read: Callable[[], Any] = lambda: server.read(kind, key)
        self._kind = kind
        self.phase = ""
        self.seen: list[tuple[str, dict[str, Any]]] = []

    def __call__(self) -> bool:
        """Record the object. Return True, so that a probe can include the call."""
        found = self._read()
        # Before the first status there is nothing to compute from.
        if found is not None and found.status.conditions:
            resource = self._kind.api_resource
            document = {"apiVersion": resource.api_version, "kind": resource.kind, **to_builtins(found)}
            if (self.phase, document) not in self.seen:
                self.seen.append((self.phase, document))
        return True

    def statuses(self, phase: str) -> list[str]:
        """Return the statuses in one phase, without repetitions."""
        return _without_repetitions([document for of, document in self.seen if of == phase])


def _without_repetitions(documents: list[dict[str, Any]]) -> list[str]:
    for document in documents:
        held = [c["type"] for c in document["status"]["conditions"] if c["type"] in ("Reconciling", "Stalled")]
        assert len(held) <= 1, document["status"]["conditions"]
    statuses = [each.status for each in kstatus.computed(documents)]
    return [each for n, each in enumerate(statuses) if n == 0 or statuses[n - 1] != each]


@pytest.mark.parametrize("make", [ClusterHarness, GroupHarness])
def test_cluster_status_follows_its_life(make: type[ClusterHarness]) -> None:
    world = make()
    record = Recorder(world.server, world.kind, KEY)

    async def story() -> None:
        async def ready(phase: str, instances: int) -> None:
            record.phase = phase
            await world.until(phase, lambda: record() and _is_ready(world, instances))

        message = "only dynamically provisioned pvc can be resized"
        refused = error_from_status(ApiStatus(message=message, reason="Forbidden", code=403))
        grows = False

        def fails(request: HttpRequest) -> bool:
            return not grows and matching("PATCH", "/persistentvolumeclaims/data-orders-0")(request)

        async with world.operator():
            await world.create(instances=2, storage=VolumeSettings(size=Quantity("1Gi")))
            await ready("creating", 2)
            await world.annotate(restarted_at="2026-01-01T00:00:00Z")
            before = set(world.uids().values())
            record.phase = "rolling"
            await world.until(
                "restarted", lambda: record() and not before & set(world.uids().values()) and _is_ready(world, 2)
            )
            world.server.fail_next(fails, refused, times=10**6)
            await world.change(storage={"size": "2Gi"})
            record.phase = "refused"
            await world.until(
                "refused", lambda: record() and world.condition("VolumesResized") == "False/NotExpandable"
            )
            record.phase = "stalled"
            await world.wait(10)
            record()
            grows = True
            await ready("corrected", 2)
            await world.client.delete(world.kind, KEY)
            record.phase = "deleting"
            await world.until("gone", lambda: record() and world.cluster is None)

    run_virtual(story())
    assert record.statuses("creating") == ["InProgress", "Current"]
    assert record.statuses("rolling")[-2:] == ["InProgress", "Current"]
    assert record.statuses("stalled") == ["Failed"]
    assert record.statuses("corrected")[-1] == "Current"
    assert record.statuses("deleting") == ["Terminating"]


def _is_ready(world: ClusterHarness, instances: int) -> bool:
    status, cluster = world.status, world.cluster
    observed = status.observed_generation == cluster.metadata.generation
    return observed and (status.phase, status.ready_instances) == ("Ready", instances)


@virtual_time
async def test_paused_cluster_is_stalled_unless_ready() -> None:
    world = ClusterHarness()
    record = Recorder(world.server, world.kind, KEY)
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        await world.annotate(paused="true")
        await world.until("paused", lambda: world.condition("Paused"))
        record()
        await world.annotate(paused=None)
        await world.until("resumed", lambda: not world.condition("Paused"))
        world.unschedulable.add("nowhere")
        await world.change(instances=2)
        await world.until("not ready", lambda: world.condition("Ready").startswith("False"), 60)
        record.phase = "paused"
        await world.annotate(paused="true")
        await world.until("paused", lambda: world.condition("Paused"))
        record()
    assert (record.statuses(""), record.statuses("paused")) == (["Current"], ["Failed"])


def test_database_status_follows_its_life() -> None:
    world = DatabaseHarness()
    record = Recorder(world.server, Database, KEY)

    async def story() -> None:
        async with world.operator():
            await world.create()
            record.phase = "creating"
            await world.until("Ready", lambda: record() and world.reason == "DatabaseReady")
            await world.client.patch(Database, KEY, MergePatch({"spec": {"version": "1"}}))
            record.phase = "stalled"
            await world.until("refused", lambda: world.reason == "UnsupportedVersion")
            record()
            await world.client.delete(Database, KEY)
            record.phase = "deleting"
            await world.until("gone", lambda: record() and world.database is None)

    run_virtual(story())
    assert record.statuses("creating") == ["InProgress", "Current"]
    assert record.statuses("stalled") == ["Failed"]
    assert set(record.statuses("deleting")) <= {"Terminating"}


@virtual_time
async def test_user_status_follows_its_server() -> None:
    world = UsersHarness()
    record = Recorder(world.server, DatabaseUser, CLERK)
    async with world.operator():
        await world.user(password={"name": "mine", "key": "password"})
        record.phase = "stalled"
        await world.wait_failed("Secret mine with the password does not exist")
        record()
        await world.secret("mine", {"password": "opens the door"})
        record.phase = "ready"
        await world.ready()
        record()
        world.sql.up = False
        await world.client.patch(DatabaseUser, CLERK, MergePatch({"spec": {"connectionLimit": 3}}))
        record.phase = "unreachable"
        await world.wait_failed("connection refused")
        record()
    assert record.statuses("stalled") == ["Failed"]
    assert record.statuses("ready") == ["Current"]
    assert record.statuses("unreachable") == ["InProgress"]


@virtual_time
async def test_store_status_follows_its_probe() -> None:
    harness = StoresHarness()
    record = Recorder(harness.server, BackupStore, ARCHIVE)
    async with harness.operator():
        await harness.client.create(store())
        for phase, report in (
            ("SecretNotFound", ProbeReport()),
            ("StoreUnreachable", ProbeReport(reason="StoreUnreachable", message="no response")),
            ("Reachable", ProbeReport()),
        ):
            harness.probe.report = report
            if phase == "StoreUnreachable":
                await harness.client.create(secret("credentials", CREDENTIALS))
            record.phase = phase
            await harness.until(phase, lambda phase=phase: harness.reason() == phase)
            record()
    assert record.statuses("SecretNotFound") == ["Failed"]
    assert record.statuses("StoreUnreachable") == ["InProgress"]
    assert record.statuses("Reachable") == ["Current"]


@virtual_time
async def test_backup_status_follows_its_job() -> None:
    world = BackupHarness()
    complete = Recorder(world.server, Backup, ObjectKey(KEY.namespace, "b"))
    failed = Recorder(world.server, Backup, ObjectKey(KEY.namespace, "c"))
    async with world.operator():
        await world.create_store()
        await world.create(instances=1, backup=backup_settings())
        await world.until("catalog", lambda: world.server.read(ConfigMap, NAMES.backup_catalog), 60)
        await world.report()
        # The operator takes the first backup by itself.
        await world.until("first backup", lambda: "Running" in world.backups().values(), 60)
        await world.run_jobs()
        await world.until("complete", lambda: "Completed" in world.backups().values(), 60)
        for name, record in (("b", complete), ("c", failed)):
            world.succeeds = record is complete
            await world.request(name)
            await world.until("running", lambda n=name, r=record: r() and world.backups().get(n) == "Running", 60)
            await world.run_jobs()
            end = "Completed" if record is complete else "Failed"
            await world.until(end, lambda n=name, r=record, e=end: r() and world.backups().get(n) == e, 60)
    assert complete.statuses("") == ["InProgress", "Current"]
    assert failed.statuses("") == ["InProgress", "Failed"]


@virtual_time
async def test_planned_restore_waits_for_confirmation() -> None:
    world = InPlace()
    record = Recorder(world.server, Restore, ObjectKey(KEY.namespace, NAME))
    async with world.operator():
        await world.planned(1)
        record.phase = "planned"
        record()
        await world.confirm()
        record.phase = "confirmed"
        await world.until("completed", lambda: record() and world.outcome() == "Completed/Completed", 600)
    assert record.statuses("planned") == ["Failed"]
    assert record.statuses("confirmed")[-2:] == ["InProgress", "Current"]
