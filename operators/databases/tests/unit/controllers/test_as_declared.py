"""Ready is said of what is as declared, and of nothing else; in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from database_support.cluster_world import NAMES, ClusterWorld
from database_support.group_world import GroupWorld
from database_support.planned_cluster import THREE, VIEW, member, observed, primary
from steersman.api.apply import core, meta
from steersman.client import HttpRequest
from steersman.errors import ApiStatus, error_from_status
from steersman.meta import Quantity
from steersman_databases.api.cluster_parts import Storage
from steersman_databases.api.conditions import BY_KIND
from steersman_databases.clusters.x509 import make_authority, sign_server
from steersman_databases.controllers.cluster_status import Findings, describe, explain, status_of
from steersman_testing import matching, run_virtual

WORLDS = pytest.mark.parametrize("make", [ClusterWorld, GroupWorld])
WELL = {
    *("PrimaryAccepts", "Applied", "DatabaseReady", "InSync", "NotForAll", "Sized", "Sufficient", "Valid", "Serving"),
    *("Current", "Shared"),
}
STILL_AS_DECLARED = {"Expiring", "MinorAvailable", "MinorsDiffer", "RunningLow"}
UNDER_WAY = {"FileSystemResizePending", "Lowering", "Resizing", "RestartPending", "RollingOut", "Upgrading"}


def troubles() -> Iterator[Any]:
    """Each condition of each kind with each reason for which it does not hold."""
    for world in (ClusterWorld, GroupWorld):
        for type_, reasons in BY_KIND[world.kind.api_resource.kind].items():
            for reason in reasons if type_ not in ("Ready", "Paused") else ():
                if reason not in WELL:
                    yield pytest.param(world, type_, reason, id=f"{world.__name__}-{type_}-{reason}")


@pytest.mark.parametrize(("world", "type_", "reason"), list(troubles()))
def test_what_is_not_as_declared_is_not_ready(world: type[ClusterWorld], type_: str, reason: str) -> None:
    findings, cluster = Findings(), world.kind(spec=world.spec())
    cluster = structs.replace(cluster, status=structs.replace(status_of(cluster), phase="Ready"))
    findings.tell(type_, False, reason, "its words")
    describe(cluster, VIEW, None, findings)
    told = findings.found["Ready"]
    if reason in STILL_AS_DECLARED:
        assert (told.holds, told.reason) == (True, "ClusterReady")
    elif reason == "DiskFull":
        assert (told.holds, told.reason) == (False, "DiskFull")
    else:
        wanted = "RollingOut" if reason in UNDER_WAY else "Degraded"
        assert (told.holds, told.reason, told.message) == (False, wanted, f"{type_}: its words")


def test_what_an_instance_tries_in_vain_is_told_beside_what_is_refused() -> None:
    findings, cluster = Findings(), GroupWorld.kind(spec=GroupWorld.spec())
    findings.tell("ParametersApplied", False, "ParameterRefused", "its words")
    describe(cluster, VIEW, None, findings)
    explain(VIEW, observed(THREE, primary(0), member(1, failing="a copy is corrupt"), member(2)), findings)
    told = findings.found["Ready"]
    assert (told.reason, told.message) == ("Degraded", "ParametersApplied: its words; orders-1: a copy is corrupt")


@WORLDS
def test_a_volume_that_stays_too_small(make: type[ClusterWorld]) -> None:
    async def story() -> None:
        world = make()
        words = "only dynamically provisioned pvc can be resized"
        refused = error_from_status(ApiStatus(message=words, reason="Forbidden", code=403))
        grows = False

        def fails(request: HttpRequest) -> bool:
            return not grows and matching("PATCH", "/persistentvolumeclaims/data-orders-0")(request)

        async with world.operator():
            await world.create(instances=1, storage=Storage(size=Quantity("1Gi")))
            await world.ready(1)
            world.server.fail_next(fails, refused, times=10**6)
            await world.change(storage={"size": "2Gi"})
            await world.until("told", lambda: world.condition("StorageAsDeclared") == "False/NotExpandable")
            assert (world.status.phase, world.condition("Ready")) == ("Degraded", "False/Degraded")
            assert "StorageAsDeclared: volume data-orders-0 stays at 1Gi" in world.message("Ready")
            grows = True
            await world.ready(1)
            assert world.condition("StorageAsDeclared") == "True/Sized"

    run_virtual(story())


@WORLDS
def test_a_given_certificate_that_is_not_there_and_one_that_expires(make: type[ClusterWorld]) -> None:
    async def story() -> None:
        world, now = make(), make().runtime.clock.now()

        async def give(days: int) -> None:
            authority = make_authority("company", now - timedelta(days=1), timedelta(days=3650))
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
