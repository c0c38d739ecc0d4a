"""What ``serverRef`` names of other people's is missing, or has not what it should: told, and found when it comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from database_support.contents_in_memory import ADMINISTRATOR, ContentsInMemory
from database_support.users_world import HOST, UsersWorld
from framework_support.certificates import CertificateAuthority
from steersman.api.apply import core, meta
from steersman.api.core_v1 import ConfigMap, Secret
from steersman.client import MergePatch
from steersman.meta import ObjectKey
from steersman_databases.api import DatabaseUser
from steersman_databases.engines.port import Contents
from steersman_databases.engines.server import Server
from steersman_testing import virtual_time

AUTHORITY = CertificateAuthority()
CERTIFICATE, PRIVATE = AUTHORITY.issue("admin")
PAIR = {"tls.crt": CERTIFICATE.decode(), "tls.key": PRIVATE.decode()}
BUNDLE = {"bundle.pem": AUTHORITY.certificate.decode()}
CREDENTIALS = {"username": ADMINISTRATOR.username, "password": ADMINISTRATOR.password}
SECONDS = 33
"""What is not watched is looked for again within 30 s."""


class _Recorded(ContentsInMemory):
    """Remembers what it was connected to."""

    def __init__(self, world: RefWorld, engine: str) -> None:
        super().__init__(world.servers, engine)
        self._world = world

    def connect(self, server: Server) -> Any:
        self._world.connected = server
        return super().connect(server)


class RefWorld(UsersWorld):
    """A user and a database on one server, by one ``serverRef``."""

    connected: Server | None = None

    def contents(self, engine: str) -> Contents:
        return _Recorded(self, engine)

    async def refer(self, **reference: Any) -> None:
        wire = {"host": HOST.host, "administrator": {"name": "admin"}, **reference}
        await self.user(serverRef=wire)
        await self.database(serverRef=wire)

    async def told(self, *words: str, seconds: float = SECONDS) -> None:
        """Both say what is missing, and what to do."""
        for word in words:
            await self.failed(word, seconds=seconds)
        await self.until("told", lambda: self.database_reason("shop") == "AdministratorSecretMissing", seconds)

    async def well(self, seconds: float = SECONDS) -> None:
        await self.ready(seconds=seconds)
        await self.until("well", lambda: self.database_reason("shop") == "DatabaseReady", seconds)

    async def config(self, name: str, entries: Mapping[str, str]) -> None:
        metadata = meta.ObjectMeta(name=name, namespace="default")
        await self.client.apply(core.ConfigMap(metadata=metadata, data=entries))

    async def put(self, kind: type[Secret | ConfigMap], name: str, entries: Mapping[str, str]) -> None:
        await (self.secret(name, dict(entries)) if kind is Secret else self.config(name, entries))


@virtual_time
async def test_an_administrators_secret_that_is_lost_is_told_and_found_again() -> None:
    world = RefWorld()
    async with world.operator():
        await world.refer()
        await world.well()
        password = world.entries()["password"]
        await world.client.delete(Secret, ObjectKey("default", "admin"))
        await world.told("there is no Secret admin: create the Secret or ConfigMap that serverRef names")
        assert world.sql.lets_in("clerk", password), "what is there goes on"
        told = len(world.notes())
        await world.runtime.clock.sleep(600)
        assert len(world.notes()) == told, "told once"
        await world.secret("admin", CREDENTIALS)
        await world.well(seconds=5)
        assert world.entries()["password"] == password


@pytest.mark.parametrize("key", sorted(CREDENTIALS))
@pytest.mark.parametrize("entry", [None, ""])
@virtual_time
async def test_an_entry_of_the_administrators_secret_that_is_lost_is_told(key: str, entry: str | None) -> None:
    world = RefWorld()
    async with world.operator():
        await world.refer()
        await world.well()
        change = MergePatch({"data": {key: entry}})
        await world.client.patch(Secret, ObjectKey("default", "admin"), change)
        await world.told(f"Secret admin has no key {key}")
        await world.secret("admin", CREDENTIALS)
        await world.well(seconds=5)


@virtual_time
async def test_the_administrators_entries_may_have_other_names() -> None:
    world = RefWorld()
    async with world.operator():
        await world.secret("admin", {"username": "nobody", "password": "wrong"})
        administrator = {"name": "admin", "usernameKey": "login", "passwordKey": "word"}
        await world.refer(administrator=administrator, maintenanceDatabase="registry")
        await world.told("Secret admin has no key login")
        await world.secret("admin", {"login": ADMINISTRATOR.username})
        await world.told("Secret admin has no key word")
        await world.secret("admin", {"login": ADMINISTRATOR.username, "word": ADMINISTRATOR.password})
        await world.well(seconds=5)
        assert world.connected is not None and world.connected.maintenance_database == "registry"


@virtual_time
async def test_who_is_deleted_waits_for_a_lost_secret() -> None:
    world = RefWorld()
    async with world.operator():
        await world.refer()
        await world.well()
        await world.client.delete(Secret, ObjectKey("default", "admin"))
        await world.client.delete(DatabaseUser, ObjectKey("default", "clerk"))
        await world.failed("there is no Secret admin")
        assert "clerk" in world.sql.users
        await world.secret("admin", CREDENTIALS)
        await world.until("gone", lambda: world.read() is None, 5)
        assert "clerk" not in world.sql.users


@pytest.mark.parametrize(("kind", "field"), [(Secret, "secretKeyRef"), (ConfigMap, "configMapKeyRef")])
@virtual_time
async def test_authorities_that_are_lost_are_told(kind: type[Secret | ConfigMap], field: str) -> None:
    world = RefWorld()
    async with world.operator():
        await world.refer(tls={"ca": {field: {"name": "trusted", "key": "bundle.pem"}}})
        missing = "there is no key bundle.pem in trusted"
        await world.told(missing)
        await world.put(kind, "trusted", {"other.pem": BUNDLE["bundle.pem"]})
        await world.runtime.clock.sleep(SECONDS)
        await world.told(missing)
        await world.put(kind, "trusted", BUNDLE)
        await world.well()
        assert world.connected is not None
        assert world.connected.verification.authorities == AUTHORITY.certificate
        await world.client.delete(kind, ObjectKey("default", "trusted"))
        await world.told(missing)
        await world.put(kind, "trusted", BUNDLE)
        await world.well()


def _without(key: str) -> dict[str, str]:
    return {name: value for name, value in PAIR.items() if name != key}


@pytest.mark.parametrize(
    "broken",
    [
        lambda: _without("tls.crt"),
        lambda: _without("tls.key"),
        lambda: {**PAIR, "tls.crt": "no certificate"},
        lambda: {**PAIR, "tls.key": AUTHORITY.issue("another")[1].decode()},
    ],
    ids=["no certificate", "no key", "broken", "another's key"],
)
@virtual_time
async def test_a_certificate_of_the_operators_that_is_lost_is_told(broken: Callable[[], dict[str, str]]) -> None:
    world = RefWorld()
    async with world.operator():
        await world.refer(tls={"clientCertificate": "shown"})
        missing = "Secret shown holds no certificate with its key in tls.crt and tls.key"
        await world.told(missing)
        await world.secret("shown", broken())
        await world.runtime.clock.sleep(SECONDS)
        await world.told(missing)
        await world.secret("shown", PAIR)
        await world.well(seconds=5)
        assert world.connected is not None and world.connected.login.certificate is not None
        assert world.connected.login.certificate.chain == CERTIFICATE
        await world.client.delete(Secret, ObjectKey("default", "shown"))
        await world.told(missing)
        await world.secret("shown", PAIR)
        await world.well(seconds=5)
