"""Workload identity of clusters and dumps in virtual time."""

from __future__ import annotations

import json

from database_support.unit.backup_harness import BackupHarness, backup_settings
from database_support.unit.cluster_harness import KEY, NAMES
from database_support.unit.dump_harness import BACKUP, DumpHarness
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import ConfigMap, ServiceAccount
from steersman.client import MergePatch
from steersman.meta import ObjectKey, to_builtins
from steersman_databases.api import BackupStore
from steersman_testing import virtual_time

ROLE = "eks.amazonaws.com/role-arn"
ARN = "arn:aws:iam::123456789012:role/backups"
IDENTITY = {"workloadIdentity": {"serviceAccountAnnotations": {ROLE: ARN}}}
VOLUME = "store-identity"


def _templates(world: BackupHarness) -> list[str]:
    return [str(to_builtins(each.spec.template)) for each in world.server.read_all(StatefulSet)]


def _annotations(world: BackupHarness | DumpHarness, name: str) -> dict[str, str]:
    account = world.server.read(ServiceAccount, ObjectKey("default", name))
    return {} if account is None else dict(account.metadata.annotations)


@virtual_time
async def test_first_pods_of_cluster_have_identity() -> None:
    world = BackupHarness()
    async with world.operator():
        await world.create_store(credentials=IDENTITY)
        await world.create(instances=1, backup=backup_settings())
        await world.ready(1)
        pods = world.uids()
        assert _annotations(world, KEY.name) == {ROLE: ARN}
        assert all(VOLUME in each for each in _templates(world))
        await world.until("store", lambda: world.secret("orders-backup"), 60)
        document = json.loads(world.secret("orders-backup")["store.json"])
        assert document["serviceAccountAnnotations"] == {ROLE: ARN}
        assert world.claims == [], "the operator has no access"
        await world.until("catalog", lambda: world.server.read(ConfigMap, NAMES.backup_catalog), 60)
        await world.report()
        await world.until("job", lambda: world.jobs(), 120)
        assert VOLUME in str(to_builtins(world.jobs()[0].spec.template))
        assert world.uids() == pods


@virtual_time
async def test_unusable_store_keeps_identity() -> None:
    world = BackupHarness()
    async with world.operator():
        await world.create_store(credentials=IDENTITY)
        await world.create(instances=1, backup=backup_settings())
        await world.ready(1)
        await world.until("store", lambda: world.secret("orders-backup"), 60)
        pods = world.uids()
        empty = {"credentials": {"workloadIdentity": {"serviceAccountAnnotations": {ROLE: None}}}}
        await world.client.patch(BackupStore, ObjectKey(KEY.namespace, "store"), MergePatch({"spec": empty}))
        await world.until("named", lambda: world.condition("ContinuousArchiving") == "False/InvalidIdentity", 600)
        await world.client.delete(BackupStore, ObjectKey(KEY.namespace, "store"))
        await world.until("missing", lambda: world.condition("ContinuousArchiving") == "False/StoreNotFound", 600)
        assert world.uids() == pods
        assert _annotations(world, KEY.name) == {ROLE: ARN}


@virtual_time
async def test_removed_backup_removes_identity() -> None:
    world = BackupHarness()
    async with world.operator():
        await world.create_store(credentials=IDENTITY)
        await world.create(instances=1, backup=backup_settings())
        await world.ready(1)
        await world.until("store", lambda: world.secret("orders-backup"), 60)
        await world.change(backup=None)
        await world.until("no token", lambda: not any(VOLUME in each for each in _templates(world)), 600)
        await world.until("no annotation", lambda: not _annotations(world, KEY.name), 60)


@virtual_time
async def test_dump_has_account_of_its_own() -> None:
    world = DumpHarness()
    async with world.operator():
        await world.create_store(credentials=IDENTITY)
        await world.database(backup=BACKUP)
        first = f"shop-initial-{world.found.metadata.uid[:8]}"
        await world.until("running", lambda: world.backups().get(first) == "Running")
        pod = to_builtins(world.jobs()[0].spec.template.spec)
        assert pod["serviceAccountName"] == "shop-dumps" and VOLUME in str(pod["volumes"])
        assert pod["automountServiceAccountToken"] is False
        assert _annotations(world, "shop-dumps") == {ROLE: ARN}
        assert world.claims == []
