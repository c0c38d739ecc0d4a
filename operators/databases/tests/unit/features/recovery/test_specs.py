"""Contract between the recovery Job that the operator creates and the program that it runs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from database_support.unit.declared_clusters import declared_cluster
from steersman.meta import ObjectMeta, to_builtins
from steersman_databases.api import BackupStore, BackupStoreSpec
from steersman_databases.api.backups.backup_common import (
    ArchiveSettings,
    GtidTarget,
    RecoverySettings,
    RecoveryTarget,
)
from steersman_databases.api.backups.backup_store import S3Location, StoreCredentials
from steersman_databases.engines.postgresql.cluster_engine import PostgreSQLEngine
from steersman_databases.features.backup.instance_jobs import instance_job
from steersman_databases.features.backup_store.access import StoreAccess
from steersman_databases.features.recovery.source import RecoverySource
from steersman_databases.features.recovery.specs import SOURCE_MOUNT, recovery_plan, source_secret
from steersman_instance.archive.store_file import load_store
from steersman_instance.jobs import JobFields
from steersman_instance.paths import PATHS
from steersman_instance.recovery.gtid_plan import parse_gtid_target
from steersman_instance.recovery.postgresql import RecoveryJob

STORE = BackupStore(
    metadata=ObjectMeta(name="main", namespace="default"),
    spec=BackupStoreSpec(s3=S3Location(bucket="backups"), credentials=StoreCredentials()),
)
SOURCE = RecoverySource(store=STORE, path="default/postgresqlcluster.source/0123abcd", backup_id="20261128-100000F")
MOMENT = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
GTID = "3e11fa47-71ca-11e1-9e33-c80aa9429562:23"


def document(target: RecoveryTarget | None) -> JobFields:
    """Return ``job.json`` as the program reads it."""
    plan = recovery_plan(declared_cluster(), RecoverySettings(target=target), None, SOURCE)
    return JobFields(msgspec.json.decode(msgspec.json.encode(plan.document)))


@pytest.mark.parametrize(
    "target",
    [None, RecoveryTarget(time=MOMENT), RecoveryTarget(lsn="0/3000090"), RecoveryTarget(name="before")],
    ids=["latest", "time", "lsn", "name"],
)
def test_program_of_postgresql_reads_document(target: RecoveryTarget | None) -> None:
    job = RecoveryJob.parse(document(target))
    assert (job.version, job.backup_id, job.processes) == ("17", SOURCE.backup_id, 1)
    assert job.cluster_uid == declared_cluster().uid


@pytest.mark.parametrize(
    "target",
    [RecoveryTarget(time=MOMENT), RecoveryTarget(gtid=GtidTarget(before=GTID))],
    ids=["time", "gtid"],
)
def test_program_of_mysql_reads_target(target: RecoveryTarget) -> None:
    given = document(target).part("target")
    assert given is not None
    parse_gtid_target(given.fields)


def test_program_reads_store_of_source(tmp_path: Path) -> None:
    access = StoreAccess(bucket="backups", access_key_id="id", secret_access_key="key", passphrase="secret")
    content = access.pod_document(engine="postgresql", path=SOURCE.path, cluster_uid="", archive=ArchiveSettings())
    secret = source_secret(declared_cluster(), content)
    assert isinstance(secret.data, dict)
    (tmp_path / "store.json").write_bytes(secret.data["store.json"])
    store = load_store(tmp_path / "store.json")
    assert store is not None and (store.engine, store.path) == ("postgresql", SOURCE.path)


def test_job_mounts_what_program_reads() -> None:
    cluster = declared_cluster()
    plan = recovery_plan(cluster, RecoverySettings(), None, SOURCE)
    job = instance_job(cluster, plan, 0, PostgreSQLEngine().pod_contribution(cluster, 0, fenced=True))
    pod = to_builtins(job)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {"/etc/steersman/job", SOURCE_MOUNT, str(PATHS.volume), str(PATHS.run)} <= mounts
    assert str(PATHS.source_store_file.parent) == SOURCE_MOUNT
    assert container["command"] == ["steersman-instance", "recover", "--spec", "/etc/steersman/job/job.json"]
    names = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} <= names
    assert pod["automountServiceAccountToken"] is False and "secret" not in str(container.get("env", ""))
