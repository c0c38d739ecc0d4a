"""Limit of the bytes that a server may send for one statement.

A server of ``serverRef`` may be anybody's. Drivers keep whole results in memory, and have no limit.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from types import TracebackType

from steersman_databases.engines.connection.input_limits import MAX_RECEIVED_BYTES
from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.server import ServerEndpoint

_CHECK_SECONDS = 0.05
# struct tcp_info of linux/tcp.h: tcpi_bytes_received.
_BYTES_RECEIVED = struct.Struct("=128xQ")


class ReceiveLimit:
    """Aborts a connection that receives too much during the block.

    The kernel counts the bytes, since no driver does.

    Args:
        descriptor: of the TCP socket.
        abort: ends the connection.

    Attributes:
        exceeded: the connection was aborted.
    """

    def __init__(self, descriptor: int, abort: Callable[[], None]) -> None:
        self._descriptor, self._abort = descriptor, abort
        self._end = 0
        self._timer: asyncio.TimerHandle | None = None
        self.exceeded = False

    def __enter__(self) -> ReceiveLimit:
        self._end = _received_bytes(self._descriptor) + MAX_RECEIVED_BYTES
        self._schedule()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def error(self, endpoint: ServerEndpoint, operation: str) -> ServerUnreachable:
        """Return the error of an aborted statement."""
        limit = f"{MAX_RECEIVED_BYTES // 1024**2} MiB"
        return ServerUnreachable(endpoint, f"the server sends more than {limit} for one statement, while {operation}")

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_CHECK_SECONDS, self._check)

    def _check(self) -> None:
        if _received_bytes(self._descriptor) <= self._end:
            self._schedule()
            return
        self.exceeded = True
        self._abort()


def _received_bytes(descriptor: int) -> int:
    """Return the bytes that a connection has received. 0 if it is closed, or no TCP connection."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as duplicate:
            found = duplicate.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_RECEIVED.size)
    except OSError:
        return 0
    return int(_BYTES_RECEIVED.unpack(found)[0]) if len(found) == _BYTES_RECEIVED.size else 0
