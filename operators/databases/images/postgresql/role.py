#!/usr/bin/python3 -I
"""steersman-role ACTION ROLE CLUSTER: Patroni's callback.

The primary writes itself into the EndpointSlices of -rw. Then it ensures the accounts that the cluster needs, on new
volumes and on those from elsewhere. Other calls are of steersman-watch and steersman-room:

- `steersman-role note LEVELS` writes the fill levels on the pod.
- `steersman-role writes ERROR` writes on the pod why it accepts no writes. Empty removes it.
- `steersman-role crashes TIMES` writes on the pod when its server has crashed.
- `steersman-role former CLUSTER` ends with 0 if this pod led last, or if that is unknown.
- `steersman-role serves CLUSTER` ends with 0 if another pod serves as primary.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from steersman_instance import system_accounts
from steersman_pod import crash_log, rw_endpoints
from steersman_pod.api_client import ApiClient, ApiRequest, ApiResponse, run_requests, send_with_retries
from steersman_pod.rw_endpoints import PodIdentity, this_pod

SLICES = Path("/etc/steersman/patroni/endpoint-slices")
STORAGE = "databases.steersman.dev/volume-usage"
WRITE_ERROR = "databases.steersman.dev/write-error"


def claim_slice(
    pod: PodIdentity, cluster: str, slice_path: str, leader_path: str
) -> Generator[ApiRequest, ApiResponse, None]:
    """Yield the requests that claim a slice with Patroni's lock."""

    def leader_term_of(lock: Mapping[str, Any]) -> str | None:
        annotations: Mapping[str, str] = lock["metadata"].get("annotations") or {}
        if annotations.get("leader") != pod.name:
            return None
        return f"{annotations.get('transitions', '0')} {annotations.get('acquireTime', '')}"

    owner = rw_endpoints.ClusterIdentity("PostgreSQLCluster", "postgresql", cluster)
    return rw_endpoints.claim_slice(pod, owner, slice_path, leader_path, leader_term_of)


def report_patch(pod: PodIdentity, name: str, value: str | None) -> Generator[ApiRequest, ApiResponse, None]:
    """Yield the request that writes or removes an annotation of this pod.

    A later pod of the same name is left alone.
    """
    metadata = {"uid": pod.uid, "annotations": {name: value}}
    yield ApiRequest(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}", {"metadata": metadata})


def was_last_leader(pod: PodIdentity, sync_path: str) -> Generator[ApiRequest, ApiResponse, bool]:
    """Return True if this pod led last, or may have.

    Only a quorum records a leader in advance. Without synchronous replication there is no record, and with
    priorities
    each new leader records itself first.
    """
    found = yield ApiRequest(sync_path)
    state: Mapping[str, str] = {} if found.status == 404 else found.body["metadata"].get("annotations") or {}
    return state.get("leader") in (None, "", pod.name)


def another_is_primary(pod: PodIdentity, leader_path: str) -> Generator[ApiRequest, ApiResponse, bool]:
    """Return True if another pod holds the lock and serves as primary."""
    leader = yield ApiRequest(leader_path)
    lock: Mapping[str, str] = {} if leader.status == 404 else leader.body["metadata"].get("annotations") or {}
    if lock.get("leader") in (None, "", pod.name):
        return False
    found = yield ApiRequest(f"/api/v1/namespaces/{pod.namespace}/pods/{lock['leader']}")
    reported: Mapping[str, str] = {} if found.status == 404 else found.body["metadata"].get("annotations") or {}
    status = json.loads(reported.get("status") or "{}")
    # Patroni reports a position only if the server responds.
    return status.get("state") == "running" and status.get("role") == "primary" and "xlog_location" in status


def main(arguments: Sequence[str]) -> None:
    """Run with Patroni's arguments: event, new role, cluster.

    Other arguments are `note`, `writes`, `crashes`, `former` and `serves`.
    """
    pod, server = this_pod(os.environ), ApiClient("steersman-role")
    store = f"/api/v1/namespaces/{pod.namespace}/configmaps"
    # Statuses that the generators handle.
    answer = partial(send_with_retries, server, (200, 404, 409), math.inf)
    match list(arguments):
        case ["note", levels]:
            run_requests(report_patch(pod, STORAGE, levels), answer)
        case ["writes", error]:
            run_requests(report_patch(pod, WRITE_ERROR, error or None), answer)
        case ["crashes", times]:
            run_requests(report_patch(pod, crash_log.ANNOTATION, times), answer)
        case ["former", cluster]:
            sys.exit(not run_requests(was_last_leader(pod, f"{store}/{cluster}-sync"), answer))
        case ["serves", cluster]:
            sys.exit(not run_requests(another_is_primary(pod, f"{store}/{cluster}-leader"), answer))
        case [_, "primary", cluster]:
            slices = f"/apis/discovery.k8s.io/v1/namespaces/{pod.namespace}/endpointslices"
            for name in SLICES.read_text().split():
                run_requests(claim_slice(pod, cluster, f"{slices}/{name}", f"{store}/{cluster}-leader"), answer)
            system_accounts.ensure()
        case _:
            pass


if __name__ == "__main__":
    main(sys.argv[1:])
