"""``Work`` resource of all scenarios and the Steersman operator for it.

As a program: ``python -m benchmarks.work LOOP``, with the settings of ``benchmarks.peers`` in the environment.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from steersman.api.apply import core, meta
from steersman.api.core_v1 import ConfigMap
from steersman.client import Transport, connect, load_config
from steersman.controller import ReconcilerContext, Request, RequestReconciler, Result, generation_changed
from steersman.manager import LeaderElection, Manager, ManagerOptions
from steersman.meta import Resource, Spec, Status, resource
from steersman.observability.logging import configure_logging


class WorkSpec(Spec):
    text: str
    """Text of the ConfigMap."""


class WorkStatus(Status):
    config_map: str | None = None
    """Name of the created ConfigMap."""
    started_at: int | None = None
    """Start of this generation's reconcile in nanoseconds since the Unix epoch."""


@resource(group="benchmarks.steersman.dev", version="v1", plural="works")
class Work(Resource[WorkSpec, WorkStatus]):
    """Custom resource of the benchmarks."""


class WorkReconciler(RequestReconciler[Work]):
    """Maintains one ConfigMap per Work and updates the status.

    Args:
        with_events: True to record an Event for the created ConfigMap.
        timed: True to write the reconcile's start into the status.
    """

    def __init__(self, context: ReconcilerContext, *, with_events: bool, timed: bool) -> None:
        super().__init__(context)
        self._with_events = with_events
        self._timed = timed

    async def reconcile(self, request: Request) -> Result:
        started_at = time.time_ns() if self._timed else None
        work = await self.client.get(Work, request)
        data = {"text": work.spec.text}
        existing = await self.client.get_or_none(ConfigMap, request)
        if existing is None or existing.data != data:
            metadata = meta.ObjectMeta(name=request.name, namespace=request.namespace)
            await self.client.apply(core.ConfigMap(metadata=metadata, data=data), owner=work)
        generation, status = work.metadata.generation, work.status
        if status.observed_generation == generation and status.config_map == request.name:
            return Result()
        status = WorkStatus(observed_generation=generation, config_map=request.name, started_at=started_at)
        await self.client.apply_status(work, status)
        if self._with_events:
            self.events.normal(work, "Done", "the ConfigMap is there")
        return Result()


def new_manager(transport: Transport) -> Manager:
    """Create a manager configured from the environment."""
    namespace = os.environ["BENCHMARK_NAMESPACE"]
    election = LeaderElection(name="benchmark", namespace=namespace)
    return Manager(
        transport,
        ManagerOptions(
            name="benchmark",
            namespaces=(namespace,),
            leader_election=election if os.environ["BENCHMARK_LEADER_ELECTION"] == "yes" else None,
            metrics_bind_address=os.environ["BENCHMARK_METRICS"],
        ),
    )


async def run() -> None:
    """Run the operator until SIGTERM."""
    with_events, timed = (os.environ[f"BENCHMARK_{name}"] == "yes" for name in ("EVENTS", "TIMED"))
    async with connect(load_config()) as transport:
        manager = new_manager(transport)
        (
            manager.controller(Work)
            .with_predicate(generation_changed)
            .owns(ConfigMap)
            .max_concurrent_reconciles(int(os.environ["BENCHMARK_WORKERS"]))
            .complete(partial(WorkReconciler, with_events=with_events, timed=timed))
        )
        await manager.run_until_signalled()


def loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the factory of the event loop ``asyncio`` or ``uvloop``."""
    if name == "uvloop":
        import uvloop

        return uvloop.new_event_loop
    return asyncio.new_event_loop


def main(operator: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run an operator on the event loop named on the command line."""
    configure_logging("warning")
    with asyncio.Runner(loop_factory=loop_factory(sys.argv[1])) as runner:
        runner.run(operator())


if __name__ == "__main__":
    main(run)
