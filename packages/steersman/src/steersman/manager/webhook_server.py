"""Serves the webhooks of a manager, by TLS, on every replica."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from importlib.util import find_spec
from typing import Any

from steersman.client import Client
from steersman.client.tls import load_pair
from steersman.errors import ConfigurationError
from steersman.manager.http_server import HttpServer, Request, Response
from steersman.manager.serving_certificate import ServingCertificate, serving_context
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime
from steersman.webhook import Webhooks, WebhookServing
from steersman.webhook.certificates import Pair
from steersman.webhook.keeper import CertificateKeeper

_LOOK_EVERY = 10.0
# The API server has a connection for each of the requests that it carries out at the same time.
_MOST_CONNECTIONS = 1024
_LAST_ANSWERS_SECONDS = 5.0

log = get_logger("webhook")


class WebhookServer:
    """Listens, and keeps the certificate.

    Args:
        client: of the keeper; it writes on every replica.

    Raises:
        ConfigurationError: the address is malformed, there are no files where they should be, or
            ``steersman[webhooks]`` is not installed.
    """

    def __init__(self, serving: WebhookServing, webhooks: Webhooks, client: Client, runtime: Runtime) -> None:
        self._webhooks = webhooks
        self._runtime = runtime
        self._drain_seconds = serving.drain_seconds
        self._task: asyncio.Task[None] | None = None
        self._look_after: Callable[[], Coroutine[Any, Any, None]]
        self._check: Callable[[], str | None]
        context = self._prepare(serving, client)
        host, colon, port = serving.bind_address.rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65535:
            raise ConfigurationError(f"webhook bind address {serving.bind_address!r}: write host:port, such as :9443")
        self._server = HttpServer(
            host.strip("[]") or None,
            int(port),
            self._answer,
            context,
            longest_body=webhooks.longest_body,
            most_connections=_MOST_CONNECTIONS,
        )

    @property
    def port(self) -> int:
        """The port in use, once started."""
        return self._server.port

    async def start(self) -> None:
        """Listens, and begins to look after the certificate. Raises ConfigurationError: the address is not free."""
        await self._server.start()
        self._task = self._runtime.spawn(self._look_after(), "webhook certificate")
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
        await self._server.stop(_LAST_ANSWERS_SECONDS)

    def check(self) -> str | None:
        """For ``/readyz``."""
        return self._check()

    def _prepare(self, serving: WebhookServing, client: Client) -> ssl.SSLContext:
        if serving.cert_path:
            certificate = ServingCertificate(serving.cert_path, serving.cert_name, serving.cert_key)
            self._look_after, self._check = lambda: self._refresh(certificate), lambda: None
            return certificate.context
        if find_spec("cryptography") is None:
            raise ConfigurationError("webhooks make certificates by cryptography: install steersman[webhooks]")
        context = serving_context()

        def show(pair: Pair) -> None:
            load_pair(context, pair.certificate.encode(), pair.key.encode())

        targets = self._webhooks.targets(serving)
        keeper = CertificateKeeper(client, serving, targets, self._runtime, show)
        self._look_after, self._check = keeper.run, keeper.check
        return context

    async def _refresh(self, certificate: ServingCertificate) -> None:
        while True:
            await self._runtime.clock.sleep(_LOOK_EVERY)
            certificate.refresh()

    async def _answer(self, request: Request) -> Response:
        answer = await self._webhooks.answer(request.path, request.query, request.body)
        kind = "application/json" if answer.status == 200 else "text/plain; charset=utf-8"
        return Response(answer.body, answer.status, kind)
