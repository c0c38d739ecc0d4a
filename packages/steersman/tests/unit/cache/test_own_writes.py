"""What we have written is what we read, however far the watch lags behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from framework_support.buoy import Buoy, BuoyApply, BuoySpecApply, BuoyStatus
from framework_support.door import Door
from framework_support.world import NAMESPACE, key, settle
from steersman.cache import Cache, Change, InformerOptions
from steersman.client import Client, MergePatch
from steersman.errors import ConnectionFailed
from steersman.meta import ApiResource, Object, ObjectMetaApply, metadata_only, unstructured
from steersman_testing import InMemoryApiServer, matching, virtual_runtime, virtual_time

UNSTRUCTURED = unstructured(ApiResource("sea.example.com", "v1", "Buoy", "buoys"))
METADATA = metadata_only(Buoy)
NONE: Mapping[str, str] = {}


class Shore:
    """A server, a cache behind a door, a client whose writes the cache hears of, and somebody else's client."""

    def __init__(self, **options: Any) -> None:
        runtime = virtual_runtime()
        self.server = InMemoryApiServer(runtime)
        self.server.register(Buoy)
        self.server.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        self.door = Door(self.server)
        reader = Client(self.door, field_manager="tester")
        self.cache = Cache(reader, runtime=runtime)
        self.cache.configure(Buoy, InformerOptions(**options))
        self.client = Client(self.door, field_manager="tester", observer=self.cache)
        self.stranger = Client(self.server, field_manager="stranger")
        self.told: list[tuple[int | None, int | None]] = []
        self.told_own: list[bool] = []
        self.cache.informer(Buoy).subscribe(self._note)

    def _note(self, change: Change[Buoy]) -> None:
        old, new = (o.spec.depth if o is not None else None for o in (change.old, change.new))
        self.told.append((old, new))
        self.told_own.append(change.own)

    def read(self, kind: type[Object] = Buoy) -> Any:
        """Buoy ``a`` as the cache has it."""
        return self.cache.informer(kind).store.get(key("a"))

    @property
    def depth(self) -> int | None:
        found = self.read()
        return found.spec.depth if found is not None else None

    async def apply(self, depth: int, client: Client | None = None, labels: Mapping[str, str] = NONE) -> Buoy:
        metadata = ObjectMetaApply(name="a", namespace=NAMESPACE, labels=labels)
        return await (client or self.client).apply(BuoyApply(metadata=metadata, spec=BuoySpecApply(depth=depth)))

    @asynccontextmanager
    async def synced(self, *more: type[Object]) -> AsyncGenerator[None]:
        for kind in more:
            self.cache.informer(kind)
        self.cache.start()
        await self.cache.wait_for_sync()
        await settle()
        try:
            yield
        finally:
            await self.cache.stop()


@virtual_time
async def test_a_write_is_read_at_once_and_told_once() -> None:
    shore = Shore()
    async with shore.synced(UNSTRUCTURED, METADATA):
        shore.door.shut()
        await shore.apply(1)
        await shore.apply(2)
        status = await shore.client.apply_status(shore.read(), BuoyStatus(note="afloat"))
        assert shore.read() == status
        assert shore.read(UNSTRUCTURED).content["status"]["note"] == "afloat"
        assert shore.read(METADATA).metadata.resource_version == status.metadata.resource_version
        told = list(shore.told)
        assert told == [(None, 1), (1, 2), (2, 2)]
        shore.door.open()
        await settle()
        assert shore.told == told
        assert shore.read() == status
        await shore.apply(3, shore.stranger)
        await settle()
        assert shore.told_own == [True, True, True, False]


@virtual_time
async def test_what_the_watch_brings_of_our_own_is_not_read_again() -> None:
    shore = Shore()
    async with shore.synced():
        shore.door.shut()
        await shore.apply(1)
        own = shore.read()
        shore.door.open()
        await settle()
        assert shore.read() is own
        await shore.apply(7, shore.stranger)
        await settle()
        assert shore.depth == 7


@virtual_time
async def test_others_changes_before_ours_are_passed_over_and_those_after_count() -> None:
    shore = Shore()
    async with shore.synced():
        shore.door.shut()
        await shore.apply(1, shore.stranger)
        await shore.client.patch(Buoy, key("a"), MergePatch({"spec": {"depth": 2}}))
        await shore.stranger.patch(Buoy, key("a"), MergePatch({"spec": {"depth": 3}}))
        assert shore.depth == 2
        shore.door.open()
        await settle()
        assert shore.depth == 3
        assert shore.told == [(None, 2), (2, 3)]


@virtual_time
async def test_an_answer_that_the_watch_has_overtaken_is_no_news() -> None:
    shore = Shore()
    async with shore.synced():
        answered = await shore.apply(1, shore.stranger)
        await shore.stranger.delete(Buoy, key("a"))
        await settle()
        # The answer to a write of ours, which came before the deletion, reaches us after the watch told of that.
        shore.cache.begun(Buoy, key("a"))
        shore.cache.written(Buoy, answered, b"{}")
        assert shore.read() is None


@virtual_time
async def test_what_we_deleted_is_gone_and_stays_so() -> None:
    shore = Shore()
    async with shore.synced():
        await shore.apply(1)
        await settle()
        shore.door.shut()
        await shore.apply(2, shore.stranger)
        await shore.client.delete(Buoy, key("a"))
        assert shore.read() is None
        shore.door.open()
        await settle()
        assert shore.read() is None
        assert shore.told == [(None, 1), (1, None)]


@virtual_time
async def test_what_we_made_anew_outlives_the_end_of_what_was_before() -> None:
    shore = Shore()
    async with shore.synced():
        await shore.apply(1)
        await settle()
        shore.door.shut()
        await shore.stranger.delete(Buoy, key("a"))
        made = await shore.apply(2)
        assert shore.told[1:] == [(1, None), (None, 2)]
        shore.door.open()
        await settle()
        assert shore.read() == made
        assert len(shore.told) == 3


@virtual_time
async def test_the_last_finalizer_that_we_remove_ends_the_object() -> None:
    shore = Shore()
    async with shore.synced():
        await shore.apply(1)
        await shore.client.patch(Buoy, key("a"), MergePatch({"metadata": {"finalizers": ["sea.example.com/x"]}}))
        shore.door.shut()
        await shore.client.delete(Buoy, key("a"))
        assert shore.read().metadata.deletion_timestamp is not None
        await shore.client.patch(Buoy, key("a"), MergePatch({"metadata": {"finalizers": None}}))
        assert shore.read() is None
        shore.door.open()
        await settle()
        assert shore.read() is None


@virtual_time
async def test_a_deletion_of_what_was_never_seen_makes_the_next_read_ask() -> None:
    shore = Shore()
    async with shore.synced():
        await shore.apply(1)
        await settle()
        shore.door.shut()
        await shore.stranger.delete(Buoy, key("a"))
        await shore.apply(2, shore.stranger)
        await shore.client.delete(Buoy, key("a"))
        assert shore.cache.is_uncertain(Buoy, key("a"))
        await shore.cache.settle(Buoy, key("a"))
        assert (shore.read(), shore.cache.is_uncertain(Buoy)) == (None, False)
        shore.door.open()
        await settle()
        assert shore.read() is None


@virtual_time
async def test_the_answer_to_a_deletion_spares_what_came_after() -> None:
    shore = Shore()
    async with shore.synced():
        doomed = await shore.apply(1, shore.stranger)
        await settle()
        shore.cache.begun(Buoy, key("a"))
        await shore.stranger.delete(Buoy, key("a"))
        await shore.apply(2, shore.stranger)
        await settle()
        shore.cache.begun(Buoy, key("a"))
        shore.cache.deleted(Buoy, key("a"), doomed.metadata.uid)
        assert shore.depth == 2


@pytest.mark.parametrize("selected", [{"label_selector": "in"}, {"field_selector": "metadata.name!=a"}])
@virtual_time
async def test_our_own_write_can_leave_the_selection(selected: dict[str, str]) -> None:
    shore = Shore(**selected)
    async with shore.synced():
        await shore.apply(1, labels={"in": ""})
        assert shore.depth == (1 if "label_selector" in selected else None)
        await settle()
        shore.door.shut()
        await shore.apply(2, shore.stranger, {"other": ""})
        await shore.apply(3)
        assert shore.read() is None
        shore.door.open()
        await settle()
        assert shore.read() is None
        await shore.apply(4, labels={"in": ""})
        assert shore.depth == (4 if "label_selector" in selected else None)


@virtual_time
async def test_a_list_that_was_asked_for_before_our_write_does_not_undo_it() -> None:
    shore = Shore()
    async with shore.synced():
        await shore.apply(1)
        await settle()
        shore.door.lists = asyncio.Event()
        shore.door.shut()
        shore.server.compact()
        shore.cache.informer(Buoy).reflectors[0]._streams = False  # pyright: ignore[reportPrivateUsage]
        shore.cache.informer(Buoy).reflectors[0].relist()
        await settle()
        await shore.client.patch(Buoy, key("a"), MergePatch({"spec": {"depth": 2}}))
        shore.door.lists.set()
        await asyncio.sleep(5)
        assert shore.depth == 2
        assert (2, 1) not in shore.told


@virtual_time
async def test_a_lost_answer_makes_the_next_read_ask() -> None:
    shore = Shore()
    async with shore.synced():
        await shore.apply(1)
        await settle()
        shore.door.shut()
        shore.server.fail_next(matching("PATCH"), ConnectionFailed("scripted loss"), when="after")
        with pytest.raises(ConnectionFailed):
            await shore.apply(2)
        assert shore.depth == 1
        assert shore.cache.is_uncertain(Buoy)
        assert not shore.cache.is_uncertain(Buoy, key("other"))
        shore.server.fail_next(matching("GET"), ConnectionFailed("scripted loss"))
        with pytest.raises(ConnectionFailed):
            await shore.cache.settle(Buoy, key("a"))
        await shore.cache.settle(Buoy, key("a"))
        assert (shore.depth, shore.cache.is_uncertain(Buoy, key("a"))) == (2, False)


@virtual_time
async def test_many_doubts_are_looked_up_side_by_side() -> None:
    shore = Shore()
    async with shore.synced():
        for number in range(40):
            metadata = ObjectMetaApply(name=f"b{number}", namespace=NAMESPACE)
            await shore.client.apply(BuoyApply(metadata=metadata, spec=BuoySpecApply(depth=1)))
        await shore.client.delete_collection(Buoy, namespace=NAMESPACE)
        shore.door.lists = asyncio.Event()
        shore.server.requests.clear()
        looking = asyncio.create_task(shore.cache.settle(Buoy))
        await settle()
        assert 5 < len(shore.server.requests) < 40
        shore.door.lists.set()
        await looking
        assert not shore.cache.is_uncertain(Buoy)
        assert len(shore.cache.informer(Buoy).store) == 0


@virtual_time
async def test_an_answer_in_metadata_alone_leaves_the_rest_uncertain() -> None:
    shore = Shore()
    async with shore.synced(METADATA):
        await shore.apply(1)
        await settle()
        shore.door.shut()
        patch = MergePatch({"metadata": {"annotations": {"x": "y"}}, "spec": {"depth": 2}})
        await shore.client.patch(METADATA, key("a"), patch)
        assert shore.read(METADATA).metadata.annotations == {"x": "y"}
        assert (shore.cache.is_uncertain(Buoy), shore.cache.is_uncertain(METADATA)) == (True, False)
        await shore.cache.settle(Buoy)
        assert shore.depth == 2


@virtual_time
async def test_refused_writes_change_nothing() -> None:
    shore = Shore()
    async with shore.synced():
        await shore.apply(1)
        shore.server.fail_next(matching("PATCH"), 409)
        with pytest.raises(Exception, match="modified"):
            await shore.apply(2)
        assert (shore.depth, shore.cache.is_uncertain(Buoy)) == (1, False)
        assert not shore.cache.informer(Buoy).parts[0].overlay.in_flight
