"""A reconciler that does what it is told, a controller of it, and what that counts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from framework_support.controller_env import ControllerEnv
from framework_support.widget import Widget
from steersman.controller import Controller, ControllerOptions, Reconciler, Request, Result
from steersman.errors import ApiStatus, Conflict
from steersman.observability import metrics

Behaviour = Callable[[Request], Awaitable[Result]]


class ScriptedReconciler(Reconciler[Widget]):
    """Does what it is told, and remembers when for whom."""

    def __init__(self, world: ControllerEnv, behaviour: Behaviour | None = None) -> None:
        super().__init__(world.context())
        self.behaviour = behaviour
        self.calls: list[tuple[float, str]] = []

    async def reconcile(self, request: Request) -> Result:
        self.calls.append((self.runtime.clock.monotonic(), request.name))
        return await self.behaviour(request) if self.behaviour is not None else Result()

    def times(self, name: str) -> list[float]:
        return [moment for moment, called in self.calls if called == name]


def controller_for(
    reconciler: ScriptedReconciler,
    name: str = "widget",
    *,
    exists: bool = True,
    workers: int = 1,
    timeout: float | None = None,
) -> Controller:
    return Controller(
        name,
        reconciler,
        resource=Widget.api_resource,
        runtime=reconciler.runtime,
        exists=lambda _: exists,
        options=ControllerOptions(max_concurrent_reconciles=workers, reconcile_timeout=timeout),
    )


def metric_value(metric: str, /, **labels: str) -> float:
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
    return Conflict(ApiStatus("scripted conflict", "Conflict", 409))
