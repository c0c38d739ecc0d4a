"""Tests send no traffic to other machines."""

from __future__ import annotations

import asyncio
import socket

import pytest

SERVICE = "10.96.0.1"


def test_a_services_address_is_refused() -> None:
    with pytest.raises(AssertionError, match="use kubectl port-forward"):
        socket.create_connection((SERVICE, 443), timeout=1)
    with pytest.raises(AssertionError, match="use kubectl port-forward"):
        asyncio.run(asyncio.wait_for(asyncio.open_connection(SERVICE, 443), 1))


def test_loopback_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()[:2]):
        pass
