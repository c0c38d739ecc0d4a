"""One run of a scenario under one fault plan."""

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
from steersman_testing.simulation.actor_transport import ActorTransport
from steersman_testing.simulation.faults import Fault, FaultPlan
from steersman_testing.simulation.process import SimulatedProcess
from steersman_testing.simulation.request_info import ELECTION_LEASE_NAME, IGNORED_RESOURCES, object_path
from steersman_testing.simulation.state import CONCURRENT_WRITE_ANNOTATION, AdjustFunction, StateSnapshot, snapshot
from steersman_testing.simulation.trace import Actor, CallKind, Trace, TraceEntry, short_digest
from steersman_testing.virtual_clock import MAX_LOOP_ITERATIONS, virtual_runtime

W = TypeVar("W")

RESTART_DELAY_SECONDS = 1.0
# The scenario waits for shorter faults only, so that changes happen during longer ones.
_LONG_FAULT_SECONDS = 30.0
_MAX_CRASHES = 20


class SimulationConfig(Struct, Generic[W], frozen=True):
    """The inputs of a simulation. They are the same for every run; see ``simulate``."""

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
    """State of a run: API server, processes, injected faults, trace and snapshots.

    Attributes:
        snapshots: states after each ``settle``, in order. None if a fault was active.
        snapshot_versions: resourceVersions of the snapshots.
        violations: violated invariants and failures of the scenario.
        active_faults: faults that have not ended.
        injected: faults that were injected.
        idle_restart_index: number of trace entries when the operator was restarted with nothing to do.
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
        """Start an operator process, as the Deployment would."""
        self._process_count += 1
        process = SimulatedProcess(self, self.config.seed + self._process_count, self.clock)
        # A new process has no memory of the previous one: the manager and its controllers are created again.
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
        """Kill all processes and start one."""
        for process in self.processes:
            process.kill()
        self.processes.clear()
        self.record("world", "the operator is restarted with nothing to do")
        self.start_process()

    def _on_process_exit(self, process: SimulatedProcess, error: BaseException | None) -> None:
        self.processes.remove(process)
        self.record("world", f"the operator process exited: {type(error).__name__}: {error}")
        self._crash_count += 1
        if self._crash_count > _MAX_CRASHES:
            self.record_violation(f"the operator process exits repeatedly: {error}")
            return
        self._restart_after(RESTART_DELAY_SECONDS)

    def on_process_killed(self, process: SimulatedProcess, fault: Fault) -> None:
        self.record("fault", fault.describe())
        self.processes.remove(process)
        self._restart_after(fault.seconds or RESTART_DELAY_SECONDS, fault)

    def _restart_after(self, seconds: float, fault: Fault | None = None) -> None:
        outage = fault or Fault("crash-on-event", 0, seconds=seconds)
        self.active_faults.append(outage)

        def start() -> None:
            self.active_faults.remove(outage)
            self.record("world", "the operator is restarted")
            self.start_process()

        asyncio.get_running_loop().call_later(seconds, start)

    def on_lease_taken(self, process: SimulatedProcess) -> None:
        self.record("fault", "another replica acquires the lease, which this one can no longer renew")
        process.renews_lease = False
        self.start_process()

    def delay_write(self, fault: Fault, deliver: Callable[[], Awaitable[object]]) -> None:
        self.active_faults.append(fault)

        async def deliver_late() -> None:
            try:
                await asyncio.sleep(fault.seconds)
                self.record("fault", f"call {fault.at} arrives")
                await deliver()
            except Exception as error:
                self.record_violation(f"delayed call {fault.at} fails: {type(error).__name__}: {error}")
            finally:
                self.active_faults.remove(fault)

        self._delayed_writes.append(asyncio.create_task(deliver_late(), name=f"delayed call {fault.at}"))

    # Calls and events

    def count_request(self, text: str) -> None:
        self._request_counts[" ".join(text.split()[:2])] += 1
        if self.request_count == self._max_requests:
            ((busiest, times),) = self._request_counts.most_common(1)
            self.record_violation(f"more than {self._max_requests} requests, {times} of them: {busiest}")

    @property
    def request_count(self) -> int:
        """Number of requests and effects, without those of leader election."""
        return self._request_counts.total()

    def record_injected(self, fault: Fault) -> None:
        self.injected.append(fault)

    def begin_call(self, text: str, call_kind: CallKind, body: bytes | None) -> tuple[TraceEntry, Fault | None]:
        self._call_count += 1
        self.count_request(text)
        entry = TraceEntry(
            self.clock.monotonic(), "operator", text, "", self._call_count, short_digest(body), call_kind
        )
        return self.trace.add(entry), self._faults_by_call.get(self._call_count)

    def begin_event(self, resource: str) -> Fault | None:
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
        """Number of events per watched resource."""
        return dict(self._event_counts)

    def _delay_watch(self, fault: Fault) -> None:
        """Delay all watches of a resource: a reconnect is equally stale."""
        self.record("fault", fault.describe())
        self.active_faults.append(fault)
        released = self._delayed_watches[fault.resource] = asyncio.Event()

        def release() -> None:
            self.active_faults.remove(fault)
            self._delayed_watches.pop(fault.resource, None)
            if fault.kind == "relist":
                self._relisting_watches.add(fault.resource)
            self.record("world", f"the watch of {fault.resource} continues")
            released.set()

        asyncio.get_running_loop().call_later(fault.seconds, release)

    async def wait_for_watch(self, resource: str) -> bool:
        while (released := self._delayed_watches.get(resource)) is not None:
            await released.wait()
        must_relist = resource in self._relisting_watches
        self._relisting_watches.discard(resource)
        return not must_relist

    def write_concurrently(self, request: HttpRequest) -> bool:
        """Write an annotation, which only changes the resourceVersion."""
        path = object_path(request)
        body = b'{"metadata":{"annotations":{"%s":"%d"}}}' % (
            CONCURRENT_WRITE_ANNOTATION.encode(),
            self._call_count,
        )
        patch = HttpRequest(method="PATCH", path=path, body=body, content_type="application/merge-patch+json")
        status = self.server.handle(patch).status
        succeeded = status < 400
        self.record("fault" if succeeded else "world", f"another client writes the same object: {status}")
        return succeeded

    # Observations

    def record(self, actor: Actor, text: str, outcome: str = "") -> TraceEntry:
        """Add an entry that is not a call of the operator."""
        return self.trace.add(TraceEntry(self.clock.monotonic(), actor, text, outcome))

    def check_invariants(self) -> None:
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
        """Record a violation, which ends the run."""
        self.record("world", f"✗ {text}")
        self.violations.append(text)
        self._violated.set()

    async def wait_for_violation(self) -> None:
        """Wait for the first violation."""
        await self._violated.wait()

    def change_count(self) -> int:
        """Number of changes to the stored objects, without Leases and Events."""
        return self.server.change_count(exclude=IGNORED_RESOURCES)

    @property
    def has_short_fault(self) -> bool:
        """Return True if an active fault ends within 30 seconds."""
        return any(fault.seconds <= _LONG_FAULT_SECONDS for fault in self.active_faults)

    def take_snapshot(self) -> None:
        """Record the current state. It is comparable only if no fault is active."""
        self.record("world", "settled")
        self.snapshots.append(None if self.active_faults else self.comparable_state())
        self.snapshot_versions.append(self.server.resource_version)

    def comparable_state(self) -> StateSnapshot:
        """The current state without the values that differ between runs."""
        generated = generated_prefixes_in_history(self.server.history())
        objects = snapshot(self.server.manifests(), self.config.adjust, generated)
        if self.config.observe is None:
            return objects
        return {**objects, "external system": to_builtins(self.config.observe(self.outside))}

    def stop(self) -> None:
        """Kill all processes and cancel delayed writes."""
        for process in self.processes:
            process.kill()
        for delayed in self._delayed_writes:
            delayed.cancel()

    def running_managers(self) -> Sequence[Manager]:
        """Managers of the running processes."""
        return [process.manager for process in self.processes if process.manager is not None]
