"""Ports of this machine that are ours before anybody listens on them, so that tests in parallel do not meet."""

from __future__ import annotations

import socket


def reserve_port(*options: int) -> socket.socket:
    """A socket that is bound to a free loopback port and never listens: the port is ours until it is closed.

    Args:
        options: of sockets, such as ``SO_REUSEPORT``. Who sets one of them, too, can listen on the port nevertheless;
            nobody else is given it. Source: ip(7), socket(7).
    """
    reservation = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    for option in options:
        reservation.setsockopt(socket.SOL_SOCKET, option, 1)
    reservation.bind(("127.0.0.1", 0))
    return reservation
