"""A reconciler that does what it is told, a controller of it, and what that counts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from framework_support.buoy import Buoy
from framework_support.world import World
from steersman.controller import Controller, ControllerOptions, Reconciler, Request, Result
from steersman.errors import Conflict, Status
from steersman.observability import metrics

Behaviour = Callable[[Request], Awaitable[Result]]


class Scripted(Reconciler[Buoy]):
    """Does what it is told, and remembers when for whom."""

    def __init__(self, world: World, behaviour: Behaviour | None = None) -> None:
        super().__init__(world.context())
        self.behaviour = behaviour
        self.calls: list[tuple[float, str]] = []

    async def reconcile(self, request: Request) -> Result:
        self.calls.append((self.runtime.clock.monotonic(), request.name))
        return await self.behaviour(request) if self.behaviour is not None else Result()

    def times(self, name: str) -> list[float]:
        return [moment for moment, called in self.calls if called == name]


def controller_of(
    reconciler: Scripted, name: str = "buoy", *, exists: bool = True, workers: int = 1, timeout: float | None = None
) -> Controller:
    return Controller(
        name,
        reconciler,
        resource=Buoy.api_resource,
        runtime=reconciler.runtime,
        exists=lambda _: exists,
        options=ControllerOptions(max_concurrent_reconciles=workers, reconcile_timeout=timeout),
    )


def sample(metric: str, /, **labels: str) -> float:
    return metrics.registry.get_sample_value(metric, labels) or 0.0


def raising(*errors: BaseException) -> Behaviour:
    """Raises one error a call, then succeeds."""
    left = list(errors)

    async def behave(_: Request) -> Result:
        if left:
            raise left.pop(0)
        return Result()

    return behave


def conflict() -> Conflict:
    return Conflict(Status("scripted conflict", "Conflict", 409))
