"""Log in five times a second with the mounted Secret. Report as JSON."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import psycopg

_SECRET = Path("/secret")
_EVERY = 0.2


def main() -> None:
    """Until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    logins = failed = 0
    told, words = 0.0, ""
    names: list[str] = []
    while True:
        # Kubelets replace a Secret's files all at once, by one link: what is read through it belongs together.
        held = Path(os.path.realpath(_SECRET / "..data"))
        try:
            read = {key: (held / key).read_text() for key in ("host", "port", "dbname", "username", "password")}
        except FileNotFoundError:
            # Replaced just now: the link leads elsewhere.
            continue
        try:
            with psycopg.connect(
                host=read["host"],
                port=read["port"],
                dbname=read["dbname"],
                user=read["username"],
                password=read["password"],
                sslmode="verify-full",
                sslrootcert=str(_SECRET / "ca.crt"),
                connect_timeout=10,
            ) as connection:
                connection.execute("SELECT count(*) FROM visits")
        except psycopg.Error as error:
            failed, words = failed + 1, str(error).strip()
        else:
            logins += 1
            if read["username"] not in names:
                names.append(read["username"])
        if time.monotonic() - told >= 1:
            told = time.monotonic()
            sys.stdout.write(json.dumps({"logins": logins, "failed": failed, "names": names, "last": words}) + "\n")
            sys.stdout.flush()
        time.sleep(_EVERY)


if __name__ == "__main__":
    main()
