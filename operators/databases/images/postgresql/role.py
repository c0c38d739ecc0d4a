#!/usr/bin/python3 -I
"""steersman-role ACTION ROLE CLUSTER: Patroni's callback. The primary writes itself into the EndpointSlices of -rw.

Then it has the accounts that the cluster needs: on a new volume, and on one that comes from elsewhere.
steersman-role note LEVELS is steersman-watch's word about this pod. steersman-role former CLUSTER ends with 0 where
this pod led last, or nobody knows who did, and steersman-role serves CLUSTER where another serves as primary.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from steersman_pod import leading
from steersman_pod.api_server import Answer, ApiServer, Request, carry_out, persistent
from steersman_pod.leading import Pod, this_pod

SLICES = Path("/etc/steersman/patroni/slices")
ROLES = "/etc/steersman/patroni/roles.sql"
# What a user may have set for all sessions, and with which there would be no accounts. What servers of some versions
# alone have, the SQL itself sets.
PINNED = (
    "-c default_transaction_read_only=off -c statement_timeout=0 -c lock_timeout=0"
    " -c idle_in_transaction_session_timeout=0"
)
STORAGE = "databases.steersman.dev/storage"


def take(pod: Pod, cluster: str, slice_path: str, leader_path: str) -> Generator[Request, Answer, None]:
    """The requests that make a slice this pod's, as long as it has Patroni's lock."""

    def leadership(lock: Mapping[str, Any]) -> str | None:
        held: Mapping[str, str] = lock["metadata"].get("annotations") or {}
        if held.get("leader") != pod.name:
            return None
        return f"{held.get('transitions', '0')} {held.get('acquireTime', '')}"

    owner = leading.Owner("PostgreSQLCluster", "postgresql", cluster)
    return leading.take(pod, owner, slice_path, leader_path, leadership)


def note(pod: Pod, levels: str) -> Generator[Request, Answer, None]:
    """The request that writes at this pod how full its volumes are; a later pod of its name is left alone."""
    metadata = {"uid": pod.uid, "annotations": {STORAGE: levels}}
    yield Request(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}", {"metadata": metadata})


def led_last(pod: Pod, sync_path: str) -> Generator[Request, Answer, bool]:
    """Whether this pod did, or may have: only members of a quorum agreed on it before.

    Without synchronous replication nobody is named, and with priorities whoever gets the lock names itself first.
    """
    found = yield Request(sync_path)
    held: Mapping[str, str] = {} if found.status == 404 else found.body["metadata"].get("annotations") or {}
    return held.get("leader") in (None, "", pod.name)


def another_serves(pod: Pod, leader_path: str) -> Generator[Request, Answer, bool]:
    """Whether another pod holds the lock, and its server answers it as primary."""
    leader = yield Request(leader_path)
    held: Mapping[str, str] = {} if leader.status == 404 else leader.body["metadata"].get("annotations") or {}
    if held.get("leader") in (None, "", pod.name):
        return False
    found = yield Request(f"/api/v1/namespaces/{pod.namespace}/pods/{held['leader']}")
    told: Mapping[str, str] = {} if found.status == 404 else found.body["metadata"].get("annotations") or {}
    said = json.loads(told.get("status") or "{}")
    # A position it tells only where its server answers.
    return said.get("state") == "running" and said.get("role") == "primary" and "xlog_location" in said


def main(arguments: Sequence[str]) -> None:
    """Arguments are Patroni's: what happened, the role now, the cluster. Or ``note``, ``former``, ``serves``."""
    pod, server = this_pod(os.environ), ApiServer("steersman-role")
    store = f"/api/v1/namespaces/{pod.namespace}/configmaps"
    # What the generators understand.
    answer = partial(persistent, server, (200, 404, 409), math.inf)
    match list(arguments):
        case ["note", levels]:
            carry_out(note(pod, levels), answer)
        case ["former", cluster]:
            sys.exit(not carry_out(led_last(pod, f"{store}/{cluster}-sync"), answer))
        case ["serves", cluster]:
            sys.exit(not carry_out(another_serves(pod, f"{store}/{cluster}-leader"), answer))
        case [_, "primary", cluster]:
            slices = f"/apis/discovery.k8s.io/v1/namespaces/{pod.namespace}/endpointslices"
            for name in SLICES.read_text().split():
                carry_out(take(pod, cluster, f"{slices}/{name}", f"{store}/{cluster}-leader"), answer)
            have_accounts()
        case _:
            pass


def have_accounts() -> None:
    """Those that the cluster needs."""
    quiet = ("--no-psqlrc", "--quiet", "--output=/dev/null")
    options = (*quiet, "--set=ON_ERROR_STOP=1", "--dbname=postgres", f"--file={ROLES}")
    subprocess.run(["psql", *options], check=True, env={**os.environ, "PGOPTIONS": PINNED})


if __name__ == "__main__":
    main(sys.argv[1:])
