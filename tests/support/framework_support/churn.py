"""Continuous changes of many objects during a fault, and a final comparison."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress

from framework_support.gadget import Gadget, config_map_data, gadget, gadget_crd
from steersman.api.apply import apiextensions, core, meta
from steersman.api.core_v1 import ConfigMap
from steersman.client import Client, MergePatch
from steersman.errors import AlreadyExists, NotFound, SteersmanError
from steersman.meta import ObjectKey, decode_builtins, metadata_only

_PATCHERS = 8
_POLL = 0.25
# One of so many changes deletes the object and creates it again.
_REPLACE_EVERY = 25


class Churn:
    """Changes gadgets and compares their state.

    Changes go directly to the API server, in a deterministic shuffled order. A failed change is counted and the
    next one follows.

    Args:
        client: client of the API server.
        namespace: namespace of the gadgets.
        objects: number of gadgets.
        rate: changes per second, if the API server is fast enough.
        patience: timeout of all waits in seconds.

    Attributes:
        excluded: gadgets that are compared but not changed.
    """

    def __init__(self, client: Client, namespace: str, *, objects: int, rate: float, patience: float) -> None:
        self.client = client
        self.namespace = namespace
        self.rate = rate
        self.patience = patience
        self.keys = [ObjectKey(namespace, f"gadget-{number:04}") for number in range(objects)]
        self.excluded: set[ObjectKey] = set()
        self.changes: Counter[ObjectKey] = Counter()
        self.failures: Counter[str] = Counter()
        self._order = random.Random(4)
        self._number = 0

    @property
    def total(self) -> int:
        """Number of successful changes."""
        return self.changes.total()

    async def install(self) -> None:
        """Create the namespace and the CRD; wait until it is served."""
        await self.client.apply(core.Namespace(metadata=meta.ObjectMeta(name=self.namespace)))
        await self.install_crd()

    async def install_crd(self) -> None:
        """Create the CRD and wait until the kind is served."""
        await self.client.apply(decode_builtins(gadget_crd(), apiextensions.CustomResourceDefinition))
        async with asyncio.timeout(self.patience):
            while not await self._is_served():
                await asyncio.sleep(0.05)

    async def create(self) -> None:
        """Create all gadgets."""
        remaining = iter(self.keys)

        async def creator() -> None:
            for key in remaining:
                await self._replace(key, self._next())

        async with asyncio.TaskGroup() as group:
            for _ in range(_PATCHERS):
                group.create_task(creator())

    async def delete_all(self) -> None:
        """Delete all objects of the test."""
        for kind in (Gadget, ConfigMap):
            await self.client.delete_collection(metadata_only(kind), namespace=self.namespace)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Change gadgets at ``rate`` during the block."""
        stop = asyncio.Event()
        work = asyncio.create_task(self._change(stop))
        try:
            yield
        finally:
            stop.set()
            await work

    async def wait_for_round(self) -> None:
        """Wait until each gadget has changed once more. Use within ``running``."""
        goal = {key: self.changes[key] + 1 for key in self.keys if key not in self.excluded}
        async with asyncio.timeout(self.patience):
            while any(self.changes[key] < times for key, times in goal.items()):
                await asyncio.sleep(0.02)

    async def wait_for_failure(self) -> None:
        """Wait for another failed request. Use within ``running``."""
        before = self.failures.total()
        async with asyncio.timeout(self.patience):
            while self.failures.total() == before:
                await asyncio.sleep(0.02)

    async def wait_until_converged(self, *, ignoring: Iterable[ObjectKey] = ()) -> float:
        """Wait until all objects are consistent. Return the seconds it took.

        Args:
            ignoring: gadgets that are not compared.

        Raises:
            AssertionError: after ``patience`` seconds, with some of the differences.
        """
        started = time.monotonic()
        while wrong := await self.mismatches(ignoring=ignoring):
            took = time.monotonic() - started
            assert took < self.patience, f"{len(wrong)} wrong after {took:.0f} s: {'; '.join(wrong[:5])}"
            await asyncio.sleep(_POLL)
        return time.monotonic() - started

    async def mismatches(self, *, ignoring: Iterable[ObjectKey] = ()) -> list[str]:
        """Differences in spec, ConfigMap, owner, observed generation and status, by object."""
        ignored = set(ignoring)
        unread: set[ObjectKey] = set()
        listed = await self.client.list(
            Gadget, namespace=self.namespace, on_decode_error=lambda key, _: unread.add(key)
        )
        gadgets = {obj.key: obj for obj in listed.items}
        maps = {obj.key: obj for obj in (await self.client.list(ConfigMap, namespace=self.namespace)).items}
        wrong = [f"{key} is missing" for key in self.keys if key not in gadgets | dict.fromkeys(unread)]
        wrong += [f"{key} does not fit its type" for key in unread - ignored]
        wrong += [f"ConfigMap {key} has no gadget" for key in maps if key not in gadgets and key not in unread]
        for key, obj in gadgets.items():
            if key not in ignored:
                wrong += [f"{key}: {what}" for what in _mismatches_of(obj, maps.get(key))]
        return wrong

    async def _is_served(self) -> bool:
        try:
            await self.client.list(Gadget)
        except NotFound:
            return False
        return True

    def _next(self) -> int:
        self._number += 1
        return self._number

    async def _change(self, stop: asyncio.Event) -> None:
        started, first = time.monotonic(), self._number
        waiting: list[ObjectKey] = []

        async def patcher() -> None:
            while not stop.is_set():
                number = self._next()
                if not waiting:
                    waiting.extend(self.keys)
                    self._order.shuffle(waiting)
                key = waiting.pop()
                if key in self.excluded:
                    continue
                due = started + (number - first) / self.rate
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                await (self._replace if number % _REPLACE_EVERY == 0 else self._patch)(key, number)

        async with asyncio.TaskGroup() as group:
            for _ in range(_PATCHERS):
                group.create_task(patcher())

    async def _patch(self, key: ObjectKey, number: int) -> None:
        try:
            spec = {"text": f"change {number}", "replicas": number}
            await self.client.patch(Gadget, key, MergePatch({"spec": spec}))
            self.changes[key] += 1
        except NotFound:
            await self._replace(key, number)
        except SteersmanError as error:
            await self._record_failure(error)

    async def _replace(self, key: ObjectKey, number: int) -> None:
        try:
            with suppress(NotFound):
                await self.client.delete(Gadget, key)
            # The object may exist if the response to an earlier request was lost.
            with suppress(AlreadyExists):
                await self.client.create(gadget(key, f"change {number}", number))
            self.changes[key] += 1
        except SteersmanError as error:
            await self._record_failure(error)

    async def _record_failure(self, error: SteersmanError) -> None:
        self.failures[type(error).__name__] += 1
        await asyncio.sleep(0.05)


def _mismatches_of(obj: Gadget, config_map: ConfigMap | None) -> Iterable[str]:
    wanted = config_map_data(obj.spec)
    if config_map is None:
        yield "no ConfigMap"
    else:
        owner = config_map.controller_reference
        if config_map.data != wanted:
            yield f"its ConfigMap says {config_map.data.get('text')!r}, its spec {obj.spec.text!r}"
        if owner is None or owner.uid != obj.metadata.uid:
            yield "its ConfigMap has the UID of a previous gadget as owner"
    if obj.status.observed_generation != obj.metadata.generation:
        seen = obj.status.observed_generation
        yield f"status has seen generation {seen} of {obj.metadata.generation}"
    elif obj.status.fingerprint != wanted["fingerprint"]:
        yield "the fingerprint in its status is outdated"
