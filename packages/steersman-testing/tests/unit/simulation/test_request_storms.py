"""Simulations stop operators with endless activity."""

from __future__ import annotations

from contextlib import suppress

import pytest

from framework_support.dns_operator import DnsZone, WidgetReconciler, new_widget, setup_for
from framework_support.widget import Widget
from steersman.api.coordination_v1 import Lease
from steersman.api.core_v1 import ConfigMap
from steersman.controller import Request, Result
from steersman.errors import NotFound
from steersman.meta import ObjectKey
from steersman_testing.simulation import SimulationFailed, World, simulate


async def create_and_settle(world: World[DnsZone]) -> None:
    await world.client.create(new_widget())


class ListsInLoop(WidgetReconciler):
    async def reconcile(self, request: Request) -> Result:
        while True:
            await self.client.live.list(ConfigMap, namespace=request.namespace)


class CreatesInLoop(WidgetReconciler):
    async def reconcile(self, request: Request) -> Result:
        while True:
            with suppress(NotFound):
                await self.client.live.get(Lease, ObjectKey("kube-system", "kube-scheduler"))


class SpinsWithoutIo(WidgetReconciler):
    """Loops without requests and without passing time."""

    async def reconcile(self, request: Request) -> Result:
        await self.client.get(Widget, request)
        return Result(requeue_after=1e-9)


@pytest.mark.parametrize(
    ("reconciler", "expected"),
    [
        (ListsInLoop, "of them: LIST configmaps"),
        (CreatesInLoop, "of them: GET leases.coordination.k8s.io"),
        (SpinsWithoutIo, "without progress"),
    ],
)
def test_reconcile_storm_is_stopped_and_reported(reconciler: type[WidgetReconciler], expected: str) -> None:
    with pytest.raises(SimulationFailed) as failed:
        simulate(
            setup_for(reconciler), create_and_settle, outside=DnsZone, kinds=[Widget], max_loop_iterations=50_000
        )
    assert expected in failed.value.problems[0]
    assert "CREATE widgets.shop.example.com default/a" in str(failed.value), "the story is told up to there"
