#!/usr/bin/python3 -I
"""steersman-timeline CLUSTER: has a promotion begin a timeline with a number that no other one of the cluster's has.

PostgreSQL takes the number after the last that it has heard of. Who was away while another was promoted has not
heard, and takes the same: then Patroni and pg_rewind take two logs for one, and so does a server that begins with the
one and goes on with the other. So numbers are reserved in a ConfigMap first, by the database's system identifier.
Those between what this server knows and its own get history files that say nothing: PostgreSQL leaves out what is
there.

Source: src/backend/access/transam/timeline.c, findNewestTimeLine and readTimeLineHistory.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Generator
from functools import partial
from pathlib import Path

from steersman_pod.api_server import Answer, ApiServer, Request, carry_out, persistent

DATA = Path("/var/lib/steersman/data/pgdata")
# steersman-postgres knows them by their first character.
RESERVED = "# reserved: a timeline of this number was begun elsewhere\n"
# Whoever missed more promotions is not promoted; a ConfigMap that says so was written by hand.
_MOST = 1000


def reserve(path: str, system: str, known: int) -> Generator[Request, Answer, int]:
    """The requests that reserve a number for the data of ``system``; what it is: above ``known`` and all reserved.

    Where there is nothing to write it to, as with an earlier operator, it is only what is next here.
    """
    while True:
        found = yield Request(path)
        if found.status != 200:
            return known + 1
        said = (found.body.get("data") or {}).get(system, "")
        taken = int(said) if re.fullmatch(r"\d{1,10}", said) else 0
        number = max(known, taken if taken < known + _MOST else 0) + 1
        version = found.body["metadata"]["resourceVersion"]
        answer = yield Request(path, {"metadata": {"resourceVersion": version}, "data": {system: str(number)}})
        if answer.status != 409:
            return number


def leave_out(log: Path, timeline: int, number: int) -> None:
    """Has the server that is at ``timeline`` take ``number`` next."""
    for other in range(timeline + 1, number):
        file = log / f"{other:08X}.history"
        if not file.exists():
            # Replicas ask for it by name before they follow: it must be there as long as the timeline is.
            with file.open("w") as opened:
                opened.write(RESERVED)
                opened.flush()
                os.fsync(opened.fileno())
    descriptor = os.open(log, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def control(data: Path) -> tuple[str, int]:
    """The system identifier, and the timeline of the last checkpoint: the server's own, or an earlier one."""
    told = subprocess.run(["pg_controldata", data], capture_output=True, text=True, check=True).stdout
    system = re.search(r"^Database system identifier: *(\d+)$", told, re.MULTILINE)
    timeline = re.search(r"^Latest checkpoint's TimeLineID: *(\d+)$", told, re.MULTILINE)
    if system is None or timeline is None:
        sys.exit(f"steersman-timeline: no timeline in {told!r}")
    return system[1], int(timeline[1])


def main(cluster: str) -> None:
    """Before a promotion."""
    system, timeline = control(DATA)
    log = DATA / "pg_wal"
    heard_of = [int(file.stem, 16) for file in log.glob("????????.history")]
    store = f"/api/v1/namespaces/{os.environ['POD_NAMESPACE']}/configmaps/{cluster}-timelines"
    answer = partial(persistent, ApiServer("steersman-timeline"), (200, 403, 404, 409))
    number = carry_out(reserve(store, system, max(timeline, *heard_of, 1)), answer)
    leave_out(log, timeline, number)


if __name__ == "__main__":
    main(sys.argv[1])
