"""The rollback of a bad image waits for the broken pod.

After cloudnative-pg/cloudnative-pg#3541 and pingcap/tidb-operator#4946 (both found by Acto), and
humio/humio-operator#210, grafana/rollout-operator#339: a rollout waited until all pods were ready. A change that
broke a pod therefore blocked the change that would have fixed it.

Shown by: ``image`` becomes one that cannot run, and then the previous one again.

The twin waits only for pods of the declared revision. It replaces other pods at once, especially those that fail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from gallery.bug_case import BugCase, NoExternalSystem
from gallery.helpers import (
    OWNER_LABEL,
    is_pod_ready,
    kubelet,
    kubelet_controller,
    object_meta,
    owned_metadata,
    pod,
    set_spec,
    with_ready_condition,
)
from steersman.api.core_v1 import Pod
from steersman.controller import Request, RequestReconciler, Result
from steersman.manager import Manager
from steersman.meta import Field, Resource, Spec, Status, resource
from steersman_testing.simulation import World
from steersman_testing.transitions import Hints

PODS = 2
BROKEN = "broken"


class EngineSpec(Spec):
    image: Annotated[str, Field(min_length=1)] = "example.com/engine:1"
    """Image of the pods. Not every image can run."""


@resource(group="gallery.example.com", version="v1")
class Engine(Resource[EngineSpec, Status]):
    """Two pods, replaced one by one."""


class FaultyEngineReconciler(RequestReconciler[Engine]):
    async def reconcile(self, request: Request) -> Result:
        engine = await self.client.get(Engine, request)
        pods = await self.client.list(Pod, owner=engine)
        missing = {f"-{number}" for number in range(PODS)} - {found.metadata.name[-2:] for found in pods}
        for suffix in sorted(missing):
            await self.client.apply(pod(owned_metadata(engine, suffix), image=engine.spec.image), owner=engine)
        if not missing and any(not is_current(found, engine) for found in pods):
            await self.roll_out(engine)
        await self.report(engine, sum(is_current(found, engine) and is_pod_ready(found) for found in pods))
        return Result()

    async def roll_out(self, engine: Engine) -> None:
        # Live reads, for the reason in stale_state/quorum_lost_in_rolling_restart.py.
        selector = f"{OWNER_LABEL}={engine.metadata.name}"
        live = (await self.client.live.list(Pod, namespace=engine.metadata.namespace, label_selector=selector)).items
        chosen = self.next_to_replace(engine, sorted(live, key=lambda found: found.metadata.name))
        if chosen is not None:
            await self.client.delete(Pod, chosen.key, uid=chosen.metadata.uid)

    def next_to_replace(self, engine: Engine, pods: list[Pod]) -> Pod | None:
        if not all(is_pod_ready(found) for found in pods):
            return None
        return next((found for found in pods if not is_current(found, engine)), None)

    async def report(self, engine: Engine, is_healthy: int) -> None:
        reason, message = (
            ("Running", "all are ready")
            if is_healthy == PODS
            else ("RollingOut", f"{is_healthy} of {PODS} are ready")
        )
        status = Status(
            observed_generation=engine.metadata.generation,
            conditions=with_ready_condition(engine, is_healthy == PODS, reason, message, self.runtime.clock.now()),
        )
        await self.client.apply_status(engine, status)


class EngineReconciler(FaultyEngineReconciler):
    def next_to_replace(self, engine: Engine, pods: list[Pod]) -> Pod | None:
        old = sorted((found for found in pods if not is_current(found, engine)), key=is_pod_ready)
        waiting = any(is_current(found, engine) and not is_pod_ready(found) for found in pods)
        return None if not old or (waiting and is_pod_ready(old[0])) else old[0]


def is_current(found: Pod, engine: Engine) -> bool:
    """Return True if the pod has the declared image."""
    return found.spec.containers[0].image == engine.spec.image


def setup(reconciler: type[RequestReconciler[Engine]]) -> Callable[[Manager, Any], None]:

    def configure(manager: Manager, _: object) -> None:
        manager.controller(Engine).owns(Pod).needs(Pod, "delete").complete(reconciler)

    return configure


async def scenario(world: World[NoExternalSystem]) -> None:
    """Set an image that cannot run, then the previous one."""
    await world.client.create(Engine(metadata=object_meta("search"), spec=EngineSpec()))
    await world.settle()
    await set_spec(world, Engine, "search", image=f"example.com/engine:{BROKEN}")
    await world.settle()
    await set_spec(world, Engine, "search", image="example.com/engine:1")
    await world.settle()


def check(world: World[NoExternalSystem]) -> None:
    """Both pods run with the previous image."""
    pods = world.read_all(Pod)
    assert [found.spec.containers[0].image for found in pods] == ["example.com/engine:1"] * PODS
    assert all(is_pod_ready(found) for found in pods)


BUG_CASE = BugCase(
    faulty=setup(FaultyEngineReconciler),
    corrected=setup(EngineReconciler),
    kinds=(Engine,),
    scenario=scenario,
    check=check,
    outside=NoExternalSystem,
    detector="transitions",
    report_excerpts=(
        "rollback: the error remains after a rollback to the last good spec: RollingOut",
        '2. set a bad value: spec.image="example.com/engine:broken"',
        "3. roll back to the last good spec",
        "replay=",
    ),
    hints=Hints(
        examples={"spec.image": ["example.com/engine:1", "example.com/engine:2"]},
        bad={"spec.image": [f"example.com/engine:{BROKEN}"]},
    ),
    actors=(kubelet(BROKEN),),
    cluster_controllers=(kubelet_controller(BROKEN),),
)
