"""Streams on real sockets.

Lines arrive complete and without delay. Broken and silent streams are detected.
"""

from __future__ import annotations

import asyncio
import ctypes
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from framework_support.loopback_server import Handler, get, transport_to
from steersman.client import HttpRequest, HttpTransport
from steersman.errors import ConnectionFailed, Expired


async def test_stream_detects_dead_peer_by_keepalive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server kernel drops all our segments after the first line."""
    shorter = {"TCP_KEEPIDLE": 1, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 1, "TCP_USER_TIMEOUT": 1000}
    monkeypatch.setattr("steersman.client.transport.pool._TCP_KEEPALIVE", shorter)

    async def cut(request: web.BaseRequest) -> None:
        assert request.transport is not None
        drop_incoming_packets(request.transport.get_extra_info("socket"))
        await asyncio.Event().wait()

    async with (
        transport_to(stream_chunks(b"one\n", then=cut)) as transport,
        transport.stream(get(timeout=600)) as stream,
    ):
        assert await anext(stream) == b"one"
        with pytest.raises(ConnectionFailed, match="timed out"):
            await anext(stream)


def drop_incoming_packets(peer: Any) -> None:
    """Drop all incoming packets of a socket.

    Source: socket(7), ``SO_ATTACH_FILTER``.
    """
    refuse = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
    program = struct.pack("HL", 1, ctypes.addressof(refuse))
    peer.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_ATTACH_FILTER", 26), program)


async def read_lines(transport: HttpTransport, timeout: float = 30.0) -> list[bytes]:
    async with transport.stream(get(timeout=timeout)) as lines:
        return [line async for line in lines]


def stream_chunks(*chunks: bytes, then: Callable[[web.BaseRequest], Awaitable[None]] | None = None) -> Handler:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if then is not None:
            await then(request)
        return response

    return handler


async def test_streamed_lines_are_independent_of_chunks() -> None:
    large = b"x" * 300_000
    async with transport_to(stream_chunks(b"on", b"e\ntwo\n\nth", b"ree\n", large, large, b"\nlast\n")) as transport:
        assert await read_lines(transport) == [b"one", b"two", b"", b"three", large + large, b"last"]


async def test_stream_last_line_without_newline() -> None:
    async with transport_to(stream_chunks(b"one\n", b"tw", b"o")) as transport:
        assert await read_lines(transport) == [b"one", b"two"]


async def test_stream_with_204_is_empty() -> None:
    """For example, the logs of a pod that has not started."""

    async def handler(_: web.BaseRequest) -> web.Response:
        return web.Response(status=204)

    async with transport_to(handler) as transport:
        assert await read_lines(transport) == []


async def test_lines_arrive_before_the_stream_ends() -> None:
    finish = asyncio.Event()

    async def wait(_: web.BaseRequest) -> None:
        await finish.wait()

    async with (
        transport_to(stream_chunks(b"one\ntwo\n", then=wait)) as transport,
        transport.stream(get(timeout=30)) as lines,
    ):
        assert await anext(lines) == b"one"
        assert await anext(lines) == b"two"
        finish.set()
        assert [line async for line in lines] == []


async def test_stream_broken_within_line_raises() -> None:
    async def cut(request: web.BaseRequest) -> None:
        assert request.transport is not None
        request.transport.abort()

    async with transport_to(stream_chunks(b"whole\nha", then=cut)) as transport:
        with pytest.raises(ConnectionFailed, match=r"GET .*pods: "):
            await read_lines(transport)


async def test_stream_idle_timeout_raises() -> None:
    async def hang(_: web.BaseRequest) -> None:
        await asyncio.Event().wait()

    async with transport_to(stream_chunks(b"one\n", then=hang)) as transport:
        with pytest.raises(ConnectionFailed, match=r"GET .*pods: "):
            await read_lines(transport, timeout=0.1)


async def test_rejected_stream_raises_api_error() -> None:
    async def handler(_: web.BaseRequest) -> web.Response:
        return web.json_response(
            {"kind": "Status", "reason": "Expired", "code": 410, "message": "too old"},
            status=410,
            headers={"Retry-After": "2"},
        )

    async with transport_to(handler) as transport:
        with pytest.raises(Expired, match="too old") as caught:
            await read_lines(transport)
    assert caught.value.retry_after == 2.0


async def test_leaving_a_stream_closes_its_connection() -> None:
    closed = asyncio.Event()

    async def wait(_: web.BaseRequest) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            closed.set()

    async with transport_to(stream_chunks(b"one\n", then=wait)) as transport:
        async with transport.stream(get(timeout=30)) as lines:
            assert await anext(lines) == b"one"
        async with asyncio.timeout(30):
            await closed.wait()


async def test_streams_and_requests_run_concurrently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steersman.client.transport.http._MAX_CONNECTIONS", 1)
    finish = asyncio.Event()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(request.path.encode() + b"\n")
        if request.query.get("watch"):
            await finish.wait()
        return response

    def watch(path: str) -> HttpRequest:
        return get(path, query={"watch": "1"}, timeout=30)

    async with (
        transport_to(handler) as transport,
        transport.stream(watch("/one")) as one,
        transport.stream(watch("/two")) as two,
    ):
        assert await anext(one) == b"/one"
        assert (await transport.request(get("/list"))).body == b"/list\n"
        assert await anext(two) == b"/two"
        finish.set()
