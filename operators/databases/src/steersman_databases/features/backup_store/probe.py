"""Program that verifies or lists an object store.

It can also create the identity of an archive. It is a process of its own, because obstore takes certificate
authorities from the environment only, and because a store that does not respond must not block the operator. The
request comes as JSON on stdin, so that no secret is in arguments or environment. The report goes to stdout.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from steersman_databases.features.backup_store.access import StoreAccess, StoreProblem
from steersman_databases.features.backup_store.endpoint import check_endpoint
from steersman_databases.features.backup_store.listing import StoreListing
from steersman_databases.features.backup_store.object_lock import default_lock_days
from steersman_databases.features.backup_store.report import ProbeReport

if TYPE_CHECKING:
    from steersman_databases.features.backup_store.objects import StoreObjects

TIMEOUT_SECONDS = 20
_MAX_REQUEST_BYTES = 1024 * 1024
_MEMORY_BYTES = 512 * 1024 * 1024
_CPU_SECONDS = 10
_OF_PODS = (
    "the endpoint responds. Pods verify the access with their workload identity, which the operator does not have:"
    " see ContinuousArchiving of the clusters"
)
_NOT_LISTED = (
    "spec.credentials.workloadIdentity belongs to the pods of clusters. List the bucket with the tools of the cloud"
    " provider"
)


def main() -> None:
    """Read the request, verify the store, write the report."""
    _limit_process()
    request: dict[str, Any] = json.loads(sys.stdin.buffer.read(_MAX_REQUEST_BYTES))
    report = _listing(request) if request["operation"] == "list" else _report(request)
    sys.stdout.write(report.to_json())


def _limit_process() -> None:
    """Limit memory, CPU and time, even without the operator."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    signal.alarm(TIMEOUT_SECONDS + 5)


def _report(request: Mapping[str, Any]) -> ProbeReport:
    skew: int | None = None
    try:
        access = StoreAccess(**request["access"])
        skew = check_endpoint(access)
        if access.needs_identity:
            return ProbeReport(message=_OF_PODS, clock_skew_seconds=skew)
        objects = _objects(access)
        if request["operation"] == "claim":
            objects.claim(request["path"], request["identity"].encode())
            return ProbeReport(clock_skew_seconds=skew)
        objects.check_access()
        is_lock_expected = access.immutability_days > 0 and access.service == "s3"
        days = default_lock_days(access) if is_lock_expected else None
        return ProbeReport(clock_skew_seconds=skew, locked_days=days)
    except StoreProblem as problem:
        return ProbeReport(reason=problem.reason, message=str(problem), clock_skew_seconds=skew)
    except Exception as error:
        # The text of an unknown error may contain parts of the request.
        return ProbeReport(
            reason="StoreUnreachable",
            message=f"the probe failed with {type(error).__name__}",
            clock_skew_seconds=skew,
        )


def _listing(request: Mapping[str, Any]) -> StoreListing:
    try:
        objects, path = _objects(StoreAccess(**request["access"])), request["path"]
        if path:
            return StoreListing(backups=objects.backups(path))
        return StoreListing(archives=objects.archives())
    except StoreProblem as problem:
        return StoreListing(reason=problem.reason, message=str(problem))
    except Exception as error:
        # The text of an unknown error may contain parts of the request.
        return StoreListing(
            reason="StoreUnreachable", message=f"the object store cannot be listed: {type(error).__name__}"
        )


def _objects(access: StoreAccess) -> StoreObjects:
    """Import obstore.

    It reads the certificate authorities from the environment at its first connection.

    Raises:
        StoreProblem: the store needs the identity of a pod. Without explicit credentials obstore would use those of
            the operator, and read the store of a tenant with them.
    """
    if access.needs_identity or not access.secret_access_key:
        raise StoreProblem("UnsupportedStore", _NOT_LISTED)
    if access.ca:
        descriptor = os.memfd_create("ca", 0)
        os.write(descriptor, access.ca.encode())
        os.environ["SSL_CERT_FILE"] = f"/proc/self/fd/{descriptor}"
    from steersman_databases.features.backup_store.objects import StoreObjects

    return StoreObjects(access)


if __name__ == "__main__":
    main()
