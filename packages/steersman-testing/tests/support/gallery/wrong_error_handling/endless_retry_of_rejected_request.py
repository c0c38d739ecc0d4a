"""The operator retries a rejected request endlessly.

After noobaa/noobaa-operator#52, and similar to dragonflydb/dragonfly-operator#555 and fluxcd/helm-controller#1559: a
change of the spec led to a forbidden update of a StatefulSet. No retry could succeed. The operator only retried,
without a condition or an Event.

Shown by: a change of ``storage``, which is part of the PVC template.

The twin handles ``Invalid`` as a permanent error of the declared state. It reports the error and does not retry until
the user changes the object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from gallery.bug_case import BugCase, NoExternalSystem
from gallery.helpers import key, object_meta, set_spec, with_ready_condition
from gallery.stateful_sets import stateful_set
from steersman.api.apps_v1 import StatefulSet
from steersman.controller import ReconcileOutcome, Request, RequestReconciler, Result
from steersman.errors import Invalid, TerminalError
from steersman.manager import Manager
from steersman.meta import Field, Resource, Spec, Status, find_condition, resource
from steersman_testing.simulation import World
from steersman_testing.transitions import Hints


class WarehouseSpec(Spec):
    storage: Annotated[str, Field(pattern="^[1-9][0-9]{0,3}Gi$")] = "10Gi"
    """Volume size of each of two pods."""


@resource(group="gallery.example.com", version="v1")
class Warehouse(Resource[WarehouseSpec, Status]): ...


class FaultyWarehouseReconciler(RequestReconciler[Warehouse]):
    async def reconcile(self, request: Request) -> Result:
        warehouse = await self.client.get(Warehouse, request)
        await self.client.apply(stateful_set(warehouse, 2, warehouse.spec.storage), owner=warehouse)
        status = Status(
            observed_generation=warehouse.metadata.generation,
            conditions=with_ready_condition(warehouse, True, "Declared", "", self.runtime.clock.now()),
        )
        await self.client.apply_status(warehouse, status)
        return Result()


class WarehouseReconciler(RequestReconciler[Warehouse]):
    async def reconcile(self, request: Request) -> Result:
        warehouse = await self.client.get(Warehouse, request)
        try:
            await self.client.apply(stateful_set(warehouse, 2, warehouse.spec.storage), owner=warehouse)
        except Invalid as refused:
            raise TerminalError(f"spec.storage: {refused}") from refused
        return Result()

    async def update_status(self, request: Request, outcome: ReconcileOutcome) -> None:
        warehouse = await self.client.get(Warehouse, request)
        done = outcome.error is None
        reason, message = ("Declared", "") if done else (type(outcome.error).__name__, str(outcome.error))
        status = Status(
            observed_generation=warehouse.metadata.generation,
            conditions=with_ready_condition(warehouse, done, reason, message, self.runtime.clock.now()),
        )
        await self.client.apply_status(warehouse, status)


def setup(reconciler: type[RequestReconciler[Warehouse]]) -> Callable[[Manager, Any], None]:

    def configure(manager: Manager, _: object) -> None:
        manager.controller(Warehouse).owns(StatefulSet).complete(reconciler)

    return configure


async def scenario(world: World[NoExternalSystem]) -> None:
    """Increase the storage after the creation."""
    await world.client.create(Warehouse(metadata=object_meta("goods"), spec=WarehouseSpec()))
    # Wait until the first state is reached, because the result depends on it.
    await world.settle_after_faults()
    await set_spec(world, Warehouse, "goods", storage="20Gi")
    await world.sleep(60)


def check(world: World[NoExternalSystem]) -> None:
    """The status reports the error, with the current generation."""
    warehouse = world.read(Warehouse, key("goods"))
    assert warehouse is not None
    ready_condition = find_condition(warehouse.status.conditions, "Ready")
    assert (
        ready_condition is not None and ready_condition.status == "False" and "forbidden" in ready_condition.message
    )
    assert warehouse.status.observed_generation == warehouse.metadata.generation


BUG_CASE = BugCase(
    faulty=setup(FaultyWarehouseReconciler),
    corrected=setup(WarehouseReconciler),
    kinds=(Warehouse,),
    scenario=scenario,
    check=check,
    outside=NoExternalSystem,
    detector="transitions",
    report_excerpts=(
        "silence: an error is not reported: warehouse fails on default/trial with Invalid",
        '2. set spec.storage="1Gi"',
        "replay=",
    ),
    hints=Hints(rejection_reasons=["TerminalError"]),
)
