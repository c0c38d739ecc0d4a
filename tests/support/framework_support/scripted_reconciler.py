"""A reconciler that does what it is told, a controller of it, and what that counts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from framework_support.controller_env import ControllerEnv
from framework_support.widget import Widget, widget
from steersman.controller import Controller, ControllerOptions, ControllerSpec, Reconciler, Request, Result
from steersman.controller.controller import TraceSpan
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
    trace_span: TraceSpan | None = None,
) -> Controller:
    spec = ControllerSpec(
        name=name,
        resource=Widget.api_resource,
        get_cached=lambda request: widget(request.name) if exists else None,
        options=ControllerOptions(max_concurrent_reconciles=workers, reconcile_timeout=timeout),
    )
    return Controller(spec, reconciler, runtime=reconciler.runtime, trace_span=trace_span)


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
