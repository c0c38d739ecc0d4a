"""One run of a scenario under one plan: the processes of the operator, the faults, and what is seen of it all."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct, field, to_builtins

from steersman.client import Client
from steersman.client.transport import HttpRequest
from steersman.manager import LeaderElection, Manager, ManagerOptions
from steersman.meta import ApiResource, Object
from steersman_testing.apiserver import InMemoryApiServer
from steersman_testing.generated_names import ever_generated
from steersman_testing.simulation import state
from steersman_testing.simulation.faults import Fault, Plan
from steersman_testing.simulation.journal import Actor, Entry, Journal, Sort, digest_of
from steersman_testing.simulation.process import Process
from steersman_testing.simulation.requests import ELECTION, PASSING, object_path
from steersman_testing.simulation.state import Adjust, State
from steersman_testing.simulation.user import UserTransport
from steersman_testing.virtual_clock import MOST_TURNS, virtual_runtime

W = TypeVar("W")

RESTART_SECONDS = 1.0
# Faults that last longer do not keep the scenario from going on: what happens meanwhile is missed.
_LONG = 30.0
_CRASHES = 20


class Setting(Struct, Generic[W], frozen=True):
    """What is simulated; the same for every run.

    Attributes:
        setup: gives a manager its controllers, and the outside world, if there is one.
        scenario: what users do.
        outside: makes the world outside Kubernetes, anew for each run.
        kinds: custom kinds that the API server serves.
        manifests: objects that are there before the operator starts.
        actors: what runs beside the operator, such as a stand-in for the kubelet.
        invariants: what must hold after every change; each raises AssertionError.
        options: the manager's; the same in every process.
        observe: gives the state of the outside world, in mappings, sequences and plain values, for comparison.
        adjust: takes out of an object what may differ between runs.
        seed: of all random numbers.
        most_turns: see ``run_virtual``.
    """

    setup: Callable[[Manager, W], None]
    scenario: Callable[[Any], Awaitable[None]]
    outside: Callable[[], W]
    kinds: tuple[ApiResource | type[Object], ...] = ()
    manifests: tuple[Any, ...] = ()
    actors: tuple[Callable[[Any], Awaitable[None]], ...] = ()
    invariants: tuple[Callable[[Any], None], ...] = ()
    options: ManagerOptions = field(default_factory=ManagerOptions)
    observe: Callable[[W], Any] | None = None
    adjust: Adjust | None = None
    seed: int = 0
    most_turns: int | None = MOST_TURNS


class Run(Generic[W]):
    """The simulated world while it runs.

    Attributes:
        sights: the states seen when all was quiet, in order; None where a fault was still in force.
        looks: the versions of the server at which they were seen.
        violations: what an invariant or the scenario found.
        in_force: the faults that are not over yet.
        struck: the faults that were done.
        restarted_at: how many entries the journal had when all was done and the operator was started once more.
    """

    def __init__(self, setting: Setting[W], plan: Plan, clock: Any, most_requests: int) -> None:
        self.setting = setting
        self.plan = plan
        self.clock = clock
        self.server = InMemoryApiServer(virtual_runtime(setting.seed))
        self.server.register(*setting.kinds)
        self.server.load(*setting.manifests)
        self.outside = setting.outside()
        self.client = Client(UserTransport(self, "user"), field_manager="user")
        self.journal = Journal()
        self.processes: list[Process] = []
        self.sights: list[State | None] = []
        self.looks: list[int] = []
        self.violations: list[str] = []
        self.restarted_at = 0
        self.in_force: list[Fault] = []
        self.struck: list[Fault] = []
        self.world: Any = None
        self._most_requests = most_requests
        self._requests: Counter[str] = Counter()
        self._late: list[asyncio.Future[None]] = []
        self._events: Counter[str] = Counter()
        self._calls = 0
        self._started = 0
        self._crashes = 0
        self._held: dict[str, asyncio.Event] = {}
        self._lost: set[str] = set()
        self._broken = asyncio.Event()
        self._by_call = {fault.at: fault for fault in plan.faults if not fault.resource}
        self._by_event = {(fault.resource, fault.at): fault for fault in plan.faults if fault.resource}

    # Processes

    def start_process(self) -> None:
        """Starts the operator, as its Deployment would."""
        self._started += 1
        process = Process(self, self.setting.seed + self._started, self.clock)
        # What a process remembers beyond its end is nothing: the manager and all that setup makes are new.
        manager = Manager(process, self._options(), process.runtime)
        self.setting.setup(manager, self.outside)
        self.processes.append(process)
        process.start(manager, self._ended)

    def _options(self) -> ManagerOptions:
        election = LeaderElection(name=ELECTION, namespace="default", identity=f"process-{self._started}")
        return dataclasses.replace(
            self.setting.options,
            instance=f"{self.setting.options.instance}-{self._started}",
            leader_election=election if self.plan.takes_the_lease else None,
            graceful_shutdown_timeout=0.0,
        )

    def restart(self) -> None:
        """Ends every process at once and starts one."""
        for process in self.processes:
            process.kill()
        self.processes.clear()
        self.note("world", "the operator is started once more, with nothing to do")
        self.start_process()

    def _ended(self, process: Process, error: BaseException | None) -> None:
        self.processes.remove(process)
        self.note("world", f"the operator's process ended: {type(error).__name__}: {error}")
        self._crashes += 1
        if self._crashes > _CRASHES:
            self.violate(f"the operator's process ends by itself again and again: {error}")
            return
        self._restart_after(RESTART_SECONDS)

    def killed(self, process: Process, fault: Fault) -> None:
        """See ``Surroundings``."""
        self.note("fault", fault.describe())
        self.processes.remove(process)
        self._restart_after(fault.seconds or RESTART_SECONDS, fault)

    def _restart_after(self, seconds: float, fault: Fault | None = None) -> None:
        window = fault or Fault("down", 0, seconds=seconds)
        self.in_force.append(window)

        def start() -> None:
            self.in_force.remove(window)
            self.note("world", "the operator is started anew")
            self.start_process()

        asyncio.get_running_loop().call_later(seconds, start)

    def lease_taken(self, process: Process) -> None:
        """See ``Surroundings``."""
        self.note("fault", "another replica waits for the lease, which this one cannot renew any more")
        process.renews = False
        self.start_process()

    def delay(self, fault: Fault, arrive: Callable[[], Awaitable[object]]) -> None:
        """See ``Surroundings``."""
        self.in_force.append(fault)

        async def late() -> None:
            try:
                await asyncio.sleep(fault.seconds)
                self.note("fault", f"call {fault.at} arrives")
                await arrive()
            except Exception as error:
                self.violate(f"call {fault.at}, which was on its way, fails: {type(error).__name__}: {error}")
            finally:
                self.in_force.remove(fault)

        self._late.append(asyncio.create_task(late(), name=f"call {fault.at} on its way"))

    # Calls and events

    def ask(self, text: str) -> None:
        """See ``Surroundings``."""
        self._requests[" ".join(text.split()[:2])] += 1
        if self.requests == self._most_requests:
            ((most, times),) = self._requests.most_common(1)
            self.violate(f"more than {self._most_requests} requests, {times} of them: {most}")

    @property
    def requests(self) -> int:
        """How many requests and effects there were, but for those of leader election."""
        return self._requests.total()

    def strike(self, fault: Fault) -> None:
        """See ``Surroundings``."""
        self.struck.append(fault)

    def begin(self, text: str, sort: Sort, body: bytes | None) -> tuple[Entry, Fault | None]:
        """See ``Surroundings``."""
        self._calls += 1
        self.ask(text)
        entry = Entry(self.clock.monotonic(), "operator", text, "", self._calls, digest_of(body), sort)
        return self.journal.add(entry), self._by_call.get(self._calls)

    def event(self, resource: str) -> Fault | None:
        """See ``Surroundings``."""
        self._events[resource] += 1
        fault = self._by_event.get((resource, self._events[resource]))
        if fault is None:
            return None
        self.strike(fault)
        if fault.kind in ("hold", "miss"):
            self._hold_back(fault)
        elif fault.kind == "break":
            self.note("fault", fault.describe())
        return fault

    @property
    def events(self) -> dict[str, int]:
        """How many events each watch gave."""
        return dict(self._events)

    def _hold_back(self, fault: Fault) -> None:
        """Old views do not end with a connection: another watch of the same server is as old."""
        self.note("fault", fault.describe())
        self.in_force.append(fault)
        opened = self._held[fault.resource] = asyncio.Event()

        def go_on() -> None:
            self.in_force.remove(fault)
            self._held.pop(fault.resource, None)
            if fault.kind == "miss":
                self._lost.add(fault.resource)
            self.note("world", f"the watch of {fault.resource} goes on")
            opened.set()

        asyncio.get_running_loop().call_later(fault.seconds, go_on)

    async def passes(self, resource: str) -> bool:
        """See ``Surroundings``."""
        while (opened := self._held.get(resource)) is not None:
            await opened.wait()
        lost = resource in self._lost
        self._lost.discard(resource)
        return not lost

    def touch(self, request: HttpRequest) -> bool:
        """See ``Surroundings``: an annotation, which nobody's work depends on, but which makes a new version."""
        path = object_path(request)
        body = b'{"metadata":{"annotations":{"%s":"%d"}}}' % (state.TOUCHED.encode(), self._calls)
        patch = HttpRequest(method="PATCH", path=path, body=body, content_type="application/merge-patch+json")
        status = self.server.answer(patch).status
        done = status < 400
        self.note("fault" if done else "world", f"another actor writes the same object: {status}")
        return done

    # What is seen

    def note(self, actor: Actor, text: str, outcome: str = "") -> Entry:
        """Keeps what happened beside the operator's calls."""
        return self.journal.add(Entry(self.clock.monotonic(), actor, text, outcome))

    def changed(self) -> None:
        """See ``Surroundings``."""
        for invariant in self.setting.invariants:
            try:
                invariant(self.world)
            except AssertionError as error:
                name = getattr(invariant, "__name__", repr(invariant))
                self.violate(f"{name} does not hold: {error}".rstrip(": "))
            except Exception as error:
                name = getattr(invariant, "__name__", repr(invariant))
                self.violate(f"the invariant {name} fails: {type(error).__name__}: {error}")

    def violate(self, text: str) -> None:
        """Ends the run: ``text`` says what must not be."""
        self.note("world", f"✗ {text}")
        self.violations.append(text)
        self._broken.set()

    async def broken(self) -> None:
        """Returns at the first violation."""
        await self._broken.wait()

    def changes(self) -> int:
        """How often something has changed but Leases and Events."""
        return self.server.changes(exclude=PASSING)

    @property
    def blocked(self) -> bool:
        """Whether a fault is in force that will be over in a moment."""
        return any(fault.seconds <= _LONG for fault in self.in_force)

    def look(self) -> None:
        """Keeps the state that all has come to; for comparison only where no fault is in force."""
        self.note("world", "all is quiet")
        self.sights.append(None if self.in_force else self.state())
        self.looks.append(self.server.resource_version)

    def state(self) -> State:
        """What is comparable of the state as it is now."""
        generated = ever_generated(self.server.history())
        seen = state.snapshot(self.server.manifests(), self.setting.adjust, generated)
        if self.setting.observe is None:
            return seen
        return {**seen, "the outside": to_builtins(self.setting.observe(self.outside))}

    def end(self) -> None:
        """Ends all processes, and what is still on its way."""
        for process in self.processes:
            process.kill()
        for late in self._late:
            late.cancel()

    def managers(self) -> Sequence[Manager]:
        """Those that run."""
        return [process.manager for process in self.processes if process.manager is not None]
