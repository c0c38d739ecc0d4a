"""Our own writes are readable at once, however far the watch lags."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from framework_support.controller_env import NAMESPACE, drain_event_loop, key
from framework_support.transports import HoldableTransport
from framework_support.widget import Widget, WidgetApply, WidgetSpecApply, WidgetStatus
from steersman.api.apply import meta
from steersman.cache import Cache, InformerEvent, InformerOptions
from steersman.client import Client, MergePatch
from steersman.errors import ConnectionFailed
from steersman.meta import ApiResource, Object, metadata_only, unstructured
from steersman_testing import InMemoryApiServer, matching, virtual_runtime, virtual_time

UNSTRUCTURED = unstructured(ApiResource("shop.example.com", "v1", "Widget", "widgets"))
METADATA = metadata_only(Widget)
NO_LABELS: Mapping[str, str] = {}


class WriteThroughHarness:
    """A server, a cache with a holdable transport, and two clients."""

    def __init__(self, **options: Any) -> None:
        runtime = virtual_runtime()
        self.server = InMemoryApiServer(runtime)
        self.server.register(Widget)
        self.server.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        self.transport = HoldableTransport(self.server)
        cache_client = Client(self.transport, field_manager="tester")
        self.cache = Cache(cache_client, runtime=runtime)
        self.cache.configure(Widget, InformerOptions(**options))
        self.client = Client(self.transport, field_manager="tester", observer=self.cache)
        self.other_client = Client(self.server, field_manager="stranger")
        self.depth_changes: list[tuple[int | None, int | None]] = []
        self.own_write_flags: list[bool] = []
        self.cache.informer(Widget).subscribe(self._record)

    def _record(self, event: InformerEvent[Widget]) -> None:
        old, new = (o.spec.depth if o is not None else None for o in (event.old, event.new))
        self.depth_changes.append((old, new))
        self.own_write_flags.append(event.from_own_write)

    def cached(self, kind: type[Object] = Widget) -> Any:
        """Widget ``a`` as the cache has it."""
        return self.cache.informer(kind).store.get(key("a"))

    @property
    def depth(self) -> int | None:
        found = self.cached()
        return found.spec.depth if found is not None else None

    async def apply(self, depth: int, client: Client | None = None, labels: Mapping[str, str] = NO_LABELS) -> Widget:
        metadata = meta.ObjectMeta(name="a", namespace=NAMESPACE, labels=labels)
        return await (client or self.client).apply(WidgetApply(metadata=metadata, spec=WidgetSpecApply(depth=depth)))

    @asynccontextmanager
    async def synced(self, *kinds: type[Object]) -> AsyncGenerator[None]:
        for kind in kinds:
            self.cache.informer(kind)
        self.cache.start()
        await self.cache.wait_for_sync()
        await drain_event_loop()
        try:
            yield
        finally:
            await self.cache.stop()


@virtual_time
async def test_own_write_is_readable_at_once_and_reported_once() -> None:
    harness = WriteThroughHarness()
    async with harness.synced(UNSTRUCTURED, METADATA):
        harness.transport.hold_watches()
        await harness.apply(1)
        await harness.apply(2)
        status = await harness.client.apply_status(harness.cached(), WidgetStatus(note="afloat"))
        assert harness.cached() == status
        assert harness.cached(UNSTRUCTURED).content["status"]["note"] == "afloat"
        assert harness.cached(METADATA).metadata.resource_version == status.metadata.resource_version
        depth_changes = list(harness.depth_changes)
        assert depth_changes == [(None, 1), (1, 2), (2, 2)]
        harness.transport.release_watches()
        await drain_event_loop()
        assert harness.depth_changes == depth_changes
        assert harness.cached() == status
        await harness.apply(3, harness.other_client)
        await drain_event_loop()
        assert harness.own_write_flags == [True, True, True, False]


@virtual_time
async def test_own_write_event_is_not_decoded_again() -> None:
    harness = WriteThroughHarness()
    async with harness.synced():
        harness.transport.hold_watches()
        await harness.apply(1)
        own = harness.cached()
        harness.transport.release_watches()
        await drain_event_loop()
        assert harness.cached() is own
        await harness.apply(7, harness.other_client)
        await drain_event_loop()
        assert harness.depth == 7


@virtual_time
async def test_older_foreign_events_are_skipped_newer_applied() -> None:
    harness = WriteThroughHarness()
    async with harness.synced():
        harness.transport.hold_watches()
        await harness.apply(1, harness.other_client)
        await harness.client.patch(Widget, key("a"), MergePatch({"spec": {"depth": 2}}))
        await harness.other_client.patch(Widget, key("a"), MergePatch({"spec": {"depth": 3}}))
        assert harness.depth == 2
        harness.transport.release_watches()
        await drain_event_loop()
        assert harness.depth == 3
        assert harness.depth_changes == [(None, 2), (2, 3)]


@virtual_time
async def test_stale_write_response_is_ignored() -> None:
    harness = WriteThroughHarness()
    async with harness.synced():
        answered = await harness.apply(1, harness.other_client)
        await harness.other_client.delete(Widget, key("a"))
        await drain_event_loop()
        # The response to our write arrives after the DELETED event of a later deletion.
        harness.cache.on_write_started(Widget, key("a"))
        harness.cache.on_write_succeeded(Widget, answered, b"{}")
        assert harness.cached() is None


@virtual_time
async def test_own_deletion_is_not_undone_by_late_event() -> None:
    harness = WriteThroughHarness()
    async with harness.synced():
        await harness.apply(1)
        await drain_event_loop()
        harness.transport.hold_watches()
        await harness.apply(2, harness.other_client)
        await harness.client.delete(Widget, key("a"))
        assert harness.cached() is None
        harness.transport.release_watches()
        await drain_event_loop()
        assert harness.cached() is None
        assert harness.depth_changes == [(None, 1), (1, None)]


@virtual_time
async def test_recreated_object_survives_delete_event_of_old() -> None:
    harness = WriteThroughHarness()
    async with harness.synced():
        await harness.apply(1)
        await drain_event_loop()
        harness.transport.hold_watches()
        await harness.other_client.delete(Widget, key("a"))
        made = await harness.apply(2)
        assert harness.depth_changes[1:] == [(1, None), (None, 2)]
        harness.transport.release_watches()
        await drain_event_loop()
        assert harness.cached() == made
        assert len(harness.depth_changes) == 3


@virtual_time
async def test_removal_of_last_finalizer_deletes_the_object() -> None:
    harness = WriteThroughHarness()
    async with harness.synced():
        await harness.apply(1)
        await harness.client.patch(Widget, key("a"), MergePatch({"metadata": {"finalizers": ["shop.example.com/x"]}}))
        harness.transport.hold_watches()
        await harness.client.delete(Widget, key("a"))
        assert harness.cached().metadata.deletion_timestamp is not None
        await harness.client.patch(Widget, key("a"), MergePatch({"metadata": {"finalizers": None}}))
        assert harness.cached() is None
        harness.transport.release_watches()
        await drain_event_loop()
        assert harness.cached() is None


@virtual_time
async def test_deletion_of_unseen_object_marks_read_uncertain() -> None:
    harness = WriteThroughHarness()
    async with harness.synced():
        await harness.apply(1)
        await drain_event_loop()
        harness.transport.hold_watches()
        await harness.other_client.delete(Widget, key("a"))
        await harness.apply(2, harness.other_client)
        await harness.client.delete(Widget, key("a"))
        assert harness.cache.informer(Widget).is_uncertain(key("a"))
        await harness.cache.resolve(Widget, key("a"))
        assert (harness.cached(), harness.cache.informer(Widget).is_uncertain()) == (None, False)
        harness.transport.release_watches()
        await drain_event_loop()
        assert harness.cached() is None


@virtual_time
async def test_delete_response_keeps_recreated_object() -> None:
    harness = WriteThroughHarness()
    async with harness.synced():
        doomed = await harness.apply(1, harness.other_client)
        await drain_event_loop()
        harness.cache.on_write_started(Widget, key("a"))
        await harness.other_client.delete(Widget, key("a"))
        await harness.apply(2, harness.other_client)
        await drain_event_loop()
        harness.cache.on_write_started(Widget, key("a"))
        harness.cache.on_deleted(Widget, key("a"), doomed.metadata.uid)
        assert harness.depth == 2


@pytest.mark.parametrize("selected", [{"label_selector": "in"}, {"field_selector": "metadata.name!=a"}])
@virtual_time
async def test_our_own_write_can_leave_the_selection(selected: dict[str, str]) -> None:
    harness = WriteThroughHarness(**selected)
    async with harness.synced():
        await harness.apply(1, labels={"in": ""})
        assert harness.depth == (1 if "label_selector" in selected else None)
        await drain_event_loop()
        harness.transport.hold_watches()
        await harness.apply(2, harness.other_client, {"other": ""})
        await harness.apply(3)
        assert harness.cached() is None
        harness.transport.release_watches()
        await drain_event_loop()
        assert harness.cached() is None
        await harness.apply(4, labels={"in": ""})
        assert harness.depth == (4 if "label_selector" in selected else None)


@virtual_time
async def test_list_started_before_own_write_is_not_applied() -> None:
    harness = WriteThroughHarness()
    async with harness.synced():
        await harness.apply(1)
        await drain_event_loop()
        harness.transport.lists_released = asyncio.Event()
        harness.transport.hold_watches()
        harness.server.compact()
        harness.cache.informer(Widget).reflectors[0]._use_watch_list = False  # pyright: ignore[reportPrivateUsage]
        harness.cache.informer(Widget).reflectors[0].relist()
        await drain_event_loop()
        await harness.client.patch(Widget, key("a"), MergePatch({"spec": {"depth": 2}}))
        harness.transport.lists_released.set()
        await asyncio.sleep(5)
        assert harness.depth == 2
        assert (2, 1) not in harness.depth_changes


@virtual_time
async def test_lost_write_response_triggers_uncached_read() -> None:
    harness = WriteThroughHarness()
    async with harness.synced():
        await harness.apply(1)
        await drain_event_loop()
        harness.transport.hold_watches()
        harness.server.fail_next(matching("PATCH"), ConnectionFailed("scripted loss"), when="after")
        with pytest.raises(ConnectionFailed):
            await harness.apply(2)
        assert harness.depth == 1
        assert harness.cache.informer(Widget).is_uncertain()
        assert not harness.cache.informer(Widget).is_uncertain(key("other"))
        harness.server.fail_next(matching("GET"), ConnectionFailed("scripted loss"))
        with pytest.raises(ConnectionFailed):
            await harness.cache.resolve(Widget, key("a"))
        await harness.cache.resolve(Widget, key("a"))
        assert (harness.depth, harness.cache.informer(Widget).is_uncertain(key("a"))) == (2, False)


@virtual_time
async def test_lost_delete_collection_leaves_objects_uncertain() -> None:
    harness = WriteThroughHarness()
    async with harness.synced():
        await harness.apply(1)
        await drain_event_loop()
        harness.transport.hold_watches()
        harness.server.fail_next(matching("DELETE"), ConnectionFailed("scripted loss"), when="after")
        with pytest.raises(ConnectionFailed):
            await harness.client.delete_collection(Widget, namespace=NAMESPACE)
        assert harness.depth == 1
        assert harness.cache.informer(Widget).is_uncertain(key("a"))
        await harness.cache.resolve(Widget, key("a"))
        assert harness.depth is None


@virtual_time
async def test_lost_delete_collection_keeps_other_namespaces() -> None:
    harness = WriteThroughHarness()
    async with harness.synced():
        await harness.apply(1)
        await drain_event_loop()
        harness.server.fail_next(matching("DELETE"), ConnectionFailed("scripted loss"), when="before")
        with pytest.raises(ConnectionFailed):
            await harness.client.delete_collection(Widget, namespace="default")
        assert not harness.cache.informer(Widget).is_uncertain()


@virtual_time
async def test_uncertain_objects_are_resolved_concurrently() -> None:
    harness = WriteThroughHarness()
    async with harness.synced():
        for number in range(40):
            metadata = meta.ObjectMeta(name=f"b{number}", namespace=NAMESPACE)
            await harness.client.apply(WidgetApply(metadata=metadata, spec=WidgetSpecApply(depth=1)))
        await harness.client.delete_collection(Widget, namespace=NAMESPACE)
        harness.transport.lists_released = asyncio.Event()
        harness.server.requests.clear()
        resolving = asyncio.create_task(harness.cache.resolve(Widget))
        await drain_event_loop()
        assert 5 < len(harness.server.requests) < 40
        harness.transport.lists_released.set()
        await resolving
        assert not harness.cache.informer(Widget).is_uncertain()
        assert len(harness.cache.informer(Widget).store) == 0


@virtual_time
async def test_metadata_only_response_leaves_object_uncertain() -> None:
    harness = WriteThroughHarness()
    async with harness.synced(METADATA):
        await harness.apply(1)
        await drain_event_loop()
        harness.transport.hold_watches()
        patch = MergePatch({"metadata": {"annotations": {"x": "y"}}, "spec": {"depth": 2}})
        await harness.client.patch(METADATA, key("a"), patch)
        assert harness.cached(METADATA).metadata.annotations == {"x": "y"}
        assert (harness.cache.informer(Widget).is_uncertain(), harness.cache.informer(METADATA).is_uncertain()) == (
            True,
            False,
        )
        await harness.cache.resolve(Widget)
        assert harness.depth == 2


@virtual_time
async def test_rejected_write_leaves_cache_unchanged() -> None:
    harness = WriteThroughHarness()
    async with harness.synced():
        await harness.apply(1)
        harness.server.fail_next(matching("PATCH"), 409)
        with pytest.raises(Exception, match="modified"):
            await harness.apply(2)
        assert (harness.depth, harness.cache.informer(Widget).is_uncertain()) == (1, False)
        assert not harness.cache.informer(Widget).sinks[0].write_through.in_flight
