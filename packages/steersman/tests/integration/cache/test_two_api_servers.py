"""Cached reads stay monotonic when the connection moves to another server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from framework_support.controller_env import eventually
from framework_support.tcp_switch import TcpSwitch
from steersman.api.apply import core, meta
from steersman.api.core_v1 import ConfigMap, Namespace
from steersman.cache import Cache, InformerEvent, InformerOptions
from steersman.client import Client, connect
from steersman.errors import CacheNotSynced
from steersman.meta import ObjectKey, ObjectMeta
from steersman.observability.runtime import Runtime
from steersman_testing.envtest import Envtest, SecondApiServer

pytestmark = pytest.mark.xdist_group("two-api-servers")

NAMESPACE = f"two-servers-{os.getpid()}"


@pytest.fixture(scope="module")
def second_apiserver(envtest: Envtest) -> Generator[SecondApiServer]:
    with envtest.control_plane.second_apiserver() as server:
        yield server


class TwoApiServers:
    """Two servers, a cache over one of them, and writers."""

    def __init__(self, switchboard: TcpSwitch, cache: Cache, own_client: Client, other_client: Client) -> None:
        self.switchboard = switchboard
        self.cache = cache
        self.own_client = own_client
        self.other_client = other_client
        self.versions: dict[str, int] = {}
        self.regressions: list[str] = []
        cache.informer(ConfigMap).subscribe(self._check)

    def _check(self, event: InformerEvent[ConfigMap]) -> None:
        name, version = event.object.metadata.name, int(event.object.metadata.resource_version)
        if event.new is not None:
            if version < self.versions.get(name, 0):
                self.regressions.append(f"{name}: {self.versions[name]} → {version}")
            self.versions[name] = version

    def text(self, name: str) -> str | None:
        """Return the cached object ``name``."""
        found = self.cache.informer(ConfigMap).store.get(ObjectKey(NAMESPACE, name))
        return found.data["text"] if found is not None else None

    async def write(self, client: Client, name: str, text: str) -> None:
        metadata = meta.ObjectMeta(name=name, namespace=NAMESPACE)
        await client.apply(core.ConfigMap(metadata=metadata, data={"text": text}))


@asynccontextmanager
async def two_api_servers(envtest: Envtest, label: str) -> AsyncGenerator[TwoApiServers]:
    """Yield a cache of the namespace, synced from the first server."""
    async with AsyncExitStack() as stack:
        switchboard = await stack.enter_async_context(TcpSwitch(envtest.config).listening())
        switched_transport = await stack.enter_async_context(connect(switchboard.config, retry=None))
        direct_transport = await stack.enter_async_context(connect(envtest.config, retry=None))
        other_client = Client(direct_transport, field_manager="stranger")
        if not any(n.metadata.name == NAMESPACE for n in (await other_client.list(Namespace)).items):
            await other_client.create(Namespace(metadata=ObjectMeta(name=NAMESPACE)))
        options = InformerOptions(namespaces=(NAMESPACE,), field_selector=f"metadata.name!=not-{label}")
        cache = Cache(Client(switched_transport), runtime=Runtime())
        cache.configure(ConfigMap, options)
        servers = TwoApiServers(
            switchboard, cache, Client(direct_transport, field_manager="ours", observer=cache), other_client
        )
        cache.start()
        await cache.wait_for_sync(20)
        try:
            yield servers
        finally:
            await cache.stop()
        assert servers.regressions == []


async def test_failover_to_older_server_keeps_newer_state(
    envtest: Envtest, second_apiserver: SecondApiServer
) -> None:
    async with two_api_servers(envtest, "move") as servers:
        for name in ("foreign", "own", "doomed"):
            await servers.write(servers.other_client, name, "1")
        await eventually(lambda: servers.text("doomed") == "1")
        second_apiserver.stall()
        try:
            await servers.write(servers.other_client, "foreign", "2")
            await eventually(lambda: servers.text("foreign") == "2")
            servers.switchboard.switch_to(second_apiserver.config)
            await eventually(lambda: servers.switchboard.connections > 0)
            # The watch receives no events now; our own writes are readable all the same.
            await servers.write(servers.own_client, "own", "2")
            await servers.own_client.delete(ConfigMap, ObjectKey(NAMESPACE, "doomed"))
            assert [servers.text(n) for n in ("foreign", "own", "doomed")] == ["2", "2", None]
            # A list is consistent: this server must catch up before it can respond.
            servers.cache.informer(ConfigMap).reflectors[0].relist()
            await servers.write(servers.own_client, "own", "3")
            assert [servers.text(n) for n in ("foreign", "own", "doomed")] == ["2", "3", None]
        finally:
            second_apiserver.resume()
        await servers.write(servers.other_client, "foreign", "3")
        await eventually(lambda: servers.text("foreign") == "3", 60)
        assert [servers.text(n) for n in ("own", "doomed")] == ["3", None]


async def test_watch_from_future_version_resumes_when_reached(
    envtest: Envtest, second_apiserver: SecondApiServer
) -> None:
    async with two_api_servers(envtest, "future") as servers:
        second_apiserver.stall()
        try:
            await servers.write(servers.other_client, "ahead", "1")
            await eventually(lambda: servers.text("ahead") == "1")
            servers.switchboard.switch_to(second_apiserver.config)
            await eventually(lambda: servers.switchboard.connections > 0)
            await servers.write(servers.other_client, "ahead", "2")
        finally:
            second_apiserver.resume()
        await eventually(lambda: servers.text("ahead") == "2", 60)


async def test_new_leader_waits_for_cache_to_catch_up(envtest: Envtest, second_apiserver: SecondApiServer) -> None:
    async with two_api_servers(envtest, "leader") as servers:
        servers.switchboard.switch_to(second_apiserver.config)
        await eventually(lambda: servers.switchboard.connections > 0)
        await servers.cache.catch_up(20)
        second_apiserver.stall()
        try:
            for number in range(20):
                await servers.write(servers.other_client, f"led-{number}", "by the former")
            with pytest.raises(CacheNotSynced, match=f"not caught up after 1 s: configmaps in {NAMESPACE}"):
                await servers.cache.catch_up(1)
        finally:
            second_apiserver.resume()
        await servers.cache.catch_up(60)
        assert {servers.text(f"led-{number}") for number in range(20)} == {"by the former"}
        async with asyncio.timeout(20):
            await servers.cache.catch_up()
