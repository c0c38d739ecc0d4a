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
_READ_SIZE_BYTES = 2**15


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
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
        self._transport: asyncio.Transport | None = None
        self._handshake_done: asyncio.Future[None] = loop.create_future()
        self._write_buffer = b""
        self._error: ssl.SSLError | None = None
        self._paused = False
        self._eof_received = False

    async def wait_handshake(self) -> None:
        """Returns once nobody else can read or write; who is cut off here ends the connection.

        Raises:
            OSError: the connection broke; ``ssl.SSLError`` where the other side is not who it should be.
        """
        try:
            await self._handshake_done
        except BaseException:
            self.abort()
            raise

    # What the transport below calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake begins."""
        # Not asserted: those of uvloop are none of asyncio's own classes.
        self._transport = cast("asyncio.Transport", transport)
        self._pump()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to put what comes; it is read before anything else is put there."""
        return memoryview(self._protocol.get_buffer(sizehint))[:_READ_SIZE_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes came."""
        self._incoming.write(self.get_buffer(nbytes)[:nbytes])
        self._pump()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._transport = None
        exc = self._error or exc
        if exc is None and not self._eof_received:
            # Whoever is between us could have cut it here.
            exc = ConnectionResetError("the server closed the connection")
        if self._handshake_done.done():
            self._protocol.connection_lost(exc)
        else:
            self._handshake_done.set_exception(exc or ConnectionResetError("the server closed the connection"))

    # What the protocol above calls

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Sends ``data``."""
        self._write_buffer += data
        self._run_step(self._encrypt)

    def get_write_buffer_size(self) -> int:
        """How many bytes wait to be sent."""
        return len(self._write_buffer) + (
            self._transport.get_write_buffer_size() if self._transport is not None else 0
        )

    def pause_reading(self) -> None:
        """Hands on nothing until ``resume_reading``."""
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Ends ``pause_reading``."""
        self._paused = False
        if self._transport is not None:
            self._transport.resume_reading()
        # What was taken in before, nobody will tell of again.
        self._loop.call_soon(self._pump)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hands on to ``protocol`` from now on."""
        assert isinstance(protocol, asyncio.BufferedProtocol)
        self._protocol = protocol

    def is_closing(self) -> bool:
        """Whether it has ended, or is about to."""
        return self._transport is None or self._transport.is_closing()

    def abort(self) -> None:
        """Ends the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # Inside

    def _pump(self) -> None:
        """Takes the next step, or as many as there is something for."""
        self._run_step(self._handshake)
        if self._write_buffer:
            self._run_step(self._encrypt)

    def _run_step(self, step: Callable[[], None]) -> None:
        """Takes ``step``, as far as it goes before something must come, and sends what there is to say to that."""
        try:
            step()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._error = error
        self._flush()
        if self._error is not None:
            if not self._handshake_done.done():
                self._handshake_done.set_exception(self._error)
            self.abort()

    def _handshake(self) -> None:
        if not self._handshake_done.done():
            self._tls.do_handshake()
            self._protocol.connection_made(self)
            self._handshake_done.set_result(None)
        self._decrypt()

    def _encrypt(self) -> None:
        """Encrypts what waits. Raises SSLWantReadError: the server begins another handshake, the rest follows it."""
        while self._write_buffer:
            self._write_buffer = self._write_buffer[self._tls.write(self._write_buffer) :]

    def _decrypt(self) -> None:
        """Decrypts what there is. Raises SSLWantReadError when nothing is left."""
        while self._transport is not None and not self._paused and not self._eof_received:
            buffer = memoryview(self._protocol.get_buffer(-1))
            # The types know of neither: it may be any buffer, and then it is answered how much was put there.
            count = cast("int", self._tls.read(len(buffer), cast("bytearray", buffer)))
            if count:
                self._protocol.buffer_updated(count)
            else:
                self._eof_received = True
                self._transport.close()

    def _flush(self) -> None:
        if self._outgoing.pending and self._transport is not None:
            self._transport.write(self._outgoing.read())
