"""The client of the measurements, in a pod of the server's image: writes rows and says what was acknowledged.

Arguments: Python's driver, connection string, rows a second, and the table unless it is `written`. A line of its
output is a row's number, the moment of its acknowledgement in seconds of the epoch, and what tells the server from
others. It ends when it is told to.

A Service has one address for good, so it is looked up once: else it would be measured how long names are not found
when a node is lost that has one of the servers of names.
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

_SILENT_SECONDS = 3.0  # seconds after which a server that does not answer is given up, unless a login says otherwise
_SERVER_QUERY = {"psycopg2": "SELECT host(inet_server_addr())", "pymysql": "SELECT @@hostname"}


def main(driver: str, login: str, rate: float, table: str) -> None:
    """A number is used once: whether a row that was not acknowledged is there makes no difference."""
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
    """As it was found the first time."""
    return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])


def parse_connection_string(login: str) -> dict[str, str]:
    """Of a connection string."""
    return dict(word.split("=", 1) for word in login.split())


def postgresql(login: str) -> Any:
    """A connection by libpq's own words, time-outs included."""
    host = parse_connection_string(login)["host"]
    connection = importlib.import_module("psycopg2").connect(f"{login} hostaddr={resolve_once(host)}")
    connection.autocommit = True
    return connection


def mysql(login: str) -> Any:
    """A connection by words like libpq's. The server is verified where `ca` says by what."""
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
