"""An unknown value is treated as the default without a report.

After pingcap/tidb-operator#4650, which xlab-uiuc/acto#181 lists among the bugs that Acto found: a field had two valid
values, and every other value was treated as the second one. A misspelled value changed the configuration without an
error.

Shown by: ``consistency: strnog``.

The twin rejects the value. It reports that in a condition and keeps the current configuration. (If all values are
known, use ``Literal`` in the spec: the API server then rejects the value before it is stored.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gallery.bug_case import BugCase, NoExternalSystem
from gallery.helpers import key, object_meta, owned_metadata, set_spec, with_ready_condition
from steersman.api.apply import core
from steersman.api.core_v1 import ConfigMap
from steersman.controller import Request, RequestReconciler, Result
from steersman.errors import TerminalError
from steersman.manager import Manager
from steersman.meta import Resource, Spec, Status, find_condition, resource
from steersman_testing.simulation import World
from steersman_testing.transitions import Hints

KNOWN = ("strong", "eventual")


class StoreSpec(Spec):
    consistency: str = "strong"
    """``strong`` or ``eventual``."""


@resource(group="gallery.example.com", version="v1")
class Store(Resource[StoreSpec, Status]): ...


class FaultyStoreReconciler(RequestReconciler[Store]):
    async def reconcile(self, request: Request) -> Result:
        store = await self.client.get(Store, request)
        consistency = "strong" if store.spec.consistency == "strong" else "eventual"
        await self.client.apply(config_map(store, consistency), owner=store)
        await self.report(store, True, "Configured", "the configuration is as declared")
        return Result()

    async def report(self, store: Store, is_ready: bool, reason: str, message: str) -> None:
        status = Status(
            observed_generation=store.metadata.generation,
            conditions=with_ready_condition(store, is_ready, reason, message, self.runtime.clock.now()),
        )
        await self.client.apply_status(store, status)


class StoreReconciler(FaultyStoreReconciler):
    async def reconcile(self, request: Request) -> Result:
        store = await self.client.get(Store, request)
        if store.spec.consistency not in KNOWN:
            message = f"spec.consistency: {store.spec.consistency!r} is not one of {', '.join(KNOWN)}"
            await self.report(store, False, "UnknownConsistency", message)
            raise TerminalError(message)
        return await super().reconcile(request)


def config_map(store: Store, consistency: str) -> core.ConfigMap:
    """Return the ConfigMap of the store."""
    return core.ConfigMap(metadata=owned_metadata(store), data={"consistency": consistency})


def setup(reconciler: type[RequestReconciler[Store]]) -> Callable[[Manager, Any], None]:

    def configure(manager: Manager, _: object) -> None:
        manager.controller(Store).owns(ConfigMap).complete(reconciler)

    return configure


async def scenario(world: World[NoExternalSystem]) -> None:
    """Misspell the current value."""
    await world.client.create(Store(metadata=object_meta("ledger"), spec=StoreSpec()))
    # Wait until the first state is reached, because the result depends on it.
    await world.settle_after_faults()
    await set_spec(world, Store, "ledger", consistency="strnog")
    await world.settle()


def check(world: World[NoExternalSystem]) -> None:
    """The last valid configuration remains, and the status reports the error."""
    store, config = world.read(Store, key("ledger")), world.read(ConfigMap, key("ledger"))
    assert config is not None and config.data["consistency"] == "strong"
    assert store is not None
    ready_condition = find_condition(store.status.conditions, "Ready")
    assert ready_condition is not None and (ready_condition.status, ready_condition.reason) == (
        "False",
        "UnknownConsistency",
    )


BUG_CASE = BugCase(
    faulty=setup(FaultyStoreReconciler),
    corrected=setup(StoreReconciler),
    kinds=(Store,),
    scenario=scenario,
    check=check,
    outside=NoExternalSystem,
    detector="transitions",
    report_excerpts=(
        "silence: a spec that cannot work is not reported",
        '2. set a bad value: spec.consistency="strnog"',
        "replay=",
    ),
    hints=Hints(examples={"spec.consistency": KNOWN}, bad={"spec.consistency": ["strnog"]}),
)
