"""Write a row every 20 ms and report every second as JSON.

The last report follows SIGTERM. An error is any failed statement: it is counted, and retried on a new connection.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import time
from typing import Any

_EVERY = 0.02
_CA = "/secret/ca.crt"


def connect_postgresql() -> Any:
    """Connect. The environment has the rest: PGHOST, PGUSER, PGPASSWORD and so on."""
    return importlib.import_module("psycopg").connect(autocommit=True, connect_timeout=30, prepare_threshold=None)


def connect_mysql() -> Any:
    """Connect. A server without a response for 3 s is abandoned.

    Its successor has the same address.
    """
    return importlib.import_module("pymysql").connect(
        host=os.environ["DB_HOST"],
        user=os.environ["DB_USER"],
        password=os.environ["DB_PASSWORD"],
        database=os.environ["DB"],
        ssl_ca=_CA,
        ssl_verify_cert=True,
        ssl_verify_identity=True,
        autocommit=True,
        connect_timeout=3,
        read_timeout=3,
        write_timeout=3,
    )


def failures_of(driver: str) -> tuple[type[Exception], ...]:
    """Exceptions of failed statements."""
    return (importlib.import_module(driver).Error, OSError)


def main() -> None:
    """Until SIGTERM."""
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    driver, connect = ("psycopg", connect_postgresql) if "PGHOST" in os.environ else ("pymysql", connect_mysql)
    refused = failures_of(driver)
    written = errors = 0
    longest = 0.0
    connection: Any = None
    told, last, words = 0.0, time.monotonic(), ""
    while True:
        try:
            if connection is None:
                connection = connect()
            row = {"number": written + 1, "who": os.environ["HOSTNAME"]}
            connection.cursor().execute(os.environ["STATEMENT"], row)
        except refused:
            errors, words = errors + 1, str(sys.exception()).strip()
            if connection is not None:
                with contextlib.suppress(*refused):
                    connection.close()
            connection = None
        else:
            now = time.monotonic()
            written, longest, last = written + 1, max(longest, now - last), now
        if ended or time.monotonic() - told >= 1:
            told = time.monotonic()
            news = {"written": written, "errors": errors, "longest": round(longest, 3), "last": words}
            sys.stdout.write(json.dumps(news) + "\n")
            sys.stdout.flush()
        if ended:
            return
        time.sleep(_EVERY)


if __name__ == "__main__":
    main()
