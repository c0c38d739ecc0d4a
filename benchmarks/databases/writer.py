"""The client of the measurements, in a pod of the server's image: writes rows and says what was acknowledged.

Arguments: connection string, rows a second, and the table unless it is `written`. A line of its output is a row's
number and the moment of its acknowledgement, in seconds of the epoch. It ends when it is told to.
"""

from __future__ import annotations

import importlib
import itertools
import sys
import time


def main(conninfo: str, rate: float, table: str) -> None:
    """A number is used once: whether a row that was not acknowledged is there makes no difference."""
    driver = importlib.import_module("psycopg2")
    cursor = None
    for number in itertools.count():
        begun = time.monotonic()
        try:
            if cursor is None:
                connection = driver.connect(conninfo)
                connection.autocommit = True
                cursor = connection.cursor()
            cursor.execute(f"INSERT INTO {table} VALUES (%s)", (number,))
        except driver.Error as error:
            cursor = None
            sys.stderr.write(f"{time.time():.3f} {str(error).splitlines()[0]}\n")
        else:
            sys.stdout.write(f"{number} {time.time():.4f}\n")
            sys.stdout.flush()
        time.sleep(max(0.0, 1 / rate - (time.monotonic() - begun)))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), *(sys.argv[3:] or ["written"]))
