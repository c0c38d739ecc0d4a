"""Changes of a cluster: an annotation or a field each.

The operator executes them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from steersman.client import Client, MergePatch, retry_on_conflict
from steersman.meta import ObjectKey, is_true
from steersman_databases.api import Cluster, ClusterStatus
from steersman_databases.api.cluster_common import LastSwitchover
from steersman_databases.api.group import PAUSED_ANNOTATION
from steersman_databases.cluster.declared import (
    FENCED_INSTANCES_ANNOTATION,
    REPLACE_ANNOTATION,
    RESTARTED_AT_ANNOTATION,
    SWITCHOVER_ANNOTATION,
    requested_fences,
    resolve_instance_name,
)
from steersman_databases.engines.naming import ClusterNames
from steersman_databases.kubectl.command import OperationRejected, qualified_name, usage_error
from steersman_databases.kubectl.lookup import find_cluster

ALL = "*"
ANY = "any"
_POLL_SECONDS = 0.5
_ACCEPTANCE_TIMEOUT_SECONDS = 3.0  # seconds


async def switch_over(
    client: Client, key: ObjectKey, to: str, *, timeout_seconds: float | None
) -> LastSwitchover | None:
    """Request a switchover, and wait until it is complete or refused.

    Args:
        to: an instance, or `any`.
        timeout_seconds: None to not wait.

    Raises:
        ConfigurationError: there is no such instance.
        OperationRejected: the operator refused, or did nothing in time.
    """
    cluster = await find_cluster(client, key)
    status = _status(cluster)
    if to != ANY:
        _require_instances(cluster, [to])
        if to == status.primary:
            raise OperationRejected(f"{to} is already the primary")
    await _annotate(client, cluster, SWITCHOVER_ANNOTATION, to)
    if timeout_seconds is None:
        return None
    before = status.last_switchover

    def has_ended(now: Cluster) -> bool:
        return SWITCHOVER_ANNOTATION not in now.metadata.annotations and _status(now).last_switchover != before

    kind = type(cluster).api_resource.kind.lower()
    pending = f"the request stands: kubectl annotate {kind} {key.name} {SWITCHOVER_ANNOTATION}- cancels it"
    cluster = await _until(client, key, has_ended, timeout_seconds, "the switchover", pending)
    last = _status(cluster).last_switchover
    if last is None or last.outcome != "Succeeded":
        raise OperationRejected(
            "the result of the switchover is unknown" if last is None else f"the switchover was {last.outcome}"
        )
    return last


async def replace(client: Client, key: ObjectKey, instance: str, *, timeout_seconds: float | None) -> None:
    """Request a replacement of an instance, and wait until it is removed.

    Args:
        timeout_seconds: None to not wait.

    Raises:
        ConfigurationError: there is no such instance.
        OperationRejected: the operator refused, or did nothing in time.
    """
    cluster = await find_cluster(client, key)
    _require_instances(cluster, [instance])
    if instance == _status(cluster).primary:
        raise OperationRejected(f"{instance} is the primary. Switch over to another instance first")
    await _annotate(client, cluster, REPLACE_ANNOTATION, instance)
    if timeout_seconds is None:
        return

    def has_ended(now: Cluster) -> bool:
        return REPLACE_ANNOTATION not in now.metadata.annotations

    def is_absent(now: Cluster) -> bool:
        return instance not in [member.name for member in _status(now).members]

    description = f"the replacement of {instance}"
    cluster = await _until(client, key, has_ended, timeout_seconds, description)
    try:
        # The operator writes the status a moment after it removes the annotation.
        await _until(client, key, is_absent, _ACCEPTANCE_TIMEOUT_SECONDS, description)
    except OperationRejected:
        kind = type(cluster).api_resource.kind.lower()
        raise OperationRejected(f"{instance} was not replaced. See kubectl describe {kind} {key.name}") from None


async def restart(client: Client, key: ObjectKey) -> str:
    """Request a rolling restart, and return the time that identifies it."""
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    await _annotate(client, await find_cluster(client, key), RESTARTED_AT_ANNOTATION, moment)
    return moment


async def fence(client: Client, key: ObjectKey, instances: Sequence[str]) -> tuple[str, ...]:
    """Fence these instances, or all (`*`), and return all fenced ones."""

    def added(fenced: set[str]) -> set[str]:
        return {ALL} if ALL in instances or ALL in fenced else fenced | set(instances)

    return await _update_fencing(client, key, instances, added)


async def unfence(client: Client, key: ObjectKey, instances: Sequence[str]) -> tuple[str, ...]:
    """Unfence these instances, or all (`*`), and return the remaining fenced ones."""
    cluster = await find_cluster(client, key)
    members = {member.name for member in _status(cluster).members}

    def removed(fenced: set[str]) -> set[str]:
        if ALL in instances:
            return set()
        return (members if ALL in fenced else fenced) - set(instances)

    return await _update_fencing(client, key, instances, removed)


async def _update_fencing(
    client: Client, key: ObjectKey, instances: Sequence[str], change: Callable[[set[str]], set[str]]
) -> tuple[str, ...]:
    async def attempt() -> tuple[str, ...]:
        cluster = await find_cluster(client, key)
        _require_instances(cluster, [instance for instance in instances if instance != ALL])
        names = ClusterNames(key)
        previous = {resolve_instance_name(names, name) for name in requested_fences(cluster)}
        fenced = tuple(sorted(change(previous)))
        await _annotate(client, cluster, FENCED_INSTANCES_ANNOTATION, ",".join(fenced) or None)
        return fenced

    return await retry_on_conflict(attempt)


async def pause(client: Client, key: ObjectKey) -> None:
    """Pause the operator for the cluster."""
    await _annotate(client, await find_cluster(client, key), PAUSED_ANNOTATION, "true")


async def resume(client: Client, key: ObjectKey) -> None:
    """Resume the operator for the cluster."""
    await _annotate(client, await find_cluster(client, key), PAUSED_ANNOTATION, None)


async def hibernate(client: Client, key: ObjectKey, *, timeout_seconds: float | None) -> None:
    """Stop all instances, and wait until they are stopped.

    Args:
        timeout_seconds: None to not wait.
    """
    await _set_hibernated(client, key, True)
    if timeout_seconds is not None:

        def is_hibernated(now: Cluster) -> bool:
            return _is_observed(now) and _status(now).phase == "Hibernated"

        await _until(client, key, is_hibernated, timeout_seconds, "hibernation")


async def wake(client: Client, key: ObjectKey, *, timeout_seconds: float | None) -> None:
    """Start all instances, and wait until they are ready with a primary.

    The cluster need not be Ready, because other parts of its declaration may be refused as before.

    Args:
        timeout_seconds: None to not wait.
    """
    await _set_hibernated(client, key, False)
    if timeout_seconds is not None:

        def is_awake(now: Cluster) -> bool:
            status = _status(now)
            takes_writes = is_true(status.conditions, "Available")
            return _is_observed(now) and takes_writes and (status.ready_instances or 0) >= now.spec.instances

        await _until(client, key, is_awake, timeout_seconds, "the start")


async def _set_hibernated(client: Client, key: ObjectKey, value: bool) -> None:
    kind = type(await find_cluster(client, key))
    await client.patch(kind, key, MergePatch({"spec": {"hibernated": value}}))


def _is_observed(now: Cluster) -> bool:
    """Return True if the status belongs to the present generation."""
    return (_status(now).observed_generation or 0) >= now.metadata.generation


async def _annotate(client: Client, cluster: Cluster, name: str, value: str | None) -> None:
    """Set or remove an annotation unless the object has changed. Raises Conflict."""
    metadata: dict[str, Any] = {"annotations": {name: value}}
    if name == FENCED_INSTANCES_ANNOTATION:  # it depends on what it was
        metadata["resourceVersion"] = cluster.metadata.resource_version
    await client.patch(type(cluster), cluster.key, MergePatch({"metadata": metadata}))


async def _until(
    client: Client,
    key: ObjectKey,
    has_ended: Callable[[Cluster], bool],
    timeout_seconds: float,
    description: str,
    *more: str,
) -> Cluster:
    deadline = time.monotonic() + timeout_seconds
    while True:
        cluster = await find_cluster(client, key)
        if has_ended(cluster):
            return cluster
        if time.monotonic() > deadline:
            status = _status(cluster)
            ready = [c.message for c in status.conditions if c.type == "Ready" and c.status != "True"]
            message = "; ".join((": ".join((str(status.phase), *ready)), *more))
            raise OperationRejected(
                f"{description} of {qualified_name(key)} has not ended after {timeout_seconds:.0f} s; "
                f"its phase is {message}"
            )
        await asyncio.sleep(_POLL_SECONDS)


def _status(cluster: Cluster) -> ClusterStatus:
    return cluster.status


def _require_instances(cluster: Cluster, instances: Sequence[str]) -> None:
    known = [member.name for member in _status(cluster).members]
    for instance in instances:
        if instance not in known:
            has = f"it has {', '.join(known)}" if known else "it has no instances yet"
            raise usage_error(f"cluster {qualified_name(cluster.key)} has no instance {instance}: {has}")
