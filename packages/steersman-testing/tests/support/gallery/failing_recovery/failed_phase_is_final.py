"""A failed object is never reconciled again, even after a fix.

After operator-framework/operator-marketplace#84 and #85: each error set the phase ``Failed``, and the operator
skipped objects in that phase. Users had to delete and recreate the object.

Shown by: ``source`` becomes an invalid URL, and then the previous value again.

The twin keeps no phase that stops it. It validates the current spec in each reconcile and reports the result.
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
from steersman.meta import Resource, Spec, Status, resource
from steersman_testing.simulation import World
from steersman_testing.transitions import Hints


class CatalogSpec(Spec):
    source: str = "https://example.com/"
    """URL of the packages."""


class CatalogStatus(Status):
    phase: str = ""
    """``Configured`` or ``Failed``."""


@resource(group="gallery.example.com", version="v1")
class Catalog(Resource[CatalogSpec, CatalogStatus]): ...


class CatalogReconciler(RequestReconciler[Catalog]):
    async def reconcile(self, request: Request) -> Result:
        catalog = await self.client.get(Catalog, request)
        source = catalog.spec.source
        if not source.startswith("https://"):
            message = f"spec.source: {source!r} is not a URL. Write https://..."
            await self.report(catalog, "Failed", "InvalidSource", message)
            self.events.warning(catalog, "InvalidSource", message)
            raise TerminalError(message)
        await self.client.apply(
            core.ConfigMap(metadata=owned_metadata(catalog), data={"source": source}), owner=catalog
        )
        await self.report(catalog, "Configured", "Configured", "packages are available")
        return Result()

    async def report(self, catalog: Catalog, phase: str, reason: str, message: str) -> None:
        status = CatalogStatus(
            observed_generation=catalog.metadata.generation,
            conditions=with_ready_condition(
                catalog, phase == "Configured", reason, message, self.runtime.clock.now()
            ),
            phase=phase,
        )
        await self.client.apply_status(catalog, status)


class FaultyCatalogReconciler(CatalogReconciler):
    async def reconcile(self, request: Request) -> Result:
        catalog = await self.client.get(Catalog, request)
        if catalog.status.phase == "Failed":
            return Result()
        return await super().reconcile(request)


def setup(reconciler: type[RequestReconciler[Catalog]]) -> Callable[[Manager, Any], None]:

    def configure(manager: Manager, _: object) -> None:
        manager.controller(Catalog).owns(ConfigMap).complete(reconciler)

    return configure


async def scenario(world: World[NoExternalSystem]) -> None:
    """Set an invalid source, then a valid one."""
    await world.client.create(Catalog(metadata=object_meta("tools"), spec=CatalogSpec()))
    await world.settle()
    await set_spec(world, Catalog, "tools", source="example.com")
    await world.settle()
    await set_spec(world, Catalog, "tools", source="https://example.com/")
    await world.settle()


def check(world: World[NoExternalSystem]) -> None:
    """The catalog is configured, and the status has the current generation."""
    catalog = world.read(Catalog, key("tools"))
    assert catalog is not None
    assert catalog.status.phase == "Configured"
    assert catalog.status.observed_generation == catalog.metadata.generation


BUG_CASE = BugCase(
    faulty=setup(FaultyCatalogReconciler),
    corrected=setup(CatalogReconciler),
    kinds=(Catalog,),
    scenario=scenario,
    check=check,
    outside=NoExternalSystem,
    detector="transitions",
    report_excerpts=(
        "generation: the status is outdated: status.observedGeneration is 2",
        "metadata.generation is 3",
        '2. set a bad value: spec.source="example.com"',
        "3. roll back to the last good spec",
        "replay=",
    ),
    hints=Hints(
        examples={"spec.source": ["https://example.com/", "https://example.org/"]},
        bad={"spec.source": ["example.com"]},
    ),
)
