"""What conditions tell, and when their times move."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from unittest.mock import Mock

import pytest

from steersman_databases.api import CLUSTER_KINDS, UserCondition
from steersman_databases.api.database_user import set_user_condition
from steersman_databases.api.reasons import REASONS_BY_KIND, advice_for
from steersman_databases.cluster.setup import mysql_engine, postgresql_engine
from steersman_manifests.crd import definition

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.requirement("user/condition-times")
@pytest.mark.parametrize(
    ("status", "reason", "message", "updated", "moved"),
    [
        ("False", "ProvisionFailed", "a", False, False),
        ("False", "ProvisionFailed", "b", True, False),
        ("False", "Other", "a", True, False),
        ("True", "ProvisionSucceeded", "c", True, True),
        ("Unknown", "ProvisionFailed", "a", False, True),
    ],
)
def test_condition_times_follow_the_article(
    status: Literal["True", "False", "Unknown"], reason: str, message: str, updated: bool, moved: bool
) -> None:
    first = UserCondition(type="Ready", status="False", reason="ProvisionFailed", message="a")
    then = set_user_condition((), first, NOON)
    later = NOON + timedelta(minutes=1)
    news = UserCondition(type="Ready", status=status, reason=reason, message=message)
    (told,) = set_user_condition(then, news, later)
    assert told.last_update_time == (later if updated else NOON)
    assert told.last_transition_time == (later if moved else NOON)


def test_problem_reasons_have_advice() -> None:
    going_on_by_themselves = {
        *("Creating", "RollingOut", "Deleting", "FailingOver", "RestartPending", "LoweringParameter", "Resizing"),
        *("FileSystemResizePending", "Upgrading", "ServerStarting", "ServerTerminating"),
        *(
            "Running",
            "Hibernating",
            "Recovering",
            "Restoring",
            "RecoveryApproved",
            "Waiting",
            "NoBackup",
            "WaitingForBackup",
        ),
        *("Growing", "CoolingDown", "UsageUnknown", "NeverVerified", "CollectingData", "Scaling"),
        *("EmergencyVacuum", "TransactionEnded"),
    }
    well = {
        *("DatabaseReady", "ProvisionSucceeded", "AllInstancesReady", "PrimaryAvailable", "Applied", "InSync"),
        *("SizeMatches", "Sufficient", "Idle", "Valid", "Current", "NoErrantTransactions", "Serving"),
        *("Archiving", "UpToDate", "RecoveryCompleted", "Verified", "Completed", "Created"),
        *("Reachable", "Exported", "ProvidedByUser", "Locked", "NotDeclared", "Suitable"),
    }
    silent = {
        reason
        for kind, conditions in REASONS_BY_KIND.items()
        for condition, reasons in conditions.items()
        for reason in reasons
        if not advice_for(kind, condition, reason)
    }
    assert silent == going_on_by_themselves | well


def test_trust_condition_ignores_pods_without_certificate() -> None:
    for kind, parts in (("PostgreSQLCluster", postgresql_engine), ("MySQLCluster", mysql_engine)):
        asked = parts(Mock()).served_fingerprint is not None
        said = REASONS_BY_KIND[kind]["CertificatesValid"]
        assert ("CADistrusted" in said) is ("StaleCertificate" in said) is asked, kind


@pytest.mark.parametrize("kind", CLUSTER_KINDS)
def test_advice_names_existing_fields(kind: type[Any]) -> None:
    version: Any = definition(kind)["spec"]["versions"][0]
    told = REASONS_BY_KIND[kind.api_resource.kind].values()
    named = {
        path for reasons in told for words in reasons.values() for path in re.findall(r"\bspec[.](\S+\b)", words)
    }
    assert "storage.size" in named
    for path in named:
        found = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        for name in path.split("."):
            assert name in found.get("properties", {}), f"{kind.__name__} has no spec.{path}"
            found = found["properties"][name]
