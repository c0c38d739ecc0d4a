"""Health and metrics endpoints: ``/healthz``, ``/readyz`` and ``/metrics``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from steersman.errors import ConfigurationError
from steersman.observability.logging import get_logger

log = get_logger("manager")

Check = Callable[[], str | None]
"""Gives None when all is well, or else what is wrong."""


class ProbeServer:
    """Serves checks and metrics over HTTP.

    Args:
        health: checks by name for ``/healthz``: when one fails the kubelet restarts the pod.
        ready: checks by name for ``/readyz``.
        bind: ``host:port``; an empty host binds all addresses, port 0 takes a free one.
    """

    def __init__(
        self,
        bind: str,
        *,
        health: Mapping[str, Check] | None = None,
        ready: Mapping[str, Check] | None = None,
        metrics: CollectorRegistry | None = None,
    ) -> None:
        host, colon, port = bind.rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65535:
            raise ConfigurationError(f"bind address {bind!r}: write host:port, such as :8081")
        self._host, self._port = host.strip("[]") or None, int(port)
        self._metrics = metrics
        app = web.Application()
        if health is not None:
            app.router.add_get("/healthz", _handler(health))
        if ready is not None:
            app.router.add_get("/readyz", _handler(ready))
        if metrics is not None:
            app.router.add_get("/metrics", self._serve_metrics)
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
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise ConfigurationError(f"cannot listen on port {self._port}: {error.strerror}") from error
        paths = sorted(resource.canonical for resource in self._runner.app.router.resources())
        log.info("listening", port=self.port, paths=paths)

    async def stop(self) -> None:
        """Stops listening."""
        await self._runner.cleanup()

    async def _serve_metrics(self, _: web.Request) -> web.Response:
        assert self._metrics is not None
        return web.Response(body=generate_latest(self._metrics), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _handler(checks: Mapping[str, Check]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(_: web.Request) -> web.Response:
        results = {name: check() for name, check in checks.items()}
        lines = [
            f"[+]{name} ok" if wrong is None else f"[-]{name} failed: {wrong}" for name, wrong in results.items()
        ]
        failed = any(wrong is not None for wrong in results.values())
        return web.Response(text="\n".join([*lines, "failed" if failed else "ok", ""]), status=500 if failed else 200)

    return handle
