"""Serves the webhooks of a manager, by TLS, on every replica."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from importlib.util import find_spec
from typing import Any

from steersman.client import Client
from steersman.client.transport.tls import load_key_pair
from steersman.errors import ConfigurationError
from steersman.manager.certwatcher import CertWatcher, server_ssl_context
from steersman.manager.http_server import HttpServer, ServerRequest, ServerResponse
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime
from steersman.webhook import Webhooks, WebhookServerOptions
from steersman.webhook.cert_rotator import CertRotator
from steersman.webhook.certificates import KeyPair

_CERT_CHECK_INTERVAL_SECONDS = 10.0
# The API server has a connection for each of the requests that it carries out at the same time.
_MAX_CONNECTIONS = 1024
_STOP_GRACE_SECONDS = 5.0

log = get_logger("webhook")


class WebhookServer:
    """Listens, and keeps the certificate.

    Args:
        client: of the keeper; it writes on every replica.

    Raises:
        ConfigurationError: the address is malformed, there are no files where they should be, or
            ``steersman[webhooks]`` is not installed.
    """

    def __init__(self, options: WebhookServerOptions, webhooks: Webhooks, client: Client, runtime: Runtime) -> None:
        self._webhooks = webhooks
        self._runtime = runtime
        self._drain_seconds = options.drain_seconds
        self._task: asyncio.Task[None] | None = None
        self._maintain_certificate: Callable[[], Coroutine[Any, Any, None]]
        self._check_certificate: Callable[[], str | None]
        ssl_context = self._prepare_ssl_context(options, client)
        host, colon, port = options.bind_address.rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65535:
            raise ConfigurationError(f"webhook bind address {options.bind_address!r}: write host:port, such as :9443")
        self._server = HttpServer(
            host.strip("[]") or None,
            int(port),
            self._handle,
            ssl_context,
            max_body_size=webhooks.max_body_size,
            max_connections=_MAX_CONNECTIONS,
        )

    @property
    def port(self) -> int:
        """The port in use, once started."""
        return self._server.port

    async def start(self) -> None:
        """Listens, and begins to look after the certificate. Raises ConfigurationError: the address is not free."""
        await self._server.start()
        self._task = self._runtime.spawn(self._maintain_certificate(), "webhook certificate")
        log.info("webhooks are served", port=self.port)

    async def stop(self) -> None:
        """Stops listening, after a while in which the API server is told to go elsewhere.

        It sends no request a second time, so one that meets the end of a connection has failed; and connections still
        come here until it is known everywhere that this replica is no more.
        """
        self._server.drain()
        await self._runtime.clock.sleep(self._drain_seconds)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._server.stop(_STOP_GRACE_SECONDS)

    def check(self) -> str | None:
        """For ``/readyz``."""
        return self._check_certificate()

    def _prepare_ssl_context(self, options: WebhookServerOptions, client: Client) -> ssl.SSLContext:
        if options.cert_path:
            watcher = CertWatcher(options.cert_path, options.cert_name, options.cert_key)
            self._maintain_certificate, self._check_certificate = (
                lambda: self._watch_certificate(watcher),
                lambda: None,
            )
            return watcher.ssl_context
        if find_spec("cryptography") is None:
            raise ConfigurationError("webhooks make certificates by cryptography: install steersman[webhooks]")
        ssl_context = server_ssl_context()

        def load_certificate(pair: KeyPair) -> None:
            load_key_pair(ssl_context, pair.certificate.encode(), pair.key.encode())

        targets = self._webhooks.ca_bundle_targets(options)
        rotator = CertRotator(client, options, targets, self._runtime, load_certificate)
        self._maintain_certificate, self._check_certificate = rotator.run, rotator.check
        return ssl_context

    async def _watch_certificate(self, watcher: CertWatcher) -> None:
        while True:
            await self._runtime.clock.sleep(_CERT_CHECK_INTERVAL_SECONDS)
            watcher.reload_if_changed()

    async def _handle(self, request: ServerRequest) -> ServerResponse:
        response = await self._webhooks.handle(request.path, request.query, request.body)
        content_type = "application/json" if response.status == 200 else "text/plain; charset=utf-8"
        return ServerResponse(response.body, response.status, content_type)
