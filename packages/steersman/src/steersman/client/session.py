"""What a request needs besides itself: whom we trust, who we are, and the header lines that say so."""

from __future__ import annotations

import asyncio
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from urllib.parse import quote

from steersman.client.address import Address, parse_address
from steersman.client.cluster import ClusterConfig, Impersonation
from steersman.client.credentials import Identity
from steersman.client.http1 import Route
from steersman.client.proxy import proxy_for
from steersman.client.tls import ssl_context, trusted
from steersman.client.transport import HttpRequest
from steersman.errors import ConfigurationError, CredentialsFailed
from steersman.observability.logging import get_logger

log = get_logger("client")

_FILE_INTERVAL = 60.0
# While certificate and key are being replaced one after the other, and after a plugin has failed.
_RETRY_INTERVAL = 1.0
_SAFE_IN_NAMES = "!#$&'*+-.^_`|~"
_LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Session:
    """One identity at one server, as of now.

    Attributes:
        identity: who we are.
        authorities: PEM of whom we trust.
        route: how to connect; connections of equal routes are shared.
        fields: the header lines that all requests have in common.
        prefix: of each request's path, or its whole URL where a proxy wants that.
        due: ``time.monotonic()`` at which to load anew.
    """

    identity: Identity
    authorities: bytes | None
    route: Route = field(repr=False)
    fields: bytes = field(repr=False)
    prefix: str
    due: float

    def message(self, request: HttpRequest) -> bytes:
        """``request`` as HTTP/1.1 (RFC 9112).

        Raises:
            ValueError: the path or a media type has characters that would end its line.
        """
        target = f"{self.prefix}{request.path}{_query(request)}"
        lines = f"{request.method} {target} HTTP/1.1\r\nAccept: {request.accept}\r\n"
        body = request.body
        if body is not None:
            lines += f"Content-Type: {request.content_type}\r\nContent-Length: {len(body)}\r\n"
        elif request.method not in ("GET", "DELETE"):
            lines += "Content-Length: 0\r\n"
        if not (target.isascii() and target.isprintable() and " " not in target):
            raise ValueError(f"{request.path!r} is not a percent-encoded path")
        if not (request.method.isalpha() and request.accept.isprintable() and request.content_type.isprintable()):
            raise ValueError(f"{request.method} {request.path}: a header would be cut in two")
        head = lines.encode() + self.fields
        return head if body is None else head + body


class Sessions:
    """The current session of one transport, renewed as tokens, certificates and authorities change."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._base = server_address(config)
        self._proxy = proxy_for(self._base, config.proxy_url)
        self._common = "".join(f"{name}: {value}\r\n" for name, value in _common_fields(config, self._base))
        self._lock = asyncio.Lock()
        self._session: Session | None = None
        self._failure: CredentialsFailed | None = None
        self._retry_at = float("-inf")
        if config.ca is not None:
            # A malformed authority is told at once, before the first request.
            ssl_context(config, Identity())
        if config.insecure_skip_tls_verify and self._base.scheme == "https":
            log.warning("TLS verification is off: anybody on the way can read and change all", server=config.server)

    async def current(self) -> Session:
        """The session to use for the next request.

        Raises:
            ConfigurationError: there are no credentials, or they are malformed.
        """
        session = self._session
        if session is not None and time.monotonic() < session.due:
            return session
        async with self._lock:
            if self._session is None or self._session is session:
                self._session = await self._load(None)
            return self._session

    async def renew(self, refused: Session) -> Session | None:
        """Another session than ``refused``, to which the server answered 401; None without another identity."""
        async with self._lock:
            if self._session is None or self._session.identity == refused.identity:
                self._session = await self._load(refused.identity)
            return self._session if self._session.identity != refused.identity else None

    def doubt(self, session: Session) -> None:
        """A connection with ``session`` was refused: its files are read again before the next one."""
        if self._session is session:
            self._session = replace(session, due=float("-inf"))

    async def _load(self, rejected: Identity | None) -> Session:
        if self._failure is not None and time.monotonic() < self._retry_at:
            # Not one run of a failing plugin for each of the requests that wait for it.
            raise type(self._failure)(str(self._failure))
        try:
            session = await asyncio.to_thread(self._read, self._session, rejected)
        except CredentialsFailed as error:
            self._failure, self._retry_at = error, time.monotonic() + _RETRY_INTERVAL
            raise
        self._failure = None
        return session

    def _read(self, held: Session | None, rejected: Identity | None) -> Session:
        """Runs in a thread: it reads files and may run a plugin."""
        config, now = self._config, time.monotonic()
        try:
            identity, authorities = config.credentials.load(rejected), trusted(config)
            interval = identity.valid_for if isinstance(config.ca, bytes | None) else _FILE_INTERVAL
            due = time.monotonic() + min(identity.valid_for, interval)
            if held is not None and (identity, authorities) == (held.identity, held.authorities):
                return replace(held, due=due)
            route = self._route(identity)
        except CredentialsFailed:
            raise
        except ConfigurationError as error:
            if held is None:
                raise
            log.warning("certificates cannot be used, keeping those before", server=config.server, error=str(error))
            return replace(held, due=now + _RETRY_INTERVAL)
        return Session(identity, authorities, route, self._fields(identity), self._prefix(), due)

    def _route(self, identity: Identity) -> Route:
        base = self._base
        tls = ssl_context(self._config, identity) if base.scheme == "https" else None
        return Route(base.host, base.port, tls, self._config.tls_server_name, self._proxy)

    def _prefix(self) -> str:
        return f"{self._base.origin}{self._base.path}" if self._is_relayed() else self._base.path

    def _is_relayed(self) -> bool:
        """Whether a proxy reads the requests, rather than pass on encrypted bytes."""
        return self._proxy is not None and self._base.scheme == "http"

    def _fields(self, identity: Identity) -> bytes:
        lines = self._common
        if identity.authorization:
            lines += f"Authorization: {identity.authorization}\r\n"
        if self._is_relayed() and self._proxy and self._proxy.authorization:
            lines += f"Proxy-Authorization: {self._proxy.authorization}\r\n"
        return f"{lines}\r\n".encode()


def server_address(config: ClusterConfig) -> Address:
    """Where the API server is. Raises ConfigurationError where its URL is none."""
    try:
        return parse_address(config.server)
    except ValueError as error:
        raise ConfigurationError(f"server {config.server!r}: {error}") from None


def _common_fields(config: ClusterConfig, base: Address) -> Iterator[tuple[str, str]]:
    fields = [
        ("Host", base.authority),
        ("User-Agent", config.user_agent or default_user_agent()),
    ]
    compression = config.disable_compression
    # On a loopback a list of 13 MB comes 10 % later with gzip and costs the API server a fifth more CPU; what ours
    # saves in decryption, it spends in decompression.
    if not (base.host in _LOCAL if compression is None else compression):
        fields.append(("Accept-Encoding", "gzip"))
    if config.impersonate is not None:
        fields.extend(_impersonation(config.impersonate))
    for name, value in fields:
        if not value.isprintable():
            raise ConfigurationError(f"{name}: {value!r} has characters that no header may have")
        yield name, value


def _impersonation(who: Impersonation) -> Iterator[tuple[str, str]]:
    yield "Impersonate-User", who.user
    if who.uid:
        yield "Impersonate-Uid", who.uid
    for group in who.groups:
        yield "Impersonate-Group", group
    for key, values in who.extra.items():
        for value in values:
            yield f"Impersonate-Extra-{quote(key, safe=_SAFE_IN_NAMES)}", value


@lru_cache(maxsize=1)
def default_user_agent() -> str:
    """``steersman/0.1.0 (linux/x86_64) python/3.13``, as client-go calls itself by version, system and machine."""
    # Not above: what reads metadata reads e-mail, and that is a tenth of an operator's time to import.
    from importlib.metadata import version

    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"steersman/{version('steersman')} ({sys.platform}/{platform.machine()}) python/{python}"


# Names and selectors come again and again; what does not, such as a continue token, leaves soon.
@lru_cache(maxsize=1024)
def _quoted(text: str) -> str:
    return quote(text, safe="")


def _query(request: HttpRequest) -> str:
    if not request.query:
        return ""
    return "?" + "&".join([f"{_quoted(name)}={_quoted(value)}" for name, value in request.query.items()])
