"""A kind with fields of many sorts, its operator, and operators for it that are wrong, each in a way of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Literal

from steersman.api.apply.core_v1 import ConfigMapApply
from steersman.api.core_v1 import ConfigMap
from steersman.client import Transport
from steersman.controller import Context, Reconciler, Request, Result, add_finalizer, remove_finalizer
from steersman.manager import Manager, ManagerOptions
from steersman.meta import (
    Condition,
    Field,
    FrozenDict,
    FrozenStruct,
    ObjectKey,
    ObjectMetaApply,
    Quantity,
    Resource,
    Rule,
    Spec,
    Status,
    resource,
    set_condition,
)
from steersman.observability.runtime import Runtime

GONE = "registry.example.com/gone"
"""An image that the schema allows and that is not there."""


class Lantern(FrozenStruct):
    """A light on the pier."""

    name: Annotated[str, Field(pattern="^[a-z]([a-z0-9]{0,6}[a-z0-9])?$")]
    power: Annotated[int, Field(ge=1, le=100)] = 10


class HarbourSpec(Spec):
    """The harbour that is wanted."""

    title: Annotated[str, Field(min_length=1, max_length=20)]
    region: Annotated[
        Literal["north", "south"], Field(rules=(Rule(rule="self == oldSelf", message="region is immutable"),))
    ] = "north"
    image: Annotated[str, Field(pattern="^[a-z.]+(/[a-z]+)?$")] = "harbour"
    berths: Annotated[int, Field(ge=0, le=20)] = 1
    banner: str | None = None
    depth: Annotated[
        Quantity, Field(rules=(Rule(rule="quantity(string(self)).isGreaterThan(quantity('0'))", message="too flat"),))
    ] = Quantity("10")
    labels: FrozenDict[str, str] = FrozenDict()
    lanterns: Annotated[tuple[Lantern, ...], Field(list_map_keys=("name",), max_items=3)] = ()


class HarbourStatus(Status):
    """The harbour as it is."""


@resource(group="sea.example.com", version="v1")
class Harbour(Resource[HarbourSpec, HarbourStatus]):
    """Ships lie in it, and lanterns burn on its pier."""


class HarbourReconciler(Reconciler[Harbour]):
    """Keeps a ConfigMap for the harbour, and one for each lantern."""

    async def reconcile(self, request: Request) -> Result:
        harbour = await self.client.get(Harbour, request)
        if harbour.metadata.deletion_timestamp is not None:
            return Result()
        if harbour.spec.image == GONE:
            await self.report(harbour, "False", "ImageUnknown", f"there is no image {GONE}: correct spec.image")
            return Result()
        await self.write(harbour)
        await self.light(harbour)
        await self.report(harbour, "True", "Built", "the harbour is as declared")
        return Result()

    async def write(self, harbour: Harbour) -> None:
        """The harbour's own ConfigMap."""
        await self.client.apply(map_of(harbour, harbour.metadata.name, self.content(harbour.spec)), owner=harbour)

    def content(self, spec: HarbourSpec) -> dict[str, str]:
        """What the harbour's ConfigMap says."""
        known = {"title": spec.title, "region": spec.region, "image": spec.image, "berths": str(spec.berths)}
        optional = {"banner": spec.banner} if spec.banner is not None else {}
        return known | optional | {"depth": str(spec.depth)} | {f"label-{k}": v for k, v in spec.labels.items()}

    async def light(self, harbour: Harbour) -> None:
        """One ConfigMap for each lantern, and none for those that are gone."""
        wanted = {f"{harbour.metadata.name}-{lantern.name}": lantern for lantern in harbour.spec.lanterns}
        for name, lantern in wanted.items():
            await self.client.apply(map_of(harbour, name, {"power": str(lantern.power)}), owner=harbour)
        for found in await self.client.list(ConfigMap, owner=harbour):
            if found.metadata.name not in wanted and found.metadata.name != harbour.metadata.name:
                await self.client.delete(ConfigMap, found.key)

    async def report(self, harbour: Harbour, status: Any, reason: str, message: str) -> None:
        """The status."""
        ready = Condition(type="Ready", status=status, reason=reason, message=message)
        former = harbour.status.conditions if harbour.status else ()
        conditions = set_condition(former, ready, self.runtime.clock.now())
        wanted = HarbourStatus(observed_generation=harbour.metadata.generation, conditions=conditions)
        await self.client.apply_status(harbour, wanted)


def map_of(harbour: Harbour, name: str, data: dict[str, str]) -> ConfigMapApply:
    """A ConfigMap in the harbour's namespace."""
    return ConfigMapApply(metadata=ObjectMetaApply(name=name, namespace=harbour.metadata.namespace), data=data)


def setup(manager: Manager) -> None:
    """Adds the controller that is right."""
    manager.controller(Harbour).owns(ConfigMap).complete(HarbourReconciler)


def setup_with(reconciler: Callable[[Context], Reconciler[Harbour]]) -> Callable[[Manager], None]:
    """Adds a controller with another reconciler."""

    def setup(manager: Manager) -> None:
        manager.controller(Harbour).owns(ConfigMap).complete(reconciler)

    return setup


class Process:
    """An operator in this process, which can be ended and started anew. Runs during its ``async with`` block."""

    def __init__(
        self, transport: Transport, setup: Callable[[Manager], object], runtime: Runtime | None = None
    ) -> None:
        self._transport = transport
        self._setup = setup
        self._runtime = runtime
        self._manager: Manager | None = None
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Process:
        self._start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stop()

    async def restart(self) -> None:
        """Ends it and starts another."""
        await self._stop()
        self._start()

    def _start(self) -> None:
        self._manager = Manager(self._transport, ManagerOptions(graceful_shutdown_timeout=0), self._runtime)
        self._setup(self._manager)
        self._running = asyncio.create_task(self._manager.run())

    async def _stop(self) -> None:
        assert self._manager is not None
        assert self._running is not None
        self._manager.stop()
        await self._running


# Those that are wrong


class KeepsTheBanner(HarbourReconciler):
    """Adds and changes keys, and never takes one away."""

    async def write(self, harbour: Harbour) -> None:
        wanted = self.content(harbour.spec)
        found = {m.metadata.name: m.data for m in await self.client.list(ConfigMap, owner=harbour)}
        kept = dict(found.get(harbour.metadata.name, {}))
        await self.client.apply(map_of(harbour, harbour.metadata.name, kept | wanted), owner=harbour)


class LeaksLanterns(HarbourReconciler):
    """Never deletes the ConfigMap of a lantern that is gone."""

    async def light(self, harbour: Harbour) -> None:
        for lantern in harbour.spec.lanterns:
            name = f"{harbour.metadata.name}-{lantern.name}"
            await self.client.apply(map_of(harbour, name, {"power": str(lantern.power)}), owner=harbour)


class SignsItsWork(HarbourReconciler):
    """Writes the number of its process into what it makes, so that each process writes all anew."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._number = str(self.runtime.random.getrandbits(32))

    def content(self, spec: HarbourSpec) -> dict[str, str]:
        return super().content(spec) | {"process": self._number}


class BearsAGrudge(HarbourReconciler):
    """Once it met an image that is not there, it works no more for this object."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._spoilt: set[ObjectKey] = set()

    async def reconcile(self, request: Request) -> Result:
        harbour = await self.client.get(Harbour, request)
        if harbour.spec.image == GONE:
            self._spoilt.add(request)
        if request in self._spoilt:
            await self.report(harbour, "False", "ImageUnknown", "there is no such image: correct spec.image")
            return Result()
        return await super().reconcile(request)


class SaysNothing(HarbourReconciler):
    """Leaves all as it was when the image is not there, and says that all is well."""

    async def reconcile(self, request: Request) -> Result:
        harbour = await self.client.get(Harbour, request)
        if harbour.spec.image == GONE:
            await self.report(harbour, "True", "Built", "the harbour is as declared")
            return Result()
        return await super().reconcile(request)


class LooksAway(HarbourReconciler):
    """Does nothing at all for a harbour without berths."""

    async def reconcile(self, request: Request) -> Result:
        harbour = await self.client.get(Harbour, request)
        return await super().reconcile(request) if harbour.spec.berths else Result()


class RaisesForEver(HarbourReconciler):
    """Cannot work without berths, and only its log knows."""

    def content(self, spec: HarbourSpec) -> dict[str, str]:
        return super().content(spec) | {"share": str(100 // spec.berths)}


class LooksOnce(HarbourReconciler):
    """Reports the generation that it saw first, for ever."""

    async def report(self, harbour: Harbour, status: Any, reason: str, message: str) -> None:
        if harbour.status is None or harbour.status.observed_generation is None:
            await super().report(harbour, status, reason, message)


class CannotDecide(HarbourReconciler):
    """With more than ten berths it writes one thing, sees that it has changed, and writes another."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._turn = 0

    async def reconcile(self, request: Request) -> Result:
        self._turn += 1
        return await super().reconcile(request)

    def content(self, spec: HarbourSpec) -> dict[str, str]:
        turn = self._turn % 2 if spec.berths > 10 else 0
        return super().content(spec) | {"turn": str(turn)}


class KeepsTheLog(HarbourReconciler):
    """With more than ten berths it writes the time, every twenty seconds."""

    async def reconcile(self, request: Request) -> Result:
        harbour = await self.client.get(Harbour, request)
        await super().reconcile(request)
        return Result(requeue_after=20.0) if harbour.spec.berths > 10 else Result()

    def content(self, spec: HarbourSpec) -> dict[str, str]:
        now = int(self.runtime.clock.monotonic() // 20) if spec.berths > 10 else 0
        return super().content(spec) | {"log": str(now)}


class HoldsOn(HarbourReconciler):
    """Does not let go of a harbour that has lanterns."""

    async def reconcile(self, request: Request) -> Result:
        harbour = await self.client.get(Harbour, request)
        if harbour.metadata.deletion_timestamp is None:
            await add_finalizer(self.client, harbour, "sea.example.com/lanterns")
        elif not harbour.spec.lanterns:
            await remove_finalizer(self.client, harbour, "sea.example.com/lanterns")
        return await super().reconcile(request)


def setup_that_dies(manager: Manager) -> None:
    """The process ends when a harbour is flagged with a banner."""
    flagged = asyncio.Event()

    class Flags(HarbourReconciler):
        def content(self, spec: HarbourSpec) -> dict[str, str]:
            if spec.banner is not None:
                flagged.set()
            return super().content(spec)

    async def die() -> None:
        await flagged.wait()
        raise RuntimeError("the flagpole broke")

    setup_with(Flags)(manager)
    manager.add(die)
