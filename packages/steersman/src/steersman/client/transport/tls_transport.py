"""TLS transport with little memory for each idle connection.

asyncio and uvloop allocate a buffer of 256 KiB for each TLS connection, which is most of the memory of an idle watch.
Here connections have no buffers. Received bytes go into the buffer of the protocol, and OpenSSL reads them at once.
The decrypted bytes go into the same buffer.

Source: RFC 8446 (TLS 1.3), RFC 9112 section 9.8 (connections closed without close_notify), OpenSSL's memory BIOs.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import cast

# Maximum bytes per read. The memory BIO of OpenSSL never shrinks below its largest content.
_READ_SIZE_BYTES = 2**15


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """TLS layer between a TCP transport and ``protocol``.

    It is the protocol of the TCP transport and the transport of ``protocol``. It calls ``connection_made`` of
    ``protocol`` after the TLS handshake. A server's protocol observes failed handshakes as ``connection_lost``.

    Args:
        protocol: protocol above TLS. Its buffer is used for both encrypted and decrypted bytes.
        context: TLS settings.
        server_hostname: name that the certificate of the server must contain. None for the server's side.
        loop: event loop of the connection.
    """

    def __init__(
        self,
        protocol: asyncio.BufferedProtocol,
        context: ssl.SSLContext,
        server_hostname: str | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__()
        self._protocol = protocol
        self._loop = loop
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._server_side = server_hostname is None
        self._tls = context.wrap_bio(self._incoming, self._outgoing, self._server_side, server_hostname)
        # The type stubs lack this overload: with a buffer of any type, read() returns the number of bytes.
        self._read_into = cast("Callable[[int, memoryview], int]", self._tls.read)
        self._transport: asyncio.Transport | None = None
        self._handshake_done: asyncio.Future[None] = loop.create_future()
        self._write_buffer = b""
        self._error: ssl.SSLError | None = None
        self._paused = False
        self._eof_received = False

    async def wait_handshake(self) -> None:
        """Wait for the TLS handshake. Cancellation closes the connection.

        Raises:
            OSError: the connection broke.
            ssl.SSLError: the handshake failed, for example because the certificate is not trusted.
        """
        try:
            await self._handshake_done
        except BaseException:
            self.abort()
            raise

    # Callbacks of the TCP transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the TCP transport and begin the handshake."""
        # No assertion: the transports of uvloop do not inherit from asyncio.Transport.
        self._transport = cast("asyncio.Transport", transport)
        self._pump()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for received bytes, which is reused."""
        return memoryview(self._protocol.get_buffer(sizehint))[:_READ_SIZE_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypt the received bytes."""
        self._incoming.write(self.get_buffer(nbytes)[:nbytes])
        self._pump()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the handshake, or report the end to the protocol."""
        self._transport = None
        exc = self._error or exc
        if exc is None and not self._eof_received:
            # Without close_notify, an attacker on the network could have truncated the response.
            exc = ConnectionResetError("the server closed the connection")
        if self._handshake_done.done() or self._server_side:
            self._protocol.connection_lost(exc)
        else:
            self._handshake_done.set_exception(exc or ConnectionResetError("the server closed the connection"))

    def pause_writing(self) -> None:
        """Report a slow reader to the protocol."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Report that the reader has caught up."""
        self._protocol.resume_writing()

    # Methods that the protocol calls

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send ``data``."""
        self._write_buffer += data
        self._run_step(self._encrypt)

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that are not sent yet."""
        return len(self._write_buffer) + (
            self._transport.get_write_buffer_size() if self._transport is not None else 0
        )

    def pause_reading(self) -> None:
        """Pass no data to the protocol until ``resume_reading``."""
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading after ``pause_reading``."""
        self._paused = False
        if self._transport is not None:
            self._transport.resume_reading()
        # The TCP transport does not report the bytes again that arrived before the pause.
        self._loop.call_soon(self._pump)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Pass further data to ``protocol``."""
        assert isinstance(protocol, asyncio.BufferedProtocol)
        self._protocol = protocol

    def is_closing(self) -> bool:
        """Return True if the connection is closed or closing."""
        return self._transport is None or self._transport.is_closing()

    def can_write_eof(self) -> bool:
        """Return False: TLS cannot close one direction only."""
        return False

    def close(self) -> None:
        """Close the connection after the buffered data and TLS's close_notify are sent."""
        if self._transport is not None:
            with suppress(ssl.SSLError):
                self._tls.unwrap()
            self._flush()
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once, without sending buffered data."""
        if self._transport is not None:
            self._transport.abort()

    # Private

    def _pump(self) -> None:
        """Continue the handshake, decrypt received bytes and encrypt waiting ones."""
        self._run_step(self._handshake)
        if self._write_buffer:
            self._run_step(self._encrypt)

    def _run_step(self, step: Callable[[], None]) -> None:
        """Run ``step`` until it needs more received bytes, then send its output.

        A TLS error ends the connection, after its alert is sent.
        """
        try:
            step()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._error = error
        self._flush()
        if self._error is not None:
            if not self._handshake_done.done() and not self._server_side:
                self._handshake_done.set_exception(self._error)
            self.abort()

    def _handshake(self) -> None:
        if not self._handshake_done.done():
            self._tls.do_handshake()
            self._protocol.connection_made(self)
            self._handshake_done.set_result(None)
        self._decrypt()

    def _encrypt(self) -> None:
        """Encrypt the waiting bytes.

        SSLWantReadError is raised during a renegotiation. The remaining bytes follow it.
        """
        while self._write_buffer:
            self._write_buffer = self._write_buffer[self._tls.write(self._write_buffer) :]

    def _decrypt(self) -> None:
        """Decrypt the received bytes. Raises SSLWantReadError after the last one."""
        while self._transport is not None and not self._paused and not self._eof_received:
            buffer = memoryview(self._protocol.get_buffer(-1))
            count = self._read_into(len(buffer), buffer)
            if count:
                self._protocol.buffer_updated(count)
            else:
                self._eof_received = True
                self._transport.close()

    def _flush(self) -> None:
        if self._outgoing.pending and self._transport is not None:
            self._transport.write(self._outgoing.read())
