"""Pools of connections to a server: how they are opened, kept and ended.

Source: RFC 9110 section 9.3.6 (CONNECT); RFC 9112 section 9.3 (persistence).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import sys
from ipaddress import ip_address

from steersman.client.transport.http1 import Connection, Disconnected, Origin, describe_error
from steersman.client.transport.proxy import Proxy
from steersman.client.transport.tls_transport import TlsTransport

CONNECT_TIMEOUT_SECONDS = 30.0
# For each address of several but the last: a lease must be renewed in 10 s.
_ADDRESS_TIMEOUT_SECONDS = 5.0
# The API server ends idle connections after 90 s: ours end first, so that none is used at that moment.
_KEEP_ALIVE_SECONDS = 60.0
# Seconds until the first probe of an idle connection and between probes; how many; milliseconds without an answer.
_TCP_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}


class ProxyUnreachable(ConnectionError):
    """The proxy cannot be reached; the message names it."""


class ConnectionPool:
    """Opens connections and keeps idle ones for the next request.

    Args:
        limit: connections in use at most; who finds them all busy waits his turn. None: as many as are asked for.
        keep_alive: seconds after which an idle connection is ended.
    """

    def __init__(self, limit: int | None = None, *, keep_alive: float = _KEEP_ALIVE_SECONDS) -> None:
        self._loop = asyncio.get_running_loop()
        self._semaphore = asyncio.Semaphore(limit or sys.maxsize)
        self._keep_alive = keep_alive
        self._idle: dict[Origin, list[Connection]] = {}
        self._in_use: set[Connection] = set()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._aborted = False

    async def acquire(self, origin: Origin) -> Connection:
        """A connection that is ready for a request; ``release`` must follow, once.

        Raises:
            OSError: the server cannot be reached; ``ssl.SSLError`` where TLS fails, ``TimeoutError`` after 30 s,
                ``Disconnected`` after ``abort``.
        """
        await self._semaphore.acquire()
        try:
            connection = self._reuse(origin) or await self._open(origin)
        except BaseException:
            self._semaphore.release()
            raise
        self._in_use.add(connection)
        return connection

    def release(self, connection: Connection) -> None:
        """Gives ``connection`` back: kept if its answer was read to the end, ended otherwise."""
        self._in_use.remove(connection)
        if connection.is_usable:
            connection.idle_since = self._loop.time()
            self._idle.setdefault(connection.origin, []).append(connection)
            if self._sweep_timer is None:
                self._sweep_timer = self._loop.call_later(self._keep_alive / 2, self._close_expired)
        else:
            connection.abort()
        self._semaphore.release()

    def abort(self) -> None:
        """Ends all connections at once, and opens no more."""
        self._aborted = True
        for connection in [*self._in_use, *(c for idle in self._idle.values() for c in idle)]:
            connection.abort()
        self._idle.clear()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None

    def _reuse(self, origin: Origin) -> Connection | None:
        idle = self._idle.get(origin)
        while idle:
            # The one used last: those beyond what is needed grow old and end.
            connection = idle.pop()
            if connection.is_usable:
                return connection
        return None

    async def _open(self, origin: Origin) -> Connection:
        if not self._aborted:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                connection = await _connect(origin, self._loop)
            if not self._aborted:
                return connection
            connection.abort()
        raise Disconnected("the connection was closed")

    def _close_expired(self) -> None:
        self._sweep_timer = None
        idle_deadline = self._loop.time() - self._keep_alive
        for origin, idle in list(self._idle.items()):
            for connection in idle:
                if connection.idle_since < idle_deadline:
                    connection.abort()
            if usable := [c for c in idle if c.is_usable]:
                self._idle[origin] = usable
            else:
                del self._idle[origin]
        if self._idle:
            self._sweep_timer = self._loop.call_later(self._keep_alive / 2, self._close_expired)


async def _connect(origin: Origin, loop: asyncio.AbstractEventLoop) -> Connection:
    if origin.proxy is not None:
        return await _connect_via_proxy(origin, origin.proxy, loop)
    return (await _dial(origin, origin.host, origin.port, origin.tls, origin.server_hostname or origin.host))[1]


async def _dial(
    origin: Origin, host: str, port: int, tls: ssl.SSLContext | None, server_hostname: str
) -> tuple[asyncio.Transport, Connection]:
    """Connects to one of ``host``'s addresses; each has its share of the time, since one may be of a dead machine."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + CONNECT_TIMEOUT_SECONDS
    addresses = await _resolve_host(host, port)
    last_error: OSError = OSError(f"{host} has no address")
    for addresses_left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
        time_left = deadline - loop.time()
        timeout = time_left if addresses_left == 1 else min(time_left / addresses_left, _ADDRESS_TIMEOUT_SECONDS)
        try:
            async with asyncio.timeout(timeout):
                transport, connection = await loop.create_connection(lambda: Connection(origin, loop), address, port)
                _set_keepalive(transport)
                return await _start_tls(transport, connection, tls, server_hostname), connection
        except ssl.SSLError:
            raise
        except OSError as error:
            last_error = error
    raise last_error


async def _resolve_host(host: str, port: int) -> list[str]:
    """Those of ``host``; itself where it is one, without a thread: all may wait for silent DNS servers."""
    try:
        return [str(ip_address(host))]
    except ValueError:
        resolved = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(address[0]) for *_, address in resolved))


async def _start_tls(
    transport: asyncio.Transport, connection: Connection, tls: ssl.SSLContext | None, server_hostname: str
) -> asyncio.Transport:
    """The transport over which ``connection`` speaks from now on: ``below``, or TLS over that."""
    if tls is None:
        return transport
    if transport.is_closing():
        # Whoever takes its place now would not be told.
        raise Disconnected("the server closed the connection")
    tls_transport = TlsTransport(connection, tls, server_hostname, asyncio.get_running_loop())
    transport.set_protocol(tls_transport)
    tls_transport.connection_made(transport)
    await tls_transport.wait_handshake()
    return tls_transport


async def _connect_via_proxy(origin: Origin, proxy: Proxy, loop: asyncio.AbstractEventLoop) -> Connection:
    address = proxy.address
    tls = ssl.create_default_context() if address.scheme == "https" else None
    try:
        proxy_transport, connection = await _dial(origin, address.host, address.port, tls, address.host)
    except OSError as error:
        raise ProxyUnreachable(f"cannot connect to the proxy {address.authority}: {describe_error(error)}") from error
    if origin.tls is None:
        return connection
    try:
        host = f"[{origin.host}]" if ":" in origin.host else origin.host
        lines = [f"CONNECT {host}:{origin.port} HTTP/1.1", f"Host: {host}:{origin.port}"]
        if proxy.authorization:
            lines.append(f"Proxy-Authorization: {proxy.authorization}")
        response = await connection.send("\r\n".join([*lines, "", ""]).encode(), tunnel=True)
        if response.code != 200:
            raise Disconnected(f"the proxy {address.authority} answered {response.code}")
        tunnel = Connection(origin, loop)
        await _start_tls(proxy_transport, tunnel, origin.tls, origin.server_hostname or origin.host)
    except BaseException:
        proxy_transport.abort()
        raise
    return tunnel


def _set_keepalive(transport: asyncio.BaseTransport) -> None:
    """Lets the system notice within half a minute that the peer is gone without a word, as a waiting watch must."""
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Closed, in whatever way, it forgets what the peer has not acknowledged: else the kernel would go on sending a
    # write of a leader that has ended, and it would arrive after those of the next one.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    for name, value in _TCP_KEEPALIVE.items():
        # Not every system has them all.
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
