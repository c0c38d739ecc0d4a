"""Pools of persistent connections, with DNS, TLS and proxies.

Source: RFC 9110 section 9.3.6 (CONNECT), RFC 9112 section 9.3 (persistence).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import sys
from collections import deque
from contextlib import suppress
from ipaddress import ip_address

from steersman.client.transport.http1 import Connection, Disconnected, Origin, describe_error
from steersman.client.transport.io_threads import run_blocking
from steersman.client.transport.proxy import Proxy
from steersman.client.transport.tls_transport import TlsTransport

CONNECT_TIMEOUT_SECONDS = 30.0
# Limit for each address of a host except the last one. A lease must be renewed within 10 s.
_ADDRESS_TIMEOUT_SECONDS = 5.0
# The API server closes idle connections after 90 s. The pool closes them earlier, so that none is in use then.
_KEEP_ALIVE_SECONDS = 60.0
# Seconds until the first probe and between probes, number of probes, milliseconds without an acknowledgement.
_TCP_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}


class ProxyUnreachable(ConnectionError):
    """The proxy cannot be reached. The message has its address."""


class ConnectionPool:
    """Opens connections and keeps idle ones for the next request.

    Args:
        limit: maximum number of connections in use. Further requests wait in order. Defaults to no limit.
        keep_alive: seconds after which an idle connection is closed.
    """

    def __init__(self, limit: int | None = None, *, keep_alive: float = _KEEP_ALIVE_SECONDS) -> None:
        self._loop = asyncio.get_running_loop()
        self._free_slots = limit or sys.maxsize
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._keep_alive = keep_alive
        self._idle: dict[Origin, list[Connection]] = {}
        self._in_use: set[Connection] = set()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._aborted = False

    def acquire_idle(self, origin: Origin) -> Connection | None:
        """Return an idle connection, or None. ``release`` must follow."""
        if self._waiters or not self._free_slots or (connection := self._reuse(origin)) is None:
            return None
        self._free_slots -= 1
        self._in_use.add(connection)
        return connection

    async def acquire(self, origin: Origin) -> Connection:
        """Wait for a free slot and return an idle or new connection.

        ``release`` must follow.

        Raises:
            OSError: the server cannot be reached: ``ssl.SSLError`` if TLS fails, ``TimeoutError`` after 30 s,
                ``Disconnected`` after ``abort``.
        """
        await self._acquire_slot()
        try:
            connection = self._reuse(origin) or await self._open(origin)
        except BaseException:
            self._release_slot()
            raise
        self._in_use.add(connection)
        return connection

    def release(self, connection: Connection) -> None:
        """Keep ``connection`` if its response was read completely, and close it otherwise."""
        self._in_use.remove(connection)
        if connection.is_usable:
            connection.idle_since = self._loop.time()
            self._idle.setdefault(connection.origin, []).append(connection)
            if self._sweep_timer is None:
                self._sweep_timer = self._loop.call_later(self._keep_alive / 2, self._close_expired)
        else:
            connection.abort()
        self._release_slot()

    def abort(self) -> None:
        """Close all connections at once. The pool opens no further ones."""
        self._aborted = True
        for connection in [*self._in_use, *(c for idle in self._idle.values() for c in idle)]:
            connection.abort()
        self._idle.clear()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None

    async def _acquire_slot(self) -> None:
        if self._free_slots and not self._waiters:
            self._free_slots -= 1
            return
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter.cancelled():
                with suppress(ValueError):
                    self._waiters.remove(waiter)
            else:
                # The task was cancelled after it received a slot.
                self._release_slot()
            raise

    def _release_slot(self) -> None:
        """Pass the slot to the longest waiting request, or free it."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free_slots += 1

    def _reuse(self, origin: Origin) -> Connection | None:
        idle = self._idle.get(origin)
        while idle:
            # Use the most recent one, so that surplus connections expire.
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
    """Connect to the first address of ``host`` that responds.

    Each address gets a share of the time limit.
    """
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
    """Return the addresses of ``host``.

    An IP address does not use the resolver threads, which slow DNS can exhaust.
    """
    try:
        return [str(ip_address(host))]
    except ValueError:
        resolved = await run_blocking(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(address[0]) for *_, address in resolved))


async def _start_tls(
    transport: asyncio.Transport, connection: Connection, tls: ssl.SSLContext | None, server_hostname: str
) -> asyncio.Transport:
    """Return ``transport``, or TLS over it after the handshake."""
    if tls is None:
        return transport
    if transport.is_closing():
        # The new protocol would not receive connection_lost.
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
            raise Disconnected(f"the proxy {address.authority} responded with {response.code}")
        tunnel = Connection(origin, loop)
        await _start_tls(proxy_transport, tunnel, origin.tls, origin.server_hostname or origin.host)
    except BaseException:
        proxy_transport.abort()
        raise
    return tunnel


def _set_keepalive(transport: asyncio.BaseTransport) -> None:
    """Detect dead peers within 30 s and discard unsent data on close.

    TCP keep-alive detects it also on a watch without events.
    """
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # With SO_LINGER 0 a closed socket drops unacknowledged data. Otherwise the kernel could deliver a write of a
    # previous leader after the writes of the next one.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    for name, value in _TCP_KEEPALIVE.items():
        # Some systems lack some of these options.
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
