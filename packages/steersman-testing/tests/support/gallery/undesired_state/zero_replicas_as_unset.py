"""Zero replicas are treated as an unset value.

After GreptimeTeam/greptimedb-operator#120, and similar to pingcap/tidb-operator#6911: the operator replaced unset
replicas with a default, and treated zero as unset. Users could not scale to zero: the operator kept the default or
the previous number.

Shown by: ``replicas: 2`` becomes ``replicas: 0``.

The twin has the default in the schema, where the API server distinguishes unset from zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from gallery.bug_case import BugCase, NoExternalSystem
from gallery.helpers import OWNER_LABEL, key, object_meta, owned_metadata, set_spec, with_ready_condition
from steersman.api.apply import apps, core, meta
from steersman.api.apps_v1 import Deployment
from steersman.client import MergePatch
from steersman.controller import Request, RequestReconciler, Result
from steersman.manager import Manager
from steersman.meta import Field, Resource, Spec, Status, resource
from steersman_testing.simulation import World

DEFAULT = 3


class FrontendSpec(Spec):
    replicas: Annotated[int, Field(ge=0, le=9)] = DEFAULT
    """Number of pods. 0 pauses the frontend."""


@resource(group="gallery.example.com", version="v1")
class Frontend(Resource[FrontendSpec, Status]): ...


class FaultyFrontendReconciler(RequestReconciler[Frontend]):
    async def reconcile(self, request: Request) -> Result:
        frontend = await self.client.get(Frontend, request)
        await self.apply_deployment(frontend)
        conditions = with_ready_condition(
            frontend, True, "Scaled", "the Deployment is as declared", self.runtime.clock.now()
        )
        status = Status(observed_generation=frontend.metadata.generation, conditions=conditions)
        await self.client.apply_status(frontend, status)
        return Result()

    async def apply_deployment(self, frontend: Frontend) -> None:
        wanted = frontend.spec.replicas
        present = await self.client.get_or_none(Deployment, frontend.key)
        if present is None:
            await self.client.apply(deployment(frontend, wanted or DEFAULT), owner=frontend)
        elif wanted and wanted != present.spec.replicas:
            await self.client.patch(Deployment, present.key, MergePatch({"spec": {"replicas": wanted}}))


class FrontendReconciler(FaultyFrontendReconciler):
    async def apply_deployment(self, frontend: Frontend) -> None:
        await self.client.apply(deployment(frontend, frontend.spec.replicas), owner=frontend)


def deployment(frontend: Frontend, replicas: int) -> apps.Deployment:
    """Return the Deployment of the frontend."""
    labels = {OWNER_LABEL: frontend.metadata.name}
    containers = [core.Container(name="main", image="example.com/frontend")]
    return apps.Deployment(
        metadata=owned_metadata(frontend),
        spec=apps.DeploymentSpec(
            replicas=replicas,
            selector=meta.LabelSelector(match_labels=labels),
            template=core.PodTemplateSpec(
                metadata=meta.TemplateMeta(labels=labels), spec=core.PodSpec(containers=containers)
            ),
        ),
    )


def setup(reconciler: type[RequestReconciler[Frontend]]) -> Callable[[Manager, Any], None]:

    def configure(manager: Manager, _: object) -> None:
        manager.controller(Frontend).owns(Deployment).complete(reconciler)

    return configure


async def scenario(world: World[NoExternalSystem]) -> None:
    """Scale to zero."""
    await world.client.create(Frontend(metadata=object_meta("shop"), spec=FrontendSpec(replicas=2)))
    await world.settle()
    await set_spec(world, Frontend, "shop", replicas=0)
    await world.settle()


def check(world: World[NoExternalSystem]) -> None:
    """No pods run."""
    found = world.read(Deployment, key("shop"))
    assert found is not None
    assert found.spec.replicas == 0


BUG_CASE = BugCase(
    faulty=setup(FaultyFrontendReconciler),
    corrected=setup(FrontendReconciler),
    kinds=(Frontend,),
    scenario=scenario,
    check=check,
    outside=NoExternalSystem,
    detector="transitions",
    report_excerpts=(
        "convergence: the state differs from that of a new object",
        "1. create with spec.replicas=1",
        "2. alter spec.replicas=0",
        "Deployment default/trial spec.replicas: 1 / 3",
        "replay=",
    ),
)
