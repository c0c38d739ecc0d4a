"""Health and metrics endpoints: ``/healthz``, ``/readyz`` and ``/metrics``."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from steersman.errors import ConfigurationError
from steersman.manager.certwatcher import CertWatcher
from steersman.manager.endpoints import EndpointHandler, HealthCheck
from steersman.manager.http_server import HttpServer, ServerRequest, ServerResponse
from steersman.manager.token_authorizer import TokenAuthorizer
from steersman.observability.logging import get_logger

_CHECK_TIMEOUT_SECONDS = 5.0

log = get_logger("manager")


class ProbeServer:
    """Serves checks and metrics over HTTP.

    Args:
        health: checks by name for ``/healthz``: when one fails the kubelet restarts the pod. One of them alone is at
            ``/healthz/<name>``. The mapping may grow later.
        ready: checks by name for ``/readyz``, likewise.
        information: what ``/readyz`` tells beside its checks, by name.
        metrics: what ``/metrics`` gives.
        handlers: what else is served, by path.
        fallback: answers what nothing else does.
        certificate: serve TLS with it.
        authorizer: asked about every request.
        bind: ``host:port``; an empty host binds all addresses, port 0 takes a free one.

    Raises:
        ConfigurationError: ``bind`` is not of that form.
    """

    def __init__(
        self,
        bind: str,
        *,
        health: Mapping[str, HealthCheck] | None = None,
        ready: Mapping[str, HealthCheck] | None = None,
        information: Mapping[str, Callable[[], str]] | None = None,
        metrics: CollectorRegistry | None = None,
        handlers: Mapping[str, EndpointHandler] | None = None,
        fallback: EndpointHandler | None = None,
        certificate: CertWatcher | None = None,
        authorizer: TokenAuthorizer | None = None,
    ) -> None:
        host, colon, port = bind.rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65535:
            raise ConfigurationError(f"bind address {bind!r}: write host:port, such as :8081")
        self._metrics = metrics
        self._certificate = certificate
        self._authorizer = authorizer
        self._fallback = fallback
        self._routes: dict[str, EndpointHandler] = dict(handlers or {})
        self._checks: dict[str, Mapping[str, HealthCheck]] = {}
        for path, checks, info in (("/healthz", health, None), ("/readyz", ready, information)):
            if checks is not None:
                self._routes[path] = _aggregate_handler(checks, info or {})
                self._checks[path] = checks
        if metrics is not None:
            self._routes["/metrics"] = self._serve_metrics
        context = certificate.ssl_context if certificate is not None else None
        self._server = HttpServer(host.strip("[]") or None, int(port), self._handle, context)

    @property
    def port(self) -> int:
        """The port in use, once started."""
        return self._server.port

    async def start(self) -> None:
        """Listens.

        Raises:
            ConfigurationError: the address is in use or not ours.
        """
        await self._server.start()
        log.info("listening", port=self.port, paths=sorted(self._routes))

    async def stop(self) -> None:
        """Stops listening."""
        await self._server.stop()

    async def _handle(self, request: ServerRequest) -> ServerResponse:
        if (rejection := await self._authorize(request)) is not None:
            return rejection
        if (handler := self._routes.get(request.path)) is not None:
            return await handler(request)
        prefix, _, name = request.path.rpartition("/")
        check = self._checks.get(prefix, {}).get(name)
        if check is not None:
            return await _check_response(check)
        return ServerResponse("not found\n", 404) if self._fallback is None else await self._fallback(request)

    async def _authorize(self, request: ServerRequest) -> ServerResponse | None:
        if self._authorizer is None:
            return None
        if self._certificate is not None:
            # For the next connection: a scrape a minute is often enough to look.
            self._certificate.reload_if_changed()
        result = await self._authorizer.authorize(request.headers.get("authorization", ""), request.path)
        if result.status == 200:
            return None
        challenge = {"WWW-Authenticate": "Bearer"} if result.status == 401 else {}
        return ServerResponse(f"{result.reason}\n", result.status, headers=challenge)

    async def _serve_metrics(self, _: ServerRequest) -> ServerResponse:
        assert self._metrics is not None
        return ServerResponse(generate_latest(self._metrics), content_type=CONTENT_TYPE_LATEST)


def _aggregate_handler(
    checks: Mapping[str, HealthCheck], information: Mapping[str, Callable[[], str]]
) -> EndpointHandler:
    async def handle(_: ServerRequest) -> ServerResponse:
        names = list(checks)
        results = dict(zip(names, await asyncio.gather(*(_run_check(checks[name]) for name in names)), strict=True))
        lines = [
            f"[+]{name} ok" if failure is None else f"[-]{name} failed: {failure}"
            for name, failure in results.items()
        ]
        lines += [f"[ ]{name}: {describe()}" for name, describe in information.items()]
        failed = any(wrong is not None for wrong in results.values())
        return ServerResponse("\n".join([*lines, "failed" if failed else "ok", ""]), 500 if failed else 200)

    return handle


async def _check_response(check: HealthCheck) -> ServerResponse:
    failure = await _run_check(check)
    return ServerResponse("ok\n") if failure is None else ServerResponse(f"{failure}\n", 500)


async def _run_check(check: HealthCheck) -> str | None:
    try:
        async with asyncio.timeout(_CHECK_TIMEOUT_SECONDS):
            result = check()
            return await result if inspect.isawaitable(result) else result
    except TimeoutError:
        return f"no result within {_CHECK_TIMEOUT_SECONDS:g} s"
    except Exception as error:
        # One broken check must not hide what the others say.
        log.warning("a check failed with an error", exc_info=error)
        return f"{type(error).__name__}: {error}"
