"""Reserved loopback ports, so that parallel tests do not collide."""

from __future__ import annotations

import socket


def reserve_port(*options: int) -> socket.socket:
    """Bind a socket to a free loopback port without listening.

    Args:
        options: socket options, such as ``SO_REUSEPORT``. A server that sets the same option can listen on the
            port. The kernel does not assign it to others. Source: ip(7), socket(7).
    """
    reservation = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    for option in options:
        reservation.setsockopt(socket.SOL_SOCKET, option, 1)
    reservation.bind(("127.0.0.1", 0))
    return reservation
