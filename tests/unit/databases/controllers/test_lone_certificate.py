"""The certificate of a MySQL server that stands alone, in virtual time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from database_world import KEY, World
from steersman.api.apply.apps_v1 import StatefulSetApply
from steersman.api.core_v1 import PersistentVolumeClaim, Pod, Secret
from steersman.meta import ObjectKey
from steersman.testing import virtual_time
from steersman_databases.api import Database
from steersman_databases.clusters.x509 import covers, signed_by
from steersman_databases.controllers import lone_certificate
from steersman_databases.engines.model import ModelContents
from steersman_databases.engines.server import Server, TLSMode, Verification
from steersman_databases.engines.sessions import Sessions
from steersman_databases.resources import ServerImage, statefulset

LIFETIME = timedelta(days=90)
POD = ObjectKey(KEY.namespace, "orders-0")


class Logins:
    """How the operator has each server verified."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.last: Verification | None = None
        connect = ModelContents.connect

        def seen(contents: ModelContents, server: Server) -> Sessions:
            self.last = server.verification
            return connect(contents, server)

        patch.setattr(ModelContents, "connect", seen)

    def verifies(self, authority: str) -> bool:
        """Whether the last login wanted a certificate of this authority."""
        return self.last == Verification(TLSMode.VERIFY_FULL, authority.encode())


@pytest.fixture
def logins(monkeypatch: pytest.MonkeyPatch) -> Logins:
    return Logins(monkeypatch)


def pod(world: World) -> Pod:
    found = world.server.read(Pod, POD)
    assert found is not None
    return found


async def restarted(world: World) -> None:
    """The pod is another one, as after a drain."""
    former = pod(world)
    await world.client.delete(Pod, POD)
    await world.until("another pod", lambda: (found := world.server.read(Pod, POD)) and found != former)
    await world.ready()


@virtual_time
async def test_a_new_server_shows_what_its_own_authority_signed_and_is_verified(logins: Logins) -> None:
    world = World()
    async with world.operator():
        await world.create()
        await world.ready()
        made = world.secret("orders-tls-1")
        assert set(made) == {"tls.crt", "tls.key", "ca.crt"}, "the authority's key is kept nowhere"
        assert signed_by(made["tls.crt"], made["ca.crt"]) and covers(made["tls.crt"], "orders-primary.default.svc")
        assert logins.verifies(made["ca.crt"])
        container = pod(world).spec.containers[0]
        assert "--ssl-cert=/etc/steersman/tls/tls.crt" in container.args
        assert "/etc/steersman/tls" in {mount.mount_path for mount in container.volume_mounts}
        secret, claim = world.server.read(Secret, ObjectKey(KEY.namespace, "orders-tls-1")), world.claim()
        assert secret is not None and claim is not None and secret.immutable
        owners = [(o.kind, o.uid) for o in secret.metadata.owner_references]
        assert owners == [(PersistentVolumeClaim.api_resource.kind, claim.metadata.uid)]


@virtual_time
async def test_a_server_that_runs_without_goes_on_until_it_starts_again(
    logins: Logins, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()

    def former(database: Database, image: ServerImage) -> StatefulSetApply:
        wanted: Any = statefulset(database, image)
        spec = wanted.spec.template.spec
        mounts = [mount for mount in spec.containers[0].volume_mounts if mount.name != "tls"]
        containers = [replace(spec.containers[0], volume_mounts=mounts)]
        volumes = [volume for volume in spec.volumes if volume.name != "tls"]
        template = replace(wanted.spec.template, spec=replace(spec, volumes=volumes, containers=containers))
        return replace(wanted, spec=replace(wanted.spec, template=template))

    with monkeypatch.context() as patch:
        patch.setattr("steersman_databases.controllers.server.statefulset", former)
        async with world.operator():
            await world.create()
            await world.ready()
    uid = pod(world).metadata.uid
    async with world.operator():
        await world.runtime.clock.sleep(60)
        assert world.reason == "DatabaseReady" and pod(world).metadata.uid == uid
        assert logins.last == Verification(TLSMode.REQUIRE)
        await restarted(world)
        await world.until("verified", lambda: logins.verifies(world.secret("orders-tls-1")["ca.crt"]), 30)


@virtual_time
async def test_a_lost_certificate_locks_nobody_out(logins: Logins) -> None:
    world = World()
    async with world.operator():
        await world.create()
        await world.ready()
        uid = pod(world).metadata.uid
        await world.client.delete(Secret, ObjectKey(KEY.namespace, "orders-tls-1"))
        await world.until("another", lambda: world.secret("orders-tls-2"), 30)
        await world.runtime.clock.sleep(30)
        assert world.reason == "DatabaseReady" and pod(world).metadata.uid == uid
        assert world.secret("orders-tls-1") == {}, "what the server shows is under no other certificate's name"
        assert logins.last == Verification(TLSMode.REQUIRE)
        await restarted(world)
        await world.until("verified", lambda: logins.verifies(world.secret("orders-tls-2")["ca.crt"]), 30)


@virtual_time
async def test_a_pod_that_waits_for_a_lost_certificate_is_made_anew(logins: Logins) -> None:
    world = World()
    async with world.operator():
        await world.create()
        await world.ready()
    # The operator is away, and so is the node with the server.
    await world.client.delete(Secret, ObjectKey(KEY.namespace, "orders-tls-1"))
    await world.client.delete(Pod, POD)
    async with world.operator():
        await world.until("ready with another", lambda: world.secret("orders-tls-2") and mounts(world, 2), 60)
        await world.ready()
        await world.until("verified", lambda: logins.verifies(world.secret("orders-tls-2")["ca.crt"]), 30)


def mounts(world: World, number: int) -> bool:
    """Whether the server that runs shows the certificate of this number."""
    found = world.server.read(Pod, POD)
    names = [v.secret.secret_name for v in found.spec.volumes if v.secret is not None] if found else []
    return found is not None and found.status.phase == "Running" and f"orders-tls-{number}" in names


@virtual_time
async def test_the_next_certificate_waits_for_the_next_start(logins: Logins, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lone_certificate, "LIFETIME", LIFETIME)
    world = World()
    async with world.operator():
        await world.create()
        await world.ready()
    first = world.secret("orders-tls-1")
    await world.runtime.clock.sleep((LIFETIME * 0.7).total_seconds())
    async with world.operator():
        await world.until("the next", lambda: world.secret("orders-tls-2"), 60)
        await world.runtime.clock.sleep(30)
        assert logins.verifies(first["ca.crt"]), "it runs, and shows what it had when it started"
        await restarted(world)
        await world.until("verified", lambda: logins.verifies(world.secret("orders-tls-2")["ca.crt"]), 30)
        await world.until("forgotten", lambda: not world.secret("orders-tls-1"), 30)
    await world.runtime.clock.sleep((LIFETIME + timedelta(days=1)).total_seconds())
    async with world.operator():
        await world.until("not locked out", lambda: logins.last == Verification(TLSMode.REQUIRE), 60)
