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
from steersman_testing.generated_names import generated_prefixes_in_history
from steersman_testing.simulation import state
from steersman_testing.simulation.actor_transport import ActorTransport
from steersman_testing.simulation.faults import Fault, FaultPlan
from steersman_testing.simulation.process import SimulatedProcess
from steersman_testing.simulation.request_info import ELECTION_LEASE_NAME, IGNORED_RESOURCES, object_path
from steersman_testing.simulation.state import AdjustFunction, StateSnapshot
from steersman_testing.simulation.trace import Actor, CallKind, Trace, TraceEntry, short_digest
from steersman_testing.virtual_clock import MAX_LOOP_ITERATIONS, virtual_runtime

W = TypeVar("W")

RESTART_DELAY_SECONDS = 1.0
# Faults that last longer do not keep the scenario from going on: what happens meanwhile is missed.
_LONG_FAULT_SECONDS = 30.0
_MAX_CRASHES = 20


class SimulationConfig(Struct, Generic[W], frozen=True):
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
        max_loop_iterations: see ``run_virtual``.
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
    adjust: AdjustFunction | None = None
    seed: int = 0
    max_loop_iterations: int | None = MAX_LOOP_ITERATIONS


class SimulationRun(Generic[W]):
    """The simulated world while it runs.

    Attributes:
        sights: the states seen when all was quiet, in order; None where a fault was still in force.
        looks: the versions of the server at which they were seen.
        violations: what an invariant or the scenario found.
        in_force: the faults that are not over yet.
        struck: the faults that were done.
        restarted_at: how many entries the journal had when all was done and the operator was started once more.
    """

    def __init__(self, config: SimulationConfig[W], plan: FaultPlan, clock: Any, max_requests: int) -> None:
        self.config = config
        self.plan = plan
        self.clock = clock
        self.server = InMemoryApiServer(virtual_runtime(config.seed))
        self.server.register(*config.kinds)
        self.server.load(*config.manifests)
        self.outside = config.outside()
        self.client = Client(ActorTransport(self, "user"), field_manager="user")
        self.trace = Trace()
        self.processes: list[SimulatedProcess] = []
        self.snapshots: list[StateSnapshot | None] = []
        self.snapshot_versions: list[int] = []
        self.violations: list[str] = []
        self.idle_restart_index = 0
        self.active_faults: list[Fault] = []
        self.injected: list[Fault] = []
        self.world: Any = None
        self._max_requests = max_requests
        self._request_counts: Counter[str] = Counter()
        self._delayed_writes: list[asyncio.Future[None]] = []
        self._event_counts: Counter[str] = Counter()
        self._call_count = 0
        self._process_count = 0
        self._crash_count = 0
        self._delayed_watches: dict[str, asyncio.Event] = {}
        self._relisting_watches: set[str] = set()
        self._violated = asyncio.Event()
        self._faults_by_call = {fault.at: fault for fault in plan.faults if not fault.resource}
        self._faults_by_event = {(fault.resource, fault.at): fault for fault in plan.faults if fault.resource}

    # Processes

    def start_process(self) -> None:
        """Starts the operator, as its Deployment would."""
        self._process_count += 1
        process = SimulatedProcess(self, self.config.seed + self._process_count, self.clock)
        # What a process remembers beyond its end is nothing: the manager and all that setup makes are new.
        manager = Manager(process, self._options(), process.runtime)
        self.config.setup(manager, self.outside)
        self.processes.append(process)
        process.start(manager, self._on_process_exit)

    def _options(self) -> ManagerOptions:
        election = LeaderElection(
            name=ELECTION_LEASE_NAME, namespace="default", identity=f"process-{self._process_count}"
        )
        return dataclasses.replace(
            self.config.options,
            instance=f"{self.config.options.instance}-{self._process_count}",
            leader_election=election if self.plan.needs_leader_election else None,
            graceful_shutdown_timeout=0.0,
        )

    def restart(self) -> None:
        """Ends every process at once and starts one."""
        for process in self.processes:
            process.kill()
        self.processes.clear()
        self.record("world", "the operator is started once more, with nothing to do")
        self.start_process()

    def _on_process_exit(self, process: SimulatedProcess, error: BaseException | None) -> None:
        self.processes.remove(process)
        self.record("world", f"the operator's process ended: {type(error).__name__}: {error}")
        self._crash_count += 1
        if self._crash_count > _MAX_CRASHES:
            self.record_violation(f"the operator's process ends by itself again and again: {error}")
            return
        self._restart_after(RESTART_DELAY_SECONDS)

    def on_process_killed(self, process: SimulatedProcess, fault: Fault) -> None:
        """See ``Surroundings``."""
        self.record("fault", fault.describe())
        self.processes.remove(process)
        self._restart_after(fault.seconds or RESTART_DELAY_SECONDS, fault)

    def _restart_after(self, seconds: float, fault: Fault | None = None) -> None:
        outage = fault or Fault("crash-on-event", 0, seconds=seconds)
        self.active_faults.append(outage)

        def start() -> None:
            self.active_faults.remove(outage)
            self.record("world", "the operator is started anew")
            self.start_process()

        asyncio.get_running_loop().call_later(seconds, start)

    def on_lease_taken(self, process: SimulatedProcess) -> None:
        """See ``Surroundings``."""
        self.record("fault", "another replica waits for the lease, which this one cannot renew any more")
        process.renews_lease = False
        self.start_process()

    def delay_write(self, fault: Fault, deliver: Callable[[], Awaitable[object]]) -> None:
        """See ``Surroundings``."""
        self.active_faults.append(fault)

        async def deliver_late() -> None:
            try:
                await asyncio.sleep(fault.seconds)
                self.record("fault", f"call {fault.at} arrives")
                await deliver()
            except Exception as error:
                self.record_violation(
                    f"call {fault.at}, which was on its way, fails: {type(error).__name__}: {error}"
                )
            finally:
                self.active_faults.remove(fault)

        self._delayed_writes.append(asyncio.create_task(deliver_late(), name=f"call {fault.at} on its way"))

    # Calls and events

    def count_request(self, text: str) -> None:
        """See ``Surroundings``."""
        self._request_counts[" ".join(text.split()[:2])] += 1
        if self.request_count == self._max_requests:
            ((busiest, times),) = self._request_counts.most_common(1)
            self.record_violation(f"more than {self._max_requests} requests, {times} of them: {busiest}")

    @property
    def request_count(self) -> int:
        """How many requests and effects there were, but for those of leader election."""
        return self._request_counts.total()

    def record_injected(self, fault: Fault) -> None:
        """See ``Surroundings``."""
        self.injected.append(fault)

    def begin_call(self, text: str, call_kind: CallKind, body: bytes | None) -> tuple[TraceEntry, Fault | None]:
        """See ``Surroundings``."""
        self._call_count += 1
        self.count_request(text)
        entry = TraceEntry(
            self.clock.monotonic(), "operator", text, "", self._call_count, short_digest(body), call_kind
        )
        return self.trace.add(entry), self._faults_by_call.get(self._call_count)

    def begin_event(self, resource: str) -> Fault | None:
        """See ``Surroundings``."""
        self._event_counts[resource] += 1
        fault = self._faults_by_event.get((resource, self._event_counts[resource]))
        if fault is None:
            return None
        self.record_injected(fault)
        if fault.kind in ("delay-watch", "relist"):
            self._delay_watch(fault)
        elif fault.kind == "disconnect":
            self.record("fault", fault.describe())
        return fault

    @property
    def event_counts(self) -> dict[str, int]:
        """How many events each watch gave."""
        return dict(self._event_counts)

    def _delay_watch(self, fault: Fault) -> None:
        """Old views do not end with a connection: another watch of the same server is as old."""
        self.record("fault", fault.describe())
        self.active_faults.append(fault)
        released = self._delayed_watches[fault.resource] = asyncio.Event()

        def release() -> None:
            self.active_faults.remove(fault)
            self._delayed_watches.pop(fault.resource, None)
            if fault.kind == "relist":
                self._relisting_watches.add(fault.resource)
            self.record("world", f"the watch of {fault.resource} goes on")
            released.set()

        asyncio.get_running_loop().call_later(fault.seconds, release)

    async def wait_for_watch(self, resource: str) -> bool:
        """See ``Surroundings``."""
        while (released := self._delayed_watches.get(resource)) is not None:
            await released.wait()
        must_relist = resource in self._relisting_watches
        self._relisting_watches.discard(resource)
        return not must_relist

    def write_concurrently(self, request: HttpRequest) -> bool:
        """See ``Surroundings``: an annotation, which nobody's work depends on, but which makes a new version."""
        path = object_path(request)
        body = b'{"metadata":{"annotations":{"%s":"%d"}}}' % (
            state.CONCURRENT_WRITE_ANNOTATION.encode(),
            self._call_count,
        )
        patch = HttpRequest(method="PATCH", path=path, body=body, content_type="application/merge-patch+json")
        status = self.server.handle(patch).status
        succeeded = status < 400
        self.record("fault" if succeeded else "world", f"another actor writes the same object: {status}")
        return succeeded

    # What is seen

    def record(self, actor: Actor, text: str, outcome: str = "") -> TraceEntry:
        """Keeps what happened beside the operator's calls."""
        return self.trace.add(TraceEntry(self.clock.monotonic(), actor, text, outcome))

    def check_invariants(self) -> None:
        """See ``Surroundings``."""
        for invariant in self.config.invariants:
            try:
                invariant(self.world)
            except AssertionError as error:
                name = getattr(invariant, "__name__", repr(invariant))
                self.record_violation(f"{name} does not hold: {error}".rstrip(": "))
            except Exception as error:
                name = getattr(invariant, "__name__", repr(invariant))
                self.record_violation(f"the invariant {name} fails: {type(error).__name__}: {error}")

    def record_violation(self, text: str) -> None:
        """Ends the run: ``text`` says what must not be."""
        self.record("world", f"✗ {text}")
        self.violations.append(text)
        self._violated.set()

    async def wait_for_violation(self) -> None:
        """Returns at the first violation."""
        await self._violated.wait()

    def change_count(self) -> int:
        """How often something has changed but Leases and Events."""
        return self.server.change_count(exclude=IGNORED_RESOURCES)

    @property
    def has_short_fault(self) -> bool:
        """Whether a fault is in force that will be over in a moment."""
        return any(fault.seconds <= _LONG_FAULT_SECONDS for fault in self.active_faults)

    def take_snapshot(self) -> None:
        """Keeps the state that all has come to; for comparison only where no fault is in force."""
        self.record("world", "all is quiet")
        self.snapshots.append(None if self.active_faults else self.comparable_state())
        self.snapshot_versions.append(self.server.resource_version)

    def comparable_state(self) -> StateSnapshot:
        """What is comparable of the state as it is now."""
        generated = generated_prefixes_in_history(self.server.history())
        snapshot = state.snapshot(self.server.manifests(), self.config.adjust, generated)
        if self.config.observe is None:
            return snapshot
        return {**snapshot, "the outside": to_builtins(self.config.observe(self.outside))}

    def stop(self) -> None:
        """Ends all processes, and what is still on its way."""
        for process in self.processes:
            process.kill()
        for delayed in self._delayed_writes:
            delayed.cancel()

    def running_managers(self) -> Sequence[Manager]:
        """Those that run."""
        return [process.manager for process in self.processes if process.manager is not None]
