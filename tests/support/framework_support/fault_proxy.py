"""Fault-injecting loopback proxy between an operator and the API server.

Plain HTTP to the operator, TLS to the API server. Each connection of the operator has its own connection to the API
server. Requests are parsed, recorded and optionally handled by the proxy itself. Responses pass through unchanged.

The black hole is a socket filter: the kernel drops every incoming packet before TCP, so nothing is acknowledged,
refused or reset. Source: socket(7), ``SO_ATTACH_FILTER``.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ctypes
import fcntl
import socket
import ssl
import struct
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_SO_ATTACH_FILTER = 26
_SO_DETACH_FILTER = 27
_LIMIT = 1 << 22


@dataclass(slots=True)
class ProxiedRequest:
    """A request.

    Attributes:
        received_at: monotonic time in seconds at which the head was complete.
        code: status code if the proxy responded itself.
    """

    received_at: float
    method: str
    path: str
    code: int | None = None

    @property
    def is_watch(self) -> bool:
        return self.method == "GET" and "watch=true" in self.path

    @property
    def is_lease(self) -> bool:
        return "/coordination.k8s.io/" in self.path

    @property
    def is_write(self) -> bool:
        return self.method != "GET"


@dataclass(frozen=True, slots=True)
class ProxyResponse:
    """A response of the proxy. ``retry_after`` is in seconds."""

    code: int
    retry_after: int | None = None

    def to_bytes(self) -> bytes:
        body = b'{"kind":"Status","apiVersion":"v1","status":"Failure","message":"rejected by the proxy","code":%d}'
        body %= self.code
        advice = "" if self.retry_after is None else f"Retry-After: {self.retry_after}\r\n"
        head = f"HTTP/1.1 {self.code} Refused\r\nContent-Type: application/json\r\n{advice}"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class _ProxiedConnection:
    """A connection of the operator with its connection to the API server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.socket: Any = writer.get_extra_info("socket")
        self.server: asyncio.StreamWriter | None = None
        self.response_task: asyncio.Task[None] | None = None
        self.current: ProxiedRequest | None = None
        self.black_holed = False

    def abort(self) -> None:
        """Abort both connections. The operator's side of a black hole stays open."""
        if self.response_task is not None:
            self.response_task.cancel()
        if self.server is not None:
            self.server.transport.abort()
        if not self.black_holed:
            self.writer.transport.abort()


class FaultProxy:
    """The proxy in its own thread. Use ``running``.

    Attributes:
        kubeconfig: kubeconfig for the operator.
        requests: all requests in order.
        respond: called for each request. It returns a response, or None to forward the request.
    """

    def __init__(self, directory: Path, kubeconfig: Path) -> None:
        self.requests: list[ProxiedRequest] = []
        self.respond: Callable[[ProxiedRequest], ProxyResponse | None] = lambda _: None
        document = yaml.safe_load(kubeconfig.read_text())
        cluster = document["clusters"][0]["cluster"]
        self._tls = _client_context(cluster, document["users"][0]["user"])
        host, _, port = cluster["server"].removeprefix("https://").partition(":")
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._loop = asyncio.new_event_loop()
        self._connections: set[_ProxiedConnection] = set()
        self._stopped = asyncio.Event()
        self._all_open = _open_event()
        self._watches_open = _open_event()
        self._port: int = self._listener.getsockname()[1]
        self.kubeconfig = directory / f"proxy-{self._port}.kubeconfig"
        document["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{self._port}"}
        document["users"][0]["user"] = {}
        self.kubeconfig.write_text(yaml.safe_dump(document))

    @classmethod
    @contextmanager
    def running(cls, directory: Path, kubeconfig: Path) -> Generator[FaultProxy]:
        """Run a proxy to the server of ``kubeconfig`` with its credentials."""
        proxy = cls(directory, kubeconfig)
        thread = threading.Thread(target=proxy._run, name="fault proxy", daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy._run_on_loop(proxy._stopped.set)
            thread.join(10)

    @property
    def writes(self) -> list[ProxiedRequest]:
        """Write requests, without those of Leases."""
        return [s for s in self.requests if s.is_write and not s.is_lease]

    @property
    def intercepted(self) -> list[ProxiedRequest]:
        """Requests with a response of the proxy."""
        return [s for s in self.requests if s.code is not None]

    async def first_write(self, seconds: float) -> ProxiedRequest:
        """Wait for the first write."""
        async with asyncio.timeout(seconds):
            while not (writes := self.writes):
                await asyncio.sleep(0.02)
            return writes[0]

    def break_watches(self) -> None:
        """Abort the connections with a watch."""
        self._run_on_loop(
            lambda: self._abort_matching(lambda link: link.current is not None and link.current.is_watch)
        )

    @contextmanager
    def delayed_watches(self) -> Generator[None]:
        """Delay all watches during the block. The API server observes a slow client."""
        self._run_on_loop(self._watches_open.clear)
        try:
            yield
        finally:
            self._run_on_loop(self._watches_open.set)

    @contextmanager
    def dropped_inbound_packets(self) -> Generator[None]:
        """Drop all packets from the operator during the block.

        The operator's kernel retransmits its requests, which arrive after the block. Responses are sent while
        possible.
        """
        self._run_on_loop(lambda: self._set_dropping(True))
        try:
            yield
        finally:
            self._run_on_loop(lambda: self._set_dropping(False))

    def unacknowledged_sockets(self) -> int:
        """Number of operator sockets with unacknowledged data.

        Source: proc_net_tcp, ``tx_queue`` of sockets whose peer is the proxy.
        """
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return sum(1 for row in rows if int(row[2].partition(":")[2], 16) == self._port and int(row[4][:8], 16))

    @contextmanager
    def black_hole(self, *, keep_existing: bool = False) -> Generator[None]:
        """Drop all packets in both directions during the block.

        Args:
            keep_existing: existing connections remain black holes after the block and only new ones work, as with a
                firewall that lost its state.
        """
        self._run_on_loop(self._all_open.clear)
        # Unacknowledged responses would be retransmitted and reach the operator.
        deadline = time.monotonic() + 10
        while self._unacknowledged():
            assert time.monotonic() < deadline, "the operator does not acknowledge responses"
            time.sleep(0.001)
        self._run_on_loop(lambda: self._set_dropping(True))
        try:
            yield
        finally:
            if keep_existing:
                self._run_on_loop(self._black_hole_connections)
            self._run_on_loop(lambda: self._set_dropping(False))
            self._run_on_loop(self._all_open.set)

    def _run_on_loop(self, action: Callable[[], object]) -> None:
        """Run ``action`` on the thread of the proxy and wait for it."""
        done = threading.Event()

        def act() -> None:
            action()
            done.set()

        self._loop.call_soon_threadsafe(act)
        assert done.wait(10), "the proxy is not running"

    def _unacknowledged(self) -> int:
        return sum(
            connection.writer.transport.get_write_buffer_size() + _unsent_bytes(connection.socket)
            for connection in self._open_connections()
        )

    def _open_connections(self) -> list[_ProxiedConnection]:
        return [
            connection
            for connection in tuple(self._connections)
            if not connection.black_holed and connection.socket.fileno() >= 0
        ]

    def _set_dropping(self, drop: bool) -> None:
        for kept in (self._listener, *(connection.socket for connection in self._open_connections())):
            _drop_packets(kept, drop)

    def _black_hole_connections(self) -> None:
        for connection in self._connections:
            connection.black_holed = True
            connection.abort()

    def _abort_matching(self, which: Callable[[_ProxiedConnection], bool]) -> None:
        for connection in tuple(self._connections):
            if which(connection):
                connection.abort()

    def _run(self) -> None:
        self._loop.run_until_complete(self._accept())
        self._loop.close()

    async def _accept(self) -> None:
        server = await asyncio.start_server(self._serve, sock=self._listener, limit=_LIMIT)
        await self._stopped.wait()
        server.close()
        for connection in tuple(self._connections):
            connection.black_holed = False
            connection.abort()
        # The tasks end with their connections. Cancelling them would log errors.
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others, timeout=5)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _ProxiedConnection(reader, writer)
        self._connections.add(connection)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                while True:
                    await self._handle_request(connection)
        finally:
            if connection.black_holed:
                # Stays open, because closing the socket would notify the peer.
                await self._stopped.wait()
            self._connections.discard(connection)
            connection.abort()

    async def _handle_request(self, connection: _ProxiedConnection) -> None:
        head = await connection.reader.readuntil(b"\r\n\r\n")
        body = await connection.reader.readexactly(_content_length(head))
        method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
        connection.current = seen = ProxiedRequest(time.monotonic(), method, path)
        refusal = self.respond(seen)
        self.requests.append(seen)
        if refusal is not None:
            seen.code = refusal.code
            connection.writer.write(refusal.to_bytes())
            await connection.writer.drain()
            return
        if connection.server is None:
            responses, connection.server = await asyncio.open_connection(*self._server, ssl=self._tls, limit=_LIMIT)
            connection.response_task = asyncio.create_task(self._forward_responses(connection, responses))
        connection.server.write(head + body)
        await connection.server.drain()

    async def _forward_responses(self, connection: _ProxiedConnection, responses: asyncio.StreamReader) -> None:
        try:
            with contextlib.suppress(OSError):
                while chunk := await responses.read(65536):
                    await self._all_open.wait()
                    if connection.current is not None and connection.current.is_watch:
                        await self._watches_open.wait()
                    connection.writer.write(chunk)
                    await connection.writer.drain()
        finally:
            if not connection.black_holed:
                connection.writer.transport.abort()


def _open_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


def _unsent_bytes(kept: Any) -> int:
    """Number of bytes that are unsent or unacknowledged. Source: tcp(7), ``SIOCOUTQ``."""
    queued = fcntl.ioctl(kept.fileno(), termios.TIOCOUTQ, b"\0" * 4)
    return struct.unpack("i", queued)[0]


def _drop_packets(kept: Any, drop: bool) -> None:
    if not drop:
        with contextlib.suppress(FileNotFoundError):
            kept.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
        return
    # One instruction of classic BPF: "return 0", which keeps no byte of the packet.
    program = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
    kept.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(program)))


def _client_context(cluster: dict[str, Any], user: dict[str, Any]) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=_text(cluster["certificate-authority-data"]))
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as pair:
        pair.write(_text(user["client-certificate-data"]) + _text(user["client-key-data"]))
        pair.flush()
        context.load_cert_chain(pair.name)
    return context


def _text(data: str) -> str:
    return base64.b64decode(data).decode()
