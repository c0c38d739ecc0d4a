"""Readers in a pod of the server's image: they say which server answered them, and whether it was a replica.

Arguments: a connection string of PostgreSQL, and how many read at once. A line of the output is an answer: the
moment, `t` where the server was in recovery, and its address; anything else is an error.
"""

from __future__ import annotations

import importlib
import sys
import threading
import time
from typing import Any

# So long that they read at the same time, and a pooler needs a connection for each.
_STATEMENT = "SELECT pg_is_in_recovery(), host(inet_server_addr()) FROM pg_sleep(0.3)"


def read(driver: Any, login: str) -> None:
    """Until the process ends, over one connection for as long as it lasts."""
    cursor = None
    while True:
        try:
            if cursor is None:
                connection = driver.connect(login)
                connection.autocommit = True
                cursor = connection.cursor()
            cursor.execute(_STATEMENT)
            recovery, server = cursor.fetchone()
            said = f"{time.time():.3f} {'t' if recovery else 'f'} {server}"
        except driver.Error as failure:
            cursor, said = None, f"error: {str(failure).splitlines()[0]}"
        # One write: threads do not come between.
        sys.stdout.write(said + "\n")
        sys.stdout.flush()
        if cursor is None:
            time.sleep(0.2)


if __name__ == "__main__":
    for _ in range(int(sys.argv[2])):
        threading.Thread(target=read, args=(importlib.import_module("psycopg2"), sys.argv[1])).start()
