"""Operator with an external system: one DNS record per widget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from framework_support.widget import Widget, WidgetSpec
from steersman.api.apply import core, meta
from steersman.api.core_v1 import ConfigMap
from steersman.client import MergePatch
from steersman.controller import (
    ReconcilerContext,
    Request,
    RequestReconciler,
    Result,
    add_finalizer,
    remove_finalizer,
)
from steersman.manager import Manager
from steersman.meta import ObjectKey, ObjectMeta
from steersman_testing.simulation import World, fault_point

FINALIZER = "shop.example.com/dns-record"
KEY = ObjectKey("default", "a")


@dataclass
class DnsZone:
    """DNS records by name."""

    records: dict[str, int] = field(default_factory=dict[str, int])

    async def upsert_record(self, name: str, depth: int) -> None:
        async with fault_point(f"upsert record {name}", ConnectionError("connection timed out")):
            self.records[name] = depth

    async def delete_record(self, name: str) -> None:
        async with fault_point(f"delete record {name}", ConnectionError("connection timed out")):
            self.records.pop(name, None)


class WidgetReconciler(RequestReconciler[Widget]):
    """Maintains a DNS record and a ConfigMap per widget despite faults."""

    zone: DnsZone

    async def reconcile(self, request: Request) -> Result:
        widget = await self.client.get(Widget, request)
        if widget.metadata.deletion_timestamp is not None:
            await self.zone.delete_record(request.name)
            await remove_finalizer(self.client, widget, FINALIZER)
            return Result()
        await add_finalizer(self.client, widget, FINALIZER)
        await self.zone.upsert_record(request.name, widget.spec.depth)
        await self.apply_config_map(widget)
        return Result()

    async def apply_config_map(self, widget: Widget) -> None:
        metadata = meta.ObjectMeta(name=widget.metadata.name, namespace=widget.metadata.namespace)
        await self.client.apply(
            core.ConfigMap(metadata=metadata, data={"depth": str(widget.spec.depth)}), owner=widget
        )


def setup_for(reconciler: type[WidgetReconciler]) -> Callable[[Manager, DnsZone], None]:
    """Return the setup function of an operator with this reconciler."""

    def setup(manager: Manager, zone: DnsZone) -> None:
        def create_reconciler(context: ReconcilerContext) -> WidgetReconciler:
            made = reconciler(context)
            made.zone = zone
            return made

        manager.controller(Widget).owns(ConfigMap).complete(create_reconciler)

    return setup


def new_widget() -> Widget:
    """The widget of the scenario."""
    return Widget(metadata=ObjectMeta(name=KEY.name, namespace=KEY.namespace), spec=WidgetSpec(depth=1))


async def scenario(world: World[DnsZone]) -> None:
    """Create, change and delete a widget."""
    await world.client.create(
        Widget(metadata=ObjectMeta(name=KEY.name, namespace=KEY.namespace), spec=WidgetSpec(depth=1))
    )
    await world.settle()
    await world.client.patch(Widget, KEY, MergePatch({"spec": {"depth": 2}}))
    await world.settle()
    await world.client.delete(Widget, KEY)
