"""The informers of a manager, one a kind, shared by its controllers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

from steersman.cache.informer import Informer
from steersman.cache.options import InformerOptions, scopes_of
from steersman.client import Client
from steersman.errors import CacheNotSynced
from steersman.meta import Object
from steersman.observability.runtime import Runtime

T = TypeVar("T", bound=Object)

_DEFAULTS = InformerOptions()


class Cache:
    """Makes and runs informers.

    Args:
        namespaces: the only namespaces to watch; empty for all.
        options: by kind, which objects to hold and in what form.
    """

    def __init__(
        self,
        client: Client,
        *,
        runtime: Runtime,
        namespaces: tuple[str, ...] = (),
        options: Mapping[type[Object], InformerOptions] | None = None,
    ) -> None:
        self._client = client
        self._runtime = runtime
        self._namespaces = namespaces
        self._options = dict(options or {})
        self._informers: dict[type[Object], Informer[Any]] = {}
        self._tasks: list[asyncio.Task[Any]] = []
        self._started = False

    def informer(self, kind: type[T]) -> Informer[T]:
        """The informer of ``kind``, made at the first call, and started with the cache or at once if that runs.

        Raises:
            ConfigurationError: the kind's ``InformerOptions`` do not fit it, or it is Secret and all would be held.
        """
        if kind not in self._informers:
            scopes = scopes_of(kind, self._options.get(kind, _DEFAULTS), self._namespaces)
            self._informers[kind] = Informer(self._client, kind, runtime=self._runtime, scopes=scopes)
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
        self._tasks.extend(self._runtime.spawn(r.run(), name) for r in informer.reflectors)

    def _laggards(self) -> list[str]:
        late = [p for i in self._informers.values() for p in i.parts if not p.has_synced]
        return [f"{_title(p.kind, p.scope.namespace)} ({p.reflector.last_error or 'no answer yet'})" for p in late]


def _title(kind: type[Object], namespace: str) -> str:
    resource = kind.api_resource
    name = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    return f"{name} in {namespace}" if namespace else name
