"""The world of a simulation, as scenarios, actors and invariants use it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from steersman.client import Client
from steersman.controller import Controller
from steersman.meta import Object, ObjectKey
from steersman_testing.apiserver import InMemoryApiServer
from steersman_testing.simulation.run import SimulationRun

W = TypeVar("W")
T = TypeVar("T", bound=Object)

_QUIET_SECONDS = 30.0
_MAX_QUIET_SECONDS = 900.0
_SETTLE_TIMEOUT_SECONDS = 2 * 3600.0
_POLL_INTERVAL_SECONDS = 1.0
_TIMER_WINDOW_SECONDS = 5.0
_GARBAGE_COLLECTION_INTERVAL_SECONDS = 20.0


class World(Generic[W]):
    """Access to a simulation for scenarios, actors and invariants.

    Attributes:
        server: the in-memory API server.
        client: client of a user, with the field manager ``user``. The trace contains its writes.
        outside: the external system.
    """

    def __init__(self, run: SimulationRun[W]) -> None:
        self._run = run
        self.server: InMemoryApiServer = run.server
        self.client: Client = run.client
        self.outside: W = run.outside

    def read(self, kind: type[T], key: ObjectKey) -> T | None:
        """Return the object as stored by the server, or None."""
        return self.server.read(kind, key)

    def read_all(self, kind: type[T], namespace: str = "") -> tuple[T, ...]:
        """Return all objects of ``kind`` in ``namespace``. Empty: in all namespaces."""
        return self.server.read_all(kind, namespace)

    def now(self) -> float:
        """Virtual seconds since the start of the run."""
        return self._run.clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep for ``seconds`` of virtual time."""
        await asyncio.sleep(seconds)

    async def wait_until(self, description: str, condition: Callable[[], object], seconds: float = 3600.0) -> None:
        """Wait until ``condition`` returns a true value.

        Raises:
            AssertionError: if it does not within ``seconds`` of virtual time. The text contains ``description``.
        """
        deadline = self.now() + seconds
        while not condition():
            if self.now() >= deadline:
                raise AssertionError(f"not within {seconds:g} s: {description}")
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)

    async def settle(self) -> None:
        """Wait until the state is stable, then take a snapshot.

        The state is stable if only Leases and Events change for 30 virtual seconds. Objects in back-off or with a
        timer are reconciled first, for at most 15 minutes. Long faults, such as a delayed watch or a process that
        does not restart, are not waited for. The snapshot is compared with that of the reference run.

        Raises:
            AssertionError: if the state does not become stable within two virtual hours.
        """
        await self.wait_until_quiet()
        self._run.take_snapshot()

    async def settle_after_faults(self) -> None:
        """Like ``settle``, after all faults have ended."""
        await self._wait_for_quiet(lambda: bool(self._run.active_faults))
        self._run.take_snapshot()

    async def wait_until_quiet(self) -> None:
        """Like ``settle``, without a snapshot."""
        await self._wait_for_quiet(lambda: self._run.has_short_fault)

    async def _wait_for_quiet(self, is_disturbed: Callable[[], bool]) -> None:
        started = since = self.now()
        seen, due = -1, since
        while self.now() - started < _SETTLE_TIMEOUT_SECONDS:
            changes = self._run.change_count()
            if changes != seen or is_disturbed():
                seen, since, due = changes, self.now(), 0.0
            if self.now() - since <= _TIMER_WINDOW_SECONDS:
                due = max(due, self._latest_timer())
            # A periodic resync may run at this moment. It does not matter while it changes nothing.
            if (
                self.now() >= max(since + _QUIET_SECONDS, min(due, since + _MAX_QUIET_SECONDS))
                and not self._is_busy()
            ):
                return
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)
        raise AssertionError(f"the state does not become stable within {_SETTLE_TIMEOUT_SECONDS / 3600:g} h")

    def _is_busy(self) -> bool:
        return any(len(controller.queue) or controller.running() for controller in self._active_controllers())

    def _active_controllers(self) -> list[Controller]:
        """Controllers of the replica that is the leader."""
        return [c for manager in self._run.running_managers() for c in manager.controllers if c.started]

    def _latest_timer(self) -> float:
        """Time at which the last delayed object will have been reconciled."""
        return (
            max((item.since for c in self._active_controllers() for item in c.queue.delayed()), default=0.0)
            + _POLL_INTERVAL_SECONDS
        )


async def run_scenario(run: SimulationRun[W]) -> None:
    """Run the operator and the scenario, then restart the operator once."""
    world = run.world = World(run)
    # Explicit names, because asyncio numbers tasks per process, and reports would not be reproducible.
    collector = asyncio.create_task(_collect_garbage(run), name="garbage collector")
    actors = [collector, *(asyncio.create_task(_run_actor(run, a), name=_task_name(a)) for a in run.config.actors)]
    violation = asyncio.create_task(run.wait_for_violation(), name="violations")
    scenario = asyncio.create_task(_run_operator(run, world), name="scenario")
    try:
        await asyncio.wait([scenario, violation, *actors], return_when=asyncio.FIRST_COMPLETED)
        while not (scenario.done() or violation.done()):
            # An actor may end before the scenario does.
            running = [actor for actor in actors if not actor.done()]
            await asyncio.wait([scenario, violation, *running], return_when=asyncio.FIRST_COMPLETED)
    finally:
        run.stop()
        for task in (scenario, violation, *actors):
            task.cancel()
        await asyncio.gather(scenario, violation, *actors, return_exceptions=True)


async def _run_actor(run: SimulationRun[W], actor: Callable[[World[W]], Awaitable[None]]) -> None:
    """Run an actor. If it fails, the result of the run is meaningless."""
    try:
        await actor(run.world)
    except Exception as error:
        run.record_violation(f"the actor {_task_name(actor)} fails: {type(error).__name__}: {error}")


def _task_name(actor: object) -> str:
    return getattr(actor, "__name__", type(actor).__name__)


async def _collect_garbage(run: SimulationRun[Any]) -> None:
    """Collect garbage at intervals, as the controller manager does."""
    try:
        while True:
            await asyncio.sleep(_GARBAGE_COLLECTION_INTERVAL_SECONDS)
            before = run.server.resource_version
            await run.server.collect_garbage_async()
            if run.server.resource_version != before:
                run.check_invariants()
    except Exception as error:
        run.record_violation(f"the garbage collector fails: {type(error).__name__}: {error}")


async def _run_operator(run: SimulationRun[W], world: World[W]) -> None:
    try:
        run.start_process()
        await world.wait_until_quiet()
        await run.config.scenario(world)
        await world.settle_after_faults()
        run.idle_restart_index = len(run.trace.entries)
        run.restart()
        await world.settle_after_faults()
    except AssertionError as error:
        run.record_violation(str(error) or "an assertion of the scenario fails")
    except Exception as error:
        run.record_violation(f"the scenario fails: {type(error).__name__}: {error}")
