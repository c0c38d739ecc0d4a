"""Servers that are none of ours, by ``serverRef``: the real API server, and real database servers on loopback.

What takes an hour, or a Service that comes late, is tested in virtual time (tests/unit/controllers).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from database_support.servers.matrix import every_server
from database_support.servers.mysql import RealMySQLServer, start_mariadb
from database_support.servers.operator_on_api_server import admin_client, running_operator
from database_support.servers.postgresql import RealPostgreSQLServer
from database_support.servers.process import free_port
from database_support.servers.real_server import ADMINISTRATOR, RealServer
from framework_support.certificates import CertificateAuthority
from steersman.api.apply import core, meta
from steersman.api.core_v1 import Secret
from steersman.client import Client, MergePatch
from steersman.errors import NotFound
from steersman.meta import ObjectKey, decode_builtins
from steersman_databases.api import Database, DatabaseUser
from steersman_databases.engines import ServerEndpoint, SqlCredentials
from steersman_testing.envtest import Envtest

Declared = Database | DatabaseUser
PASSWORD = "w3ak"
SECONDS = 50
"""What failed is tried again within 30 s."""


class Scene:
    """A namespace in which the operator works."""

    def __init__(self, client: Client, namespace: str, server: RealServer) -> None:
        self._client, self._namespace, self.server = client, namespace, server
        self._engine = server.sql_engine.name

    async def secret(self, name: str, **entries: str | bytes) -> None:
        data = {
            key.replace("_", "."): value.encode() if isinstance(value, str) else value
            for key, value in entries.items()
        }
        metadata = meta.ObjectMeta(name=name, namespace=self._namespace)
        await self._client.apply(core.Secret(metadata=metadata, data=data))

    async def administrator(self, username: str = ADMINISTRATOR.username, password: str = "") -> None:
        await self.secret("admin", username=username, password=password or ADMINISTRATOR.password)

    async def user(self, name: str, host: str = "localhost", port: int = 0, **tls: Any) -> None:
        await self.declare(DatabaseUser, name, host, port, tls, user=name, deletionPolicy="Retain")

    async def declare(
        self,
        kind: type[Declared],
        name: str,
        host: str = "localhost",
        port: int = 0,
        tls: Mapping[str, Any] | None = None,
        **spec: Any,
    ) -> None:
        """An object on the server, by this address of it."""
        reference = {
            "host": host,
            "port": port or self.server.endpoint.port,
            "administrator": {"name": "admin"},
            "tls": tls or {"mode": "Require"},
        }
        wire = {
            "metadata": {"name": name, "namespace": self._namespace},
            "spec": {"engine": self._engine, "serverRef": reference, **spec},
        }
        await self._client.create(decode_builtins(wire, kind))

    async def until(self, name: str, says: str, kind: type[Declared] = DatabaseUser) -> str:
        """Waits until the object's condition says this; gives all that it says."""
        told = ""
        try:
            async with asyncio.timeout(SECONDS):
                while says not in told:
                    await asyncio.sleep(0.1)
                    status = (await self._client.get(kind, ObjectKey(self._namespace, name))).status
                    told = next((f"{c.reason}: {c.message}" for c in status.conditions), "") if status else ""
        except TimeoutError:
            pytest.fail(f"not {says!r} but {told!r}")
        return told

    async def credentials(self, secret: str) -> SqlCredentials:
        """What an application reads."""
        data = (await self._client.get(Secret, ObjectKey(self._namespace, secret))).data
        return SqlCredentials(data["user"].decode(), data["password"].decode())

    async def rotate(self, secret: str) -> None:
        """Makes the password as old as it may become."""
        patch = MergePatch({"stringData": {"rotated-at": "2001-01-01T00:00:00+00:00"}})
        await self._client.patch(Secret, ObjectKey(self._namespace, secret), patch)

    async def delete(self, kind: type[Declared], name: str) -> None:
        """Deletes an object, and waits until it is gone."""
        key = ObjectKey(self._namespace, name)
        await self._client.delete(kind, key)
        async with asyncio.timeout(SECONDS):
            with suppress(NotFound):
                while await self._client.get(kind, key):
                    await asyncio.sleep(0.1)

    async def ready(self, name: str) -> None:
        await self.until(name, "ProvisionSucceeded")


@asynccontextmanager
async def scene(environment: Envtest, name: str, server: RealServer) -> AsyncGenerator[Scene]:
    async with admin_client(environment, name) as client, running_operator(environment, name):
        found = Scene(client, name, server)
        await found.administrator()
        yield found


def authority_of(server: RealServer) -> bytes:
    return (server.log.parent / "cert.pem").read_bytes()


TRIED = sorted(
    {"mariadb-own", "mysql-9.7", max(n for n in every_server() if n.startswith("p"))} & every_server().keys()
)


@pytest.fixture(
    scope="module", params=[pytest.param(n, marks=pytest.mark.xdist_group(f"referred-{n}")) for n in TRIED]
)
def server(request: pytest.FixtureRequest) -> Generator[RealServer]:
    with contextmanager(every_server()[request.param])() as found:
        yield found


@pytest.fixture(params=[pytest.param(n, marks=pytest.mark.xdist_group(f"served-{n}")) for n in every_server()])
def each(request: pytest.FixtureRequest) -> Generator[RealServer]:
    """Every server that there is, MariaDB's two included."""
    with contextmanager(every_server()[request.param])() as found:
        yield found


@pytest.mark.requirement(
    "design/create-database", "programming/external-systems", "user/connects", "user/create-update-delete"
)
async def test_database_and_user_created_and_deleted(installed: Envtest, each: RealServer) -> None:
    assert isinstance(each, RealPostgreSQLServer | RealMySQLServer)
    async with scene(installed, f"contents-{each.endpoint.port}", each) as at:
        grants = [{"database": "shop", "privileges": ["ALL"]}]
        await at.declare(DatabaseUser, "clerk", user="clerk", grants=grants)
        await at.declare(Database, "shop", deletionPolicy="Delete")
        await at.until("shop", "DatabaseReady", Database)
        await at.ready("clerk")
        owner, clerk = await at.credentials("shop-app"), await at.credentials("clerk-user")
        await each.create_table(owner, "shop")
        assert await each.reads_table(owner, "shop")
        assert await each.can_log_in(clerk, "shop")
        await at.delete(DatabaseUser, "clerk")
        await at.delete(Database, "shop")
        assert "shop" not in await each.databases()
        assert not {"shop", "clerk"} & await each.users()


async def test_rotation_keeps_previous_password_valid(installed: Envtest, each: RealServer) -> None:
    assert isinstance(each, RealPostgreSQLServer | RealMySQLServer)
    database = "postgres" if isinstance(each, RealPostgreSQLServer) else ""
    async with scene(installed, f"rotation-{each.endpoint.port}", each) as at:
        await at.declare(DatabaseUser, "turner", user="turner", rotation={"every": "5m", "overlap": "1m"})
        await at.ready("turner")
        former = await at.credentials("turner-user")
        await at.rotate("turner-user")
        async with asyncio.timeout(SECONDS):
            while (present := await at.credentials("turner-user")) == former:
                await asyncio.sleep(0.1)
        for credentials in (former, present):
            assert await each.can_log_in(credentials, database)
        assert not await each.can_log_in(replace(present, password="other"), database)
        await at.delete(DatabaseUser, "turner")
        assert not {former.username, present.username} & await each.users()


async def test_server_verified_by_ca_from_secret(installed: Envtest, server: RealServer) -> None:
    space = f"tls-{server.endpoint.port}"
    async with scene(installed, space, server) as at:
        await at.secret("right", ca_crt=authority_of(server))
        await at.secret("wrong", ca_crt=CertificateAuthority().certificate)
        right, wrong = ({"secretKeyRef": {"name": name, "key": "ca.crt"}} for name in ("right", "wrong"))
        await at.user("full", ca=right)
        await at.user("stranger", ca=wrong)
        await at.user("unknown")
        await at.user("elsewhere", host="127.0.0.1", ca=right)
        await at.user("chain", host="127.0.0.1", ca=right, mode="VerifyCA")
        await at.ready("full")
        await at.ready("chain")
        await at.ready("unknown")
        for name, host in (("stranger", "localhost"), ("elsewhere", "127.0.0.1")):
            told = await at.until(name, "ProvisionFailed")
            assert f"cannot reach {host}:{server.endpoint.port}" in told
            assert "certificate" in told and ADMINISTRATOR.password not in told
        assert {"full", "chain", "unknown"} <= await server.users()
        assert not {"stranger", "elsewhere"} & await server.users()
        await at.secret("wrong", ca_crt=authority_of(server))
        await at.ready("stranger")


async def test_mysql_without_tls_is_not_logged_in_to(installed: Envtest) -> None:
    with contextmanager(start_mariadb)(Path("/"), tls=False) as mariadb:
        async with scene(installed, "no-tls-mariadb", mariadb) as at:
            await at.user("clerk")
            assert "the server offers no TLS" in await at.until("clerk", "ProvisionFailed")


async def test_postgresql_without_tls_is_not_logged_in_to(
    installed: Envtest, postgresql: RealPostgreSQLServer
) -> None:
    more: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        writer.write(b"N")
        more.append(await reader.read())
        writer.close()

    listener = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with listener, scene(installed, "no-tls-postgresql", postgresql) as at:
        await at.user("clerk", host="127.0.0.1", port=listener.sockets[0].getsockname()[1])
        assert "server does not support SSL" in await at.until("clerk", "ProvisionFailed")
        assert set(more) <= {b""}, "nothing was said to it"


@pytest.mark.requirement("user/status-errors")
async def test_administrator_errors_are_reported(installed: Envtest, server: RealServer) -> None:
    space = f"admin-{server.endpoint.port}"
    async with scene(installed, space, server) as at:
        await at.administrator(password="wr0ng-one")
        await at.user("late")
        told = await at.until("late", f'the server rejected the administrator "{ADMINISTRATOR.username}"')
        assert "wr0ng-one" not in told
        await at.administrator()
        await at.ready("late")
        weak = await _powerless(server, "weak")
        await at.administrator(weak, PASSWORD)
        await at.user("refused")
        await at.until("refused", "denied")
        await _strengthen(server, weak)
        await at.ready("refused")


async def _powerless(server: RealServer, name: str) -> str:
    """An administrator who may not make users."""
    if isinstance(server, RealPostgreSQLServer):
        server.run(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'")
    else:
        assert isinstance(server, RealMySQLServer)
        await server.execute(f"CREATE USER {{}}@'%' IDENTIFIED BY '{PASSWORD}'", name)
        await server.execute("GRANT SELECT ON *.* TO {}@'%'", name)
    return name


async def _strengthen(server: RealServer, name: str) -> None:
    if isinstance(server, RealPostgreSQLServer):
        server.administer("ALTER ROLE {} CREATEROLE", name)
    else:
        assert isinstance(server, RealMySQLServer)
        await server.execute("GRANT ALL ON *.* TO {}@'%' WITH GRANT OPTION", name)


@pytest.mark.requirement("design/connections")
async def test_many_users_share_few_connections(installed: Envtest, server: RealServer) -> None:
    # As nobody else: operators of other tests may not have been collected yet, with their connections.
    counted = await _powerless(server, "counted")
    await _strengthen(server, counted)
    held: list[int] = []

    async def count() -> None:
        while True:
            held.append(await _connections(server, counted))
            await asyncio.sleep(0.02)

    async with scene(installed, f"few-{server.endpoint.port}", server) as at:
        await at.administrator(counted, PASSWORD)
        counting = asyncio.create_task(count())
        names = [f"clerk{number}" for number in range(40)]
        await asyncio.gather(*map(at.user, names))
        for name in names:
            await at.ready(name)
        # Four are at work, and some the server may not have noticed to be gone.
        assert max(held) in range(1, 9), held
        assert not counting.done(), "it was counted to the end"
        counting.cancel()
        async with asyncio.timeout(SECONDS):
            while await _connections(server, counted) > 1:
                await asyncio.sleep(0.1)


async def _connections(server: RealServer, name: str) -> int:
    """How many a user has open."""
    if isinstance(server, RealPostgreSQLServer):
        [(found,)] = server.administer(f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{name}'")
        return found
    assert isinstance(server, RealMySQLServer)
    theirs = f"USER = '{name}'"
    [row] = await server.execute(f"SELECT COUNT(*) AS number FROM information_schema.PROCESSLIST WHERE {theirs}")
    return row[0]


async def test_server_unreachable_recovers(installed: Envtest, server: RealServer) -> None:
    port = free_port()
    async with scene(installed, f"away-{server.endpoint.port}", server) as at:
        await at.user("patient", host="127.0.0.1", port=port)
        assert f"cannot reach {ServerEndpoint('127.0.0.1', port)}" in await at.until("patient", "ProvisionFailed")
        listener = await asyncio.start_server(_to(server), "127.0.0.1", port)
        async with listener:
            await at.ready("patient")


def _to(server: RealServer) -> Any:
    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(server.endpoint.host, server.endpoint.port)
        await asyncio.gather(pump(reader, back), pump(there, writer), return_exceptions=True)

    return accept
