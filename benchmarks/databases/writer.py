"""Writing client of the measurements, in a pod of the server's image.

Arguments: Python driver, connection string, rows per second and table. The table defaults to `written`. Each line of
the output contains the row number, the Unix timestamp of the acknowledgement in seconds and the server's identity.
The client runs until it receives a signal.

The address of a Service is constant, so the host is resolved only once. Otherwise the loss of a node with a DNS
server would add DNS timeouts to the measurement.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import socket
import ssl
import sys
import time
from typing import Any

_SILENT_SECONDS = 3.0  # timeout for an unresponsive server. The connection string may override it
_SERVER_QUERY = {"psycopg2": "SELECT host(inet_server_addr())", "pymysql": "SELECT @@hostname"}


def main(driver: str, login: str, rate: float, table: str) -> None:
    """Write rows until terminated. Each row number is used only once."""
    error, connect = importlib.import_module(driver).Error, {"psycopg2": postgresql, "pymysql": mysql}[driver]
    cursor, server = None, ""
    for number in itertools.count():
        begun = time.monotonic()
        try:
            if cursor is None:
                cursor = connect(login).cursor()
                cursor.execute(_SERVER_QUERY[driver])
                (server,) = cursor.fetchone()
            cursor.execute(f"INSERT INTO {table} (number) VALUES (%s)", (number,))
        except (error, OSError) as failure:
            cursor = None
            sys.stderr.write(f"{time.time():.3f} {str(failure).splitlines()[0]}\n")
        else:
            sys.stdout.write(f"{number} {time.time():.4f} {server}\n")
            sys.stdout.flush()
        time.sleep(max(0.0, 1 / rate - (time.monotonic() - begun)))


@functools.cache
def resolve_once(host: str) -> str:
    """Resolve a host once and cache its address."""
    return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])


def parse_connection_string(login: str) -> dict[str, str]:
    """Parse a connection string into keywords and values."""
    return dict(word.split("=", 1) for word in login.split())


def postgresql(login: str) -> Any:
    """Connect to PostgreSQL with a libpq connection string, including timeouts."""
    host = parse_connection_string(login)["host"]
    connection = importlib.import_module("psycopg2").connect(f"{login} hostaddr={resolve_once(host)}")
    connection.autocommit = True
    return connection


def mysql(login: str) -> Any:
    """Connect to MySQL; ``ca`` enables verification of the server."""
    parameters = parse_connection_string(login)
    timeout_seconds = float(parameters.get("read_timeout", _SILENT_SECONDS))
    tls_context = ssl.create_default_context(cafile=parameters.get("ca"))
    if "ca" not in parameters:
        tls_context.check_hostname, tls_context.verify_mode = False, ssl.CERT_NONE
    host, port = parameters["host"], int(parameters["port"])
    connection = importlib.import_module("pymysql").connect(
        host=host,
        user=parameters["user"],
        database=parameters["dbname"],
        password=os.environ["MYSQL_PWD"],
        ssl=tls_context,
        autocommit=True,
        read_timeout=timeout_seconds,
        write_timeout=timeout_seconds,
        defer_connect=True,
    )
    connection.connect(socket.create_connection((resolve_once(host), port), timeout=timeout_seconds))
    return connection


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), *(sys.argv[4:] or ["written"]))
