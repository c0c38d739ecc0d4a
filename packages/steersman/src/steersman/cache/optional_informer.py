"""Informers of kinds that the server may not serve."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from steersman.cache.informer import Informer
from steersman.cache.options import WatchScope
from steersman.client import Client
from steersman.client.discovery import is_served
from steersman.errors import ApiError, ConnectionFailed, Forbidden
from steersman.meta import Object, ObjectKey
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime
from steersman.observability.supervisor import Supervisor

T = TypeVar("T", bound=Object)

# One small request per kind. It detects a new CRD much sooner than users expect.
_DISCOVERY_INTERVAL_SECONDS = 10.0

log = get_logger("cache")


class OptionalInformer(Informer[T]):
    """An informer that runs while the server serves its kind.

    Discovery decides. While the kind is absent, the store is empty and counts as synced: reads return nothing.
    When the kind appears, reads wait for the first list.

    Attributes:
        is_served: result of the last discovery; None before the first.
    """

    def __init__(
        self, client: Client, kind: type[T], *, runtime: Runtime, scopes: tuple[WatchScope, ...] = (WatchScope(),)
    ) -> None:
        super().__init__(client, kind, runtime=runtime, scopes=scopes)
        self.is_served: bool | None = None
        self._discovered = asyncio.Event()
        self._has_logged_forbidden = False
        self._change_subscribers: list[Callable[[], None]] = []

    def on_served_change(self, subscriber: Callable[[], None]) -> None:
        """Call ``subscriber`` when the kind has appeared or disappeared.

        The first discovery is not a change.
        """
        self._change_subscribers.append(subscriber)

    async def wait_for_discovery(self) -> None:
        """Wait for the first discovery."""
        await self._discovered.wait()

    def is_uncertain(self, key: ObjectKey | None = None) -> bool:
        """See ``Informer.is_uncertain``. An absent kind has no object to read."""
        return self.is_served is not False and super().is_uncertain(key)

    def is_complete(self, key: ObjectKey) -> bool:
        """See ``Informer.is_complete``. False for an absent kind: discovery may lag behind a new CRD."""
        return self.is_served is True and super().is_complete(key)

    async def run(self) -> None:
        """Run the reflectors while the server serves the kind, until cancelled."""
        reflectors = Supervisor(self._runtime)
        try:
            while True:
                served = await self._discover()
                if served is not None and served is not self.is_served:
                    await reflectors.stop()
                    if served:
                        self._start_reflectors(reflectors)
                    else:
                        self._remove_objects()
                    self._record(served)
                jitter = 0.9 + 0.2 * self._runtime.random.random()
                await self._runtime.clock.sleep(_DISCOVERY_INTERVAL_SECONDS * jitter)
        finally:
            await reflectors.stop()

    async def _discover(self) -> bool | None:
        """Return True if the kind is served; None if discovery failed."""
        try:
            return await is_served(self._client, self.kind.api_resource)
        except Forbidden as error:
            if not self._has_logged_forbidden:
                self._has_logged_forbidden = True
                log.warning(
                    "discovery of an optional kind is forbidden: grant the ClusterRole system:discovery",
                    kind=self.name,
                    error=str(error),
                )
        except (ApiError, ConnectionFailed) as error:
            # An unreachable server says nothing about the kind, and the other informers report it.
            log.debug("discovery failed", kind=self.name, error=str(error))
        except Exception:
            # The informer must outlive any response.
            log.exception("discovery failed", kind=self.name)
        return None

    def _start_reflectors(self, supervisor: Supervisor) -> None:
        self._replace_sinks()
        for reflector in self.reflectors:
            supervisor.start(reflector.run, f"reflector {self.name}")

    def _remove_objects(self) -> None:
        for obj in self.store:
            self.store.remove(obj.key)
        self._replace_sinks()
        self.progress.mark_synced()

    def _replace_sinks(self) -> None:
        """Start with new sinks: their versions and tombstones belong to deleted objects."""
        if self.is_served is None:
            return
        previous = self.progress
        self.progress, self.sinks = self._new_sinks()
        # Nothing will ever be listed for those who wait for the previous sinks.
        previous.mark_synced()

    def _record(self, served: bool) -> None:
        is_change = self.is_served is not None
        self.is_served = served
        self._discovered.set()
        if not is_change:
            log.debug("optional kind discovered", kind=self.name, served=served)
            return
        log.info("optional kind appeared" if served else "optional kind disappeared", kind=self.name)
        for subscriber in self._change_subscribers:
            subscriber()
