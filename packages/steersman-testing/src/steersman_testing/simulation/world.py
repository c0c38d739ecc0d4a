"""The simulated world as a scenario, an invariant or an actor sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from steersman.client import Client
from steersman.controller import Controller
from steersman.meta import Object, ObjectKey
from steersman_testing.apiserver import InMemoryApiServer
from steersman_testing.simulation.run import Run

W = TypeVar("W")
T = TypeVar("T", bound=Object)

_QUIET = 30.0
_LONGEST_QUIET = 900.0
_LIMIT = 2 * 3600.0
_LOOK_EVERY = 1.0
_DAWN = 5.0
_GARBAGE_EVERY = 20.0


class World(Generic[W]):
    """What a scenario, an actor or an invariant has to work with.

    Attributes:
        server: the API server, to look at.
        client: of a user, with the field manager ``user``. Its writes are part of the story.
        outside: the world outside Kubernetes.
    """

    def __init__(self, run: Run[W]) -> None:
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

    async def until(self, what: str, probe: Callable[[], object], seconds: float = 3600.0) -> None:
        """Waits until ``probe`` gives something true.

        Raises:
            AssertionError: not within ``seconds`` of virtual time; names ``what``.
        """
        deadline = self.now() + seconds
        while not probe():
            if self.now() >= deadline:
                raise AssertionError(f"not within {seconds:g} s: {what}")
            await asyncio.sleep(_LOOK_EVERY)

    async def settle(self) -> None:
        """Waits until nothing more happens, and keeps the state for comparison with the run without faults.

        That is so when for 30 virtual seconds, and until every object that waits for a retry or a timer has had it
        (15 minutes at most), nothing has changed but Leases and Events. A watch that a fault holds back, or a process
        that it keeps away, is not waited for.

        Raises:
            AssertionError: something changes for ever.
        """
        await self.quiet()
        self._run.look()

    async def rest(self) -> None:
        """As ``settle``, once every fault is over."""
        await self._wait(lambda: bool(self._run.in_force))
        self._run.look()

    async def quiet(self) -> None:
        """As ``settle``, and keeps nothing."""
        await self._wait(lambda: self._run.blocked)

    async def _wait(self, disturbed: Callable[[], bool]) -> None:
        begun = since = self.now()
        seen, due = -1, since
        while self.now() - begun < _LIMIT:
            changes = self._run.changes()
            if changes != seen or disturbed():
                seen, since, due = changes, self.now(), 0.0
            if self.now() - since <= _DAWN:
                due = max(due, self._last_due())
            # Who looks around every ten seconds may do so just now, and disturbs nobody as long as nothing changes.
            if self.now() >= max(since + _QUIET, min(due, since + _LONGEST_QUIET)) and not self._busy():
                return
            await asyncio.sleep(_LOOK_EVERY)
        raise AssertionError(f"the world does not come to rest within {_LIMIT / 3600:g} h")

    def _busy(self) -> bool:
        return any(len(controller.queue) or controller.running() for controller in self._working())

    def _working(self) -> list[Controller]:
        """Those of the replica that leads."""
        return [c for manager in self._run.managers() for c in manager.controllers if c.started]

    def _last_due(self) -> float:
        """When the last of the objects that wait for a retry or a timer will have had it."""
        return max((item.since for c in self._working() for item in c.queue.delayed()), default=0.0) + _LOOK_EVERY


async def play(run: Run[W]) -> None:
    """Plays the whole scenario: the operator starts, the users act, all comes to rest, the operator starts again."""
    world = run.world = World(run)
    # By names: asyncio would number them on through the whole process, and no story would repeat.
    collecting = asyncio.create_task(_collect_garbage(run), name="garbage collector")
    actors = [collecting, *(asyncio.create_task(_take_part(run, a), name=_name(a)) for a in run.setting.actors)]
    breaking = asyncio.create_task(run.broken(), name="violations")
    acting = asyncio.create_task(_act(run, world), name="scenario")
    try:
        await asyncio.wait([acting, breaking, *actors], return_when=asyncio.FIRST_COMPLETED)
        while not (acting.done() or breaking.done()):
            # An actor may be done before the scenario is.
            left = [actor for actor in actors if not actor.done()]
            await asyncio.wait([acting, breaking, *left], return_when=asyncio.FIRST_COMPLETED)
    finally:
        run.end()
        for task in (acting, breaking, *actors):
            task.cancel()
        await asyncio.gather(acting, breaking, *actors, return_exceptions=True)


async def _take_part(run: Run[W], actor: Callable[[World[W]], Awaitable[None]]) -> None:
    """An actor that fails leaves a world in which the operator cannot be judged."""
    try:
        await actor(run.world)
    except Exception as error:
        run.violate(f"the actor {_name(actor)} fails: {type(error).__name__}: {error}")


def _name(actor: object) -> str:
    return getattr(actor, "__name__", type(actor).__name__)


async def _collect_garbage(run: Run[Any]) -> None:
    """As the controller manager does, which takes its time: what was made for an owner that is gone goes as well."""
    try:
        while True:
            await asyncio.sleep(_GARBAGE_EVERY)
            before = run.server.resource_version
            await run.server.garbage_collected()
            if run.server.resource_version != before:
                run.changed()
    except Exception as error:
        run.violate(f"the garbage collector fails: {type(error).__name__}: {error}")


async def _act(run: Run[W], world: World[W]) -> None:
    try:
        run.start_process()
        await world.quiet()
        await run.setting.scenario(world)
        await world.rest()
        run.restarted_at = len(run.journal.entries)
        run.restart()
        await world.rest()
    except AssertionError as error:
        run.violate(str(error) or "the scenario's assertion fails")
    except Exception as error:
        run.violate(f"the scenario fails: {type(error).__name__}: {error}")
