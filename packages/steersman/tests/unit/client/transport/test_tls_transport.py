"""TLS with correct and faulty servers, and memory per connection."""

from __future__ import annotations

import asyncio
import ssl
import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from framework_support.certificates import CertificateAuthority
from steersman.client.transport.http1 import Disconnected, Origin
from steersman.client.transport.pool import ConnectionPool

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def server_context(directory: Path, authority: CertificateAuthority) -> ssl.SSLContext:
    """Return a server context with a certificate of ``authority``."""
    certificate, key = authority.issue("server", names=["server"])
    (directory / "server.pem").write_bytes(certificate + key)
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.certificate.decode())
    serving.load_cert_chain(directory / "server.pem")
    return serving


@asynccontextmanager
async def serve_tls(
    directory: Path, handler: Handler, version: ssl.TLSVersion | None = None
) -> AsyncGenerator[Origin]:
    """Run a TLS server that closes each connection after ``handler`` returns."""
    authority = CertificateAuthority()
    tls_context = server_context(directory, authority)
    if version is not None:
        tls_context.maximum_version = version
    client_context = ssl.create_default_context(cadata=authority.certificate.decode())

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError):
            await handler(reader, writer)
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls_context)
    try:
        yield Origin("127.0.0.1", server.sockets[0].getsockname()[1], client_context, "server")
    finally:
        server.close()


def respond_with(*responses: bytes) -> Handler:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for response in responses:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(response)
        await writer.drain()

    return handle


async def wait_until_closed(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


def with_content_length(body: bytes) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def send_request(pool: ConnectionPool, origin: Origin, request: bytes = REQUEST) -> bytes:
    connection = await pool.acquire(origin)
    try:
        return (await connection.send(request)).body
    finally:
        pool.release(connection)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_tls_transfers_bodies_of_any_size(tmp_path: Path, version: ssl.TLSVersion) -> None:
    large = bytes(range(256)) * 20_000

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(with_content_length(await reader.readexactly(len(large))))
            await writer.drain()

    head = f"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: {len(large)}\r\n\r\n".encode()
    async with serve_tls(tmp_path, echo, version) as origin:
        pool = ConnectionPool()
        assert [await send_request(pool, origin, head + large) for _ in range(2)] == [large, large]
        pool.abort()


async def test_tls_slow_stream_reader_receives_everything(tmp_path: Path) -> None:
    """The data exceeds the buffer, so reading pauses and resumes repeatedly."""
    lines = [b"%07d" % number * 1000 for number in range(2000)]
    stream = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % sum(len(line) + 1 for line in lines)
    async with serve_tls(tmp_path, respond_with(stream + b"".join(line + b"\n" for line in lines))) as origin:
        connection = await ConnectionPool().acquire(origin)
        await connection.send(REQUEST, stream=True)
        found: list[bytes] = []
        async for line in connection.lines(10):
            found.append(line)
            if len(found) % 50 == 0:
                await asyncio.sleep(0)
        assert found == lines


async def test_tls_response_without_length_ends_at_close_notify(tmp_path: Path) -> None:
    async with serve_tls(tmp_path, respond_with(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall of it")) as origin:
        assert await send_request(ConnectionPool(), origin) == b"all of it"


async def test_tls_truncated_response_raises_disconnected(tmp_path: Path) -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nnot all")
        # The TCP connection ends without a TLS close_notify.
        writer.transport.get_extra_info("socket").shutdown(1)
        await reader.read()

    async with serve_tls(tmp_path, cut) as origin:
        with pytest.raises(Disconnected, match="closed"):
            await send_request(ConnectionPool(), origin)


async def test_tls_handshake_closed_by_server_fails_at_once() -> None:
    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(leave, "127.0.0.1", 0)
    origin = Origin("127.0.0.1", server.sockets[0].getsockname()[1], ssl.create_default_context(), "server")
    async with asyncio.timeout(5):
        with pytest.raises(ConnectionError):
            await ConnectionPool().acquire(origin)
    server.close()


async def test_tls_cancelled_handshake_closes_connection() -> None:
    ended = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while await reader.read(4096):
                pass
        ended.set()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    origin = Origin("127.0.0.1", server.sockets[0].getsockname()[1], ssl.create_default_context(), "server")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await ConnectionPool().acquire(origin)
    async with asyncio.timeout(5):
        await ended.wait()
    server.close()


async def test_tls_plaintext_server_raises_ssl_error() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    origin = Origin("127.0.0.1", server.sockets[0].getsockname()[1], ssl.create_default_context(), "server")
    with pytest.raises(ssl.SSLError):
        await ConnectionPool().acquire(origin)
    server.close()


async def handshake_without_close(
    tls_context: ssl.SSLContext, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> ssl.SSLError | None:
    """Return the handshake error of a server that keeps the connection open."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = tls_context.wrap_bio(incoming, outgoing, server_side=True)
    while True:
        try:
            return tls.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            return error
        finally:
            writer.write(outgoing.read())
        if received := await reader.read(2**16):
            incoming.write(received)
        else:
            incoming.write_eof()


async def test_tls_alert_after_handshake_keeps_its_reason(tmp_path: Path) -> None:
    """A TLS 1.3 server may reject the client certificate after receiving data."""
    authority = CertificateAuthority()
    serving = server_context(tmp_path, authority)
    serving.verify_mode = ssl.CERT_REQUIRED

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await handshake_without_close(serving, reader, writer)
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    trusting = ssl.create_default_context(cadata=authority.certificate.decode())
    origin = Origin("127.0.0.1", server.sockets[0].getsockname()[1], trusting, "server")
    with pytest.raises(Disconnected, match=r"TLS failed: .*CERTIFICATE_REQUIRED"):
        await send_request(ConnectionPool(), origin)
    server.close()


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_tls_rejected_server_receives_alert(
    tmp_path: Path, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    serving = server_context(tmp_path, CertificateAuthority())

    async def use() -> None:
        told = asyncio.get_running_loop().create_future()

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            told.set_result(await handshake_without_close(serving, reader, writer))
            writer.close()

        server = await asyncio.start_server(listen, "127.0.0.1", 0)
        origin = Origin("127.0.0.1", server.sockets[0].getsockname()[1], ssl.create_default_context(), "server")
        with pytest.raises(ssl.SSLCertVerificationError):
            await ConnectionPool().acquire(origin)
        async with asyncio.timeout(5):
            assert "UNKNOWN_CA" in str(await told)
        server.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(use())


async def test_tls_deferred_write_is_sent_after_server_data(tmp_path: Path) -> None:
    """A TLS 1.2 server may start a renegotiation."""
    held_up = asyncio.Event()

    class Renegotiating(ssl.SSLObject):
        def write(self, data: Any) -> int:
            if not held_up.is_set():
                held_up.set()
                raise ssl.SSLWantReadError
            return super().write(data)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await held_up.wait()
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await respond_with(with_content_length(b"written"))(reader, writer)

    async with serve_tls(tmp_path, handle, ssl.TLSVersion.TLSv1_2) as origin:
        assert origin.tls is not None
        origin.tls.sslobject_class = Renegotiating
        assert await send_request(ConnectionPool(), origin) == b"written"


async def test_tls_idle_connections_use_little_memory(tmp_path: Path) -> None:
    """Each watched namespace needs a connection.

    The TLS of asyncio allocates 256 KiB for each connection.
    """
    number = 20
    async with serve_tls(tmp_path, wait_until_closed) as origin:
        pool = ConnectionPool()
        await pool.acquire(origin)
        tracemalloc.start()
        try:
            await asyncio.gather(*(pool.acquire(origin) for _ in range(number)))
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # The server of each connection uses asyncio in this process.
        assert held / number < (256 + 48) * 1024
        pool.abort()


def test_tls_on_uvloop(tmp_path: Path) -> None:
    async def use() -> None:
        async with serve_tls(
            tmp_path, respond_with(with_content_length(b"one"), with_content_length(b"two" * 100_000))
        ) as origin:
            pool = ConnectionPool()
            assert [await send_request(pool, origin) for _ in range(2)] == [b"one", b"two" * 100_000]
            pool.abort()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(use())
