"""The Job that verifies a backup."""

from __future__ import annotations

import dataclasses
from typing import Any

from database_support.unit.declared_clusters import declared_cluster
from steersman.meta import ObjectKey, Quantity, decode_builtins, to_builtins
from steersman_databases.api import Backup
from steersman_databases.api.backups.backup_common import BackupSettings
from steersman_databases.features.backup.jobs import verification_plan
from steersman_databases.features.backup.specs import program_job

KEY = ObjectKey("shop", "orders-verify-1")
GIBIBYTE = 1 << 30


def plan(
    verification: dict[str, Any] | None = None, engine: str = "postgresql", size: int = GIBIBYTE, **fields: Any
) -> Any:
    """Return ``job.json``, and the pod as the API server gets it."""
    cluster = dataclasses.replace(
        declared_cluster(),
        engine=engine,
        parameters={"lower_case_table_names": "1"},
        storage_size=Quantity("10Gi"),
        storage_class="slow",
    )
    wire: dict[str, Any] = {"storeRef": {"name": "archive"}, **fields}
    if verification is not None:
        wire["verification"] = {"schedule": "0 5 * * 0", **verification}
    status = {"phase": "Completed", "backupId": "20261128-100000F", "sizeBytes": size}
    wire_backup = {
        "metadata": {"name": "b", "uid": "u"},
        "spec": {"clusterRef": {"name": "orders"}},
        "status": status,
    }
    backup = decode_builtins(wire_backup, Backup)
    settings = decode_builtins(wire, BackupSettings)
    found = verification_plan(cluster, settings, backup, [], KEY, "000000010000000000000003")
    job: Any = to_builtins(program_job(cluster, found))
    return found.document, job["spec"]["template"]["spec"], job


def claim(pod: Any) -> Any:
    """Return the spec of the temporary volume."""
    (volume,) = [each for each in pod["volumes"] if each["name"] == "data"]
    return volume["ephemeral"]["volumeClaimTemplate"]["spec"]


def test_job_restores_one_backup_to_the_end_of_the_archive() -> None:
    document, pod, job = plan({})
    assert (document["backup_id"], document["target"]) == ("20261128-100000F", {"latest": {}})
    assert document["archived"] == "000000010000000000000003"
    assert "parameters" not in document
    assert plan({}, "mysql")[0]["parameters"] == {"lower_case_table_names": "1"}
    (container,) = pod["containers"]
    assert container["command"][:2] == ["steersman-instance", "verify"]
    assert job["spec"]["activeDeadlineSeconds"] == 24 * 3600
    assert job["metadata"]["labels"]["app.kubernetes.io/component"] == "verification"
    assert pod["automountServiceAccountToken"] is False
    mounts = {each["name"]: each.get("readOnly", False) for each in container["volumeMounts"]}
    assert mounts["store"] and not mounts["data"]


def test_volume_and_resources_have_defaults() -> None:
    _, pod, _ = plan({}, jobs={"resources": {"limits": {"memory": "99Gi"}}, "nodeSelector": {"disk": "fast"}})
    (container,) = pod["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "100m", "memory": "512Mi"},
        "limits": {"memory": "1Gi"},
    }
    assert pod["nodeSelector"] == {"disk": "fast"}
    found = claim(pod)
    assert (found["storageClassName"], found["resources"]["requests"]["storage"]) == ("slow", str(10 * GIBIBYTE))
    # The volumes have grown since they were declared.
    grown = claim(plan({}, size=20 * GIBIBYTE)[1])["resources"]["requests"]["storage"]
    assert int(grown) == 25 * GIBIBYTE


def test_volume_and_resources_are_declared() -> None:
    declared = {
        "resources": {"limits": {"memory": "2Gi"}, "requests": {"cpu": "1"}},
        "storage": {"size": "3Gi", "storageClass": "cheap"},
    }
    _, pod, _ = plan(declared)
    (container,) = pod["containers"]
    assert container["resources"] == {"limits": {"memory": "2Gi"}, "requests": {"cpu": "1"}}
    found = claim(pod)
    assert (found["storageClassName"], found["resources"]["requests"]["storage"]) == ("cheap", str(3 * GIBIBYTE))
