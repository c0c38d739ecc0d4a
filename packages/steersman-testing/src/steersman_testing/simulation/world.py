"""The simulated world as a scenario, an invariant or an actor sees it."""

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
    """What a scenario, an actor or an invariant has to work with.

    Attributes:
        server: the API server, to look at.
        client: of a user, with the field manager ``user``. Its writes are part of the story.
        outside: the world outside Kubernetes.
    """

    def __init__(self, run: SimulationRun[W]) -> None:
        self._run = run
        self.server: InMemoryApiServer = run.server
        self.client: Client = run.client
        self.outside: W = run.outside

    def read(self, kind: type[T], key: ObjectKey) -> T | None:
        """The object as the server has it, or None."""
        return self.server.read(kind, key)

    def read_all(self, kind: type[T], namespace: str = "") -> tuple[T, ...]:
        """All objects of ``kind`` in ``namespace`` (empty: in all)."""
        return self.server.read_all(kind, namespace)

    def now(self) -> float:
        """Virtual seconds since the run began."""
        return self._run.clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Lets ``seconds`` of virtual time pass."""
        await asyncio.sleep(seconds)

    async def wait_until(self, description: str, condition: Callable[[], object], seconds: float = 3600.0) -> None:
        """Waits until ``probe`` gives something true.

        Raises:
            AssertionError: not within ``seconds`` of virtual time; names ``what``.
        """
        deadline = self.now() + seconds
        while not condition():
            if self.now() >= deadline:
                raise AssertionError(f"not within {seconds:g} s: {description}")
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)

    async def settle(self) -> None:
        """Waits until nothing more happens, and keeps the state for comparison with the run without faults.

        That is so when for 30 virtual seconds, and until every object that waits for a retry or a timer has had it
        (15 minutes at most), nothing has changed but Leases and Events. A watch that a fault holds back, or a process
        that it keeps away, is not waited for.

        Raises:
            AssertionError: something changes for ever.
        """
        await self.wait_until_quiet()
        self._run.take_snapshot()

    async def settle_after_faults(self) -> None:
        """As ``settle``, once every fault is over."""
        await self._wait_for_quiet(lambda: bool(self._run.active_faults))
        self._run.take_snapshot()

    async def wait_until_quiet(self) -> None:
        """As ``settle``, and keeps nothing."""
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
            # Who looks around every ten seconds may do so just now, and disturbs nobody as long as nothing changes.
            if (
                self.now() >= max(since + _QUIET_SECONDS, min(due, since + _MAX_QUIET_SECONDS))
                and not self._is_busy()
            ):
                return
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)
        raise AssertionError(f"the world does not come to rest within {_SETTLE_TIMEOUT_SECONDS / 3600:g} h")

    def _is_busy(self) -> bool:
        return any(len(controller.queue) or controller.running() for controller in self._active_controllers())

    def _active_controllers(self) -> list[Controller]:
        """Those of the replica that leads."""
        return [c for manager in self._run.running_managers() for c in manager.controllers if c.started]

    def _latest_timer(self) -> float:
        """When the last of the objects that wait for a retry or a timer will have had it."""
        return (
            max((item.since for c in self._active_controllers() for item in c.queue.delayed()), default=0.0)
            + _POLL_INTERVAL_SECONDS
        )


async def run_scenario(run: SimulationRun[W]) -> None:
    """Plays the whole scenario: the operator starts, the users act, all comes to rest, the operator starts again."""
    world = run.world = World(run)
    # By names: asyncio would number them on through the whole process, and no story would repeat.
    collector = asyncio.create_task(_collect_garbage(run), name="garbage collector")
    actors = [collector, *(asyncio.create_task(_run_actor(run, a), name=_task_name(a)) for a in run.config.actors)]
    violation = asyncio.create_task(run.wait_for_violation(), name="violations")
    scenario = asyncio.create_task(_run_operator(run, world), name="scenario")
    try:
        await asyncio.wait([scenario, violation, *actors], return_when=asyncio.FIRST_COMPLETED)
        while not (scenario.done() or violation.done()):
            # An actor may be done before the scenario is.
            running = [actor for actor in actors if not actor.done()]
            await asyncio.wait([scenario, violation, *running], return_when=asyncio.FIRST_COMPLETED)
    finally:
        run.stop()
        for task in (scenario, violation, *actors):
            task.cancel()
        await asyncio.gather(scenario, violation, *actors, return_exceptions=True)


async def _run_actor(run: SimulationRun[W], actor: Callable[[World[W]], Awaitable[None]]) -> None:
    """An actor that fails leaves a world in which the operator cannot be judged."""
    try:
        await actor(run.world)
    except Exception as error:
        run.record_violation(f"the actor {_task_name(actor)} fails: {type(error).__name__}: {error}")


def _task_name(actor: object) -> str:
    return getattr(actor, "__name__", type(actor).__name__)


async def _collect_garbage(run: SimulationRun[Any]) -> None:
    """As the controller manager does, which takes its time: what was made for an owner that is gone goes as well."""
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
        run.record_violation(str(error) or "the scenario's assertion fails")
    except Exception as error:
        run.record_violation(f"the scenario fails: {type(error).__name__}: {error}")
