"""Object-form reconcilers with cleanup and status survive faults at every request."""

from __future__ import annotations

import os
from typing import Any

import pytest

from framework_support.dns_operator import DnsZone, new_widget, scenario
from framework_support.widget import Widget
from steersman.api.apply import core, meta
from steersman.api.core_v1 import ConfigMap
from steersman.controller import ReconcileOutcome, Reconciler, ReconcilerContext, Result
from steersman.manager import Manager
from steersman.meta import Condition
from steersman_testing.simulation import SimulationFailed, World, simulate

WHOLE = os.environ.get("SIMULATE") == "whole"


class DnsReconciler(Reconciler[Widget]):
    """Maintains a DNS record and a ConfigMap, and reports in steps."""

    def __init__(self, context: ReconcilerContext, zone: DnsZone) -> None:
        super().__init__(context)
        self.zone = zone

    async def reconcile(self, obj: Widget) -> Result | None:
        name = obj.metadata.name
        await self.zone.upsert_record(name, obj.spec.depth)
        await self.status(obj, note="record written")
        metadata = meta.ObjectMeta(name=name, namespace=obj.metadata.namespace)
        await self.client.apply(core.ConfigMap(metadata=metadata, data={"depth": str(obj.spec.depth)}), owner=obj)
        await self.status(obj, depth=obj.spec.depth)
        return None

    async def cleanup(self, obj: Widget) -> Result | None:
        await self.zone.delete_record(obj.metadata.name)
        await self.status(obj, note="record deleted")
        return None

    async def update_status(self, obj: Widget, outcome: ReconcileOutcome) -> None:
        error = outcome.error
        ready = Condition(type="Ready", status="True", reason="Ready")
        if error is not None:
            ready = Condition(type="Ready", status="False", reason="Failed", message=str(error))
        await self.status(obj, conditions=[ready])


class ForgetsRecord(DnsReconciler):
    async def cleanup(self, obj: Widget) -> Result | None:
        return None


class WritesTime(Reconciler[Widget]):
    async def reconcile(self, obj: Widget) -> Result | None:
        await self.status(obj, note=str(self.runtime.clock.now()))
        return None


def test_simulate_reports_status_with_time() -> None:
    async def create(world: World[None]) -> None:
        await world.client.create(new_widget())

    def setup(manager: Manager) -> None:
        manager.controller(Widget).complete(WritesTime)

    with pytest.raises(SimulationFailed, match=r"needless write after a restart .*: APPLY widgets.* status"):
        simulate(setup, create, kinds=[Widget])


def sweep(reconciler: type[DnsReconciler]) -> None:
    def setup(manager: Manager, zone: DnsZone) -> None:
        manager.controller(Widget).owns(ConfigMap).complete(lambda context: reconciler(context, zone))

    def observe(zone: DnsZone) -> Any:
        return zone.records

    limits: dict[str, Any] = {"random_runs": 10} if WHOLE else {"random_runs": 2, "max_places": 25}
    simulate(setup, scenario, outside=DnsZone, kinds=[Widget], observe=observe, **limits)


def test_object_form_survives_faults_at_every_request() -> None:
    sweep(DnsReconciler)


def test_object_form_without_real_cleanup_is_reported() -> None:
    with pytest.raises(SimulationFailed):
        sweep(ForgetsRecord)
