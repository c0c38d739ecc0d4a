"""Users and webhooks on the in-memory server and on a real one."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from aiohttp import web

from apiserver_cases.api import Json, WebhookHandler
from framework_support.certificates import CertificateAuthority
from framework_support.loopback_server import running_server
from steersman.client import ClusterConfig, HttpTransport, Impersonation, StaticToken
from steersman.client.transport import HttpRequest, HttpResponse, Transport
from steersman.errors import ConnectionFailed
from steersman_testing import InMemoryApiServer
from steersman_testing.apiserver.kubectl.impersonation import ImpersonatedUser

HOST = "localhost"
UNREACHABLE_URL = "https://127.0.0.1:1/review"
"""URL without a listener."""
_STORAGE_INITIALIZING = b"storage is (re)initializing"
_WRITES = ("POST", "PUT", "PATCH")


class InMemoryBackend:
    """Backend of the in-memory server."""

    def __init__(self, server: InMemoryApiServer) -> None:
        self._server = server
        self._ports = itertools.count(9443)
        server.serve_webhook(UNREACHABLE_URL, _fail_to_connect)

    def as_user(self, name: str, groups: tuple[str, ...]) -> Transport:
        return self._server.as_user(name, groups)

    def as_bearer(self, token: str, impersonate: ImpersonatedUser | None = None) -> Transport:
        return self._server.as_bearer(token, impersonate)

    async def serve_webhook(self, handler: WebhookHandler) -> Json:
        url = f"https://{HOST}:{next(self._ports)}/review"
        self._server.serve_webhook(url, handler)
        return {"url": url}


class RetryWhileInitializing:
    """Transport that retries while the server initializes a kind.

    That takes a moment after the schema of a definition has changed.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def request(self, request: HttpRequest) -> HttpResponse:
        while (
            response := await self._transport.request(request)
        ).status == 429 and _STORAGE_INITIALIZING in response.body:
            await asyncio.sleep(0.1)
        return response

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._transport.stream(request)

    async def close(self) -> None:
        await self._transport.close()


class ReadYourWrites:
    """Transport whose writes wait for the cache of the server.

    An update starts from the cached object. If the stored object is newer, the server repeats the update and calls
    webhooks a second time.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def request(self, request: HttpRequest) -> HttpResponse:
        response = await self._transport.request(request)
        if response.status < 300 and request.method in _WRITES and "dryRun" not in request.query:
            await self._wait_for_cache(request, json.loads(response.body).get("metadata", {}))
        return response

    async def _wait_for_cache(self, request: HttpRequest, written: Json) -> None:
        if version := written.get("resourceVersion"):
            path = f"{request.path}/{quote(written['name'], safe='')}" if request.method == "POST" else request.path
            # The read waits until the cache is not older.
            await self._transport.request(HttpRequest(method="GET", path=path, query={"resourceVersion": version}))

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._transport.stream(request)

    async def close(self) -> None:
        await self._transport.close()


class RealBackend:
    """Backend of the real server.

    It opens connections as users, and HTTPS servers on loopback. ``stack`` closes them.
    """

    def __init__(self, config: ClusterConfig, stack: AsyncExitStack) -> None:
        self._config = config
        self._stack = stack

    def as_user(self, name: str, groups: tuple[str, ...]) -> Transport:
        return self._open(replace(self._config, impersonate=Impersonation(user=name, groups=groups)))

    def as_bearer(self, token: str, impersonate: ImpersonatedUser | None = None) -> Transport:
        config = replace(self._config, credentials=StaticToken(token))
        if impersonate is not None:
            impersonation = Impersonation(
                user=impersonate.name, uid=impersonate.uid, groups=impersonate.groups, extra=impersonate.extra
            )
            config = replace(config, impersonate=impersonation)
        return self._open(config)

    def _open(self, config: ClusterConfig) -> Transport:
        transport = HttpTransport(config)
        self._stack.push_async_callback(transport.close)
        return ReadYourWrites(transport)

    async def serve_webhook(self, handler: WebhookHandler) -> Json:
        async def respond(request: web.BaseRequest) -> web.StreamResponse:
            return web.json_response(await handler(await request.json()))

        ca = CertificateAuthority()
        port = await self._stack.enter_async_context(running_server(respond, _server_ssl_context(ca)))
        bundle = base64.b64encode(ca.certificate).decode()
        return {"url": f"https://{HOST}:{port}/review", "caBundle": bundle}


async def _fail_to_connect(_: Json) -> Json:
    raise ConnectionFailed("no listener")


def _server_ssl_context(ca: CertificateAuthority) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate, key = ca.issue(HOST, names=[HOST])
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "server.pem"
        path.touch(mode=0o600)
        path.write_bytes(certificate + key)
        context.load_cert_chain(path)
    return context
