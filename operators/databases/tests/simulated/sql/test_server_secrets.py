"""What ``serverRef`` names of other people's is missing, or has not what it should: told, and found when it comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from database_support.fake_server.engine import ADMINISTRATOR, InMemorySqlEngine
from database_support.unit.users_harness import HOST, UsersHarness
from framework_support.certificates import CertificateAuthority
from steersman.api.apply import core, meta
from steersman.api.core_v1 import ConfigMap, Secret
from steersman.client import MergePatch
from steersman.meta import ObjectKey
from steersman_databases.api import DatabaseUser
from steersman_databases.engines.server import DatabaseServer
from steersman_databases.engines.sql.sql_engine import SqlEngine
from steersman_testing import virtual_time

AUTHORITY = CertificateAuthority()
CERTIFICATE, PRIVATE = AUTHORITY.issue("admin")
PAIR = {"tls.crt": CERTIFICATE.decode(), "tls.key": PRIVATE.decode()}
BUNDLE = {"bundle.pem": AUTHORITY.certificate.decode()}
CREDENTIALS = {"username": ADMINISTRATOR.username, "password": ADMINISTRATOR.password}
SECONDS = 33
"""What is not watched is looked for again within 30 s."""


class _Recorded(InMemorySqlEngine):
    """Remembers what it was connected to."""

    def __init__(self, world: RefWorld, engine: str) -> None:
        super().__init__(world.servers, engine)
        self._world = world

    def connect(self, server: DatabaseServer) -> Any:
        self._world.connected = server
        return super().connect(server)


class RefWorld(UsersHarness):
    """A user and a database on one server, by one ``serverRef``."""

    connected: DatabaseServer | None = None

    def sql_engine(self, engine: str) -> SqlEngine:
        return _Recorded(self, engine)

    async def refer(self, **reference: Any) -> None:
        wire = {"host": HOST.host, "administrator": {"name": "admin"}, **reference}
        await self.user(serverRef=wire)
        await self.database(serverRef=wire)

    async def told(self, *words: str, seconds: float = SECONDS) -> None:
        """Both say what is missing, and what to do."""
        for word in words:
            await self.wait_failed(word, seconds=seconds)
        await self.until("told", lambda: self.database_reason("shop") == "AdministratorSecretMissing", seconds)

    async def well(self, seconds: float = SECONDS) -> None:
        await self.ready(seconds=seconds)
        await self.until("well", lambda: self.database_reason("shop") == "DatabaseReady", seconds)

    async def config(self, name: str, entries: Mapping[str, str]) -> None:
        metadata = meta.ObjectMeta(name=name, namespace="default")
        await self.client.apply(core.ConfigMap(metadata=metadata, data=entries))

    async def put(self, kind: type[Secret | ConfigMap], name: str, entries: Mapping[str, str]) -> None:
        await (self.secret(name, dict(entries)) if kind is Secret else self.config(name, entries))


@pytest.mark.requirement("design/connections")
@virtual_time
async def test_missing_administrator_secret_is_reported_and_found() -> None:
    world = RefWorld()
    async with world.operator():
        await world.refer()
        await world.well()
        password = world.entries()["password"]
        await world.client.delete(Secret, ObjectKey("default", "admin"))
        await world.told("Secret admin does not exist. Create the Secret or ConfigMap of serverRef")
        assert world.sql.accepts_password("clerk", password), "what is there goes on"
        told = len(world.event_messages())
        await world.runtime.clock.sleep(600)
        assert len(world.event_messages()) == told, "told once"
        await world.secret("admin", CREDENTIALS)
        await world.well(seconds=5)
        assert world.entries()["password"] == password


@pytest.mark.parametrize("key", sorted(CREDENTIALS))
@pytest.mark.parametrize("entry", [None, ""])
@virtual_time
async def test_missing_administrator_key_is_reported(key: str, entry: str | None) -> None:
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
async def test_administrator_keys_may_be_renamed() -> None:
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
async def test_deletion_waits_for_missing_secret() -> None:
    world = RefWorld()
    async with world.operator():
        await world.refer()
        await world.well()
        await world.client.delete(Secret, ObjectKey("default", "admin"))
        await world.client.delete(DatabaseUser, ObjectKey("default", "clerk"))
        await world.wait_failed("Secret admin does not exist")
        assert "clerk" in world.sql.users
        await world.secret("admin", CREDENTIALS)
        await world.until("gone", lambda: world.read() is None, 5)
        assert "clerk" not in world.sql.users


@pytest.mark.parametrize(("kind", "field"), [(Secret, "secretKeyRef"), (ConfigMap, "configMapKeyRef")])
@virtual_time
async def test_missing_ca_is_reported(kind: type[Secret | ConfigMap], field: str) -> None:
    world = RefWorld()
    async with world.operator():
        await world.refer(tls={"ca": {field: {"name": "trusted", "key": "bundle.pem"}}})
        missing = "trusted has no key bundle.pem"
        await world.told(missing)
        await world.put(kind, "trusted", {"other.pem": BUNDLE["bundle.pem"]})
        await world.runtime.clock.sleep(SECONDS)
        await world.told(missing)
        await world.put(kind, "trusted", BUNDLE)
        await world.well()
        assert world.connected is not None
        assert world.connected.verification.ca_bundle == AUTHORITY.certificate
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
async def test_missing_client_certificate_is_reported(broken: Callable[[], dict[str, str]]) -> None:
    world = RefWorld()
    async with world.operator():
        await world.refer(tls={"clientCertificate": "shown"})
        missing = "Secret shown has no matching certificate and key in tls.crt and tls.key"
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
