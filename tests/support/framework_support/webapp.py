"""WebApp resource with many field types, and correct and faulty operators."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Literal

from steersman.api.apply import core, meta
from steersman.api.core_v1 import ConfigMap
from steersman.client import Transport
from steersman.controller import (
    ReconcilerContext,
    Request,
    RequestReconciler,
    Result,
    add_finalizer,
    remove_finalizer,
)
from steersman.manager import Manager, ManagerOptions
from steersman.meta import (
    Condition,
    Field,
    FrozenDict,
    FrozenStruct,
    ObjectKey,
    Quantity,
    Resource,
    Rule,
    Spec,
    Status,
    resource,
    set_condition,
)
from steersman.observability.runtime import Runtime

MISSING_IMAGE = "registry.example.com/gone"
"""An image that the schema allows but that does not exist."""


class Backend(FrozenStruct):
    """A backend of the web application."""

    name: Annotated[str, Field(pattern="^[a-z]([a-z0-9]{0,6}[a-z0-9])?$")]
    weight: Annotated[int, Field(ge=1, le=100)] = 10


class WebAppSpec(Spec):
    """Desired state."""

    title: Annotated[str, Field(min_length=1, max_length=20)]
    region: Annotated[
        Literal["north", "south"], Field(rules=(Rule(rule="self == oldSelf", message="region is immutable"),))
    ] = "north"
    image: Annotated[str, Field(pattern="^[a-z.]+(/[a-z]+)?$")] = "webapp"
    replicas: Annotated[int, Field(ge=0, le=20)] = 1
    banner: str | None = None
    memory: Annotated[
        Quantity,
        Field(
            rules=(
                Rule(rule="quantity(string(self)).isGreaterThan(quantity('0'))", message="memory must be positive"),
            )
        ),
    ] = Quantity("10")
    labels: FrozenDict[str, str] = FrozenDict()
    backends: Annotated[tuple[Backend, ...], Field(list_map_keys=("name",), max_items=3)] = ()


class WebAppStatus(Status):
    """Observed state."""


@resource(group="shop.example.com", version="v1")
class WebApp(Resource[WebAppSpec, WebAppStatus]):
    """A web application with backends."""


class WebAppReconciler(RequestReconciler[WebApp]):
    """Maintains a ConfigMap for the web application and one per backend."""

    async def reconcile(self, request: Request) -> Result:
        webapp = await self.client.get(WebApp, request)
        if webapp.metadata.deletion_timestamp is not None:
            return Result()
        if webapp.spec.image == MISSING_IMAGE:
            await self.write_status(
                webapp, "False", "ImageUnknown", f"there is no image {MISSING_IMAGE}: correct spec.image"
            )
            return Result()
        await self.apply_config_map(webapp)
        await self.apply_backends(webapp)
        await self.write_status(webapp, "True", "Built", "the webapp is as declared")
        return Result()

    async def apply_config_map(self, webapp: WebApp) -> None:
        """Apply the ConfigMap of the web application."""
        await self.client.apply(
            config_map_for(webapp, webapp.metadata.name, self.config_map_data(webapp.spec)), owner=webapp
        )

    def config_map_data(self, spec: WebAppSpec) -> dict[str, str]:
        """Data of the ConfigMap of the web application."""
        known = {"title": spec.title, "region": spec.region, "image": spec.image, "replicas": str(spec.replicas)}
        optional = {"banner": spec.banner} if spec.banner is not None else {}
        return known | optional | {"memory": str(spec.memory)} | {f"label-{k}": v for k, v in spec.labels.items()}

    async def apply_backends(self, webapp: WebApp) -> None:
        """Apply one ConfigMap per backend and delete the others."""
        wanted = {f"{webapp.metadata.name}-{backend.name}": backend for backend in webapp.spec.backends}
        for name, backend in wanted.items():
            await self.client.apply(config_map_for(webapp, name, {"weight": str(backend.weight)}), owner=webapp)
        for found in await self.client.list(ConfigMap, owner=webapp):
            if found.metadata.name not in wanted and found.metadata.name != webapp.metadata.name:
                await self.client.delete(ConfigMap, found.key)

    async def write_status(self, webapp: WebApp, status: Any, reason: str, message: str) -> None:
        """Apply the status."""
        ready = Condition(type="Ready", status=status, reason=reason, message=message)
        previous = webapp.status.conditions if webapp.status else ()
        conditions = set_condition(previous, ready, self.runtime.clock.now())
        wanted = WebAppStatus(observed_generation=webapp.metadata.generation, conditions=conditions)
        await self.client.apply_status(webapp, wanted)


def config_map_for(webapp: WebApp, name: str, data: dict[str, str]) -> core.ConfigMap:
    """A ConfigMap in the namespace of the web application."""
    return core.ConfigMap(metadata=meta.ObjectMeta(name=name, namespace=webapp.metadata.namespace), data=data)


def setup(manager: Manager) -> None:
    """Register the correct controller."""
    manager.controller(WebApp).owns(ConfigMap).complete(WebAppReconciler)


def setup_with(reconciler: Callable[[ReconcilerContext], RequestReconciler[WebApp]]) -> Callable[[Manager], None]:
    """Register a controller with another reconciler."""

    def setup(manager: Manager) -> None:
        manager.controller(WebApp).owns(ConfigMap).complete(reconciler)

    return setup


class InProcessOperator:
    """An operator in this process that can be restarted."""

    def __init__(
        self, transport: Transport, setup: Callable[[Manager], object], runtime: Runtime | None = None
    ) -> None:
        self._transport = transport
        self._setup = setup
        self._runtime = runtime
        self._manager: Manager | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> InProcessOperator:
        self._start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stop()

    async def restart(self) -> None:
        """Stop the operator and start a new one."""
        await self._stop()
        self._start()

    def _start(self) -> None:
        self._manager = Manager(self._transport, ManagerOptions(graceful_shutdown_timeout=0), self._runtime)
        self._setup(self._manager)
        self._task = asyncio.create_task(self._manager.run())

    async def _stop(self) -> None:
        assert self._manager is not None
        assert self._task is not None
        self._manager.stop()
        await self._task


# Faulty operators


class NeverRemovesKeys(WebAppReconciler):
    """Adds and changes keys, but never removes any."""

    async def apply_config_map(self, webapp: WebApp) -> None:
        wanted = self.config_map_data(webapp.spec)
        found = {m.metadata.name: m.data for m in await self.client.list(ConfigMap, owner=webapp)}
        kept = dict(found.get(webapp.metadata.name, {}))
        await self.client.apply(config_map_for(webapp, webapp.metadata.name, kept | wanted), owner=webapp)


class LeaksBackendConfigMaps(WebAppReconciler):
    """Never deletes the ConfigMap of a removed backend."""

    async def apply_backends(self, webapp: WebApp) -> None:
        for backend in webapp.spec.backends:
            name = f"{webapp.metadata.name}-{backend.name}"
            await self.client.apply(config_map_for(webapp, name, {"weight": str(backend.weight)}), owner=webapp)


class WritesProcessNumber(WebAppReconciler):
    """Writes a random number per process, so every restart rewrites all objects."""

    def __init__(self, context: ReconcilerContext) -> None:
        super().__init__(context)
        self._number = str(self.runtime.random.getrandbits(32))

    def config_map_data(self, spec: WebAppSpec) -> dict[str, str]:
        return super().config_map_data(spec) | {"process": self._number}


class NeverRecovers(WebAppReconciler):
    """Never recovers an object that once had a missing image."""

    def __init__(self, context: ReconcilerContext) -> None:
        super().__init__(context)
        self._failed: set[ObjectKey] = set()

    async def reconcile(self, request: Request) -> Result:
        webapp = await self.client.get(WebApp, request)
        if webapp.spec.image == MISSING_IMAGE:
            self._failed.add(request)
        if request in self._failed:
            await self.write_status(webapp, "False", "ImageUnknown", "there is no such image: correct spec.image")
            return Result()
        return await super().reconcile(request)


class HidesImageError(WebAppReconciler):
    """Ignores a missing image and reports Ready."""

    async def reconcile(self, request: Request) -> Result:
        webapp = await self.client.get(WebApp, request)
        if webapp.spec.image == MISSING_IMAGE:
            await self.write_status(webapp, "True", "Built", "the webapp is as declared")
            return Result()
        return await super().reconcile(request)


class IgnoresZeroReplicas(WebAppReconciler):
    """Ignores objects with zero replicas."""

    async def reconcile(self, request: Request) -> Result:
        webapp = await self.client.get(WebApp, request)
        return await super().reconcile(request) if webapp.spec.replicas else Result()


class DividesByReplicas(WebAppReconciler):
    """Fails for zero replicas, without a condition."""

    def config_map_data(self, spec: WebAppSpec) -> dict[str, str]:
        return super().config_map_data(spec) | {"share": str(100 // spec.replicas)}


class StaleObservedGeneration(WebAppReconciler):
    """Never updates the observed generation."""

    async def write_status(self, webapp: WebApp, status: Any, reason: str, message: str) -> None:
        if webapp.status.observed_generation is None:
            await super().write_status(webapp, status, reason, message)


class Oscillates(WebAppReconciler):
    """Writes alternating values with more than ten replicas."""

    def __init__(self, context: ReconcilerContext) -> None:
        super().__init__(context)
        self._turn = 0

    async def reconcile(self, request: Request) -> Result:
        self._turn += 1
        return await super().reconcile(request)

    def config_map_data(self, spec: WebAppSpec) -> dict[str, str]:
        turn = self._turn % 2 if spec.replicas > 10 else 0
        return super().config_map_data(spec) | {"turn": str(turn)}


class WritesTimestamps(WebAppReconciler):
    """Writes the time every 20 seconds with more than ten replicas."""

    async def reconcile(self, request: Request) -> Result:
        webapp = await self.client.get(WebApp, request)
        await super().reconcile(request)
        return Result(requeue_after=20.0) if webapp.spec.replicas > 10 else Result()

    def config_map_data(self, spec: WebAppSpec) -> dict[str, str]:
        now = int(self.runtime.clock.monotonic() // 20) if spec.replicas > 10 else 0
        return super().config_map_data(spec) | {"log": str(now)}


class BlocksDeletion(WebAppReconciler):
    """Never removes the finalizer of an object with backends."""

    async def reconcile(self, request: Request) -> Result:
        webapp = await self.client.get(WebApp, request)
        if webapp.metadata.deletion_timestamp is None:
            await add_finalizer(self.client, webapp, "shop.example.com/backends")
        elif not webapp.spec.backends:
            await remove_finalizer(self.client, webapp, "shop.example.com/backends")
        return await super().reconcile(request)


def setup_that_crashes(manager: Manager) -> None:
    """Register an operator whose process crashes on a banner."""
    banner_seen = asyncio.Event()

    class CrashesOnBanner(WebAppReconciler):
        def config_map_data(self, spec: WebAppSpec) -> dict[str, str]:
            if spec.banner is not None:
                banner_seen.set()
            return super().config_map_data(spec)

    async def crash() -> None:
        await banner_seen.wait()
        raise RuntimeError("the banner task failed")

    setup_with(CrashesOnBanner)(manager)
    manager.add(crash)
