"""The informers of a manager, one a kind, shared by its controllers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

from steersman.cache.informer import Informer
from steersman.client import Client
from steersman.errors import CacheNotSynced
from steersman.meta import Object
from steersman.observability.runtime import Runtime

T = TypeVar("T", bound=Object)


class Cache:
    """Makes and runs informers.

    Args:
        namespace: the only namespace to watch; empty for all.
        label_selectors: by kind, which objects to hold. Secrets of a whole cluster are a burden and a risk:
            select those that are yours.
    """

    def __init__(
        self,
        client: Client,
        *,
        runtime: Runtime,
        namespace: str = "",
        label_selectors: Mapping[type[Object], str] | None = None,
    ) -> None:
        self._client = client
        self._runtime = runtime
        self._namespace = namespace
        self._label_selectors = dict(label_selectors or {})
        self._informers: dict[type[Object], Informer[Any]] = {}
        self._tasks: list[asyncio.Task[Any]] = []
        self._started = False

    def informer(self, kind: type[T]) -> Informer[T]:
        """The informer of ``kind``, made at the first call, and started with the cache or at once if that runs."""
        if kind not in self._informers:
            self._informers[kind] = Informer(
                self._client,
                kind,
                runtime=self._runtime,
                namespace=self._namespace if kind.api_resource.namespaced else "",
                label_selector=self._label_selectors.get(kind, ""),
            )
            if self._started:
                self._run(self._informers[kind])
        return self._informers[kind]

    def holds(self, kind: type[Object]) -> bool:
        """Whether an informer of ``kind`` exists."""
        return kind in self._informers

    @property
    def has_synced(self) -> bool:
        """Whether every informer has its first list."""
        return self._started and all(i.has_synced for i in self._informers.values())

    def start(self) -> None:
        """Starts all informers."""
        self._started = True
        for informer in self._informers.values():
            self._run(informer)

    async def wait_for_sync(self, timeout: float = 120.0) -> None:
        """Returns once every informer has its first list.

        Raises:
            CacheNotSynced: not within ``timeout`` seconds; names the kinds and what the server answered, which
                tells a missing CRD from missing RBAC.
        """
        try:
            async with asyncio.timeout(timeout):
                for informer in tuple(self._informers.values()):
                    await informer.wait_for_sync()
        except TimeoutError:
            raise CacheNotSynced(f"not synced after {timeout:g} s: {'; '.join(self._laggards())}") from None

    async def stop(self) -> None:
        """Ends all informers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        self._started = False

    def _run(self, informer: Informer[Any]) -> None:
        name = f"reflector {informer.kind.api_resource.kind}"
        self._tasks.append(self._runtime.spawn(informer.reflector.run(), name))

    def _laggards(self) -> list[str]:
        late = [i for i in self._informers.values() if not i.has_synced]
        return [f"{_title(i.kind)} ({i.reflector.last_error or 'no answer yet'})" for i in late]


def _title(kind: type[Object]) -> str:
    resource = kind.api_resource
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural
