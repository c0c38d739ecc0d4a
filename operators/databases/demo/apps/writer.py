"""Writes a row every 20 ms through the pooler, and tells every second how that went, as JSON; at SIGTERM a last time.

An error is any statement that was not carried out: it is counted, and the next one follows on a new connection.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time

import psycopg

_EVERY = 0.02


def main() -> None:
    """Until SIGTERM."""
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    written = errors = 0
    longest = 0.0
    connection: psycopg.Connection | None = None
    told, last, words = 0.0, time.monotonic(), ""
    while True:
        try:
            if connection is None:
                # The rest is in the environment: PGHOST, PGUSER, PGPASSWORD and so on.
                connection = psycopg.connect(autocommit=True, connect_timeout=30, prepare_threshold=None)
            connection.execute("INSERT INTO visits (who) VALUES (%s)", (os.environ["HOSTNAME"],))
        except psycopg.Error as error:
            errors, words = errors + 1, str(error).strip()
            if connection is not None:
                with contextlib.suppress(psycopg.Error):
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
