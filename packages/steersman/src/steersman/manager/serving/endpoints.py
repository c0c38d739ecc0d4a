"""The probe, metrics and debug endpoints of a manager."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from steersman.client import Client
from steersman.errors import ConfigurationError
from steersman.manager.options import ManagerOptions
from steersman.manager.serving.cert_watcher import CertWatcher
from steersman.manager.serving.healthz import HealthCheck, check_response, checks_handler
from steersman.manager.serving.http_server import (
    HttpHandler,
    HttpServer,
    ServerRequest,
    ServerResponse,
    is_loopback,
    parse_bind_address,
)
from steersman.observability import metrics
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime

if TYPE_CHECKING:
    from steersman.manager.serving.token_authorizer import TokenAuthorizer

log = get_logger("manager")


class ProbeServer:
    """Serves health checks and metrics over HTTP or HTTPS.

    Args:
        bind: ``host:port``. An empty host means all addresses, port 0 a free port.
        health: checks by name for ``/healthz``. The kubelet restarts a pod whose liveness probe fails. A single check
            is served at ``/healthz/<name>``. Checks can be added later.
        ready: checks by name for ``/readyz``, in the same way.
        information: functions by name whose text ``/readyz`` adds to its checks.
        metrics: registry served at ``/metrics``.
        handlers: further handlers by path.
        fallback: handler of all other paths. Defaults to 404 Not Found.
        certificate: serves HTTPS with this certificate.
        authorizer: authenticates and authorizes each request.
        option: command-line option that sets ``bind``.

    Raises:
        ConfigurationError: ``bind`` does not have the form ``host:port``.
    """

    def __init__(
        self,
        bind: str,
        *,
        health: Mapping[str, HealthCheck] | None = None,
        ready: Mapping[str, HealthCheck] | None = None,
        information: Mapping[str, Callable[[], str]] | None = None,
        metrics: CollectorRegistry | None = None,
        handlers: Mapping[str, HttpHandler] | None = None,
        fallback: HttpHandler | None = None,
        certificate: CertWatcher | None = None,
        authorizer: TokenAuthorizer | None = None,
        option: str = "",
    ) -> None:
        host, port = parse_bind_address(bind, subject="bind address", example=":8081")
        self._authorizer = authorizer
        self._fallback = fallback or _not_found
        self._handlers: dict[str, HttpHandler] = dict(handlers or {})
        self._checks: dict[str, Mapping[str, HealthCheck]] = {}
        for path, checks, info in (("/healthz", health, None), ("/readyz", ready, information)):
            if checks is not None:
                self._handlers[path] = checks_handler(checks, info or {})
                self._checks[path] = checks
        if metrics is not None:
            self._handlers["/metrics"] = _metrics_handler(metrics)
        self._server = HttpServer(
            host,
            port,
            self._handle,
            None if certificate is None else certificate.ssl_context,
            # Before the handshake, since clients may already reject the previous certificate.
            on_accept=None if certificate is None else certificate.reload_if_changed,
            option=option,
        )

    @property
    def port(self) -> int:
        """The port in use, after ``start``."""
        return self._server.port

    async def start(self) -> None:
        """Listen.

        Raises:
            ConfigurationError: the address is in use or does not belong to this host.
        """
        await self._server.start()
        log.info("listening", port=self.port, paths=sorted(self._handlers))

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        await self._server.stop()

    async def _handle(self, request: ServerRequest) -> ServerResponse:
        if (rejection := await self._authorize(request)) is not None:
            return rejection
        if (handler := self._handlers.get(request.path)) is not None:
            return await handler(request)
        prefix, _, name = request.path.rpartition("/")
        check = self._checks.get(prefix, {}).get(name)
        return await self._fallback(request) if check is None else await check_response(check)

    async def _authorize(self, request: ServerRequest) -> ServerResponse | None:
        if self._authorizer is None:
            return None
        result = await self._authorizer.authorize(request.headers.get("authorization", ""), request.path)
        if result.status == 200:
            return None
        challenge = {"WWW-Authenticate": "Bearer"} if result.status == 401 else {}
        return ServerResponse(f"{result.reason}\n", result.status, headers=challenge)


class ManagerEndpoints:
    """The servers of a manager, one for each bind address.

    Attributes:
        health_checks: checks of ``/healthz`` by name.
        readiness_checks: checks of ``/readyz`` by name.
        readiness_info: functions by name whose text ``/readyz`` adds to its checks.
        metrics_handlers: handlers by path, served next to ``/metrics``.
        debug_handler: handler of the debug endpoint.
    """

    def __init__(self, options: ManagerOptions, client: Client, runtime: Runtime) -> None:
        self._options = options
        self._client = client
        self._runtime = runtime
        self._servers: list[ProbeServer] = []
        self.health_checks: dict[str, HealthCheck] = {"ping": lambda: None}
        self.readiness_checks: dict[str, HealthCheck] = {}
        self.readiness_info: dict[str, Callable[[], str]] = {}
        self.metrics_handlers: dict[str, HttpHandler] = {}
        self.debug_handler: HttpHandler = _not_found

    async def start(self) -> None:
        """Start a server for each bind address of the options. Raises ConfigurationError."""
        if _is_enabled(bind := self._options.health_probe_bind_address):
            await self._serve(
                bind,
                option="--health-probe-bind-address",
                health=self.health_checks,
                ready=self.readiness_checks,
                information=self.readiness_info,
            )
        if _is_enabled(bind := self._options.metrics_bind_address):
            security = self._metrics_security() if self._options.metrics_secure else {}
            handlers, option = self.metrics_handlers, "--metrics-bind-address"
            await self._serve(bind, option=option, metrics=metrics.registry, handlers=handlers, **security)
        if _is_enabled(bind := self._options.debug_bind_address):
            security = self._debug_security(bind)
            await self._serve(bind, option="--debug-bind-address", fallback=self.debug_handler, **security)

    async def stop(self) -> None:
        """Stop all servers."""
        for server in self._servers:
            await server.stop()

    async def _serve(self, bind: str, **arguments: Any) -> None:
        server = ProbeServer(bind, **arguments)
        await server.start()
        self._servers.append(server)

    def _debug_security(self, bind: str) -> dict[str, Any]:
        host = bind.rpartition(":")[0]
        if is_loopback(host):
            return {}
        if not self._options.metrics_secure:
            raise ConfigurationError(
                f"debug bind address {bind!r} is not a loopback address, and the debug endpoint shows the names of "
                "all objects: use 127.0.0.1 with kubectl port-forward, or enable authentication with --metrics-secure"
            )
        return self._metrics_security()

    def _metrics_security(self) -> dict[str, Any]:
        from steersman.manager.serving.token_authorizer import TokenAuthorizer

        return {
            "certificate": CertWatcher(self._options.metrics_cert_path),
            "authorizer": TokenAuthorizer(self._client, self._runtime),
        }


def _metrics_handler(registry: CollectorRegistry) -> HttpHandler:
    async def handle(_: ServerRequest) -> ServerResponse:
        return ServerResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)

    return handle


async def _not_found(_: ServerRequest) -> ServerResponse:
    return ServerResponse("not found\n", 404)


def _is_enabled(bind: str) -> bool:
    return bind not in ("", "0")
