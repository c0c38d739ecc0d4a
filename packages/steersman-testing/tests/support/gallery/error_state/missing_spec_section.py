"""A missing optional section crashes the operator before it reports an error.

After OT-CONTAINER-KIT/redis-operator#921, and similar to percona/percona-postgresql-operator#699 and
kaasops/vector-operator#52: the schema allows the section to be absent, but the code read it without a check. Each
reconcile ended in a panic. Only the operator's logs contained the error.

Shown by: ``persistence`` is removed from the spec.

The twin treats an absent section as disabled persistence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from gallery.bug_case import BugCase, NoExternalSystem
from gallery.helpers import key, object_meta, owned_metadata, set_spec, with_ready_condition
from steersman.api.apply import core
from steersman.api.core_v1 import ConfigMap
from steersman.controller import Request, RequestReconciler, Result
from steersman.manager import Manager
from steersman.meta import Field, FrozenStruct, Resource, Spec, Status, resource
from steersman_testing.simulation import World
from steersman_testing.transitions import Hints


class Persistence(FrozenStruct):
    """Persistence of the data."""

    seconds: Annotated[int, Field(ge=1, le=3600)] = 60
    """Interval between snapshots."""


class MemoryStoreSpec(Spec):
    persistence: Persistence | None = None
    """Disabled if absent."""


@resource(group="gallery.example.com", version="v1")
class MemoryStore(Resource[MemoryStoreSpec, Status]): ...


class FaultyMemoryStoreReconciler(RequestReconciler[MemoryStore]):
    async def reconcile(self, request: Request) -> Result:
        store = await self.client.get(MemoryStore, request)
        await self.client.apply(
            core.ConfigMap(metadata=owned_metadata(store), data={"save": self.render_persistence(store)}), owner=store
        )
        status = Status(
            observed_generation=store.metadata.generation,
            conditions=with_ready_condition(
                store, True, "Configured", "the configuration is as declared", self.runtime.clock.now()
            ),
        )
        await self.client.apply_status(store, status)
        return Result()

    def render_persistence(self, store: MemoryStore) -> str:
        persistence = store.spec.persistence
        assert persistence is not None
        return f"{persistence.seconds} 1"


class MemoryStoreReconciler(FaultyMemoryStoreReconciler):
    def render_persistence(self, store: MemoryStore) -> str:
        persistence = store.spec.persistence
        return "" if persistence is None else f"{persistence.seconds} 1"


def setup(reconciler: type[RequestReconciler[MemoryStore]]) -> Callable[[Manager, Any], None]:

    def configure(manager: Manager, _: object) -> None:
        manager.controller(MemoryStore).owns(ConfigMap).complete(reconciler)

    return configure


async def scenario(world: World[NoExternalSystem]) -> None:
    """Remove the persistence."""
    spec = MemoryStoreSpec(persistence=Persistence())
    await world.client.create(MemoryStore(metadata=object_meta("sessions"), spec=spec))
    await world.settle()
    await set_spec(world, MemoryStore, "sessions", persistence=None)
    await world.settle()


def check(world: World[NoExternalSystem]) -> None:
    """Persistence is disabled, and the status has the current generation."""
    store, config = world.read(MemoryStore, key("sessions")), world.read(ConfigMap, key("sessions"))
    assert config is not None and config.data["save"] == ""
    assert store is not None
    assert store.status.observed_generation == store.metadata.generation


BUG_CASE = BugCase(
    faulty=setup(FaultyMemoryStoreReconciler),
    corrected=setup(MemoryStoreReconciler),
    kinds=(MemoryStore,),
    scenario=scenario,
    check=check,
    outside=NoExternalSystem,
    detector="transitions",
    hints=Hints(start={"spec": {"persistence": {"seconds": 60}}}),
    report_excerpts=(
        "silence: an error is not reported: memorystore fails on default/trial with AssertionError",
        "1. create with spec={}",
        '"changes":[]',
    ),
)
