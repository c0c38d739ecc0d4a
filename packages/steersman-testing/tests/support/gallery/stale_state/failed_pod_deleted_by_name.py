"""A pod that failed is deleted by its name, when another pod has that name already.

After kubernetes/kubernetes#29522: the node controller deleted pods without a precondition on their UID, and so could
delete the successor of the pod that it meant. actions/actions-runner-controller#4673 had the same in review.

Shown by: the watch of pods is held back before the failed pod is gone. Somebody replaces it meanwhile; when its time
is up, the operator deletes what has the name now.

The twin names the UID that it looked at. The API server answers Conflict, and the reconcile is tried again until the
news has come.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Annotated, Any

from gallery.bug_case import BugCase, NoExternalSystem
from gallery.helpers import (
    NAMESPACE,
    OWNER_LABEL,
    has_owner_label,
    key,
    object_meta,
    pod,
    requests_for_owner,
    set_pod_readiness,
)
from steersman.api.core_v1 import Pod
from steersman.controller import Reconciler, Request, Result
from steersman.errors import NotFound
from steersman.manager import Manager
from steersman.meta import Field, ObjectMetaApply, Resource, Spec, Status, resource
from steersman_testing.simulation import World


class RunnersSpec(Spec):
    keep_failed_seconds: Annotated[int, Field(ge=0)] = 60
    """How long a failed pod is kept for whoever wants to know why."""


@resource(group="gallery.example.com", version="v1", plural="runners")
class Runners(Resource[RunnersSpec, Status]):
    """Pods that a StatefulSet makes, and that are cleared away some time after they failed."""


class FaultyRunnersReconciler(Reconciler[Runners]):
    async def reconcile(self, request: Request) -> Result:
        runners = await self.client.get(Runners, request)
        kept = timedelta(seconds=runners.spec.keep_failed_seconds)
        waits: list[float] = []
        for found in await self.client.list(Pod, namespace=request.namespace, where=has_owner_label(runners)):
            if found.status.phase != "Failed" or found.metadata.deletion_timestamp is not None:
                continue
            since = found.status.conditions[0].last_transition_time or self.runtime.clock.now()
            wait = since + kept - self.runtime.clock.now()
            if wait > timedelta(0):
                waits.append(wait.total_seconds())
            else:
                await self.delete_failed_pod(found)
        return Result(requeue_after=min(waits)) if waits else Result()

    async def delete_failed_pod(self, failed: Pod) -> None:
        await self.client.delete(Pod, failed.key)


class RunnersReconciler(FaultyRunnersReconciler):
    async def delete_failed_pod(self, failed: Pod) -> None:
        await self.client.delete(Pod, failed.key, uid=failed.metadata.uid)


def setup(reconciler: type[Reconciler[Runners]]) -> Callable[[Manager, Any], None]:
    """Gives a manager the operator."""

    def configure(manager: Manager, _: object) -> None:
        manager.controller(Runners).watches(Pod, requests_for_owner).rbac(Pod, "delete").complete(reconciler)

    return configure


async def _start_pod(world: World[NoExternalSystem]) -> None:
    metadata = ObjectMetaApply(name="build-0", namespace=NAMESPACE, labels={OWNER_LABEL: "build"})
    await world.client.create(pod(metadata))
    await set_pod_readiness(world, "build-0", True)


async def scenario(world: World[NoExternalSystem]) -> None:
    """A pod fails; half a minute later somebody deletes it, and its StatefulSet makes another."""
    await world.client.create(Runners(metadata=object_meta("build"), spec=RunnersSpec()))
    await _start_pod(world)
    await world.settle()
    await set_pod_readiness(world, "build-0", False, phase="Failed")
    await world.sleep(30)
    with suppress(NotFound):
        await world.client.delete(Pod, key("build-0"))
    await _start_pod(world)
    await world.sleep(60)
    await world.settle()


def check(world: World[NoExternalSystem]) -> None:
    """The pod that runs was left alone."""
    assert world.read(Pod, key("build-0")) is not None, "a pod that runs was deleted"


BUG_CASE = BugCase(
    faulty=setup(FaultyRunnersReconciler),
    corrected=setup(RunnersReconciler),
    kinds=(Runners,),
    scenario=scenario,
    check=check,
    outside=NoExternalSystem,
    detector="simulation",
    report_excerpts=(
        "the watch of pods is delayed before its event 4, for 300 s",
        "CREATE pods default/build-0  201",
        "operator    1  DELETE pods default/build-0  200",
        "the watch of pods continues",
        "wrong      Pod default/build-0 is missing",
        "DELETE pods default/build-0: it survives without faults",
        "replay='delay-watch:pods:4+300'",
    ),
)
