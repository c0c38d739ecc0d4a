"""Ready is said of what is as declared, and of nothing else; in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from database_support.unit.cluster_harness import NAMES, ClusterHarness
from database_support.unit.group_harness import GroupHarness
from database_support.unit.planned_cluster import DECLARED, THREE, cluster_state, member, primary
from steersman.api.apply import core, meta
from steersman.client import HttpRequest
from steersman.errors import ApiStatus, error_from_status
from steersman.meta import Quantity
from steersman_databases.api.cluster_common import VolumeSettings
from steersman_databases.api.reasons import REASONS_BY_KIND
from steersman_databases.cluster.status.conditions import (
    INDEPENDENT_CONDITIONS,
    ConditionSet,
    add_member_error,
    set_ready,
    status_of,
)
from steersman_databases.features.certificates.x509 import create_ca, sign_server
from steersman_testing import matching, run_virtual

WORLDS = pytest.mark.parametrize("make", [ClusterHarness, GroupHarness])
WELL = {
    *(
        "PrimaryAvailable",
        "Applied",
        "DatabaseReady",
        "InSync",
        "NotForAllRoles",
        "SizeMatches",
        "Sufficient",
        "Valid",
        "Serving",
    ),
    *("Current", "NoErrantTransactions"),
}
STILL_AS_DECLARED = {
    "Expiring",
    "MinorUpgradeAvailable",
    "MinorVersionSkew",
    "RunningLow",
    "WaitingForRing",
    "WaitingForWindow",
}
UNDER_WAY = {
    *(
        "FileSystemResizePending",
        "LoweringParameter",
        "Resizing",
        "RestartPending",
        "Restoring",
        "RollingOut",
        "Upgrading",
    ),
    "WaitingForBackup",
}


def troubles() -> Iterator[Any]:
    """Each condition of each kind with each reason for which it does not hold."""
    for world in (ClusterHarness, GroupHarness):
        for type_, reasons in REASONS_BY_KIND[world.kind.api_resource.kind].items():
            for reason in reasons if type_ not in ("Ready", "Paused", *INDEPENDENT_CONDITIONS) else ():
                if reason not in WELL:
                    yield pytest.param(world, type_, reason, id=f"{world.__name__}-{type_}-{reason}")


@pytest.mark.parametrize(("world", "type_", "reason"), list(troubles()))
def test_undeclared_state_is_not_ready(world: type[ClusterHarness], type_: str, reason: str) -> None:
    findings, cluster = ConditionSet(), world.kind(spec=world.spec())
    cluster = structs.replace(cluster, status=structs.replace(status_of(cluster), phase="Ready"))
    findings.set(type_, False, reason, "its words")
    set_ready(cluster, DECLARED, None, findings)
    told = findings.updates["Ready"]
    if reason in STILL_AS_DECLARED:
        assert (told.holds, told.reason) == (True, "AllInstancesReady")
    elif reason == "DiskFull":
        assert (told.holds, told.reason) == (False, "DiskFull")
    else:
        wanted = "RollingOut" if reason in UNDER_WAY else "Degraded"
        assert (told.holds, told.reason, told.message) == (False, wanted, f"{type_}: its words")


@pytest.mark.parametrize("type_", sorted(INDEPENDENT_CONDITIONS))
def test_independent_condition_leaves_cluster_ready(type_: str) -> None:
    findings, cluster = ConditionSet(), ClusterHarness.kind(spec=ClusterHarness.spec())
    cluster = structs.replace(cluster, status=structs.replace(status_of(cluster), phase="Ready"))
    findings.set(type_, False, "StoreUnreachable", "the object store does not respond")
    set_ready(cluster, DECLARED, None, findings)
    assert (findings.updates["Ready"].holds, findings.updates["Ready"].reason) == (True, "AllInstancesReady")


def test_member_error_is_added_to_rejection() -> None:
    findings, cluster = ConditionSet(), GroupHarness.kind(spec=GroupHarness.spec())
    findings.set("ParametersApplied", False, "ParameterRejected", "its words")
    set_ready(cluster, DECLARED, None, findings)
    add_member_error(
        DECLARED,
        cluster_state(THREE, primary(0), member(1, failing_operation="a copy is corrupt"), member(2)),
        findings,
    )
    told = findings.updates["Ready"]
    assert (told.reason, told.message) == ("Degraded", "ParametersApplied: its words; orders-1: a copy is corrupt")


@WORLDS
def test_volume_too_small_is_reported(make: type[ClusterHarness]) -> None:
    async def story() -> None:
        world = make()
        words = "only dynamically provisioned pvc can be resized"
        refused = error_from_status(ApiStatus(message=words, reason="Forbidden", code=403))
        grows = False

        def fails(request: HttpRequest) -> bool:
            return not grows and matching("PATCH", "/persistentvolumeclaims/data-orders-0")(request)

        async with world.operator():
            await world.create_ready(1, instances=1, storage=VolumeSettings(size=Quantity("1Gi")))
            world.server.fail_next(fails, refused, times=10**6)
            await world.change(storage={"size": "2Gi"})
            await world.until("told", lambda: world.condition("VolumesResized") == "False/NotExpandable")
            assert (world.status.phase, world.condition("Ready")) == ("Degraded", "False/Degraded")
            assert "VolumesResized: PVC data-orders-0 cannot be resized from 1Gi" in world.message("Ready")
            grows = True
            await world.ready(1)
            assert world.condition("VolumesResized") == "True/SizeMatches"

    run_virtual(story())


@WORLDS
def test_custom_certificate_missing_or_expiring_is_reported(make: type[ClusterHarness]) -> None:
    async def story() -> None:
        world, now = make(), make().runtime.clock.now()

        async def give(days: int) -> None:
            authority = create_ca("company", now - timedelta(days=1), timedelta(days=3650))
            pair = sign_server(authority, ["*.default.svc"], now - timedelta(days=1), timedelta(days=days))
            data = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authority.certificate}
            metadata = meta.ObjectMeta(name="company", namespace=NAMES.key.namespace)
            await world.client.apply(core.Secret(metadata=metadata, data={k: v.encode() for k, v in data.items()}))

        async with world.operator():
            await world.create(instances=1)
            await world.ready(1)
            await world.change(tls={"serverSecret": {"name": "company"}})
            await world.until("told", lambda: world.condition("CertificatesValid") == "False/SecretInvalid")
            assert (world.status.phase, world.condition("Ready")) == ("Degraded", "False/Degraded")
            assert "CertificatesValid: Secret company: it does not exist" in world.message("Ready")
            await give(days=10)
            await world.until("told", lambda: world.condition("CertificatesValid") == "False/Expiring", 60)
            await world.ready(1)
            assert world.warnings("Expiring")

    run_virtual(story())
