"""What all scenarios work on: a kind, and a controller that makes one owned ConfigMap for each and sets its status.

As a program, the operator under test: ``python -m benchmarks.work KUBECONFIG NAMESPACE WORKERS LOOP``.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from steersman.api.apply.core_v1 import ConfigMapApply
from steersman.api.core_v1 import ConfigMap
from steersman.client import connect, load_config
from steersman.controller import Reconciler, Request, Result, generation_changed
from steersman.manager import Manager, ManagerOptions
from steersman.meta import ObjectMetaApply, Resource, Spec, Status, resource
from steersman.observability.logging import configure_logging


class WorkSpec(Spec):
    text: str
    """What goes into the ConfigMap."""


class WorkStatus(Status):
    config_map: str | None = None
    """The ConfigMap, once it is there."""


@resource(group="benchmarks.steersman.dev", version="v1", plural="works")
class Work(Resource[WorkSpec, WorkStatus]):
    """Something to do."""


class WorkReconciler(Reconciler[Work]):
    """Looks before it writes, as a controller has to: its own writes come back as changes of what it owns."""

    async def reconcile(self, request: Request) -> Result:
        work = await self.client.get(Work, request)
        data = {"text": work.spec.text}
        present = await self.client.find(ConfigMap, request)
        if present is None or present.data != data:
            metadata = ObjectMetaApply(name=request.name, namespace=request.namespace)
            await self.client.apply(ConfigMapApply(metadata=metadata, data=data), owner=work)
        status = WorkStatus(observed_generation=work.metadata.generation, config_map=request.name)
        if status != work.status:
            await self.client.apply_status(work, status)
        return Result()


async def run(kubeconfig: str, namespace: str, workers: int) -> None:
    """The operator, until SIGTERM."""
    async with connect(load_config(kubeconfig)) as transport:
        manager = Manager(transport, ManagerOptions(name="benchmark", namespace=namespace))
        (
            manager.controller(Work)
            .with_predicate(generation_changed)
            .owns(ConfigMap)
            .max_concurrent_reconciles(workers)
            .complete(WorkReconciler)
        )
        await manager.run_until_signalled()


def loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """Makes the event loop called ``asyncio`` or ``uvloop``."""
    if name == "uvloop":
        import uvloop

        return uvloop.new_event_loop
    return asyncio.new_event_loop


if __name__ == "__main__":
    configure_logging("warning")
    with asyncio.Runner(loop_factory=loop_factory(sys.argv[4])) as runner:
        runner.run(run(sys.argv[1], sys.argv[2], int(sys.argv[3])))
