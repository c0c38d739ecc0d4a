"""The synchronous client, which runs an event loop in a separate thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import os
import signal
import socket
import threading
from collections.abc import AsyncGenerator, Iterator
from typing import Any, assert_type

import pytest

from steersman.api.apply import core, meta
from steersman.api.core_v1 import ConfigMap
from steersman.client import Client, ClusterConfig, Discovery, MergePatch, SyncClient, WatchEvent
from steersman.errors import ConnectionFailed, NotFound
from steersman.meta import ObjectKey, ObjectMeta
from steersman_testing import InMemoryApiServer

KEY = ObjectKey("default", "words")
# Attributes of the asynchronous client only, available as attributes of ``client.client``.
NOT_VERBS = {"transport", "field_manager", "with_field_manager"}


@pytest.fixture
def server() -> InMemoryApiServer:
    return InMemoryApiServer()


@pytest.fixture
def client(server: InMemoryApiServer) -> Iterator[SyncClient]:
    with SyncClient(server, field_manager="script") as client:
        yield client


def config_map(**data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=KEY.name, namespace=KEY.namespace), data=data)  # type: ignore[arg-type]


def test_sync_client_mirrors_async_methods() -> None:
    members = {name: member for name, member in inspect.getmembers(Client) if not name.startswith("_")}
    verbs = {name: member for name, member in members.items() if name not in NOT_VERBS}
    assert {"get", "watch", "apply"} <= set(verbs)
    for name, verb in verbs.items():
        mine: Any = getattr(SyncClient, name, None)
        assert mine is not None, f"SyncClient lacks {name}: add it to the list at the end of the class"
        assert inspect.signature(mine).parameters.keys() == inspect.signature(verb).parameters.keys()
        assert mine.__doc__ == verb.__doc__
        assert not inspect.iscoroutinefunction(mine) and not inspect.isasyncgenfunction(mine)


def test_sync_client_verbs_and_types(client: SyncClient) -> None:
    made = client.create(config_map(hello="world"))
    found = client.get(ConfigMap, KEY)
    # Only type checkers evaluate this.
    assert_type(found, ConfigMap)
    assert found == made
    client.patch(ConfigMap, KEY, MergePatch({"data": {"a": "b"}}))
    other = core.ConfigMap(metadata=meta.ObjectMeta(name="other", namespace="default"), data={"c": "d"})
    assert_type(client.apply(other), ConfigMap)
    assert [o.metadata.name for o in client.list(ConfigMap, namespace="default").items] == ["other", "words"]
    client.delete(ConfigMap, KEY)
    with pytest.raises(NotFound):
        client.get(ConfigMap, KEY)


def test_sync_watch_iterates_and_closes_on_break(client: SyncClient, server: InMemoryApiServer) -> None:
    version = client.list(ConfigMap).resource_version
    client.create(config_map(n="1"))
    client.patch(ConfigMap, KEY, MergePatch({"data": {"n": "2"}}))
    seen: list[str] = []
    for event in client.watch(ConfigMap, resource_version=version):
        assert_type(event, WatchEvent[ConfigMap])
        assert event.object is not None
        seen.append(event.object.data["n"])
        if len(seen) == 2:
            break
    assert seen == ["1", "2"]
    assert server.break_watches() == 0


def test_sync_client_works_within_a_running_loop() -> None:
    """Jupyter runs cells on an event loop."""

    async def cell() -> int:
        with SyncClient(InMemoryApiServer()) as client:
            return len(client.list(ConfigMap).items)

    assert asyncio.run(cell()) == 0


def test_sync_client_is_thread_safe(client: SyncClient) -> None:
    def create(number: int) -> None:
        client.create(ConfigMap(metadata=ObjectMeta(name=f"n{number}", namespace="default")))

    threads = [threading.Thread(target=create, args=(n,)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(client.list(ConfigMap).items) == 10


def test_sync_client_runs_any_coroutine(client: SyncClient) -> None:
    assert client.run(Discovery(client.client).mapping("cm")).kind == "ConfigMap"


def test_sync_retry_on_conflict_repeats_read_and_update(client: SyncClient) -> None:
    client.create(config_map(n="0"))
    reads: list[str] = []

    def increment() -> ConfigMap:
        found = client.get(ConfigMap, KEY)
        reads.append(found.data["n"])
        if len(reads) == 1:
            client.patch(ConfigMap, KEY, MergePatch({"data": {"n": "5"}}))
        version = found.metadata.resource_version
        changed = {"metadata": {"resourceVersion": version}, "data": {"n": str(int(found.data["n"]) + 1)}}
        return client.patch(ConfigMap, KEY, MergePatch(changed))

    assert client.retry_on_conflict(increment).data["n"] == "6"
    assert reads == ["0", "5"]


def test_sync_close_ends_watches_and_thread(server: InMemoryApiServer) -> None:
    before = set(threading.enumerate())
    client = SyncClient(server)
    (own,) = (t for t in set(threading.enumerate()) - before if t.name == "steersman-sync-client")
    version = client.list(ConfigMap).resource_version
    client.create(config_map())
    events = client.watch(ConfigMap, resource_version=version)
    assert next(events).type == "ADDED"
    client.close()
    client.close()
    assert server.break_watches() == 0
    assert not own.is_alive()
    with pytest.raises(RuntimeError, match="closed"):
        client.get(ConfigMap, KEY)
    events.close()


def test_sync_call_during_close_is_rejected(client: SyncClient) -> None:
    closing, refused = threading.Event(), threading.Event()

    async def items() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            closing.set()
            await asyncio.to_thread(refused.wait, 10)

    iteration = client.iterate(items())
    assert next(iteration) == 1
    closer = threading.Thread(target=client.close)
    closer.start()
    assert closing.wait(10)
    try:
        with pytest.raises(RuntimeError, match="closed"):
            client.run(asyncio.sleep(0))
    finally:
        refused.set()
        closer.join()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_sync_client_in_forked_process_raises(client: SyncClient) -> None:
    """A forked process lacks the thread. The call would block forever."""
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        try:
            with pytest.raises(RuntimeError, match="fork"):
                client.get(ConfigMap, KEY)
            client.close()
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_waiting_for_itself_is_refused(client: SyncClient) -> None:
    async def wait_inside() -> None:
        client.get(ConfigMap, KEY)

    with pytest.raises(RuntimeError, match="use await"):
        client.run(wait_inside())


def test_sync_keyboard_interrupt_cancels_the_call(client: SyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception in the waiting thread, such as Ctrl-C, cancels the call."""
    begun, cancelled = threading.Event(), threading.Event()

    async def endless() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    def interrupted(_: Any) -> None:
        assert begun.wait(10)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(concurrent.futures.Future, "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            client.run(endless())
    assert cancelled.wait(10)


def test_sync_interrupted_iteration_cleans_up(client: SyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, cleaned_up = threading.Event(), threading.Event()

    async def numbers() -> AsyncGenerator[int, None]:
        try:
            yield 1
            begun.set()
            await asyncio.Event().wait()
        finally:
            for _ in range(10):
                await asyncio.sleep(0)
            cleaned_up.set()

    items = client.iterate(numbers())
    assert next(items) == 1
    wait = concurrent.futures.Future[Any].result

    signals = [KeyboardInterrupt]

    def interrupted(future: concurrent.futures.Future[Any]) -> Any:
        if signals:
            assert begun.wait(10)
            raise signals.pop()
        return wait(future)

    monkeypatch.setattr(concurrent.futures.Future, "result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(items)
    assert cleaned_up.is_set()


def test_no_server(unused_port: int) -> None:
    with (
        SyncClient(ClusterConfig(server=f"http://127.0.0.1:{unused_port}")) as client,
        pytest.raises(ConnectionFailed),
    ):
        client.list(ConfigMap)


@pytest.fixture
def unused_port() -> Iterator[int]:
    """Yield a bound port without listener. Connections are refused."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]
