"""A decommission is not cancelled when the user scales up again.

After instaclustr/cassandra-operator#410: to scale down, the operator decommissioned a node in one reconcile and
removed it in the next, as long as the declared number was lower. If the user had restored the number meanwhile, both
numbers were equal and nothing happened. The node remained in the cluster, decommissioned and useless.

Shown by: a crash or a pause between the two steps, while the user restores the number.

The twin compares the state of each node with its desired state. It need not observe that the number was lower for a
second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from gallery.bug_case import BugCase
from gallery.helpers import key, object_meta, set_spec
from steersman.controller import ReconcilerContext, Request, RequestReconciler, Result
from steersman.manager import Manager
from steersman.meta import Field, Resource, Spec, Status, resource
from steersman_testing.simulation import World, fault_point

State = Literal["serving", "decommissioned"]


class Ring:
    """A database cluster whose nodes can be added, decommissioned and removed.

    Attributes:
        nodes: the state of each node, by number.
    """

    def __init__(self) -> None:
        self.nodes: dict[int, State] = {}

    async def start(self, number: int) -> None:
        """Add a node, or make a decommissioned one serve again."""
        async with fault_point(f"ring: start node {number}", ConnectionError("no node responds")):
            self.nodes[number] = "serving"

    async def decommission(self, number: int) -> None:
        """Move the data of a node to the others. It no longer serves."""
        async with fault_point(f"ring: decommission node {number}", ConnectionError("no node responds")):
            self.nodes[number] = "decommissioned"

    async def remove(self, number: int) -> None:
        """Remove a node."""
        async with fault_point(f"ring: remove node {number}", ConnectionError("no node responds")):
            self.nodes.pop(number, None)


class DatacenterSpec(Spec):
    nodes: Annotated[int, Field(ge=1, le=9)] = 3
    """Number of serving nodes."""


class DatacenterStatus(Status):
    serving: int = 0
    """Number of nodes that serve now."""


@resource(group="gallery.example.com", version="v1")
class Datacenter(Resource[DatacenterSpec, DatacenterStatus]):
    """Nodes of one ring."""


class FaultyDatacenterReconciler(RequestReconciler[Datacenter]):
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
        """Run one step. Return True if there was one."""
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

    def configure(manager: Manager, ring: Ring) -> None:
        manager.controller(Datacenter).complete(lambda context: reconciler(context, ring))

    return configure


async def scenario(world: World[Ring]) -> None:
    """Scale to three nodes, to two, and soon to three again."""
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
    assert datacenter is not None and datacenter.status.serving == 3


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
