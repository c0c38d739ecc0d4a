"""Open connections of a server, with the limits that they share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class LimitedConnection(Protocol):
    """A connection that can be closed to make room for another one."""

    @property
    def is_idle(self) -> bool:
        """True if no request is complete and unanswered."""
        ...

    def reset(self) -> None:
        """Close the connection at once."""
        ...


C = TypeVar("C", bound=LimitedConnection)


class OpenConnections(Generic[C]):
    """Connections from accept to close, TLS handshakes included.

    Each pod of a cluster can connect. At a limit the connection that does least is closed, so that idle and slow
    clients cannot block others.

    Args:
        max_connections: above it, the connection that has been idle for longest is closed. If none is idle, the new
            one is closed.
        max_body_bytes: total bytes of request bodies in memory. Above it, the connection with the oldest incomplete
            body is closed.
    """

    def __init__(self, max_connections: float = math.inf, max_body_bytes: float = math.inf) -> None:
        self._max_connections = max_connections
        self._max_body_bytes = max_body_bytes
        # In the order of their last response, or of their accept.
        self._connections: dict[C, None] = {}
        # In the order in which their bodies began.
        self._body_bytes: dict[C, int] = {}
        self._total_body_bytes = 0

    def __iter__(self) -> Iterator[C]:
        """Iterate over the connections."""
        return iter(self._connections)

    def admit(self, connection: C) -> bool:
        """Add a new connection. Return False if it has to be closed."""
        if len(self._connections) >= self._max_connections:
            idle = next((c for c in self._connections if c.is_idle), None)
            if idle is None:
                return False
            self.discard(idle)
            idle.reset()
        self._connections[connection] = None
        return True

    def discard(self, connection: C) -> None:
        """Remove a closed connection."""
        self._connections.pop(connection, None)
        self._total_body_bytes -= self._body_bytes.pop(connection, 0)

    def responded(self, connection: C, body_bytes: int) -> None:
        """Record that a request with a body of ``body_bytes`` has its response."""
        if connection in self._connections:
            del self._connections[connection]
            self._connections[connection] = None
        if body_bytes and connection in self._body_bytes:
            self._total_body_bytes -= body_bytes
            self._body_bytes[connection] -= body_bytes
            if not self._body_bytes[connection]:
                del self._body_bytes[connection]

    def received(self, connection: C, body_bytes: int) -> None:
        """Count received bytes of a body, and enforce the total limit."""
        self._body_bytes[connection] = self._body_bytes.get(connection, 0) + body_bytes
        self._total_body_bytes += body_bytes
        while self._total_body_bytes > self._max_body_bytes:
            oldest = next((c for c in self._body_bytes if c.is_idle), connection)
            self.discard(oldest)
            oldest.reset()
