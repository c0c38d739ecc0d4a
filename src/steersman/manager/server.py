"""Health and metrics endpoints: ``/healthz``, ``/readyz`` and ``/metrics``."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from steersman.errors import ConfigurationError
from steersman.manager.authentication import TokenAuthorizer
from steersman.manager.endpoints import Check, Handler
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
        certificate: serve TLS with it.
        authorizer: asked about every request.
        bind: ``host:port``; an empty host binds all addresses, port 0 takes a free one.
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
        certificate: ServingCertificate | None = None,
        authorizer: TokenAuthorizer | None = None,
    ) -> None:
        host, colon, port = bind.rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65535:
            raise ConfigurationError(f"bind address {bind!r}: write host:port, such as :8081")
        self._host, self._port = host.strip("[]") or None, int(port)
        self._metrics = metrics
        self._certificate = certificate
        self._authorizer = authorizer
        app = web.Application(middlewares=[self._authorize] if authorizer is not None else [])
        for path, checks, told in (("/healthz", health, None), ("/readyz", ready, information)):
            if checks is not None:
                app.router.add_get(path, _all(checks, told or {}))
                app.router.add_get(f"{path}/{{name}}", _one(checks))
        if metrics is not None:
            app.router.add_get("/metrics", self._serve_metrics)
        for path, handler in (handlers or {}).items():
            app.router.add_get(path, handler)
        self._runner = web.AppRunner(app, access_log=None)

    @property
    def port(self) -> int:
        """The port in use, once started."""
        return int(self._runner.addresses[0][1])

    async def start(self) -> None:
        """Listens.

        Raises:
            ConfigurationError: the address is in use or not ours.
        """
        await self._runner.setup()
        context = self._certificate.context if self._certificate is not None else None
        try:
            await web.TCPSite(self._runner, self._host, self._port, ssl_context=context).start()
        except OSError as error:
            await self._runner.cleanup()
            raise ConfigurationError(f"cannot listen on port {self._port}: {error.strerror}") from error
        paths = sorted({resource.canonical for resource in self._runner.app.router.resources()})
        log.info("listening", port=self.port, paths=[path for path in paths if "{" not in path])

    async def stop(self) -> None:
        """Stops listening."""
        await self._runner.cleanup()

    async def _serve_metrics(self, _: web.Request) -> web.Response:
        assert self._metrics is not None
        return web.Response(body=generate_latest(self._metrics), headers={"Content-Type": CONTENT_TYPE_LATEST})

    @web.middleware
    async def _authorize(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        assert self._authorizer is not None
        if self._certificate is not None:
            # For the next connection: a scrape a minute is often enough to look.
            self._certificate.refresh()
        verdict = await self._authorizer.decide(request.headers.get("Authorization", ""), request.path)
        if verdict.status != 200:
            challenge = {"WWW-Authenticate": "Bearer"} if verdict.status == 401 else None
            return web.Response(status=verdict.status, text=f"{verdict.reason}\n", headers=challenge)
        return await handler(request)


def _all(checks: Mapping[str, Check], told: Mapping[str, Callable[[], str]]) -> Handler:
    async def handle(_: web.Request) -> web.Response:
        names = list(checks)
        results = dict(zip(names, await asyncio.gather(*(_run(checks[name]) for name in names)), strict=True))
        lines = [
            f"[+]{name} ok" if wrong is None else f"[-]{name} failed: {wrong}" for name, wrong in results.items()
        ]
        lines += [f"[ ]{name}: {tell()}" for name, tell in told.items()]
        failed = any(wrong is not None for wrong in results.values())
        return web.Response(text="\n".join([*lines, "failed" if failed else "ok", ""]), status=500 if failed else 200)

    return handle


def _one(checks: Mapping[str, Check]) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        check = checks.get(request.match_info["name"])
        if check is None:
            raise web.HTTPNotFound
        wrong = await _run(check)
        return web.Response(text="ok\n" if wrong is None else f"{wrong}\n", status=200 if wrong is None else 500)

    return handle


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
