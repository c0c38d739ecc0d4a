"""What conditions tell, and when their times move."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from unittest.mock import Mock

import pytest

from steersman_databases.api import CLUSTERS, UserCondition
from steersman_databases.api.conditions import BY_KIND, next_step
from steersman_databases.api.users import set_user_condition
from steersman_databases.controllers.cluster_wiring import mysql_parts, postgresql_parts
from steersman_manifests.crd import definition

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


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
def test_times_move_as_the_article_has_it(
    status: Literal["True", "False", "Unknown"], reason: str, message: str, updated: bool, moved: bool
) -> None:
    first = UserCondition(type="Ready", status="False", reason="ProvisionFailed", message="a")
    then = set_user_condition((), first, NOON)
    later = NOON + timedelta(minutes=1)
    news = UserCondition(type="Ready", status=status, reason=reason, message=message)
    (told,) = set_user_condition(then, news, later)
    assert told.last_update_time == (later if updated else NOON)
    assert told.last_transition_time == (later if moved else NOON)


def test_a_reason_of_trouble_says_what_to_do_next() -> None:
    going_on_by_themselves = {
        *("Creating", "RollingOut", "Deleting", "FailingOver", "RestartPending", "Lowering", "Resizing"),
        *("FileSystemResizePending", "Upgrading", "ServerStarting", "ServerTerminating"),
        *("Running", "Hibernating", "Recovering", "Consented"),
    }
    well = {
        *("DatabaseReady", "ProvisionSucceeded", "ClusterReady", "PrimaryAccepts", "Applied", "InSync"),
        *("Sized", "Sufficient", "Valid", "Current", "Shared", "Serving"),
    }
    silent = {
        reason
        for kind, conditions in BY_KIND.items()
        for condition, reasons in conditions.items()
        for reason in reasons
        if not next_step(kind, condition, reason)
    }
    assert silent == going_on_by_themselves | well


def test_who_is_not_asked_for_its_certificate_is_not_said_to_lack_trust() -> None:
    for kind, parts in (("PostgreSQLCluster", postgresql_parts), ("MySQLCluster", mysql_parts)):
        asked = parts(Mock()).shown is not None
        said = BY_KIND[kind]["CertificatesValid"]
        assert ("NotTrusted" in said) is ("NotShown" in said) is asked, kind


@pytest.mark.parametrize("kind", CLUSTERS)
def test_a_next_step_names_fields_that_the_kind_has(kind: type[Any]) -> None:
    version: Any = definition(kind)["spec"]["versions"][0]
    told = BY_KIND[kind.api_resource.kind].values()
    named = {
        path for reasons in told for words in reasons.values() for path in re.findall(r"\bspec[.](\S+\b)", words)
    }
    assert "storage.size" in named
    for path in named:
        found = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        for name in path.split("."):
            assert name in found.get("properties", {}), f"{kind.__name__} has no spec.{path}"
            found = found["properties"][name]
