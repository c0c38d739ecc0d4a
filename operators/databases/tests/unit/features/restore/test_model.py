"""Names, status and Jobs of restores."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from database_support.unit.declared_clusters import declared_cluster
from steersman.meta import ObjectMeta, decode_builtins
from steersman_databases.api import Restore, RestoreSpec
from steersman_databases.api.backups.backup_common import BackupSettings
from steersman_databases.api.backups.restore import RestoredTable
from steersman_databases.engines.sql.restore_account import CopyOutcome
from steersman_databases.features.backup.specs import JobResult, program_job
from steersman_databases.features.restore import model
from steersman_databases.features.restore.specs import account_secret, restore_plan

LATEST: Mapping[str, object] = {"latest": {}}
TABLE = {"database": "shop", "table": "orders"}


def restore(
    *only: dict[str, str], name: str = "before-drop", kind: str = "PostgreSQLCluster", **spec: Any
) -> Restore:
    given = {"clusterRef": {"name": "shop", "kind": kind}, "target": LATEST, "only": list(only), **spec}
    return Restore(
        metadata=ObjectMeta(name=name, namespace="prod", uid="u"), spec=decode_builtins(given, RestoreSpec)
    )


@pytest.mark.parametrize(
    ("given", "expected", "is_schema"),
    [
        (restore(TABLE), "restored_before_drop", True),
        (restore({"database": "shop"}), "shop_restored_before_drop", False),
        (restore(TABLE, kind="MySQLCluster"), "shop_restored_before_drop", False),
        (restore(TABLE, into="Mine"), "Mine", True),
        (restore(TABLE, name="a.b"), "restored_a_b", True),
    ],
)
def test_copy_name_is_derived_from_the_object(given: Restore, expected: str, is_schema: bool) -> None:
    assert (model.copy_name(given), model.is_schema(given)) == (expected, is_schema)


def test_long_copy_names_are_shortened_and_differ() -> None:
    long = [restore(TABLE, name="a" * 90 + end) for end in "bc"] + [restore({"database": "ä" * 31})]
    names = [model.copy_name(each) for each in long]
    assert len(set(names)) == 3 and all(len(name.encode()) <= 63 for name in names)
    assert [model.invalid_name(each) for each in long] == ["", "", ""]
    assert "63 bytes" in model.invalid_name(restore(TABLE, into="ä" * 40))


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("PostgreSQLCluster", [("public.orders", "restored_before_drop.orders", False)]),
        ("MySQLCluster", [("shop.orders", "shop_restored_before_drop.orders", False)]),
    ],
)
def test_completed_status_names_present_tables_and_copies(kind: str, names: list[tuple[str, str, bool]]) -> None:
    given = restore(TABLE, kind=kind)
    report = model.report_of(
        JobResult(ok=True, document={"restore": {"backup": "b", "recoveredTo": "2026-01-01T00:00:00.5Z"}})
    )
    assert report is not None
    now = datetime(2026, 1, 2, tzinfo=UTC)
    fields = model.completed_fields(given, report, CopyOutcome("", (False,)), now)
    tables = cast("tuple[RestoredTable, ...]", fields["tables"])
    assert [(t.name, t.copy, t.exists) for t in tables] == names
    assert "as of 2026-01-01 00:00:00 UTC" in model.completed_message(given, report)


def test_malformed_result_is_no_report() -> None:
    for document in (
        {},
        {"restore": 7},
        {"restore": {"backup": 1}},
        {"restore": {"backup": "b", "recoveredTo": "x"}},
    ):
        assert model.report_of(JobResult(ok=True, document=document)) is None
    assert model.report_of(None) is None


def settings(**verification: Any) -> BackupSettings:
    given: dict[str, Any] = {"storeRef": {"name": "store"}}
    return decode_builtins({**given, **({"verification": verification} if verification else {})}, BackupSettings)


def claim(plan: Any) -> tuple[str, Any]:
    """Size and class of the temporary volume."""
    (volume,) = [each for each in plan.volumes if each.name == "data"]
    spec = volume.ephemeral.volume_claim_template.spec
    return spec.resources.requests["storage"], spec.storage_class_name


def test_job_has_bounded_resources_and_no_secret() -> None:
    shop = declared_cluster("shop")
    plan = restore_plan(shop, settings(), restore(TABLE), [], [])
    job = cast("Any", program_job(shop, plan))
    (container,) = job.spec.template.spec.containers
    assert container.command == ["steersman-instance", "restore", "--spec", "/etc/steersman/job/job.json"]
    assert container.resources.limits == {"memory": "1Gi"}
    assert job.spec.active_deadline_seconds == 24 * 3600
    assert not job.spec.template.spec.automount_service_account_token
    mounts = {mount.name: mount.mount_path for mount in container.volume_mounts}
    assert mounts["owner"] == "/etc/steersman/owner" and mounts["server"] == "/etc/steersman/server"
    (server,) = [volume for volume in job.spec.template.spec.volumes if volume.name == "server"]
    (projection,) = server.projected.sources
    assert [item.key for item in projection.secret.items] == ["ca.crt"], "no key of the operator"
    secret = account_secret(shop, plan.key, model.copy_target(restore(TABLE), "p").account)
    assert secret.data == {"username": model.account_name(restore(TABLE)).encode(), "password": b"p"}


def test_storage_and_resources_default_to_those_of_verifications() -> None:
    shop = declared_cluster("shop")
    verified = settings(
        schedule="0 5 * * 0", storage={"size": "7Gi", "storageClass": "fast"}, resources={"limits": {"memory": "3Gi"}}
    )
    plan = restore_plan(shop, verified, restore(TABLE), [], [])
    assert claim(plan) == (str(7 << 30), "fast")
    assert plan.settings.resources is not None and plan.settings.resources.limits["memory"] == "3Gi"
    own = restore(
        TABLE,
        storage={"size": "9Gi", "storageClass": "slow"},
        resources={"requests": {"cpu": "1"}, "limits": {"memory": "2Gi"}},
    )
    plan = restore_plan(shop, verified, own, [], [])
    assert claim(plan) == (str(9 << 30), "slow")
    assert plan.settings.resources is not None and plan.settings.resources.limits["memory"] == "2Gi"
