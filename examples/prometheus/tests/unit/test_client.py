"""HTTP client of Prometheus with a server that misbehaves."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Generator
from contextlib import suppress

import pytest

from monitoring_operator.servers import HttpServers, Unreachable, client


@pytest.fixture
def trickling_port() -> Generator[int]:
    """A server that sends a byte every 50 ms."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                    while not ended.wait(0.05):
                        connection.sendall(b" ")

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        ended.set()
        thread.join()


async def test_slow_response_ends_at_the_deadline(trickling_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_RESPONSE_SECONDS", 0.2)
    start = time.monotonic()
    with pytest.raises(Unreachable, match="the response is not complete"):
        await HttpServers(trickling_port).report("127.0.0.1")
    assert time.monotonic() - start < 4
