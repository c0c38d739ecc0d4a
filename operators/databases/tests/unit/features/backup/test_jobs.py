"""Settings of ``spec.backup`` in the Jobs of backups."""

from __future__ import annotations

import dataclasses
from typing import Any

from database_support.unit.declared_clusters import declared_cluster
from steersman.api.core_v1 import Pod
from steersman.meta import ObjectMeta, decode_builtins, to_builtins
from steersman_databases.api import Backup, BackupStore, BackupStoreSpec
from steersman_databases.api.backups.backup_common import BackupSettings, RecoverySettings
from steersman_databases.api.backups.backup_store import S3Location, StoreCredentials
from steersman_databases.features.backup.jobs import backup_plan
from steersman_databases.features.backup.specs import program_job
from steersman_databases.features.final_backup.specs import final_backup_plan
from steersman_databases.features.recovery.source import RecoverySource
from steersman_databases.features.recovery.specs import recovery_plan


def _settings(**fields: Any) -> BackupSettings:
    return decode_builtins({"storeRef": {"name": "archive"}, **fields}, BackupSettings)


def _backup(name: str, spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None) -> Backup:
    wire = {
        "metadata": {"name": name, "namespace": "default", "uid": f"{name}-uid"},
        "spec": {"clusterRef": {"name": "shop"}, **(spec or {})},
        "status": status or {},
    }
    return decode_builtins(wire, Backup)


def _documents(engine: str, parameters: dict[str, str]) -> dict[str, Any]:
    """Return ``job.json`` by program."""
    cluster = dataclasses.replace(declared_cluster("shop"), engine=engine, parameters=parameters)
    settings, backup = _settings(), _backup("b")
    spec = BackupStoreSpec(s3=S3Location(bucket="backups"), credentials=StoreCredentials())
    store = BackupStore(metadata=ObjectMeta(name="archive", namespace="default"), spec=spec)
    source = RecoverySource(store=store, path="default/mysqlcluster.shop/0123abcd")
    return {
        "backup": backup_plan(cluster, settings, backup, [], []).document,
        "recover": recovery_plan(cluster, RecoverySettings(), settings, source).document,
        "final-backup": final_backup_plan(cluster, settings, backup, "image", "uid").document,
    }


def test_mysql_jobs_have_parameters_of_data() -> None:
    declared = {"lower_case_table_names": "1", "innodb_page_size": "8k", "max_connections": "50"}
    wanted = {"lower_case_table_names": "1", "innodb_page_size": "8k"}
    for program, document in _documents("mysql", declared).items():
        assert document.get("parameters") == wanted, program


def test_postgresql_jobs_have_no_parameters() -> None:
    for program, document in _documents("postgresql", {"innodb_page_size": "8k"}).items():
        assert "parameters" not in document, program


def test_job_settings_reach_the_pod() -> None:
    jobs = {
        "resources": {"limits": {"memory": "2Gi"}, "requests": {"cpu": "300m"}},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "backup", "operator": "Exists"}],
        "priorityClassName": "low",
        "processes": 4,
    }
    cluster = declared_cluster("shop")
    plan = backup_plan(cluster, _settings(jobs=jobs), _backup("b"), [], [])
    pod: Any = to_builtins(program_job(cluster, plan))["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["memory"] == "2Gi"
    assert container["resources"]["requests"]["cpu"] == "300m"
    assert (pod["nodeSelector"], pod["priorityClassName"]) == ({"disk": "fast"}, "low")
    assert pod["tolerations"] == [{"key": "backup", "operator": "Exists"}]
    assert plan.document["processes"] == 4


def test_source_of_backup_overrides_that_of_cluster() -> None:
    cluster, settings = declared_cluster("shop"), _settings(source="Replica")
    assert backup_plan(cluster, settings, _backup("b"), [], []).document["source"] == "Replica"
    assert backup_plan(cluster, settings, _backup("b", {"source": "Primary"}), [], []).document["source"] == "Primary"


def test_retention_has_window_and_retained_backups() -> None:
    settings = _settings(retention={"window": "2w", "minimumFullBackups": 3})
    kept = _backup(
        "kept", {"retainUntil": "2027-01-01T00:00:00Z"}, {"phase": "Completed", "backupId": "20260101-000000F"}
    )
    document: Any = backup_plan(declared_cluster("shop"), settings, _backup("b"), [], [kept]).document
    assert document["retention"] == {"window_seconds": 1209600, "minimum_full_backups": 3}
    assert document["retain_until"] == {"20260101-000000F": "2027-01-01T00:00:00+00:00"}


def _pod(name: str, role: str) -> Pod:
    labels = {"databases.steersman.dev/cluster": "shop", "databases.steersman.dev/role": role}
    return decode_builtins({"metadata": {"name": name, "namespace": "default", "labels": labels}}, Pod)


def test_backup_reads_replicas_before_the_primary() -> None:
    pods = [_pod("shop-0-0", "primary"), _pod("shop-1-0", "replica"), _pod("shop-2-0", "replica")]
    cluster = declared_cluster("shop")
    document: Any = backup_plan(cluster, _settings(), _backup("b"), pods, []).document
    assert [each["instance"] for each in document["members"]] == ["shop-1", "shop-2", "shop-0"]
    declared = _settings(source="Primary")
    document = backup_plan(cluster, declared, _backup("b"), pods, []).document
    assert [each["instance"] for each in document["members"]] == ["shop-0", "shop-1", "shop-2"]


def test_backup_of_postgresql_needs_no_volume() -> None:
    volumes: dict[str, list[str]] = {}
    for engine in ("postgresql", "mysql"):
        cluster = dataclasses.replace(declared_cluster("shop"), engine=engine)
        job: Any = to_builtins(program_job(cluster, backup_plan(cluster, _settings(), _backup("b"), [], [])))
        found = job["spec"]["template"]["spec"]["volumes"]
        volumes[engine] = [each["name"] for each in found if {"ephemeral", "persistentVolumeClaim"} & each.keys()]
    # A copy of a MySQL member is made on a volume that is deleted with the pod.
    assert volumes == {"postgresql": [], "mysql": ["work"]}
