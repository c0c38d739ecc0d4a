"""An invalid label value leads to the deletion of all workloads.

After Altinity/clickhouse-operator#1420: the operator deleted and recreated changed objects. The API server rejected
the invalid label, so the operator stopped between the two requests. That repeated for each StatefulSet. The issues
xlab-uiuc/acto#213, mongodb/mongodb-kubernetes-operator#1269 and pravega/zookeeper-operator#549 list more values with
such effects.

Shown by: ``team: search`` becomes ``team: search & find``.

The twin applies changes to the existing object. A rejected request changes nothing. The twin reports it in the
status.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from msgspec.structs import replace

from gallery.bug_case import BugCase, NoExternalSystem
from gallery.helpers import key, object_meta, owned_metadata, set_spec, with_ready_condition
from gallery.stateful_sets import stateful_set
from steersman.api.apply import apps
from steersman.api.apps_v1 import StatefulSet
from steersman.controller import ReconcileOutcome, Request, RequestReconciler, Result
from steersman.errors import Invalid, TerminalError
from steersman.manager import Manager
from steersman.meta import Field, Resource, Spec, Status, find_condition, resource
from steersman_testing.simulation import World

TEAM = "gallery.example.com/team"


class WatcherSpec(Spec):
    team: Annotated[str, Field(min_length=1)] = "search"
    """Value of a label. Not every string is valid."""


@resource(group="gallery.example.com", version="v1")
class Watcher(Resource[WatcherSpec, Status]): ...


class WatcherReconciler(RequestReconciler[Watcher]):
    async def reconcile(self, request: Request) -> Result:
        watcher = await self.client.get(Watcher, request)
        try:
            await self.apply_children(watcher)
        except Invalid as refused:
            raise TerminalError(f"spec.team: {refused}") from refused
        return Result()

    async def apply_children(self, watcher: Watcher) -> None:
        await self.client.apply(labelled(watcher), owner=watcher)

    async def update_status(self, request: Request, outcome: ReconcileOutcome) -> None:
        watcher = await self.client.get(Watcher, request)
        done = outcome.error is None
        reason, message = ("Running", "all is as declared") if done else ("TeamIsNoLabel", str(outcome.error))
        status = Status(
            observed_generation=watcher.metadata.generation,
            conditions=with_ready_condition(watcher, done, reason, message, self.runtime.clock.now()),
        )
        await self.client.apply_status(watcher, status)


class FaultyWatcherReconciler(WatcherReconciler):
    async def apply_children(self, watcher: Watcher) -> None:
        present = await self.client.get_or_none(StatefulSet, watcher.key)
        if present is not None and present.metadata.labels.get(TEAM) != watcher.spec.team:
            await self.client.delete(StatefulSet, watcher.key, uid=present.metadata.uid)
        await super().apply_children(watcher)


def labelled(watcher: Watcher) -> apps.StatefulSet:
    """Return the StatefulSet with the label of its team."""
    return replace(stateful_set(watcher, 2), metadata=owned_metadata(watcher, labels={TEAM: watcher.spec.team}))


def setup(reconciler: type[RequestReconciler[Watcher]]) -> Callable[[Manager, Any], None]:

    def configure(manager: Manager, _: object) -> None:
        owning = manager.controller(Watcher).owns(StatefulSet)
        owning.needs(StatefulSet, "delete").complete(reconciler)

    return configure


async def scenario(world: World[NoExternalSystem]) -> None:
    """Set a team that is not a valid label value."""
    await world.client.create(Watcher(metadata=object_meta("logs"), spec=WatcherSpec()))
    # Wait until the first state is reached, because the result depends on it.
    await world.settle_after_faults()
    await set_spec(world, Watcher, "logs", team="search & find")
    await world.settle_after_faults()
    assert world.read(StatefulSet, key("logs")) is not None, "nothing runs any more"


def check(world: World[NoExternalSystem]) -> None:
    """The StatefulSet still runs, and the status reports the error."""
    assert world.read(StatefulSet, key("logs")) is not None
    watcher = world.read(Watcher, key("logs"))
    assert watcher is not None
    ready_condition = find_condition(watcher.status.conditions, "Ready")
    assert ready_condition is not None and (ready_condition.status, ready_condition.reason) == (
        "False",
        "TeamIsNoLabel",
    )


BUG_CASE = BugCase(
    faulty=setup(FaultyWatcherReconciler),
    corrected=setup(WatcherReconciler),
    kinds=(Watcher,),
    scenario=scenario,
    check=check,
    outside=NoExternalSystem,
    detector="simulation",
    report_excerpts=(
        "the scenario fails without any fault",
        "DELETE statefulsets.apps default/logs  200",
        "APPLY statefulsets.apps default/logs  422 Invalid",
        "wrong      nothing runs any more",
    ),
)
