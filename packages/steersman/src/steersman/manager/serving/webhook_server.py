"""HTTPS server for the webhooks of a manager."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from importlib.util import find_spec
from typing import Any

from steersman.client import Client
from steersman.client.transport.tls import load_key_pair
from steersman.errors import ConfigurationError
from steersman.manager.serving.cert_watcher import CertWatcher, server_ssl_context
from steersman.manager.serving.http_server import (
    HttpServer,
    ServerRequest,
    ServerResponse,
    is_loopback,
    parse_bind_address,
)
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime
from steersman.webhook import Webhooks, WebhookServerOptions
from steersman.webhook.cert_rotator import CertRotator
from steersman.webhook.certificates import KeyPair

_CERT_CHECK_INTERVAL_SECONDS = 10.0
# The API server opens a connection for each concurrent request.
_MAX_CONNECTIONS = 1024
_STOP_GRACE_SECONDS = 5.0

log = get_logger("webhook")


class WebhookServer:
    """Serves webhooks on every replica, and maintains the certificate.

    Args:
        client: client without a fence, since every replica may write the certificate.

    Raises:
        ConfigurationError: the bind address is invalid, a certificate file is missing, or the extra ``webhooks`` is
            not installed.
    """

    def __init__(self, options: WebhookServerOptions, webhooks: Webhooks, client: Client, runtime: Runtime) -> None:
        self._webhooks = webhooks
        self._runtime = runtime
        self._task: asyncio.Task[None] | None = None
        self._maintain_certificate: Callable[[], Coroutine[Any, Any, None]]
        self._check_certificate: Callable[[], str | None]
        ssl_context = self._prepare_ssl_context(options, client)
        host, port = parse_bind_address(options.bind_address, subject="webhook bind address", example=":9443")
        # No Service routes to a loopback address.
        self._drain_seconds = 0.0 if is_loopback(host) else options.drain_seconds
        self._server = HttpServer(
            host,
            port,
            self._handle,
            ssl_context,
            max_body_size=webhooks.max_body_size,
            max_connections=_MAX_CONNECTIONS,
            max_total_body_size=webhooks.max_total_body_size,
            option="--webhook-port",
        )

    @property
    def port(self) -> int:
        """The port in use, once started."""
        return self._server.port

    async def start(self) -> None:
        """Listen, and start to maintain the certificate. Raises ConfigurationError if the address is in use."""
        await self._server.start()
        self._task = self._runtime.spawn(self._maintain_certificate(), "webhook certificate")
        log.info("serving webhook server", port=self.port)

    async def stop(self) -> None:
        """Drain connections for ``drain_seconds``, then stop listening. On loopback, stop listening at once.

        The API server does not retry webhook requests, so a closed connection would fail a request. New connections
        arrive until all nodes have removed this replica from the Service.
        """
        self._server.drain()
        await self._runtime.clock.sleep(self._drain_seconds)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._server.stop(_STOP_GRACE_SECONDS)

    def check(self) -> str | None:
        """Readiness check: None, or the problem with the certificate."""
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
            raise ConfigurationError(
                "webhook certificates need the package cryptography: install steersman[webhooks]"
            )
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
