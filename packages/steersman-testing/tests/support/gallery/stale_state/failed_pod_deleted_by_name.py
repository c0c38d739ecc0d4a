"""The deletion of a failed pod by name hits its successor.

After kubernetes/kubernetes#29522: the node controller deleted pods without a UID precondition. It could delete a new
pod of the same name. A review found the same in actions/actions-runner-controller#4673.

Shown by: the watch of pods is delayed before the failed pod is deleted. Its StatefulSet recreates it meanwhile. When
the retention time ends, the operator deletes the pod that has the name now.

The twin sends the UID of the observed pod as a precondition. The API server responds with Conflict, and the reconcile
is retried until the watch event has arrived.
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
from steersman.api.apply import meta
from steersman.api.core_v1 import Pod
from steersman.controller import Request, RequestReconciler, Result
from steersman.errors import NotFound
from steersman.manager import Manager
from steersman.meta import Field, Resource, Spec, Status, resource
from steersman_testing.simulation import World


class RunnersSpec(Spec):
    keep_failed_seconds: Annotated[int, Field(ge=0)] = 60
    """Retention time of a failed pod for troubleshooting, in seconds."""


@resource(group="gallery.example.com", version="v1", plural="runners")
class Runners(Resource[RunnersSpec, Status]):
    """Deletes failed pods of a StatefulSet after a retention time."""


class FaultyRunnersReconciler(RequestReconciler[Runners]):
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


def setup(reconciler: type[RequestReconciler[Runners]]) -> Callable[[Manager, Any], None]:

    def configure(manager: Manager, _: object) -> None:
        manager.controller(Runners).watches(Pod, requests_for_owner).needs(Pod, "delete").complete(reconciler)

    return configure


async def _start_pod(world: World[NoExternalSystem]) -> None:
    metadata = meta.ObjectMeta(name="build-0", namespace=NAMESPACE, labels={OWNER_LABEL: "build"})
    await world.client.create(pod(metadata))
    await set_pod_readiness(world, "build-0", True)


async def scenario(world: World[NoExternalSystem]) -> None:
    """A pod fails. Half a minute later it is deleted and recreated."""
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
    """The running pod was not deleted."""
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
