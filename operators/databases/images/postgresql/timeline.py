"""Unique numbers of timelines in a cluster.

Patroni calls `reserve_next` before a promotion.

PostgreSQL uses the number after the last one that it knows. A member that was unreachable during another promotion
uses the same number. Then Patroni and pg_rewind confuse two histories of WAL, and so does a server that replays
both. So a ConfigMap reserves numbers first, by the database's system identifier. Numbers between the known and the
reserved one get empty history files, because PostgreSQL skips existing ones.

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

from steersman_pod.api_client import ApiClient, ApiRequest, ApiResponse, run_requests, send_with_retries

DATA = Path("/var/lib/steersman/data/pgdata")
# steersman-postgres recognises them by their first character.
RESERVED = "# reserved: elsewhere a timeline of this number may have been begun\n"
# Each is a file. So many failed promotions in a row would be noticed before.
_MAX_SKIPPED = 10_000
# Together with two running requests this is less than the TTL of Patroni's lock, after which another member may
# acquire it.
TIMEOUT_SECONDS = 5.0


def reserve(path: str, system: str, known: int) -> Generator[ApiRequest, ApiResponse, int]:
    """Yield the requests that reserve a number, and return it.

    It is above `known` and all reserved numbers. Without a ConfigMap (of an earlier operator), or with an impossible
    number in it, it is the next local one.

    Args:
        system: system identifier of the data.
    """
    while True:
        found = yield ApiRequest(path)
        if found.status != 200:
            return known + 1
        reserved: Mapping[str, str] = found.body.get("data") or {}
        reserved_text = reserved.get(system, "0")
        if not re.fullmatch(r"[0-9]{1,10}", reserved_text) or int(reserved_text) > known + _MAX_SKIPPED:
            sys.stderr.write(f"steersman: {path} says {reserved_text!r} for {system}, and {known} is known here\n")
            return known + 1
        number = max(known, int(reserved_text)) + 1
        version = found.body["metadata"]["resourceVersion"]
        answer = yield ApiRequest(path, {"metadata": {"resourceVersion": version}, "data": {system: str(number)}})
        if answer.status != 409:
            return number


def skip_timeline(log: Path, timeline: int, number: int) -> None:
    """Make the server at `timeline` use `number` next.

    Files of lower numbers are created, too: a copy lacks them, and a returning replica requests each by name before
    it
    follows. The file of the server's own timeline stays, because the server passes it on.
    """
    for other in range(2, number):
        file = log / f"{other:08X}.history"
        if other != timeline and not file.exists():
            file.write_text(RESERVED)


def control_data(data: Path) -> tuple[str, int]:
    """Return the system identifier and the timeline of the last checkpoint.

    The timeline is the server's own, or an earlier one.
    """
    reported = subprocess.run(["pg_controldata", data], capture_output=True, text=True, check=True).stdout
    system = re.search(r"^Database system identifier: *(\d+)$", reported, re.MULTILINE)
    timeline = re.search(r"^Latest checkpoint's TimeLineID: *(\d+)$", reported, re.MULTILINE)
    if system is None or timeline is None:
        raise LookupError(f"no timeline in {reported!r}")
    return system[1], int(timeline[1])


def reserve_next(cluster: str) -> bool:
    """Reserve a number before a promotion. Return False to prevent it.

    Patroni then releases the lock.
    """
    try:
        store = f"/api/v1/namespaces/{os.environ['POD_NAMESPACE']}/configmaps/{cluster}-timelines"
        log = DATA / "pg_wal"
        system, timeline = control_data(DATA)
        known_timelines = [int(file.stem, 16) for file in log.glob(f"{'[0-9A-F]' * 8}.history")]
        if (known := max([timeline, *known_timelines])) > timeline + _MAX_SKIPPED:
            raise LookupError(f"{log} has a timeline {known}, and the data are of {timeline}")
        deadline = time.monotonic() + TIMEOUT_SECONDS
        answer = partial(send_with_retries, ApiClient("steersman-timeline"), (200, 403, 404, 409), deadline)
        skip_timeline(log, timeline, run_requests(reserve(store, system, known), answer))
    except Exception as error:  # After an unhandled error Patroni would keep the lock without a promotion.
        sys.stderr.write(f"steersman: no number for a timeline, so no promotion: {error!r}\n")
        return False
    return True
