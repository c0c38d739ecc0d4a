"""An unordered list in the status causes endless writes.

After kubernetes-sigs/application#123, and similar to operator-framework/operator-lifecycle-manager#1816: the list of
components came from a map without an order. Each reconcile wrote the status, and each write caused a reconcile. This
stopped only when the same order appeared twice by chance.

Shown by: a restart with an object of several components.

The twin sorts the list, so that an unchanged status is not written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from gallery.bug_case import BugCase, NoExternalSystem
from gallery.helpers import key, object_meta, owned_metadata
from steersman.api.apply import core
from steersman.api.core_v1 import ConfigMap
from steersman.controller import Request, RequestReconciler, Result
from steersman.manager import Manager
from steersman.meta import Field, Resource, Spec, Status, resource
from steersman_testing.simulation import World

NAMES = ("api", "cart", "search", "web")


class ApplicationSpec(Spec):
    components: Annotated[tuple[str, ...], Field(max_items=20)] = ()
    """Components. Each is a ConfigMap."""


class ApplicationStatus(Status):
    components: tuple[str, ...] = ()
    """Existing components."""


@resource(group="gallery.example.com", version="v1")
class Application(Resource[ApplicationSpec, ApplicationStatus]):
    """An application of several components."""


class ApplicationReconciler(RequestReconciler[Application]):
    async def reconcile(self, request: Request) -> Result:
        application = await self.client.get(Application, request)
        for name in application.spec.components:
            await self.client.apply(
                core.ConfigMap(metadata=owned_metadata(application, f"-{name}")), owner=application
            )
        found = [component.metadata.name for component in await self.client.list(ConfigMap, owner=application)]
        await self.client.apply_status(
            application, ApplicationStatus(components=tuple(self.ordered_components(found)))
        )
        return Result()

    def ordered_components(self, names: list[str]) -> list[str]:
        return sorted(names)


class FaultyApplicationReconciler(ApplicationReconciler):
    def ordered_components(self, names: list[str]) -> list[str]:
        # Iterate in random order like a Go map, with the runtime's generator for repeatable runs.
        return self.runtime.random.sample(names, len(names))


def setup(reconciler: type[RequestReconciler[Application]]) -> Callable[[Manager, Any], None]:

    def configure(manager: Manager, _: object) -> None:
        manager.controller(Application).owns(ConfigMap).complete(reconciler)

    return configure


async def scenario(world: World[NoExternalSystem]) -> None:
    """Create an application."""
    await world.client.create(Application(metadata=object_meta("shop"), spec=ApplicationSpec(components=NAMES)))
    await world.settle()


def check(world: World[NoExternalSystem]) -> None:
    """The status lists all components."""
    application = world.read(Application, key("shop"))
    assert application is not None
    assert set(application.status.components) == {f"shop-{name}" for name in NAMES}


BUG_CASE = BugCase(
    faulty=setup(FaultyApplicationReconciler),
    corrected=setup(ApplicationReconciler),
    kinds=(Application,),
    scenario=scenario,
    check=check,
    outside=NoExternalSystem,
    detector="simulation",
    report_excerpts=(
        "the scenario fails without any fault",
        "the operator is restarted with nothing to do",
        "APPLY applications.gallery.example.com default/shop status  200",
        "wrong      needless write after a restart with nothing to do: APPLY applications.gallery.example.com",
    ),
)
