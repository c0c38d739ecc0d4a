"""TLS for connections of which there may be thousands, most of them silent.

asyncio's own keeps 256 KiB ready for each connection, and uvloop's as much; of a watch that is nearly all that it
weighs. Here a connection has no buffer of its own: what comes is put where its protocol wants it, taken in by OpenSSL
at once, and put into the same place again, decrypted.

Source: RFC 8446 (TLS 1.3), RFC 9112 section 9.8 (what an end without a word means); OpenSSL's memory BIOs.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

# As much is taken from the socket at a time: OpenSSL keeps room for what it was once given, as long as it lives.
_READ_SIZE = 2**15


class SecureTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """The protocol of a transport below, and the transport of ``protocol`` above, which it calls once it is secure.

    Args:
        protocol: whose buffer it uses.
        server_hostname: the name that must be in the server's certificate.
    """

    def __init__(
        self,
        protocol: asyncio.BufferedProtocol,
        context: ssl.SSLContext,
        server_hostname: str,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__()
        self._protocol = protocol
        self._loop = loop
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_hostname)
        self._below: asyncio.Transport | None = None
        self._ready: asyncio.Future[None] = loop.create_future()
        self._unsent = b""
        self._error: ssl.SSLError | None = None
        self._paused = False
        self._ended = False

    async def secured(self) -> None:
        """Returns once nobody else can read or write; who is cut off here ends the connection.

        Raises:
            OSError: the connection broke; ``ssl.SSLError`` where the other side is not who it should be.
        """
        try:
            await self._ready
        except BaseException:
            self.abort()
            raise

    # What the transport below calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake begins."""
        # Not asserted: those of uvloop are none of asyncio's own classes.
        self._below = cast("asyncio.Transport", transport)
        self._go_on()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to put what comes; it is read before anything else is put there."""
        return memoryview(self._protocol.get_buffer(sizehint))[:_READ_SIZE]

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes came."""
        self._incoming.write(self.get_buffer(nbytes)[:nbytes])
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._below = None
        exc = self._error or exc
        if exc is None and not self._ended:
            # Whoever is between us could have cut it here.
            exc = ConnectionResetError("the server closed the connection")
        if self._ready.done():
            self._protocol.connection_lost(exc)
        else:
            self._ready.set_exception(exc or ConnectionResetError("the server closed the connection"))

    # What the protocol above calls

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Sends ``data``."""
        self._unsent += data
        self._attempt(self._send)

    def get_write_buffer_size(self) -> int:
        """How many bytes wait to be sent."""
        return len(self._unsent) + (self._below.get_write_buffer_size() if self._below is not None else 0)

    def pause_reading(self) -> None:
        """Hands on nothing until ``resume_reading``."""
        self._paused = True
        if self._below is not None:
            self._below.pause_reading()

    def resume_reading(self) -> None:
        """Ends ``pause_reading``."""
        self._paused = False
        if self._below is not None:
            self._below.resume_reading()
        # What was taken in before, nobody will tell of again.
        self._loop.call_soon(self._go_on)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hands on to ``protocol`` from now on."""
        assert isinstance(protocol, asyncio.BufferedProtocol)
        self._protocol = protocol

    def is_closing(self) -> bool:
        """Whether it has ended, or is about to."""
        return self._below is None or self._below.is_closing()

    def abort(self) -> None:
        """Ends the connection at once."""
        if self._below is not None:
            self._below.abort()

    # Inside

    def _go_on(self) -> None:
        """Takes the next step, or as many as there is something for."""
        self._attempt(self._take_in)
        if self._unsent:
            self._attempt(self._send)

    def _attempt(self, step: Callable[[], None]) -> None:
        """Takes ``step``, as far as it goes before something must come, and sends what there is to say to that."""
        try:
            step()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._error = error
        self._flush()
        if self._error is not None:
            if not self._ready.done():
                self._ready.set_exception(self._error)
            self.abort()

    def _take_in(self) -> None:
        if not self._ready.done():
            self._tls.do_handshake()
            self._protocol.connection_made(self)
            self._ready.set_result(None)
        self._hand_on()

    def _send(self) -> None:
        """Encrypts what waits. Raises SSLWantReadError: the server begins another handshake, the rest follows it."""
        while self._unsent:
            self._unsent = self._unsent[self._tls.write(self._unsent) :]

    def _hand_on(self) -> None:
        """Decrypts what there is. Raises SSLWantReadError when nothing is left."""
        while self._below is not None and not self._paused and not self._ended:
            room = memoryview(self._protocol.get_buffer(-1))
            # The types know of neither: it may be any buffer, and then it is answered how much was put there.
            count = cast("int", self._tls.read(len(room), cast("bytearray", room)))
            if count:
                self._protocol.buffer_updated(count)
            else:
                self._ended = True
                self._below.close()

    def _flush(self) -> None:
        if self._outgoing.pending and self._below is not None:
            self._below.write(self._outgoing.read())
