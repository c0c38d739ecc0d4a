"""The client for scripts without ``async``: the same verbs, which wait for their answer.

    with SyncClient() as client:
        for pod in client.list(Pod, namespace="default").items:
            print(pod.metadata.name)

An event loop runs in a thread of its own, so this works where a loop runs already, as in Jupyter, and from several
threads at once. Operators do not use it: a reconciler that waits like this would hold up all others.

The verbs are those of ``Client``, taken over with their signatures, so there is no second list of them to maintain.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from steersman.client.client import Client
from steersman.client.config_loader import ClusterConfig, load_config
from steersman.client.conflict import retry_on_conflict
from steersman.client.transport.connect import connect
from steersman.client.transport.interface import Transport

P = ParamSpec("P")
R = TypeVar("R")


class _Exhausted:
    """What a generator gives when it has no more."""


_EXHAUSTED = _Exhausted()


def _blocking(
    verb: Callable[Concatenate[Client, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[SyncClient, P], R]:
    @functools.wraps(verb)
    def call(self: SyncClient, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.run(verb(self.client, *args, **kwargs))

    return call


def _blocking_iterator(
    verb: Callable[Concatenate[Client, P], AsyncGenerator[R, None]],
) -> Callable[Concatenate[SyncClient, P], Generator[R, None, None]]:
    @functools.wraps(verb)
    def call(self: SyncClient, *args: P.args, **kwargs: P.kwargs) -> Generator[R, None, None]:
        return self.iterate(verb(self.client, *args, **kwargs))

    return call


class SyncClient:
    """Reads and writes objects of one cluster, and waits for each answer.

    Open it by ``with``, or close it by ``close``. Raises what ``Client`` raises.

    Args:
        server: a configuration, or a transport such as an in-memory server; without it, ``load_config()``.
        field_manager: the name under which writes own their fields.

    Attributes:
        client: the asynchronous client behind it; what it gives is to be handed to ``run``.

    Raises:
        ConfigurationError: no cluster is configured, or not well.
    """

    client: Client

    def __init__(self, server: ClusterConfig | Transport | None = None, *, field_manager: str = "steersman") -> None:
        server = server if server is not None else load_config()
        self._loop = asyncio.new_event_loop()
        self._exit_stack = AsyncExitStack()
        self._open_generators: set[AsyncGenerator[Any, None]] = set()
        # It ends with the interpreter even where nobody closes it.
        self._thread = threading.Thread(target=self._loop.run_forever, name="steersman-sync-client", daemon=True)
        self._thread.start()
        self._is_closed = False
        # Whatever is submitted comes before the end, which cancels it; nothing comes after it, and waits for ever.
        self._submit_lock = threading.Lock()
        try:
            self.client = self.run(self._connect(server, field_manager))
        except BaseException:
            self.close()
            raise

    async def _connect(self, server: ClusterConfig | Transport, field_manager: str) -> Client:
        if isinstance(server, ClusterConfig):
            server = await self._exit_stack.enter_async_context(connect(server))
        return Client(server, field_manager=field_manager)

    def __enter__(self) -> SyncClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends all connections, and iterations that are still open. May be called again, and in a forked process."""
        if not self._thread.is_alive():
            self._is_closed = True
            return
        with self._submit_lock:
            if self._is_closed:
                return
            self._ensure_usable()
            self._is_closed = True
            shutdown = asyncio.run_coroutine_threadsafe(self._shutdown(), self._loop)
        shutdown.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _shutdown(self) -> None:
        current = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not current]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        # From the outside in: the loop's own shutdown_asyncgens closes them in any order, those inside of others too.
        for items in list(self._open_generators):
            await items.aclose()
        await self._exit_stack.aclose()
        await self._loop.shutdown_default_executor()

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Runs ``coroutine`` where the client lives and waits for its result::

            client.run(Discovery(client.client).mapping("deploy"))

        Ctrl-C, or any other exception in the waiting thread, cancels it.

        Raises:
            RuntimeError: the client is closed; or this was called from its own loop, which would wait for itself; or
                in a forked process, where that loop does not run.
        """
        future: Future[R] | None = None
        try:
            future = self._submit(coroutine)
            return future.result()
        except BaseException:
            if future is not None:
                future.cancel()
            raise

    def _submit(self, coroutine: Coroutine[Any, Any, R]) -> Future[R]:
        try:
            # Also before: whoever held the lock is not there after a fork.
            self._ensure_usable()
            with self._submit_lock:
                self._ensure_usable()
                return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise

    def _ensure_usable(self) -> None:
        if self._is_closed:
            raise RuntimeError("the client is closed")
        if threading.current_thread() is self._thread:
            raise RuntimeError("this would wait for itself: use await")
        if not self._thread.is_alive():
            raise RuntimeError("the client does not live on after a fork: make another one in the new process")

    def iterate(self, items: AsyncGenerator[R, None]) -> Generator[R, None, None]:
        """What an asynchronous generator of ``client`` yields, such as a watch; leaving the loop ends it."""
        # A generator cannot be closed while it runs, and one that is interrupted runs until it has cleaned up.
        lock = asyncio.Lock()

        async def advance() -> R | _Exhausted:
            async with lock:
                return await anext(items, _EXHAUSTED)

        async def close() -> None:
            async with lock:
                await items.aclose()

        self._open_generators.add(items)
        try:
            while not isinstance(item := self.run(advance()), _Exhausted):
                yield item
        finally:
            self._open_generators.discard(items)
            if not self._is_closed:
                self.run(close())

    def retry_on_conflict(self, fn: Callable[[], R], *, attempts: int = 5) -> R:
        """What ``fn`` returns, called again, in a thread, while it raises ``Conflict``: see ``retry_on_conflict``."""
        return self.run(retry_on_conflict(lambda: asyncio.to_thread(fn), attempts=attempts))

    get = _blocking(Client.get)
    list = _blocking(Client.list)
    create = _blocking(Client.create)
    update = _blocking(Client.update)
    patch = _blocking(Client.patch)
    apply = _blocking(Client.apply)
    apply_encoded = _blocking(Client.apply_encoded)
    apply_status = _blocking(Client.apply_status)
    delete = _blocking(Client.delete)
    delete_collection = _blocking(Client.delete_collection)
    get_scale = _blocking(Client.get_scale)
    scale = _blocking(Client.scale)
    evict = _blocking(Client.evict)
    create_token = _blocking(Client.create_token)
    raw = _blocking(Client.raw)
    logs = _blocking_iterator(Client.logs)
    pages = _blocking_iterator(Client.pages)
    watch = _blocking_iterator(Client.watch)
