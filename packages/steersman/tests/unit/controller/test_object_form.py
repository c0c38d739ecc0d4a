"""The object form: reads, finalizers, cleanup and status updates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from framework_support.controller_env import NAMESPACE, ControllerEnv, drain_event_loop, key, running
from framework_support.widget import Widget, WidgetStatus, widget
from steersman.api.apiextensions_v1 import CustomResourceDefinition
from steersman.api.core_v1 import ConfigMap, Pod, PodCondition, PodStatus
from steersman.cache import CachedClient, InformerOptions
from steersman.client import Client, JsonPatch, MergePatch
from steersman.controller import (
    ReconcileOutcome,
    Reconciler,
    ReconcilerContext,
    Result,
    generation_changed,
    object_form,
)
from steersman.controller.finalizers import add_finalizer
from steersman.controller.status import merge_status
from steersman.errors import ConfigurationError, Conflict, NotFound
from steersman.manager import Manager, ManagerOptions
from steersman.meta import Condition, FrozenDict, find_condition, metadata_only
from steersman_testing import matching, virtual_time

FINALIZER = "widgets.shop.example.com/tester.widget"
READY = Condition(type="Ready", status="True", reason="Done")


class Recording(Reconciler[Widget]):
    """Records its calls."""

    calls: list[str]

    def __init__(self, context: ReconcilerContext) -> None:
        super().__init__(context)
        type(self).calls = []

    async def reconcile(self, obj: Widget) -> Result | None:
        assert obj.metadata.deletion_timestamp is None
        self.calls.append(f"reconcile {obj.metadata.name}")
        return None


class CleansUp(Recording):
    async def reconcile(self, obj: Widget) -> Result | None:
        assert FINALIZER in obj.metadata.finalizers
        return await super().reconcile(obj)

    async def cleanup(self, obj: Widget) -> Result | None:
        assert FINALIZER in obj.metadata.finalizers
        self.calls.append(f"cleanup {obj.metadata.name}")
        return None


@asynccontextmanager
async def operator(
    world: ControllerEnv,
    reconciler: Callable[[ReconcilerContext], Reconciler[Widget]],
    options: InformerOptions | None = None,
) -> AsyncGenerator[Manager, None]:
    manager = Manager(world.server, ManagerOptions(name="tester"), world.runtime)
    if options is not None:
        manager.cache.configure(Widget, options)
    manager.controller(Widget).owns(ConfigMap).with_predicate(generation_changed).complete(reconciler)
    async with running(manager):
        await asyncio.sleep(1)
        yield manager


async def delete_widget(world: ControllerEnv, name: str) -> None:
    await world.client.delete(Widget, key(name))
    await asyncio.sleep(1)


@virtual_time
async def test_reconcile_without_cleanup_adds_no_finalizer() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    async with operator(world, Recording):
        assert world.read_widget("a").metadata.finalizers == ()
        await delete_widget(world, "a")
    assert Recording.calls == ["reconcile a"]


@pytest.mark.requirement("user/deletion")
@virtual_time
async def test_cleanup_runs_between_deletion_and_release() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    async with operator(world, CleansUp):
        assert world.read_widget("a").metadata.finalizers == (FINALIZER,)
        with capture_logs() as lines:
            await delete_widget(world, "a")
        assert world.server.read(Widget, key("a")) is None
    assert CleansUp.calls == ["reconcile a", "cleanup a"]
    assert not [line for line in lines if line["log_level"] == "error"]


@virtual_time
async def test_operators_do_not_share_a_finalizer() -> None:
    async def observe(ctx: ReconcilerContext, obj: Widget) -> None:
        """Do nothing."""

    world = ControllerEnv()
    world.create_widgets("a")
    other = Manager(world.server, ManagerOptions(name="other"), world.runtime)
    other.controller(Widget).complete(observe)
    async with operator(world, CleansUp), running(other):
        await drain_event_loop()
        assert world.read_widget("a").metadata.finalizers == (FINALIZER,)
        assert len([request for request in world.server.requests if request.method == "PATCH"]) == 1
        await delete_widget(world, "a")
    assert CleansUp.calls[-1] == "cleanup a"


def test_long_default_finalizer_needs_cleanup() -> None:
    world = ControllerEnv()
    manager = Manager(world.server, ManagerOptions(name="operator-" + "a" * 60), world.runtime)
    manager.controller(Widget).complete(Recording)
    with pytest.raises(ConfigurationError, match=r"set CleansUp\.finalizer to a name such as"):
        manager.controller(Widget).named("other").complete(CleansUp)


@virtual_time
async def test_cleanup_with_requeue_keeps_finalizer() -> None:
    class Waits(CleansUp):
        async def cleanup(self, obj: Widget) -> Result | None:
            await super().cleanup(obj)
            return Result(requeue_after=timedelta(minutes=1)) if len(self.calls) < 4 else None

    world = ControllerEnv()
    world.create_widgets("a")
    async with operator(world, Waits):
        await delete_widget(world, "a")
        await asyncio.sleep(61)
        assert world.read_widget("a").metadata.finalizers == (FINALIZER,)
        await asyncio.sleep(60)
        assert world.server.read(Widget, key("a")) is None
    assert Waits.calls == ["reconcile a", "cleanup a", "cleanup a", "cleanup a"]


@virtual_time
async def test_cleanup_may_write_status() -> None:
    class Reports(CleansUp):
        async def cleanup(self, obj: Widget) -> Result | None:
            await self.status(obj, note="deleting")
            return await super().cleanup(obj)

    world = ControllerEnv()
    world.create_widgets("a")
    async with operator(world, Reports):
        await delete_widget(world, "a")
        assert world.server.read(Widget, key("a")) is None
    assert Reports.calls == ["reconcile a", "cleanup a"]


@virtual_time
async def test_deleted_object_with_foreign_finalizer_is_left_alone() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    foreign = MergePatch({"metadata": {"finalizers": ["example.com/other"]}})
    await world.client.patch(Widget, key("a"), foreign)
    await world.client.delete(Widget, key("a"))
    async with operator(world, CleansUp):
        assert world.read_widget("a").metadata.finalizers == ("example.com/other",)
    assert CleansUp.calls == []


@pytest.mark.parametrize("deleted", [False, True])
@virtual_time
async def test_version_without_cleanup_removes_finalizer(deleted: bool) -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    async with operator(world, CleansUp):
        pass
    if deleted:
        await world.client.delete(Widget, key("a"))
    async with operator(world, Recording):
        found = world.server.read(Widget, key("a"))
        assert found is None if deleted else found is not None and found.metadata.finalizers == ()
    assert Recording.calls == ([] if deleted else ["reconcile a"])


@virtual_time
async def test_transform_without_finalizers_keeps_foreign_ones() -> None:
    def strip(obj: Widget) -> Widget:
        return replace(obj, metadata=replace(obj.metadata, finalizers=(), labels=FrozenDict()), status=WidgetStatus())

    class Reports(Recording):
        async def reconcile(self, obj: Widget) -> Result | None:
            await self.status(obj, depth=obj.spec.depth)
            await self.status(obj, conditions=[READY])
            return await super().reconcile(obj)

        async def cleanup(self, obj: Widget) -> Result | None:
            self.calls.append("cleanup")
            return None

    world = ControllerEnv()
    world.create_widgets("a", depth=3)
    await world.client.patch(Widget, key("a"), MergePatch({"metadata": {"finalizers": ["example.com/other"]}}))
    async with operator(world, Reports, InformerOptions(transform=strip)):
        found = world.read_widget("a")
        assert found.metadata.finalizers == ("example.com/other", FINALIZER)
        assert (found.status.depth, [c.type for c in found.status.conditions]) == (3, ["Ready"])
        await delete_widget(world, "a")
        assert world.read_widget("a").metadata.finalizers == ("example.com/other",)
    assert Reports.calls[-1] == "cleanup"


@virtual_time
async def test_object_outside_selector_is_not_reconciled() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    async with operator(world, CleansUp, InformerOptions(label_selector="mine=yes")) as manager:
        manager.controllers[0].queue.add(key("a"), trigger=None)
        await asyncio.sleep(1)
    assert CleansUp.calls == []


class Outcomes(Recording):
    """Fails for negative depths, and reports outcomes."""

    async def reconcile(self, obj: Widget) -> Result | None:
        await super().reconcile(obj)
        if obj.spec.depth == 13:
            raise RuntimeError("unlucky")
        await self.client.patch(Widget, obj.key, MergePatch({"spec": {"depth": 13}}))
        return None

    async def update_status(self, obj: Widget, outcome: ReconcileOutcome) -> None:
        error = outcome.error
        ready = READY if error is None else Condition(type="Ready", status="False", reason=type(error).__name__)
        found = await self.status(obj, conditions=[ready])
        self.calls.append(f"{ready.reason} {found.status.observed_generation}")


@virtual_time
async def test_update_status_receives_reconciled_object() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    async with operator(world, Outcomes):
        assert Outcomes.calls[:4] == ["reconcile a", "Done 1", "reconcile a", "RuntimeError 2"]
        await delete_widget(world, "a")
        count = len(Outcomes.calls)
        await asyncio.sleep(2000)
        assert len(Outcomes.calls) == count


class ReportsGeneration(Recording):
    """Records generations."""

    async def reconcile(self, obj: Widget) -> Result | None:
        await super().reconcile(obj)
        self.calls.append(f"reconciled {obj.metadata.generation}")
        return None

    async def cleanup(self, obj: Widget) -> Result | None:
        return Result(requeue_after=1000)

    async def update_status(self, obj: Widget, outcome: ReconcileOutcome) -> None:
        self.calls.append(f"status {obj.metadata.generation} {type(outcome.error).__name__}")


def act_after_finalizer(monkeypatch: pytest.MonkeyPatch, act: Callable[[Widget], Awaitable[Any]]) -> None:
    """Call ``act`` between the request that adds the finalizer and the reconcile."""

    async def add(client: CachedClient, obj: Widget, finalizer: str) -> Widget:
        updated = await add_finalizer(client, obj, finalizer)
        await act(updated)
        await asyncio.sleep(0.1)
        return updated

    monkeypatch.setattr(object_form, "add_finalizer", add)


@virtual_time
async def test_object_deleted_after_finalizer_is_not_reconciled(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    act_after_finalizer(monkeypatch, lambda obj: world.client.delete(Widget, obj.key))
    async with operator(world, ReportsGeneration):
        pass
    # The deletion increments the generation. The cleanup is not finished, so its status is updated.
    assert ReportsGeneration.calls == ["status 2 NoneType"]


@virtual_time
async def test_object_recreated_after_finalizer_gets_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    replaced: list[str] = []

    async def replace_once(obj: Widget) -> None:
        if replaced:
            return
        replaced.append(obj.metadata.uid)
        await world.client.patch(Widget, obj.key, MergePatch({"metadata": {"finalizers": None}}))
        await world.client.delete(Widget, obj.key)
        world.create_widgets("a")

    act_after_finalizer(monkeypatch, replace_once)
    with capture_logs() as lines:
        async with operator(world, CleansUp):
            assert world.read_widget("a").metadata.uid not in replaced
    # A reconcile without the finalizer fails.
    assert not [line for line in lines if line["log_level"] == "error"]
    assert CleansUp.calls == ["reconcile a"]


@virtual_time
async def test_update_status_after_finalizer_gets_newest_object(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    patch = MergePatch({"spec": {"depth": 7}})
    act_after_finalizer(monkeypatch, lambda obj: world.client.patch(Widget, obj.key, patch))
    async with operator(world, ReportsGeneration):
        pass
    assert ReportsGeneration.calls[:3] == ["reconcile a", "reconciled 2", "status 2 NoneType"]


@virtual_time
async def test_failed_finalizer_reaches_update_status() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    world.server.fail_next(matching("PATCH", path="/widgets/a"), 403, times=1)
    async with operator(world, ReportsGeneration):
        pass
    assert ReportsGeneration.calls[0] == "status 1 Forbidden"


@pytest.mark.parametrize("name", ["Widgets", "widgets/clean up", "/x", "a/" + "b" * 64])
def test_invalid_finalizer_is_rejected(name: str) -> None:
    class Named(CleansUp):
        finalizer = name

    world = ControllerEnv()
    manager = Manager(world.server, runtime=world.runtime)
    with pytest.raises(ConfigurationError, match="is not a valid finalizer: set Named"):
        manager.controller(Widget).complete(Named)


@virtual_time
async def test_plain_function_reconciles() -> None:
    async def reconcile(ctx: ReconcilerContext, obj: Widget) -> None:
        await ctx.status(obj, depth=obj.spec.depth)

    world = ControllerEnv()
    world.create_widgets("a", depth=3)
    manager = Manager(world.server, runtime=world.runtime)
    manager.controller(Widget).complete(reconcile)
    async with running(manager):
        await asyncio.sleep(1)
    assert world.read_widget("a").status.depth == 3


def test_factory_of_something_else_is_rejected() -> None:
    def factory(context: ReconcilerContext) -> Any:
        return context

    world = ControllerEnv()
    manager = Manager(world.server, runtime=world.runtime)
    with pytest.raises(ConfigurationError, match="complete\\(\\) needs a Reconciler"):
        manager.controller(Widget).complete(factory)


class StatusWorld(ControllerEnv):
    """A widget with a cached client."""

    @asynccontextmanager
    async def context_with_widget(self) -> AsyncGenerator[tuple[ReconcilerContext, Widget], None]:
        self.create_widgets("a")
        async with self.running_cache(Widget):
            yield self.context(), self.read_widget("a")

    def writes(self) -> int:
        return int(self.read_widget("a").metadata.resource_version)


@virtual_time
async def test_status_keeps_what_is_not_given() -> None:
    world = StatusWorld()
    async with world.context_with_widget() as (context, widget):
        await context.status(widget, depth=3, conditions=[READY])
        await context.status(widget, note="x", conditions=[replace(READY, type="Synced")])
        status = world.read_widget("a").status
        assert (status.observed_generation, status.depth, status.note) == (1, 3, "x")
        assert [(c.type, c.observed_generation) for c in status.conditions] == [("Ready", 1), ("Synced", 1)]
        await context.status(widget, depth=None)
        assert world.read_widget("a").status.depth is None


@virtual_time
async def test_status_without_change_is_not_written() -> None:
    world = StatusWorld()
    async with world.context_with_widget() as (context, widget):
        first = await context.status(widget, depth=3, conditions=[READY])
        version = world.writes()
        await asyncio.sleep(60)
        assert await context.status(widget, depth=3, conditions=[READY]) == first
        assert world.writes() == version


@virtual_time
async def test_status_transition_time_follows_condition_status() -> None:
    world = StatusWorld()
    async with world.context_with_widget() as (context, widget):
        await context.status(widget, conditions=[READY])
        await asyncio.sleep(60)
        changed = await context.status(widget, conditions=[replace(READY, reason="Other")])
        await asyncio.sleep(60)
        failed = await context.status(widget, conditions=[replace(READY, status="False")])
    times = [found.last_transition_time for each in (changed, failed) if (found := ready_of(each)) is not None]
    assert times[0] is not None and times[1] is not None
    assert times[1] - times[0] == timedelta(seconds=120)


def ready_of(widget: Widget) -> Condition | None:
    return find_condition(widget.status.conditions, "Ready")


@virtual_time
async def test_status_after_foreign_write_keeps_it() -> None:
    world = StatusWorld()
    async with world.context_with_widget() as (context, widget):
        await context.status(widget, depth=3)
        other = MergePatch({"status": {"note": "from elsewhere"}})
        # The cache has not received this write yet.
        await world.client.patch(Widget, key("a"), other, subresource="status")
        await context.status(widget, conditions=[READY])
        status = world.read_widget("a").status
        assert (status.depth, status.note, len(status.conditions)) == (3, "from elsewhere", 1)


@virtual_time
async def test_condition_of_another_manager_keeps_its_owner() -> None:
    world = StatusWorld()
    other = Client(world.server, field_manager="other")
    async with world.context_with_widget() as (context, widget):
        healthy = replace(READY, type="Healthy", last_transition_time=world.runtime.clock.now())
        await other.apply_status(widget, WidgetStatus(conditions=(healthy,)))
        await asyncio.sleep(1)
        for depth in (3, 4):
            await context.status(widget, depth=depth, conditions=[READY])
        assert [c.type for c in world.read_widget("a").status.conditions] == ["Healthy", "Ready"]
        await other.apply_status(widget, WidgetStatus())
        status = world.read_widget("a").status
        assert ([c.type for c in status.conditions], status.depth) == (["Ready"], 4)


@virtual_time
async def test_condition_of_a_built_in_kind_keeps_its_owner() -> None:
    world = StatusWorld()
    metadata, spec = {"name": "web", "namespace": NAMESPACE}, {"containers": [{"name": "web", "image": "web"}]}
    world.server.load({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    other = Client(world.server, field_manager="other")
    pod = await other.get(Pod, key("web"))
    async with world.context_with_widget() as (context, _):
        healthy = PodCondition(type="Healthy", status="True")
        pod = await other.apply_status(pod, PodStatus(conditions=(healthy,)))
        await context.status(pod, conditions=[replace(READY, type="example.com/Ready")])
        pod = await other.apply_status(pod, PodStatus())
    assert [condition.type for condition in pod.status.conditions] == ["example.com/Ready"]


@virtual_time
async def test_status_field_of_another_manager_is_not_removed() -> None:
    world = StatusWorld()
    async with world.context_with_widget() as (context, widget):
        other = MergePatch({"status": {"note": "from elsewhere", "depth": 3}})
        await world.client.patch(Widget, key("a"), other, subresource="status")
        await asyncio.sleep(1)
        found = await context.status(widget, depth=None)
        assert (found.status.depth, found.status.note) == (3, "from elsewhere")
        await context.status(widget, depth=4)
        found = await context.status(widget, conditions=[READY])
        assert (found.status.depth, found.status.note) == (4, "from elsewhere")


@virtual_time
async def test_status_of_recreated_object_raises_conflict() -> None:
    world = StatusWorld()
    async with world.context_with_widget() as (context, widget):
        await world.client.delete(Widget, key("a"))
        with pytest.raises(NotFound):
            await context.status(widget, depth=3)
        world.create_widgets("a")
        with pytest.raises(Conflict, match="Widget orders/a was deleted and created again"):
            await context.status(widget, depth=3)
        assert world.read_widget("a").status.depth is None


@virtual_time
async def test_status_of_object_outside_cache_is_read_live() -> None:
    world = StatusWorld()
    world.create_widgets("a")
    await world.context().status(world.read_widget("a"), depth=3)
    assert world.read_widget("a").status.depth == 3


@virtual_time
async def test_status_with_unknown_field_lists_fields() -> None:
    world = StatusWorld()
    async with world.context_with_widget() as (context, widget):
        message = "WidgetStatus has no field 'size'. Its fields are observed_generation, conditions, depth, note."
        with pytest.raises(TypeError) as raised:
            await context.status(widget, size=3)
        assert str(raised.value) == message
        metadata = await context.client.live.get(metadata_only(Widget), key("a"))
        with pytest.raises(TypeError, match="WidgetMetadata has no typed status: declare a Status class"):
            await context.status(metadata, depth=3)
    assert widget.metadata.namespace == NAMESPACE


def test_condition_is_added_to_absent_conditions() -> None:
    # Generated kinds have None for an absent list.
    found = replace(widget(), status=replace(WidgetStatus(), conditions=None))
    merged = merge_status(found, found, datetime(2030, 1, 1, tzinfo=UTC), [READY], {})
    assert isinstance(merged, WidgetStatus)
    assert [condition.type for condition in merged.conditions] == ["Ready"]


@virtual_time
async def test_status_without_subresource_is_named() -> None:
    world = StatusWorld()
    async with world.context_with_widget() as (context, widget):
        (crd,) = world.server.read_all(CustomResourceDefinition)
        remove = JsonPatch([{"op": "remove", "path": "/spec/versions/0/subresources"}])
        await world.client.patch(CustomResourceDefinition, crd.key, remove)
        with pytest.raises(ConfigurationError, match="the CRD of Widget has no status subresource"):
            await context.status(widget, depth=3)
        await world.client.delete(Widget, key("a"))
        with pytest.raises(NotFound):
            await context.status(widget, depth=3)
