"""Has a promotion begin a timeline with a number of its own in the cluster. Patroni calls `reserve_next`.

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
import time
from collections.abc import Generator, Mapping
from functools import partial
from pathlib import Path

from steersman_pod.api_server import Answer, ApiServer, Request, carry_out, persistent

DATA = Path("/var/lib/steersman/data/pgdata")
# steersman-postgres knows them by their first character.
RESERVED = "# reserved: elsewhere a timeline of this number may have been begun\n"
# Each is a file. So many promotions have not failed one after the other before somebody looks.
_MOST = 10_000
# With two requests that are on their way then, less than Patroni's lock lasts, which another may take afterwards.
SECONDS = 5.0


def reserve(path: str, system: str, known: int) -> Generator[Request, Answer, int]:
    """The requests that reserve a number for the data of ``system``; what it is: above ``known`` and all reserved.

    Where there is nothing to write it to, as with an earlier operator, or a number that nobody can have reserved, it
    is only what is next here.
    """
    while True:
        found = yield Request(path)
        if found.status != 200:
            return known + 1
        reserved: Mapping[str, str] = found.body.get("data") or {}
        said = reserved.get(system, "0")
        if not re.fullmatch(r"[0-9]{1,10}", said) or int(said) > known + _MOST:
            sys.stderr.write(f"steersman: {path} says {said!r} for {system}, and {known} is known here\n")
            return known + 1
        number = max(known, int(said)) + 1
        version = found.body["metadata"]["resourceVersion"]
        answer = yield Request(path, {"metadata": {"resourceVersion": version}, "data": {system: str(number)}})
        if answer.status != 409:
            return number


def leave_out(log: Path, timeline: int, number: int) -> None:
    """Has the server that is at ``timeline`` take ``number`` next.

    Those before are there then as well: a copy has none of them, and whoever was away asks for each by its name
    before it follows. What the server says of its own timeline stays as it is, since it hands that on.
    """
    for other in range(2, number):
        file = log / f"{other:08X}.history"
        if other != timeline and not file.exists():
            file.write_text(RESERVED)


def control(data: Path) -> tuple[str, int]:
    """The system identifier, and the timeline of the last checkpoint: the server's own, or an earlier one."""
    told = subprocess.run(["pg_controldata", data], capture_output=True, text=True, check=True).stdout
    system = re.search(r"^Database system identifier: *(\d+)$", told, re.MULTILINE)
    timeline = re.search(r"^Latest checkpoint's TimeLineID: *(\d+)$", told, re.MULTILINE)
    if system is None or timeline is None:
        raise LookupError(f"no timeline in {told!r}")
    return system[1], int(timeline[1])


def reserve_next(cluster: str) -> bool:
    """Before a promotion; False where it must not be: Patroni gives the lock back then."""
    try:
        store = f"/api/v1/namespaces/{os.environ['POD_NAMESPACE']}/configmaps/{cluster}-timelines"
        log = DATA / "pg_wal"
        system, timeline = control(DATA)
        heard_of = [int(file.stem, 16) for file in log.glob(f"{'[0-9A-F]' * 8}.history")]
        if (known := max([timeline, *heard_of])) > timeline + _MOST:
            raise LookupError(f"{log} has a timeline {known}, and the data are of {timeline}")
        deadline = time.monotonic() + SECONDS
        answer = partial(persistent, ApiServer("steersman-timeline"), (200, 403, 404, 409), deadline)
        leave_out(log, timeline, carry_out(reserve(store, system, known), answer))
    except Exception as error:  # With any that escapes Patroni would keep the lock and promote nobody.
        sys.stderr.write(f"steersman: no number for a timeline, so no promotion: {error!r}\n")
        return False
    return True
