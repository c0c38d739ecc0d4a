"""The workload of a role remains after the role is removed.

After stackabletech/hbase-operator#154, and OT-CONTAINER-KIT/redis-operator#474 (found by Acto): the operator created
the objects of the current spec. It did not search for objects of previous specs. A removed role kept its StatefulSet,
and a disabled exporter its port.

Shown by: ``roles: [master, rest]`` becomes ``roles: [master]``.

The twin also lists the owned objects and deletes those that are not declared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from gallery.bug_case import BugCase, NoExternalSystem
from gallery.helpers import object_meta, owned_metadata, set_spec, with_ready_condition
from steersman.api.apply import core
from steersman.api.core_v1 import ConfigMap
from steersman.controller import Request, RequestReconciler, Result
from steersman.manager import Manager
from steersman.meta import Field, Resource, Spec, Status, resource
from steersman_testing.simulation import World

Role = Literal["master", "region", "rest"]


class TableStoreSpec(Spec):
    roles: Annotated[tuple[Role, ...], Field(max_items=3)] = ("master",)
    """Roles. A ConfigMap represents each."""


@resource(group="gallery.example.com", version="v1")
class TableStore(Resource[TableStoreSpec, Status]):
    """A database that runs in several roles."""


class FaultyTableStoreReconciler(RequestReconciler[TableStore]):
    async def reconcile(self, request: Request) -> Result:
        store = await self.client.get(TableStore, request)
        for role in store.spec.roles:
            await self.client.apply(
                core.ConfigMap(metadata=owned_metadata(store, f"-{role}"), data={"role": role}), owner=store
            )
        await self.delete_removed_roles(store)
        conditions = with_ready_condition(store, True, "Running", "every role runs", self.runtime.clock.now())
        status = Status(observed_generation=store.metadata.generation, conditions=conditions)
        await self.client.apply_status(store, status)
        return Result()

    async def delete_removed_roles(self, store: TableStore) -> None:
        """Missing in the faulty operator."""


class TableStoreReconciler(FaultyTableStoreReconciler):
    async def delete_removed_roles(self, store: TableStore) -> None:
        wanted = {f"{store.metadata.name}-{role}" for role in store.spec.roles}
        for found in await self.client.list(ConfigMap, owner=store):
            if found.metadata.name not in wanted:
                await self.client.delete(ConfigMap, found.key, uid=found.metadata.uid)


def setup(reconciler: type[RequestReconciler[TableStore]]) -> Callable[[Manager, Any], None]:

    def configure(manager: Manager, _: object) -> None:
        owning = manager.controller(TableStore).owns(ConfigMap)
        owning.needs(ConfigMap, "delete").complete(reconciler)

    return configure


async def scenario(world: World[NoExternalSystem]) -> None:
    """Remove one of two roles."""
    spec = TableStoreSpec(roles=("master", "rest"))
    await world.client.create(TableStore(metadata=object_meta("events"), spec=spec))
    await world.settle()
    await set_spec(world, TableStore, "events", roles=["master"])
    await world.settle()


def check(world: World[NoExternalSystem]) -> None:
    """Only the declared roles run."""
    assert {found.data["role"] for found in world.read_all(ConfigMap) if "role" in found.data} == {"master"}


BUG_CASE = BugCase(
    faulty=setup(FaultyTableStoreReconciler),
    corrected=setup(TableStoreReconciler),
    kinds=(TableStore,),
    scenario=scenario,
    check=check,
    outside=NoExternalSystem,
    detector="transitions",
    report_excerpts=(
        "convergence: the state differs from that of a new object",
        '1. create with spec.roles=["region","master"]',
        "2. set spec.roles=[]",
        "ConfigMap default/trial-master: there / missing",
        "replay=",
    ),
)
