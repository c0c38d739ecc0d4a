"""Health and metrics endpoints: ``/healthz``, ``/readyz`` and ``/metrics``."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from steersman.errors import ConfigurationError
from steersman.manager.authentication import TokenAuthorizer
from steersman.manager.endpoints import Check, Handler
from steersman.manager.http_server import HttpServer, Request, Response
from steersman.manager.serving_certificate import ServingCertificate
from steersman.observability.logging import get_logger

_CHECK_SECONDS = 5.0

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
        health: Mapping[str, Check] | None = None,
        ready: Mapping[str, Check] | None = None,
        information: Mapping[str, Callable[[], str]] | None = None,
        metrics: CollectorRegistry | None = None,
        handlers: Mapping[str, Handler] | None = None,
        fallback: Handler | None = None,
        certificate: ServingCertificate | None = None,
        authorizer: TokenAuthorizer | None = None,
    ) -> None:
        host, colon, port = bind.rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65535:
            raise ConfigurationError(f"bind address {bind!r}: write host:port, such as :8081")
        self._metrics = metrics
        self._certificate = certificate
        self._authorizer = authorizer
        self._fallback = fallback
        self._routes: dict[str, Handler] = dict(handlers or {})
        self._checks: dict[str, Mapping[str, Check]] = {}
        for path, checks, told in (("/healthz", health, None), ("/readyz", ready, information)):
            if checks is not None:
                self._routes[path] = _all(checks, told or {})
                self._checks[path] = checks
        if metrics is not None:
            self._routes["/metrics"] = self._serve_metrics
        context = certificate.context if certificate is not None else None
        self._server = HttpServer(host.strip("[]") or None, int(port), self._answer, context)

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

    async def _answer(self, request: Request) -> Response:
        if (refusal := await self._refusal(request)) is not None:
            return refusal
        if (handler := self._routes.get(request.path)) is not None:
            return await handler(request)
        where, _, name = request.path.rpartition("/")
        check = self._checks.get(where, {}).get(name)
        if check is not None:
            return await _one(check)
        return Response("not found\n", 404) if self._fallback is None else await self._fallback(request)

    async def _refusal(self, request: Request) -> Response | None:
        if self._authorizer is None:
            return None
        if self._certificate is not None:
            # For the next connection: a scrape a minute is often enough to look.
            self._certificate.refresh()
        verdict = await self._authorizer.decide(request.headers.get("authorization", ""), request.path)
        if verdict.status == 200:
            return None
        challenge = {"WWW-Authenticate": "Bearer"} if verdict.status == 401 else {}
        return Response(f"{verdict.reason}\n", verdict.status, headers=challenge)

    async def _serve_metrics(self, _: Request) -> Response:
        assert self._metrics is not None
        return Response(generate_latest(self._metrics), content_type=CONTENT_TYPE_LATEST)


def _all(checks: Mapping[str, Check], told: Mapping[str, Callable[[], str]]) -> Handler:
    async def handle(_: Request) -> Response:
        names = list(checks)
        results = dict(zip(names, await asyncio.gather(*(_run(checks[name]) for name in names)), strict=True))
        lines = [
            f"[+]{name} ok" if wrong is None else f"[-]{name} failed: {wrong}" for name, wrong in results.items()
        ]
        lines += [f"[ ]{name}: {tell()}" for name, tell in told.items()]
        failed = any(wrong is not None for wrong in results.values())
        return Response("\n".join([*lines, "failed" if failed else "ok", ""]), 500 if failed else 200)

    return handle


async def _one(check: Check) -> Response:
    wrong = await _run(check)
    return Response("ok\n") if wrong is None else Response(f"{wrong}\n", 500)


async def _run(check: Check) -> str | None:
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            result = check()
            return await result if inspect.isawaitable(result) else result
    except TimeoutError:
        return f"no result within {_CHECK_SECONDS:g} s"
    except Exception as error:
        # One broken check must not hide what the others say.
        log.warning("a check failed with an error", exc_info=error)
        return f"{type(error).__name__}: {error}"
