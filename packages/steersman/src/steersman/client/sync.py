"""Client for scripts without ``async``, with the blocking methods of ``Client``.

    with SyncClient() as client:
        for pod in client.list(Pod, namespace="default").items:
            print(pod.metadata.name)

The event loop of the client runs in a separate thread. The client therefore works in programs that already run a
loop, such as Jupyter, and in several threads at once. Operators must not use it: a call blocks all other reconciles.

The methods are wrappers of the ``Client`` methods with the same signatures.
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
    """Marks the end of a generator."""


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
    """Blocking client for the objects of one cluster.

    Use it in a ``with`` statement, or call ``close``. Its methods raise the same exceptions as those of ``Client``.

    Args:
        server: a configuration, or a transport such as an in-memory API server. Defaults to ``load_config()``.
        field_manager: name under which writes own their fields.

    Attributes:
        client: the asynchronous client. Pass its coroutines to ``run``.

    Raises:
        ConfigurationError: the cluster configuration is missing or invalid.
    """

    client: Client

    def __init__(self, server: ClusterConfig | Transport | None = None, *, field_manager: str = "steersman") -> None:
        server = server if server is not None else load_config()
        self._loop = asyncio.new_event_loop()
        self._exit_stack = AsyncExitStack()
        self._open_generators: set[AsyncGenerator[Any, None]] = set()
        # A daemon thread does not block the end of the interpreter if the client is not closed.
        self._thread = threading.Thread(target=self._loop.run_forever, name="steersman-sync-client", daemon=True)
        self._thread.start()
        self._is_closed = False
        # Coroutines are submitted before the shutdown, which cancels them. Later ones would never complete.
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
        """Close all connections and open iterations.

        Further calls have no effect. The method is safe in a forked process.
        """
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
        # This closes outer generators first. loop.shutdown_asyncgens could close an inner one before its outer one.
        for items in list(self._open_generators):
            await items.aclose()
        await self._exit_stack.aclose()
        await self._loop.shutdown_default_executor()

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run ``coroutine`` on the client's event loop and return its result::

            client.run(Discovery(client.client).mapping("deploy"))

        Ctrl-C, or any other exception in the waiting thread, cancels the coroutine.

        Raises:
            RuntimeError: the client is closed. Also raised on its own event loop, where the call would deadlock, and
                in a forked process, where the loop does not run.
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
            # Check before locking as well: after a fork, the thread that held the lock does not exist.
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
            raise RuntimeError("the call would block the event loop of the client: use await")
        if not self._thread.is_alive():
            raise RuntimeError("the client does not work after a fork: create another one in the new process")

    def iterate(self, items: AsyncGenerator[R, None]) -> Generator[R, None, None]:
        """Yield the items of an asynchronous generator, such as a watch.

        Leaving the ``for`` loop closes the generator.
        """
        # A running generator cannot be closed, and an interrupted one runs until it has cleaned up.
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
        """Call ``fn`` again after each ``Conflict`` and return its result.

        ``fn`` runs in a thread. See ``steersman.client.retry_on_conflict``.

        Args:
            fn: function that reads and updates an object.
            attempts: maximum number of calls, including the first one.
        """
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
