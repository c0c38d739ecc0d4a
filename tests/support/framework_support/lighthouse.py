"""An operator with a world outside Kubernetes, for simulations: each buoy has a lamp at the harbour master's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from framework_support.buoy import Buoy, BuoySpec
from steersman.api.apply.core_v1 import ConfigMapApply
from steersman.api.core_v1 import ConfigMap
from steersman.client import MergePatch
from steersman.controller import Context, Reconciler, Request, Result, add_finalizer, remove_finalizer
from steersman.manager import Manager
from steersman.meta import ObjectKey, ObjectMeta, ObjectMetaApply
from steersman_testing.simulation import World, fault_point

FINALIZER = "sea.example.com/lamp"
KEY = ObjectKey("default", "a")


@dataclass
class Harbour:
    """Lamps by the name of their buoy; each has been lit at some depth."""

    lamps: dict[str, int] = field(default_factory=dict[str, int])

    async def light(self, name: str, depth: int) -> None:
        async with fault_point(f"light {name}", ConnectionError("nobody answers")):
            self.lamps[name] = depth

    async def put_out(self, name: str) -> None:
        async with fault_point(f"put out {name}", ConnectionError("nobody answers")):
            self.lamps.pop(name, None)


class Keeper(Reconciler[Buoy]):
    """Does it right: a lamp and a chart for each buoy, whatever happened before."""

    harbour: Harbour

    async def reconcile(self, request: Request) -> Result:
        buoy = await self.client.get(Buoy, request)
        if buoy.metadata.deletion_timestamp is not None:
            await self.harbour.put_out(request.name)
            await remove_finalizer(self.client, buoy, FINALIZER)
            return Result()
        await add_finalizer(self.client, buoy, FINALIZER)
        await self.harbour.light(request.name, buoy.spec.depth)
        await self.draw(buoy)
        return Result()

    async def draw(self, buoy: Buoy) -> None:
        metadata = ObjectMetaApply(name=buoy.metadata.name, namespace=buoy.metadata.namespace)
        await self.client.apply(ConfigMapApply(metadata=metadata, data={"depth": str(buoy.spec.depth)}), owner=buoy)


def setup_of(reconciler: type[Keeper]) -> Callable[[Manager, Harbour], None]:
    """The setup function of an operator with this reconciler."""

    def setup(manager: Manager, harbour: Harbour) -> None:
        def make(context: Context) -> Keeper:
            made = reconciler(context)
            made.harbour = harbour
            return made

        manager.controller(Buoy).owns(ConfigMap).complete(make)

    return setup


def new_buoy() -> Buoy:
    """The buoy of the scenario."""
    return Buoy(metadata=ObjectMeta(name=KEY.name, namespace=KEY.namespace), spec=BuoySpec(depth=1))


async def scenario(world: World[Harbour]) -> None:
    """A buoy comes, sinks deeper, and goes."""
    await world.client.create(
        Buoy(metadata=ObjectMeta(name=KEY.name, namespace=KEY.namespace), spec=BuoySpec(depth=1))
    )
    await world.settle()
    await world.client.patch(Buoy, KEY, MergePatch({"spec": {"depth": 2}}))
    await world.settle()
    await world.client.delete(Buoy, KEY)
