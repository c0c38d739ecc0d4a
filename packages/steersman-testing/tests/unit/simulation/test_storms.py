"""Operators that never rest are stopped, whatever they do without end."""

from __future__ import annotations

from contextlib import suppress

import pytest

from framework_support.buoy import Buoy
from framework_support.lighthouse import Harbour, Keeper, new_buoy, setup_of
from steersman.api.coordination_v1 import Lease
from steersman.api.core_v1 import ConfigMap
from steersman.controller import Request, Result
from steersman.errors import NotFound
from steersman.meta import ObjectKey
from steersman_testing.simulation import SimulationFailed, World, simulate


async def staying(world: World[Harbour]) -> None:
    await world.client.create(new_buoy())


class ListsForEver(Keeper):
    async def reconcile(self, request: Request) -> Result:
        while True:
            await self.client.live.list(ConfigMap, namespace=request.namespace)


class ClaimsForEver(Keeper):
    async def reconcile(self, request: Request) -> Result:
        while True:
            with suppress(NotFound):
                await self.client.live.get(Lease, ObjectKey("kube-system", "kube-scheduler"))


class GoesRoundInCircles(Keeper):
    """Asks nobody, and never lets time pass."""

    async def reconcile(self, request: Request) -> Result:
        await self.client.get(Buoy, request)
        return Result(requeue_after=1e-9)


@pytest.mark.parametrize(
    ("reconciler", "told"),
    [
        (ListsForEver, "of them: LIST configmaps"),
        (ClaimsForEver, "of them: GET leases.coordination.k8s.io"),
        (GoesRoundInCircles, "and no time passes"),
    ],
)
def test_it_is_stopped_and_named(reconciler: type[Keeper], told: str) -> None:
    with pytest.raises(SimulationFailed) as failed:
        simulate(setup_of(reconciler), staying, outside=Harbour, kinds=[Buoy], most_turns=50_000)
    assert told in failed.value.found[0]
    assert "CREATE buoys.sea.example.com default/a" in str(failed.value), "the story is told up to there"
