"""A rolling restart deletes a second member while another one is down.

After opensearch-project/opensearch-k8s-operator#1471: the check of the quorum counted ready pods in a stale cache. It
allowed the deletion of a second pod.

Shown by: the watch of pods is delayed before the node of a member fails. Then the user requests a restart.

The twin reads live before each deletion and starts with the failed member. (An eviction with a PodDisruptionBudget is
equivalent, because the API server counts.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gallery.bug_case import BugCase
from gallery.helpers import (
    OWNER_LABEL,
    is_pod_ready,
    kubelet,
    object_meta,
    owned_metadata,
    pod,
    set_pod_readiness,
    set_spec,
)
from steersman.api.core_v1 import Pod
from steersman.controller import Request, RequestReconciler, Result
from steersman.manager import Manager
from steersman.meta import Resource, Spec, Status, resource
from steersman_testing.simulation import World

MEMBERS = 3
RESTARTED = "gallery.example.com/restarted"


class QuorumSpec(Spec):
    restart: str = ""
    """A change restarts the members one by one."""


@resource(group="gallery.example.com", version="v1")
class Quorum(Resource[QuorumSpec, Status]):
    """Three members with a quorum of two."""


class FaultyQuorumReconciler(RequestReconciler[Quorum]):
    async def reconcile(self, request: Request) -> Result:
        quorum = await self.client.get(Quorum, request)
        pods = {pod.metadata.name: pod for pod in await self.client.list(Pod, owner=quorum)}
        for number in range(MEMBERS):
            if f"{quorum.metadata.name}-{number}" not in pods:
                annotations = {RESTARTED: quorum.spec.restart}
                await self.client.apply(
                    pod(owned_metadata(quorum, f"-{number}", annotations=annotations)), owner=quorum
                )
                return Result()
        if outdated(quorum, pods.values()):
            await self.restart_one(quorum, tuple(pods.values()))
        return Result()

    async def restart_one(self, quorum: Quorum, pods: tuple[Pod, ...]) -> None:
        if all(is_pod_ready(found) for found in pods):
            chosen = outdated(quorum, pods)[0]
            await self.client.delete(Pod, chosen.key, uid=chosen.metadata.uid)


class QuorumReconciler(FaultyQuorumReconciler):
    async def restart_one(self, quorum: Quorum, pods: tuple[Pod, ...]) -> None:
        selector = f"{OWNER_LABEL}={quorum.metadata.name}"
        live = (await self.client.live.list(Pod, namespace=quorum.metadata.namespace, label_selector=selector)).items
        down = [found for found in live if not is_pod_ready(found)]
        candidates = outdated(quorum, down or live)
        if candidates and len(live) == MEMBERS and len(down) <= 1:
            await self.client.delete(Pod, candidates[0].key, uid=candidates[0].metadata.uid)


def outdated(quorum: Quorum, pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods that were not restarted since the request."""
    old = [pod for pod in pods if pod.metadata.annotations.get(RESTARTED) != quorum.spec.restart]
    return sorted(old, key=lambda pod: pod.metadata.name)


def setup(reconciler: type[RequestReconciler[Quorum]]) -> Callable[[Manager, Any], None]:

    def configure(manager: Manager, _: object) -> None:
        manager.controller(Quorum).owns(Pod).needs(Pod, "delete").complete(reconciler)

    return configure


class Clients:
    """Clients of the quorum, which remember its first availability."""

    def __init__(self) -> None:
        self.served = False


def quorum_is_available(world: World[Clients]) -> None:
    """Once a quorum exists, at least two members are ready."""
    ready_pods = [found.metadata.name for found in world.read_all(Pod) if is_pod_ready(found)]
    if len(ready_pods) >= MEMBERS - 1:
        world.outside.served = True
    assert len(ready_pods) >= MEMBERS - 1 or not world.outside.served, (
        f"only {', '.join(ready_pods) or 'nobody'} is up"
    )


async def scenario(world: World[Clients]) -> None:
    """A node fails, the user restarts the members, the node recovers."""
    await world.client.create(Quorum(metadata=object_meta("orders"), spec=QuorumSpec()))
    await world.settle()
    await set_pod_readiness(world, "orders-2", False)
    await world.settle()
    await set_spec(world, Quorum, "orders", restart="now")
    await world.settle()
    await set_pod_readiness(world, "orders-2", True)
    await world.settle()


def check(world: World[Clients]) -> None:
    """Every member was restarted and is ready."""
    pods = world.read_all(Pod)
    assert {found.metadata.annotations.get(RESTARTED) for found in pods} == {"now"}
    assert len(pods) == MEMBERS and all(is_pod_ready(found) for found in pods)


BUG_CASE = BugCase(
    faulty=setup(FaultyQuorumReconciler),
    corrected=setup(QuorumReconciler),
    kinds=(Quorum,),
    scenario=scenario,
    check=check,
    outside=Clients,
    detector="simulation",
    report_excerpts=(
        "the watch of pods is delayed before its event 7, for 300 s",
        "user           PATCH pods default/orders-2 status  200",
        "operator    4  DELETE pods default/orders-0  200",
        "wrong      quorum_is_available does not hold: only orders-1 is up",
        "replay='delay-watch:pods:7+300'",
    ),
    actors=(kubelet(),),
    invariants=(quorum_is_available,),
)
