"""A client whose connection moves to an API server that lags behind: nothing that is read goes back in time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from framework_support.switchboard import Switchboard
from framework_support.world import eventually
from steersman.api.apply.core_v1 import ConfigMapApply
from steersman.api.core_v1 import ConfigMap, Namespace
from steersman.cache import Cache, Change, InformerOptions
from steersman.client import Client, connect
from steersman.errors import CacheNotSynced
from steersman.meta import ObjectKey, ObjectMeta, ObjectMetaApply
from steersman.observability.runtime import Runtime
from steersman_testing.envtest import Envtest, SecondApiServer

pytestmark = pytest.mark.xdist_group("two-api-servers")

NAMESPACE = f"two-servers-{os.getpid()}"


@pytest.fixture(scope="module")
def second(envtest: Envtest) -> Generator[SecondApiServer]:
    with envtest.control_plane.second_apiserver() as server:
        yield server


class Pair:
    """Two servers, a cache that reads from one of them, and writers at the first."""

    def __init__(self, board: Switchboard, cache: Cache, ours: Client, stranger: Client) -> None:
        self.board = board
        self.cache = cache
        self.ours = ours
        self.stranger = stranger
        self.versions: dict[str, int] = {}
        self.backwards: list[str] = []
        cache.informer(ConfigMap).subscribe(self._check)

    def _check(self, change: Change[ConfigMap]) -> None:
        name, version = change.object.metadata.name, int(change.object.metadata.resource_version)
        if change.new is not None:
            if version < self.versions.get(name, 0):
                self.backwards.append(f"{name}: {self.versions[name]} → {version}")
            self.versions[name] = version

    def text(self, name: str) -> str | None:
        """What the cache says of ``name``."""
        found = self.cache.informer(ConfigMap).store.get(ObjectKey(NAMESPACE, name))
        return found.data["text"] if found is not None else None

    async def write(self, client: Client, name: str, text: str) -> None:
        metadata = ObjectMetaApply(name=name, namespace=NAMESPACE)
        await client.apply(ConfigMapApply(metadata=metadata, data={"text": text}))


@asynccontextmanager
async def pair(envtest: Envtest, label: str) -> AsyncGenerator[Pair]:
    """A cache of the config maps of the namespace, synced from the first server."""
    async with AsyncExitStack() as stack:
        board = await stack.enter_async_context(Switchboard(envtest.config).listening())
        moving = await stack.enter_async_context(connect(board.config, retry=None))
        steady = await stack.enter_async_context(connect(envtest.config, retry=None))
        stranger = Client(steady, field_manager="stranger")
        if not any(n.metadata.name == NAMESPACE for n in (await stranger.list(Namespace)).items):
            await stranger.create(Namespace(metadata=ObjectMeta(name=NAMESPACE)))
        options = InformerOptions(namespaces=(NAMESPACE,), field_selector=f"metadata.name!=not-{label}")
        cache = Cache(Client(moving), runtime=Runtime())
        cache.configure(ConfigMap, options)
        made = Pair(board, cache, Client(steady, field_manager="ours", observer=cache), stranger)
        cache.start()
        await cache.wait_for_sync(20)
        try:
            yield made
        finally:
            await cache.stop()
        assert made.backwards == []


async def test_after_a_move_to_an_older_server_nothing_goes_back(envtest: Envtest, second: SecondApiServer) -> None:
    async with pair(envtest, "move") as world:
        for name in ("foreign", "own", "doomed"):
            await world.write(world.stranger, name, "1")
        await eventually(lambda: world.text("doomed") == "1")
        second.stall()
        try:
            await world.write(world.stranger, "foreign", "2")
            await eventually(lambda: world.text("foreign") == "2")
            world.board.connect(second.config)
            await eventually(lambda: world.board.connections > 0)
            # The watch hears of nothing now; our own writes are read all the same.
            await world.write(world.ours, "own", "2")
            await world.ours.delete(ConfigMap, ObjectKey(NAMESPACE, "doomed"))
            assert [world.text(n) for n in ("foreign", "own", "doomed")] == ["2", "2", None]
            # A list is a consistent one: this server cannot answer it before it knows the present.
            world.cache.informer(ConfigMap).reflectors[0].relist()
            await world.write(world.ours, "own", "3")
            assert [world.text(n) for n in ("foreign", "own", "doomed")] == ["2", "3", None]
        finally:
            second.resume()
        await world.write(world.stranger, "foreign", "3")
        await eventually(lambda: world.text("foreign") == "3", 60)
        assert [world.text(n) for n in ("own", "doomed")] == ["3", None]


async def test_a_watch_from_the_future_of_its_server_goes_on_when_that_has_come(
    envtest: Envtest, second: SecondApiServer
) -> None:
    async with pair(envtest, "future") as world:
        second.stall()
        try:
            await world.write(world.stranger, "ahead", "1")
            await eventually(lambda: world.text("ahead") == "1")
            world.board.connect(second.config)
            await eventually(lambda: world.board.connections > 0)
            await world.write(world.stranger, "ahead", "2")
        finally:
            second.resume()
        await eventually(lambda: world.text("ahead") == "2", 60)


async def test_a_new_leader_waits_until_its_cache_has_caught_up(envtest: Envtest, second: SecondApiServer) -> None:
    async with pair(envtest, "leader") as world:
        world.board.connect(second.config)
        await eventually(lambda: world.board.connections > 0)
        await world.cache.catch_up(20)
        second.stall()
        try:
            for number in range(20):
                await world.write(world.stranger, f"led-{number}", "by the former")
            with pytest.raises(CacheNotSynced, match=f"not caught up after 1 s: configmaps in {NAMESPACE}"):
                await world.cache.catch_up(1)
        finally:
            second.resume()
        await world.cache.catch_up(60)
        assert {world.text(f"led-{number}") for number in range(20)} == {"by the former"}
        async with asyncio.timeout(20):
            await world.cache.catch_up()
