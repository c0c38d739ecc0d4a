"""An application with two processes that write to the store. It ignores SIGTERM, and never asks again.

Usage: ``python application.py NAME LEADER_PORT STORE_HOST STORE_PORT``.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from http.client import HTTPConnection, HTTPException

_INTERVAL_SECONDS = 0.02


def wait_until_leading(port: int) -> int:
    """Ask the sidecar until this pod leads. Return the term."""
    while True:
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/leader")
            report = json.load(connection.getresponse())
            if report["leading"]:
                return report["term"]
        except (OSError, HTTPException):
            pass  # The sidecar does not listen yet.
        finally:
            connection.close()
        time.sleep(_INTERVAL_SECONDS)


def write(name: str, store_address: tuple[str, int], term: int) -> None:
    """Write to the store until this process is killed."""
    with socket.create_connection(store_address) as store, store.makefile("r") as responses:
        while True:
            store.sendall(f"{name} {term}\n".encode())
            if not responses.readline():
                return
            time.sleep(_INTERVAL_SECONDS)


def main(name: str, leader_port: int, store_address: tuple[str, int]) -> None:
    """Run until this process is killed."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    term = wait_until_leading(leader_port)
    os.fork()
    write(name, store_address, term)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), (sys.argv[3], int(sys.argv[4])))
