"""A label that cannot be is asked for, and all that ran is gone.

After Altinity/clickhouse-operator#1420: what changed was deleted and made again. A label of which the API server
says that it is none stopped the operator between the two, for one StatefulSet after another, until none was left.
(xlab-uiuc/acto#213, mongodb/mongodb-kubernetes-operator#1269 and pravega/zookeeper-operator#549 tell of many more
values by which an operator brings down what it is to look after.)

Shown by: ``team: search`` becomes ``team: search & find``.

The twin applies to what is there. What the API server refuses changes nothing; the user is told, and all runs on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from msgspec.structs import replace

from gallery.exhibit import Exhibit, Nothing
from gallery.parts import declared, key, meta, ready, set_spec
from gallery.stateful_sets import stateful_set
from steersman.api.apply.apps_v1 import StatefulSetApply
from steersman.api.apps_v1 import StatefulSet
from steersman.controller import Outcome, Reconciler, Request, Result
from steersman.errors import Invalid, TerminalError
from steersman.manager import Manager
from steersman.meta import Field, Resource, Spec, Status, find_condition, resource
from steersman_testing.simulation import World

TEAM = "gallery.example.com/team"


class WatcherSpec(Spec):
    team: Annotated[str, Field(min_length=1)] = "search"
    """Goes into a label, which not every text can."""


@resource(group="gallery.example.com", version="v1")
class Watcher(Resource[WatcherSpec, Status]):
    """A StatefulSet."""


class WatcherReconciler(Reconciler[Watcher]):
    async def reconcile(self, request: Request) -> Result:
        watcher = await self.client.get(Watcher, request)
        try:
            await self.bring_about(watcher)
        except Invalid as refused:
            raise TerminalError(f"spec.team: {refused}") from refused
        return Result()

    async def bring_about(self, watcher: Watcher) -> None:
        await self.client.apply(labelled(watcher), owner=watcher)

    async def update_status(self, request: Request, outcome: Outcome) -> None:
        watcher = await self.client.get(Watcher, request)
        done = outcome.error is None
        reason, message = ("Running", "all is as declared") if done else ("TeamIsNoLabel", str(outcome.error))
        status = Status(
            observed_generation=watcher.metadata.generation,
            conditions=ready(watcher, done, reason, message, self.runtime.clock.now()),
        )
        await self.client.apply_status(watcher, status)


class FaultyWatcherReconciler(WatcherReconciler):
    async def bring_about(self, watcher: Watcher) -> None:
        present = await self.client.find(StatefulSet, watcher.key)
        if present is not None and present.metadata.labels.get(TEAM) != watcher.spec.team:
            await self.client.delete(StatefulSet, watcher.key, uid=present.metadata.uid)
        await super().bring_about(watcher)


def labelled(watcher: Watcher) -> StatefulSetApply:
    """What runs, with the label of its team."""
    return replace(stateful_set(watcher, 2), metadata=declared(watcher, labels={TEAM: watcher.spec.team}))


def setup(reconciler: type[Reconciler[Watcher]]) -> Callable[[Manager, Any], None]:
    """Gives a manager the operator."""

    def configure(manager: Manager, _: object) -> None:
        owning = manager.controller(Watcher).owns(StatefulSet)
        owning.permits(StatefulSet, "create", "patch", "delete").complete(reconciler)

    return configure


async def scenario(world: World[Nothing]) -> None:
    """The team gets a name that is no label."""
    await world.client.create(Watcher(metadata=meta("logs"), spec=WatcherSpec()))
    # What follows depends on what was there: nobody goes on before it is.
    await world.rest()
    await set_spec(world, Watcher, "logs", team="search & find")
    await world.rest()
    assert world.read(StatefulSet, key("logs")) is not None, "nothing runs any more"


def check(world: World[Nothing]) -> None:
    """What ran runs on, and the user is told."""
    assert world.read(StatefulSet, key("logs")) is not None
    watcher = world.read(Watcher, key("logs"))
    assert watcher is not None and watcher.status is not None
    told = find_condition(watcher.status.conditions, "Ready")
    assert told is not None and (told.status, told.reason) == ("False", "TeamIsNoLabel")


EXHIBIT = Exhibit(
    faulty=setup(FaultyWatcherReconciler),
    corrected=setup(WatcherReconciler),
    kinds=(Watcher,),
    scenario=scenario,
    check=check,
    outside=Nothing,
    found_by="simulation",
    story=(
        "the scenario goes wrong without any fault",
        "DELETE statefulsets.apps default/logs  200",
        "APPLY statefulsets.apps default/logs  422 Invalid",
        "wrong      nothing runs any more",
    ),
)
