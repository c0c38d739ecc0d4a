"""What the process answers over HTTP: checks, metrics, and what an operator adds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from steersman.client import Client
from steersman.errors import ConfigurationError
from steersman.manager.options import ManagerOptions
from steersman.observability import metrics
from steersman.observability.runtime import Runtime

if TYPE_CHECKING:
    from steersman.manager.http_server import ServerRequest, ServerResponse
    from steersman.manager.probe_server import ProbeServer

HealthCheck = Callable[[], "str | Awaitable[str | None] | None"]
"""Gives None when all is well, or else what is wrong; a coroutine function may take up to five seconds."""

EndpointHandler = Callable[["ServerRequest"], "Awaitable[ServerResponse]"]
"""Answers a request (see ``http_server``)."""


class ManagerEndpoints:
    """The servers of a manager, imported only where an address is given.

    Attributes:
        health: checks of ``/healthz`` by name.
        ready: checks of ``/readyz`` by name.
        information: what ``/readyz`` tells beside its checks.
        handlers: what the metrics endpoint serves beside ``/metrics``, by path.
        debug: answers whatever is asked of the debug endpoint.
    """

    def __init__(self, options: ManagerOptions, client: Client, runtime: Runtime) -> None:
        self._options = options
        self._client = client
        self._runtime = runtime
        self._servers: list[ProbeServer] = []
        self.health_checks: dict[str, HealthCheck] = {"ping": lambda: None}
        self.readiness_checks: dict[str, HealthCheck] = {}
        self.readiness_info: dict[str, Callable[[], str]] = {}
        self.metrics_handlers: dict[str, EndpointHandler] = {}
        self.debug_handler: EndpointHandler = _not_found

    async def start(self) -> None:
        """Listens where the options say. Raises ConfigurationError."""
        if _is_enabled(bind := self._options.health_probe_bind_address):
            await self._serve(
                bind, health=self.health_checks, ready=self.readiness_checks, information=self.readiness_info
            )
        if _is_enabled(bind := self._options.metrics_bind_address):
            security = self._metrics_security() if self._options.metrics_secure else {}
            await self._serve(bind, metrics=metrics.registry, handlers=self.metrics_handlers, **security)
        if _is_enabled(bind := self._options.debug_bind_address):
            await self._serve(bind, fallback=self.debug_handler, **self._debug_security(bind))

    async def stop(self) -> None:
        """Stops listening."""
        for server in self._servers:
            await server.stop()

    async def _serve(self, bind: str, **arguments: Any) -> None:
        from steersman.manager.probe_server import ProbeServer

        server = ProbeServer(bind, **arguments)
        await server.start()
        self._servers.append(server)

    def _debug_security(self, bind: str) -> dict[str, Any]:
        host = bind.rpartition(":")[0]
        if _is_loopback(host.strip("[]")):
            return {}
        if not self._options.metrics_secure:
            raise ConfigurationError(
                f"debug bind address {bind!r}: anybody who reaches it could read the names of all objects; write "
                "127.0.0.1 and use kubectl port-forward, or serve it as secure metrics are (--metrics-secure)"
            )
        return self._metrics_security()

    def _metrics_security(self) -> dict[str, Any]:
        from steersman.manager.certwatcher import CertWatcher
        from steersman.manager.token_authorizer import TokenAuthorizer

        return {
            "certificate": CertWatcher(self._options.metrics_cert_path),
            "authorizer": TokenAuthorizer(self._client, self._runtime),
        }


async def _not_found(request: ServerRequest) -> ServerResponse:
    from steersman.manager.http_server import ServerResponse

    return ServerResponse("not found\n", 404)


def _is_enabled(bind: str) -> bool:
    return bind not in ("", "0")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
