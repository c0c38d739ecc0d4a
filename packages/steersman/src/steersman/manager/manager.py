"""The manager: start, leader election and graceful shutdown of an operator."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from steersman.cache import Cache, CachedClient
from steersman.client import Client, Transport
from steersman.client.write_log import WriteLog
from steersman.controller import Builder, Controller, ControllerSpec, EventRecorder, Permission, ReconcilerContext
from steersman.controller.controller import TraceSpan
from steersman.controller.reconcile_info import report_dependents
from steersman.dependents import Dependents
from steersman.errors import ConfigurationError, SteersmanError
from steersman.manager.completion import complete, finish_within
from steersman.manager.leader_election.fence import FencedTransport
from steersman.manager.leader_election.runner import ElectionRunner, new_election_runner
from steersman.manager.options import ManagerOptions
from steersman.manager.permissions import metrics_permissions
from steersman.manager.rlimit import raise_nofile_limit
from steersman.manager.runnables import RunnableFunc, Runnables
from steersman.manager.serving.endpoints import ManagerEndpoints
from steersman.manager.serving.healthz import HealthCheck
from steersman.manager.serving.http_server import HttpHandler
from steersman.meta import Object
from steersman.observability import metrics
from steersman.observability.gc_tuning import GCTuner
from steersman.observability.heartbeat import Heartbeat, Watchdog
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime, SystemClock
from steersman.observability.supervisor import Supervisor

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from steersman.manager.serving.http_server import ServerRequest as HttpServerRequest
    from steersman.manager.serving.http_server import ServerResponse
    from steersman.manager.serving.webhook_server import WebhookServer
    from steersman.webhook import Conversion, Webhook, WebhookOptions, Webhooks

T = TypeVar("T", bound=Object)

# Short, so that an unreachable API server does not delay the end of the process.
_EVENT_FLUSH_TIMEOUT_SECONDS = 2.0
_LEASE_RELEASE_TIMEOUT_SECONDS = 3.0
_REMAINING_WORK_SECONDS = 1.0
_CATCH_UP_RETRY_SECONDS = 1.0

log = get_logger("manager")


class Manager:
    """Runs controllers, webhooks and runnables over one shared cache.

    With leader election, replicas on standby keep their caches warm. Writes by ``client`` raise LeadershipLost unless
    this process is the leader. Use ``unfenced_client`` for work that all replicas do.

    Example:
        ``manager = Manager(transport); setup(manager); await manager.run()``
    """

    def __init__(
        self, transport: Transport, options: ManagerOptions | None = None, runtime: Runtime | None = None
    ) -> None:
        self.options = options or ManagerOptions()
        self.runtime = runtime or Runtime()
        self._transport = transport
        self._heartbeat = Heartbeat()
        self._trace_span: Callable[[ControllerSpec], TraceSpan] | None = None
        self._election_runner = self._new_election_runner()
        previous = self.options.previous_field_managers
        uncached_client = Client(transport, field_manager=self.options.name, previous_field_managers=previous)
        self.cache = Cache(uncached_client, runtime=self.runtime, namespaces=self.options.namespaces)
        self._traced_transport = self._with_tracing(transport)
        self.unfenced_client = self._cached_client(self._traced_transport)
        self.client = self._fenced_client()
        self._endpoints = ManagerEndpoints(self.options, uncached_client, self.runtime)
        self._runnables = Runnables(self.runtime, self._on_runnable_error)
        self._event_recorders: list[EventRecorder] = []
        self._controllers: list[Controller] = []
        self._permissions: list[Permission] = list(metrics_permissions(self.options))
        self._supervisor = Supervisor(self.runtime)
        self._webhooks: Webhooks | None = None
        self._webhook_server: WebhookServer | None = None
        self._watchdog: Watchdog | None = None
        self._gc_tuner: GCTuner | None = None
        self._stopping = asyncio.Event()
        self._failed = asyncio.Event()
        self._leadership_lost = asyncio.Event()
        self._error: BaseException | None = None
        self._endpoints.readiness_checks |= {"cache": self._check_cache, "running": self._check_running}
        self._endpoints.debug_handler = self._serve_debug
        if self._election_runner is not None:
            self._endpoints.readiness_info["leader-election"] = self._describe_leadership

    def controller(self, kind: type[T]) -> Builder[T]:
        """Build a controller that reconciles ``kind``. Call ``complete`` on the builder to register it."""
        return Builder(
            kind,
            context=self._controller_context,
            informer=self.cache.informer,
            register=self._register_controller,
            trace_span=self._trace_span,
        )

    def webhook(self, kind: type[T], options: WebhookOptions | None = None) -> Webhook[T]:
        """Build an admission webhook for ``kind``, which every replica serves.

        Args:
            kind: type of the objects that the handlers receive.
            options: settings of the webhook configuration.

        Raises:
            ConfigurationError: another webhook of this kind exists, and neither has a name.
        """
        from steersman.webhook import WebhookOptions

        return self.webhooks.webhook(kind, options or WebhookOptions())

    def conversion(self, conversion: Conversion[Any]) -> None:
        """Serve the conversion between versions of a kind. Raises ConfigurationError if the kind has one."""
        self.webhooks.conversion(conversion)

    @property
    def webhooks(self) -> Webhooks:
        """All declared webhooks and conversions."""
        if self._webhooks is None:
            from steersman.webhook import Webhooks

            self._webhooks = Webhooks()
        return self._webhooks

    def add(self, run: RunnableFunc, *, name: str = "", needs_leader_election: bool = True) -> None:
        """Run a coroutine function together with the controllers.

        It starts when the caches have synced and is cancelled at shutdown. It may return earlier. If it raises an
        exception, the manager stops and ``run`` raises it.

        Args:
            name: name in logs. Defaults to the name of the function.
            needs_leader_election: starts it only when this process becomes the leader.
        """
        name = name or getattr(run, "__qualname__", "runnable")
        self._runnables.add(run, name, needs_leader_election=needs_leader_election)

    def needs(self, kind: type[Object], *verbs: str, subresource: str = "", names: tuple[str, ...] = ()) -> None:
        """Declare RBAC permissions of runnables and checks: ``manager.needs(Pod, "list")``. See ``Builder.needs``."""
        self._permissions.append(Permission(kind.api_resource, verbs, subresource, names))

    def add_health_check(self, name: str, check: HealthCheck) -> None:
        """Add a check to ``/healthz``. The kubelet restarts the pod if it keeps failing."""
        self._endpoints.health_checks[name] = check

    def add_ready_check(self, name: str, check: HealthCheck) -> None:
        """Add a check to ``/readyz``. While it fails, the pod receives no traffic and a rollout waits."""
        self._endpoints.readiness_checks[name] = check

    def add_metrics_handler(self, path: str, handler: HttpHandler) -> None:
        """Serve ``path`` on the metrics endpoint, with the same authentication. Call it before ``run``."""
        self._endpoints.metrics_handlers[path] = handler

    @property
    def metrics_registry(self) -> CollectorRegistry:
        """The registry for metrics of the operator: ``Counter(…, registry=manager.metrics_registry)``."""
        return metrics.registry

    @property
    def is_leader(self) -> bool:
        """True if this process is the leader, or leader election is disabled."""
        return self._election_runner is None or self._election_runner.fence.is_leader

    @property
    def controllers(self) -> tuple[Controller, ...]:
        """All completed controllers, in the order of completion."""
        return tuple(self._controllers)

    @property
    def permissions(self) -> tuple[Permission, ...]:
        """All permissions that controllers and webhooks need.

        ``steersman_manifests.rbac`` converts them to a role.
        """
        webhooks = () if self._webhooks is None else self._webhooks.permissions(self.options.webhooks)
        return (*self._permissions, *webhooks)

    async def run(self) -> None:
        """Run until ``stop`` is called.

        Raises:
            CacheNotSynced: the first list of a kind was not complete within ``cache_sync_timeout``.
            ConfigurationError: an endpoint cannot listen on its address.
            LeadershipLost: another replica may be the leader. Connections are closed, and the process must exit.
            Exception: a runnable raised it.
        """
        start_task = self.runtime.spawn(self._start(), "start")
        stop_tasks = [self.runtime.spawn(event.wait(), "end") for event in (self._stopping, self._failed)]
        try:
            # A stop must not wait for the first lists.
            await asyncio.wait((start_task, *stop_tasks), return_when=asyncio.FIRST_COMPLETED)
            if start_task.done():
                start_task.result()
                await asyncio.wait(stop_tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await complete(self.runtime.spawn(self._shut_down(start_task, *stop_tasks), "shutdown"))
        if self._error is not None:
            raise self._error

    async def run_until_signalled(self) -> None:
        """Run until SIGTERM or SIGINT. A second signal terminates the process at once.

        This method also tunes the garbage collector of the process (see ``observability.gc_tuning``) and raises its
        limit of open files. It raises the same exceptions as ``run``.
        """
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._on_signal, signum)
        # The caller leaves signal handling to the manager, so the manager may also change settings of the process.
        raise_nofile_limit()
        self._gc_tuner = GCTuner()
        await self.run()

    def stop(self) -> None:
        """Request a graceful shutdown; ``run`` returns afterwards."""
        self._stopping.set()

    async def stopping(self) -> None:
        """Wait until the manager stops, for whatever reason."""
        tasks = [asyncio.ensure_future(event.wait()) for event in (self._stopping, self._failed)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    async def leadership_lost(self) -> None:
        """Wait until another replica may be the leader."""
        await self._leadership_lost.wait()

    def _on_signal(self, signum: signal.Signals) -> None:
        if self._stopping.is_set():
            # Second signal: terminate by the default action.
            asyncio.get_running_loop().remove_signal_handler(signum)
            signal.raise_signal(signum)
        log.info("received signal, shutting down", signal=signum.name)
        self.stop()

    def _on_runnable_error(self, error: BaseException) -> None:
        self._error = self._error or error
        self._failed.set()

    def _on_leadership_lost(self, error: BaseException) -> None:
        log.error("leader election lost, process exits", reason=str(error))
        self._error = error
        self._leadership_lost.set()
        self._failed.set()

    # Start

    async def _start(self) -> None:
        await self._start_webhooks()
        await self._endpoints.start()
        self._start_heartbeat()
        for recorder in self._event_recorders:
            self._supervisor.start(recorder.run, "event recorder")
        self.cache.start()
        await self.cache.wait_for_sync(self.options.cache_sync_timeout)
        if self._gc_tuner is not None:
            self._gc_tuner.start()
        log.info("cache synced", controllers=[c.name for c in self._controllers])
        self._start_work(needs_leader_election=False)
        if self._election_runner is not None:
            # After the sync: a replica that cannot read its objects must not acquire the Lease.
            self._election_runner.start(self._on_leadership_lost)
            await self._election_runner.elected.wait()
            await self._catch_up()
        self._start_work(needs_leader_election=True)

    async def _start_webhooks(self) -> None:
        # Before the caches: the API server may need the conversion webhook to list objects.
        if not self._webhooks or not self.options.serve_webhooks:
            return
        if self.options.webhooks is None:
            log.warning("webhooks are declared but not served; set ManagerOptions.webhooks")
            return
        from steersman.manager.serving.webhook_server import WebhookServer

        client = Client(self._traced_transport, field_manager=f"{self.options.name}-webhooks")
        server = WebhookServer(self.options.webhooks, self._webhooks, client, self.runtime)
        self._endpoints.readiness_checks["webhooks"] = server.check
        await server.start()
        self._webhook_server = server

    async def _catch_up(self) -> None:
        """Wait until the cache has all writes of the previous leader.

        After ``cache_sync_timeout`` the error is raised, which releases the Lease to another replica.
        """
        deadline = self.runtime.clock.monotonic() + self.options.cache_sync_timeout
        while True:
            try:
                return await self.cache.catch_up()
            except SteersmanError as error:
                if self.runtime.clock.monotonic() >= deadline:
                    raise
                log.warning("cache has not caught up with the previous leader, retrying", error=str(error))
            await self.runtime.clock.sleep(_CATCH_UP_RETRY_SECONDS)

    def _start_heartbeat(self) -> None:
        if not isinstance(self.runtime.clock, SystemClock):
            # Threads do not follow virtual time.
            return
        self._supervisor.start(self._heartbeat.run, "heartbeat")
        if self.options.blocked_loop_limit > 0:
            self._watchdog = Watchdog(self._heartbeat, self.options.blocked_loop_limit)
            self._watchdog.start()

    def _start_work(self, *, needs_leader_election: bool) -> None:
        for controller in self._controllers:
            if controller.needs_leader_election is needs_leader_election:
                controller.start()
        self._runnables.start(needs_leader_election=needs_leader_election)

    # End

    async def _shut_down(self, *run_tasks: asyncio.Task[Any]) -> None:
        """Stop workers, flush Events, release the Lease, then stop caches and endpoints.

        Args:
            run_tasks: tasks of ``run``, which end first.
        """
        self._stopping.set()
        for task in run_tasks:
            task.cancel()
        await asyncio.gather(*run_tasks, return_exceptions=True)
        webhook_task = self.runtime.spawn(self._stop_webhooks(), "webhook shutdown")
        log.info("stopping controllers and runnables", grace_seconds=self.options.graceful_shutdown_timeout)
        await self._stop_work_gracefully()
        if not self._leadership_lost.is_set():
            log.info("flushing Events")
            if not await finish_within(
                asyncio.gather(*(r.flush() for r in self._event_recorders)), _EVENT_FLUSH_TIMEOUT_SECONDS
            ):
                log.warning("Events were dropped at shutdown")
        if self._election_runner is not None:
            await self._wait_for_remaining_work()
            log.info("releasing leader lease")
            await finish_within(self._election_runner.stop(), _LEASE_RELEASE_TIMEOUT_SECONDS)
        log.info("stopping caches and endpoints")
        if self._leadership_lost.is_set():
            # Abort all in-flight requests: the new leader may already be working.
            await self._transport.close()
        # Running webhook requests may read the cache.
        await asyncio.gather(webhook_task, return_exceptions=True)
        await self.cache.stop()
        await self._endpoints.stop()
        await self._supervisor.stop()
        if self._watchdog is not None:
            self._watchdog.stop()
        if self._gc_tuner is not None:
            self._gc_tuner.stop()

    async def _stop_webhooks(self) -> None:
        if self._webhook_server is not None:
            await self._webhook_server.stop()

    async def _stop_work_gracefully(self) -> None:
        stop_task = self.runtime.spawn(self._stop_work(self.options.graceful_shutdown_timeout), "stop work")
        lost_task = self.runtime.spawn(self._leadership_lost.wait(), "leadership lost")
        await asyncio.wait((stop_task, lost_task), return_when=asyncio.FIRST_COMPLETED)
        for task in (stop_task, lost_task):
            task.cancel()
        await asyncio.gather(stop_task, lost_task, return_exceptions=True)
        if self._leadership_lost.is_set():
            # No grace period: the new leader may already do the same work.
            await self._stop_work(0)

    async def _wait_for_remaining_work(self) -> None:
        """Keep the Lease until threads and uncancellable work have ended.

        If they do not end, the failing liveness check requests that the process is killed.
        """
        closed_task = self.runtime.spawn(self._wait_closed(), "remaining work")
        lost_task = self.runtime.spawn(self._leadership_lost.wait(), "leadership lost")
        tasks = (closed_task, lost_task)
        done, _ = await asyncio.wait(tasks, timeout=_REMAINING_WORK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            log.warning("waiting for reconciles and runnables that have not stopped")
            self.add_health_check("threads", lambda: "a reconciler or runnable did not stop within the grace period")
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(closed_task, lost_task, return_exceptions=True)

    async def _wait_closed(self) -> None:
        await asyncio.gather(self._runnables.wait_closed(), *(c.wait_closed() for c in self._controllers))

    async def _stop_work(self, grace: float) -> None:
        await asyncio.gather(self._runnables.stop(grace), *(c.stop(grace) for c in self._controllers))

    # Clients and contexts

    def _new_election_runner(self) -> ElectionRunner | None:
        election = self.options.leader_election
        if election is None:
            return None
        return new_election_runner(self._transport, election, self._heartbeat, self.runtime)

    def _with_tracing(self, transport: Transport) -> Transport:
        """``transport`` with tracing if enabled. Leader election and caches are not traced."""
        if not self.options.tracing:
            return transport
        try:
            from steersman.client.transport.tracing import TracingTransport
            from steersman.controller.tracing import reconcile_tracer
        except ImportError as error:
            raise ConfigurationError(f"tracing needs OpenTelemetry: install steersman[tracing] ({error})") from error
        provider = None if self.options.tracing is True else self.options.tracing
        self._trace_span = partial(reconcile_tracer, provider=provider)
        return TracingTransport(transport, provider)

    def _cached_client(self, transport: Transport) -> CachedClient:
        client = Client(
            transport,
            field_manager=self.options.name,
            observer=self.cache,
            write_log=WriteLog(self.cache.cached_version),
            previous_field_managers=self.options.previous_field_managers,
        )
        return CachedClient(client, self.cache)

    def _fenced_client(self) -> CachedClient:
        """A client whose writes require leadership."""
        runner = self._election_runner
        if runner is None:
            return self.unfenced_client
        return self._cached_client(FencedTransport(self._traced_transport, runner.fence.check))

    def _controller_context(self, spec: ControllerSpec) -> ReconcilerContext:
        source = f"{self.options.name}/{spec.name}"
        client = self._fenced_client() if spec.options.needs_leader_election else self.unfenced_client
        recorder = EventRecorder(client.live, source, self.options.instance, runtime=self.runtime)
        self._event_recorders.append(recorder)
        logger = get_logger(spec.name)
        dependents = Dependents(
            client,
            controller=f"{self.options.name}.{spec.name}",
            owned=spec.owned_kinds,
            prunable=spec.prunable_kinds,
            report=partial(report_dependents, recorder, logger),
        )
        return ReconcilerContext(
            client=client, events=recorder, runtime=self.runtime, log=logger, dependents=dependents
        )

    def _register_controller(self, controller: Controller) -> None:
        if any(known.name == controller.name for known in self._controllers):
            # Metrics, logs and Events use the name to identify the controller.
            raise ConfigurationError(
                f"controller name {controller.name!r} is used twice: set another name with .named(...)"
            )
        self._controllers.append(controller)
        self._permissions.extend(controller.spec.permissions)

    # Checks

    def _check_cache(self) -> str | None:
        return None if self.cache.has_synced else "caches have not synced"

    def _check_running(self) -> str | None:
        return "shutting down" if self._stopping.is_set() or self._failed.is_set() else None

    async def _serve_debug(self, request: HttpServerRequest) -> ServerResponse:
        from steersman.manager.serving.debug import DebugHandler

        return await DebugHandler(self._controllers, self.cache).handle(request)

    def _describe_leadership(self) -> str:
        return "leader" if self.is_leader else "standby"
