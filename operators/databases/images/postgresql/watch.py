#!/usr/bin/python3 -I
"""steersman-watch: looks after this member beside Patroni, for the container's life.

It tells at the pod how full the volumes are, each time that one crosses a step.

It takes a replica out of reads that does not follow although the primary serves, until it does: Patroni's tag
``noloadbalance`` is what the readiness probe goes by. And it ends a replica whose data are lost below it: what was
opened before hides that from Patroni, and the next start says so.
"""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import time
from collections.abc import Mapping, Sequence
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Protocol

from steersman_pod.volumes import levels

VOLUMES = {"data": Path("/var/lib/steersman/data"), "wal": Path("/var/lib/steersman/wal")}
SEGMENT = 16 << 20  # of WAL, in bytes, by default: a server that cannot make the next one stops
PATRONI = 1  # its process
CLUSTER = Path("/etc/steersman/patroni/patroni.yaml")
POD = Path("/run/steersman/patroni/pod.yaml")
STANDBY = VOLUMES["data"] / "pgdata/standby.signal"
LOST = 65  # what steersman-start ends with where the data are
GRACE = 60.0  # seconds that a restart, a new primary or a lock that nobody has taken yet may take
_ASKED_EVERY = 15.0  # seconds; it is the API server that tells whether the primary serves
_CHECKED_EVERY = 30.0
_EVERY = 3.0  # seconds between two looks
_ANSWER = 5.0  # seconds that Patroni has
_WITHIN = 30.0  # seconds for another program; then it is looked again, and what is so by then counts


def segment_size() -> int | None:
    """The size that segments of WAL have, once there are data to tell."""
    command = ["pg_controldata", str(VOLUMES["data"] / "pgdata")]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = re.search(r"^Bytes per WAL segment: *(\d+)", told, re.MULTILINE)
    return int(found[1]) if found else None


def run(command: Sequence[str]) -> int | None:
    """What a program ends with; None where it does not."""
    try:
        return subprocess.run(command, timeout=_WITHIN, check=False).returncode
    except subprocess.TimeoutExpired:
        return None


class Look(Protocol):
    """Something that is looked at again and again; ``now`` is in seconds."""

    def look(self, now: float) -> None: ...


class Room:
    """How full the volumes are."""

    def __init__(self) -> None:
        self._told: Mapping[str, int] | None = None
        self._seen: dict[str, int] = {}
        self._size: int | None = None

    def look(self, now: float) -> None:
        """Tells it at the pod where it is another than before."""
        self._size = self._size or segment_size()
        self._seen = levels(VOLUMES, self._seen, self._size or SEGMENT)
        if self._seen != self._told and run(["steersman-role", "note", json.dumps(self._seen)]) == 0:
            self._told = self._seen


class Reads:
    """Whether this member is there for reads."""

    def __init__(self) -> None:
        self._due: float | None = None
        self._well = 0

    def look(self, now: float) -> None:
        """Takes it out where it has strayed for `GRACE` and another serves as primary, and back where either ends.

        Where that cannot be told, with the API server away, it stays as it is.
        """
        said = answer("/patroni")
        if said is None:
            return
        if not strays(said):
            self._well += 1
            # One that asks in vain for what it needs streams for a moment, each time that it asks.
            if self._due is None or self._well > 1:
                self._due = None
                let_read(True)
            return
        self._well = 0
        if self._due is None:
            self._due = now + GRACE
        elif now >= self._due:
            self._due = now + _ASKED_EVERY
            serves = run(["steersman-role", "serves", scope()])
            if serves in (0, 1):
                let_read(serves == 1)


def strays(said: Mapping[str, Any]) -> bool:
    """Whether a member that says this is a replica that serves, and does not follow who has the lock."""
    serves = said.get("role") == "replica" and said.get("state") == "running"
    return serves and said.get("replication_state") != "streaming" and not said.get("cluster_unlocked")


def answer(path: str) -> Mapping[str, Any] | None:
    """What Patroni says of this member; None where it does not.

    Not of the cluster: for ``/cluster`` it would read the lock again beside its own loop, which then could take one
    that it has not looked at.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # It is in this pod.
    connection = HTTPSConnection("localhost", 8008, timeout=_ANSWER, context=context)
    try:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())
    except (OSError, HTTPException, ValueError):
        return None
    finally:
        connection.close()


def scope() -> str:
    """The cluster's name."""
    return json.loads(CLUSTER.read_text())["scope"]


def let_read(reads: bool) -> None:
    """Has Patroni know it, which reads its files again when it is told to."""
    told = json.loads(POD.read_text())
    if told["tags"].get("noloadbalance", False) is not reads:
        return
    told["tags"]["noloadbalance"] = not reads
    fresh = POD.with_suffix(".fresh")
    fresh.write_text(json.dumps(told))
    fresh.replace(POD)
    os.kill(PATRONI, signal.SIGHUP)


class Data:
    """Whether the data are there."""

    def __init__(self) -> None:
        self._next = 0.0
        self._lost = False

    def look(self, now: float) -> None:
        """Ends a replica whose data are lost, seen twice: a file may be on its way. A primary is left alone."""
        if now < self._next or not STANDBY.exists():
            return
        self._next = now + _CHECKED_EVERY
        lost = run(["steersman-start", "check"]) == LOST
        if lost and self._lost:
            os.kill(PATRONI, signal.SIGTERM)
        self._lost = lost


def main() -> None:
    """Looks for ever. What goes wrong ends it, and steersman-start has it started again."""
    looks: Sequence[Look] = (Room(), Reads(), Data())
    while True:
        for each in looks:
            each.look(time.monotonic())
        time.sleep(_EVERY)


if __name__ == "__main__":
    main()
