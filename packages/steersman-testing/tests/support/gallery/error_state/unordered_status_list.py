"""The status lists what there is in another order each time: the operator writes without need, often without end.

After kubernetes-sigs/application#123: a list of components was made from a map, which has no order. Each reconcile
wrote the status anew, each write of the status led to a reconcile, until the same order came up twice in a row by
chance. operator-framework/operator-lifecycle-manager#1816 tells the same.

Shown by: nothing but an object with several components, and a restart.

The twin sorts. What is the same is then written in the same way, and what is not changed is not written at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from gallery.bug_case import BugCase, NoExternalSystem
from gallery.helpers import key, object_meta, owned_metadata
from steersman.api.apply.core_v1 import ConfigMapApply
from steersman.api.core_v1 import ConfigMap
from steersman.controller import Reconciler, Request, Result
from steersman.manager import Manager
from steersman.meta import Field, Resource, Spec, Status, resource
from steersman_testing.simulation import World

NAMES = ("api", "cart", "search", "web")


class ApplicationSpec(Spec):
    components: Annotated[tuple[str, ...], Field(max_items=20)] = ()
    """What it consists of; a ConfigMap stands for each."""


class ApplicationStatus(Status):
    components: tuple[str, ...] = ()
    """What there is."""


@resource(group="gallery.example.com", version="v1")
class Application(Resource[ApplicationSpec, ApplicationStatus]):
    """Several things that belong together."""


class ApplicationReconciler(Reconciler[Application]):
    async def reconcile(self, request: Request) -> Result:
        application = await self.client.get(Application, request)
        for name in application.spec.components:
            await self.client.apply(
                ConfigMapApply(metadata=owned_metadata(application, f"-{name}")), owner=application
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
        # As Go ranges over a map. The runtime's randomness, so that runs repeat.
        return self.runtime.random.sample(names, len(names))


def setup(reconciler: type[Reconciler[Application]]) -> Callable[[Manager, Any], None]:
    """Gives a manager the operator."""

    def configure(manager: Manager, _: object) -> None:
        manager.controller(Application).owns(ConfigMap).rbac(ConfigMap, "create", "patch").complete(reconciler)

    return configure


async def scenario(world: World[NoExternalSystem]) -> None:
    """An application is made."""
    await world.client.create(Application(metadata=object_meta("shop"), spec=ApplicationSpec(components=NAMES)))
    await world.settle()


def check(world: World[NoExternalSystem]) -> None:
    """All components are listed."""
    application = world.read(Application, key("shop"))
    assert application is not None and application.status is not None
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
