"""The transport over sockets, on aiohttp."""

from __future__ import annotations

import asyncio
import socket
import ssl
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from steersman.client.config import ClusterConfig
from steersman.client.transport import HttpRequest, HttpResponse, Transport
from steersman.errors import ApiError, ConfigurationError, ConnectionFailed, Status, error_from_status
from steersman.observability import metrics
from steersman.observability.logging import get_logger

log = get_logger("client")

# The kubelet rotates projected tokens at 80 % of an hour; client-go rereads them every minute.
_TOKEN_MAX_AGE = 60.0


def ssl_context(config: ClusterConfig) -> ssl.SSLContext:
    """The TLS settings of ``config``: its certificate authority and client certificate.

    Raises:
        ConfigurationError: a certificate or key is not PEM, or they do not belong together.
    """
    try:
        context = ssl.create_default_context(cadata=config.ca.decode() if config.ca else None)
        # Python 3.13 sets it; the certificates of many clusters lack the extensions that it demands.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if config.insecure_skip_tls_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if config.client_certificate and config.client_key:
            # The ssl module loads key pairs from files only; this one exists for a moment, readable by us alone.
            with tempfile.NamedTemporaryFile(suffix=".pem") as pair:
                pair.write(config.client_certificate + b"\n" + config.client_key)
                pair.flush()
                # Without a password OpenSSL would ask the terminal for that of an encrypted key.
                context.load_cert_chain(pair.name, password="")
    except (ssl.SSLError, UnicodeDecodeError, ValueError) as error:
        raise ConfigurationError(f"TLS for {config.server}: not a valid PEM certificate or key: {error}") from error
    return context


def watchful_socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket that notices within half a minute that its peer is gone without a word, as a watch that waits must."""
    opened = socket.socket(*address[:3])
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000)):
        # Not every system has them all.
        if (option := getattr(socket, name, None)) is not None:
            opened.setsockopt(socket.IPPROTO_TCP, option, value)
    return opened


class HttpTransport(Transport):
    """Carries requests to one API server with one identity. Must be made and closed on a running event loop."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._base = URL(config.server)
        self._token: str | None = config.token
        self._token_read_at = float("-inf")
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                ssl=ssl_context(config) if self._base.scheme == "https" else False,
                limit=0,
                socket_factory=watchful_socket,
            ),
            headers={"User-Agent": "steersman"},
            trust_env=False,
        )

    async def request(self, request: HttpRequest) -> HttpResponse:
        started = time.perf_counter()
        try:
            async with self._send(request, aiohttp.ClientTimeout(total=request.timeout)) as response:
                body = await response.read()
                metrics.observe_request(
                    request.method, self._base.host, response.status, time.perf_counter() - started
                )
                return HttpResponse(response.status, body, _retry_after(response))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            metrics.observe_request(request.method, self._base.host, "<error>", time.perf_counter() - started)
            raise _connection_failed(self._base, request, error) from error

    @asynccontextmanager
    async def _stream(self, request: HttpRequest) -> AsyncGenerator[AsyncIterator[bytes], None]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=request.timeout)
        try:
            async with self._send(request, timeout) as response:
                metrics.observe_request(request.method, self._base.host, response.status, None)
                if response.status != 200:
                    raise error_from_body(response.status, await response.read(), _retry_after(response))
                yield _lines(response)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _connection_failed(self._base, request, error) from error

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._stream(request)

    async def close(self) -> None:
        await self._session.close()

    def _send(
        self, request: HttpRequest, timeout: aiohttp.ClientTimeout
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        url = self._base.with_path(self._base.path.rstrip("/") + request.path, encoded=True)
        headers = {"Accept": request.accept}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        if token := self._current_token():
            headers["Authorization"] = f"Bearer {token}"
        return self._session.request(
            request.method,
            url.with_query(dict(request.query)) if request.query else url,
            data=request.body,
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
            server_hostname=self._config.tls_server_name,
        )

    def _current_token(self) -> str | None:
        file = self._config.token_file
        if file is not None and time.monotonic() - self._token_read_at > _TOKEN_MAX_AGE:
            try:
                self._token = file.read_text().strip()
            except OSError as error:
                if self._token is None:
                    raise ConfigurationError(f"cannot read the token file {file}: {error.strerror}") from error
                log.warning("token file unreadable, using the last token", file=str(file), error=error.strerror)
            self._token_read_at = time.monotonic()
        return self._token


def error_from_body(code: int, body: bytes, retry_after: float | None) -> ApiError:
    """The exception for a failed answer. Proxies answer without a Status: then the text is its message."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = Status()
    if not status.message and not status.reason:
        status = msgspec.structs.replace(status, message=body[:512].decode(errors="replace").strip())
    return error_from_status(msgspec.structs.replace(status, code=status.code or code), retry_after)


async def _lines(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    # Not StreamReader.readline: it fails on lines over its buffer's limit, and an object may have 1.5 MiB.
    pending = b""
    async for chunk in response.content.iter_any():
        *complete, pending = (pending + chunk).split(b"\n") if pending else chunk.split(b"\n")
        for line in complete:
            if line:
                yield line


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isdecimal() else None


def _connection_failed(base: URL, request: HttpRequest, error: Exception) -> ConnectionFailed:
    reason = str(error) or ("timed out" if isinstance(error, asyncio.TimeoutError) else type(error).__name__)
    # Both come before the first byte of the request; any other error may come after it has arrived.
    unsent = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    return ConnectionFailed(f"{request.method} {base.origin()}{request.path}: {reason}", sent=not unsent)
