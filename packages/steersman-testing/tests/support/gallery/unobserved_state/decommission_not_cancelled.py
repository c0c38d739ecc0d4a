"""A node is told to leave, then it is wanted after all. The operator never notices that there was anything to undo.

After instaclustr/cassandra-operator#410: to scale down, the operator told a node to leave in one reconcile and took
it away in the next, whenever fewer nodes were wanted than there were. If the user had gone back to the former number
by then, both numbers were equal, and nothing was done. The node stayed decommissioned: there, and of no use.

Shown by: a crash, or any pause, between the two steps, while the user changes back.

The twin compares what each node is with what it ought to be. That fewer nodes were wanted for a second leaves no
trace that it would have to see.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from gallery.bug_case import BugCase
from gallery.helpers import key, object_meta, set_spec
from steersman.controller import Reconciler, ReconcilerContext, Request, Result
from steersman.manager import Manager
from steersman.meta import Field, Resource, Spec, Status, resource
from steersman_testing.simulation import World, fault_point

State = Literal["serving", "decommissioned"]


class Ring:
    """A database cluster: nodes come, are told to leave, and go.

    Attributes:
        nodes: by number, what each does.
    """

    def __init__(self) -> None:
        self.nodes: dict[int, State] = {}

    async def start(self, number: int) -> None:
        """Adds a node, or lets one that was to leave serve again."""
        async with fault_point(f"ring: start node {number}", ConnectionError("no node answers")):
            self.nodes[number] = "serving"

    async def decommission(self, number: int) -> None:
        """Moves a node's data to the others; it serves nobody any more."""
        async with fault_point(f"ring: decommission node {number}", ConnectionError("no node answers")):
            self.nodes[number] = "decommissioned"

    async def remove(self, number: int) -> None:
        """Takes a node away."""
        async with fault_point(f"ring: remove node {number}", ConnectionError("no node answers")):
            self.nodes.pop(number, None)


class DatacenterSpec(Spec):
    nodes: Annotated[int, Field(ge=1, le=9)] = 3
    """How many nodes serve."""


class DatacenterStatus(Status):
    serving: int = 0
    """How many nodes serve now."""


@resource(group="gallery.example.com", version="v1")
class Datacenter(Resource[DatacenterSpec, DatacenterStatus]):
    """Nodes of one ring."""


class FaultyDatacenterReconciler(Reconciler[Datacenter]):
    def __init__(self, context: ReconcilerContext, ring: Ring) -> None:
        super().__init__(context)
        self.ring = ring

    async def reconcile(self, request: Request) -> Result:
        datacenter = await self.client.get(Datacenter, request)
        busy = await self.step(datacenter.spec.nodes)
        serving = sum(state == "serving" for state in self.ring.nodes.values())
        await self.client.apply_status(datacenter, DatacenterStatus(serving=serving))
        return Result(requeue_after=1) if busy else Result()

    async def step(self, wanted: int) -> bool:
        """Does one thing, and tells whether there was one."""
        nodes = self.ring.nodes
        if len(nodes) < wanted:
            await self.ring.start(len(nodes))
        elif len(nodes) > wanted:
            leaving = [number for number, state in nodes.items() if state == "decommissioned"]
            if leaving:
                await self.ring.remove(leaving[0])
            else:
                await self.ring.decommission(max(nodes))
        return len(nodes) != wanted


class DatacenterReconciler(FaultyDatacenterReconciler):
    async def step(self, wanted: int) -> bool:
        nodes = self.ring.nodes
        idle = [number for number in range(wanted) if nodes.get(number) != "serving"]
        surplus = sorted((number for number in nodes if number >= wanted), reverse=True)
        if idle:
            await self.ring.start(idle[0])
        elif surplus and nodes[surplus[0]] == "serving":
            await self.ring.decommission(surplus[0])
        elif surplus:
            await self.ring.remove(surplus[0])
        return bool(idle or surplus)


def setup(reconciler: type[FaultyDatacenterReconciler]) -> Callable[[Manager, Ring], None]:
    """Gives a manager the operator."""

    def configure(manager: Manager, ring: Ring) -> None:
        manager.controller(Datacenter).complete(lambda context: reconciler(context, ring))

    return configure


async def scenario(world: World[Ring]) -> None:
    """Three nodes, then two, then three again before long."""
    await world.client.create(Datacenter(metadata=object_meta("east"), spec=DatacenterSpec()))
    await world.settle()
    await set_spec(world, Datacenter, "east", nodes=2)
    await world.sleep(2)
    await set_spec(world, Datacenter, "east", nodes=3)
    await world.settle()


def check(world: World[Ring]) -> None:
    """Three nodes serve."""
    assert world.outside.nodes == {0: "serving", 1: "serving", 2: "serving"}
    datacenter = world.read(Datacenter, key("east"))
    assert datacenter is not None and datacenter.status is not None and datacenter.status.serving == 3


BUG_CASE = BugCase(
    faulty=setup(FaultyDatacenterReconciler),
    corrected=setup(DatacenterReconciler),
    kinds=(Datacenter,),
    scenario=scenario,
    check=check,
    outside=Ring,
    detector="simulation",
    report_excerpts=(
        "another replica acquires the lease during call 7",
        "operator    7  ring: decommission node 2  done",
        "user           PATCH datacenters.gallery.example.com default/east  200",
        "wrong      Datacenter.gallery.example.com default/east .status.serving: 2, not 3",
        "replay='lease:7'",
    ),
)
