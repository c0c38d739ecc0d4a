"""What changes a cluster: an annotation or a field each, which the operator acts upon ("How a cluster changes")."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from steersman.client import Client, MergePatch, retry_on_conflict
from steersman.meta import ObjectKey, is_true
from steersman_databases.api import Cluster, ClusterStatus
from steersman_databases.api.cluster_parts import LastSwitchover
from steersman_databases.api.group import PAUSED
from steersman_databases.clusters.view import (
    FENCED_INSTANCES,
    REPLACE,
    RESTART,
    SWITCHOVER,
    called_instance,
    fenced_names,
)
from steersman_databases.engines.cluster_names import ClusterNames
from steersman_databases.kubectl.found import find_cluster
from steersman_databases.kubectl.place import Refused, named, usage

ALL = "*"
ANY = "any"
_LOOK_EVERY = 0.5
_TOLD_WITHIN = 3.0  # seconds


async def switch_over(client: Client, key: ObjectKey, to: str, *, seconds: float | None) -> LastSwitchover | None:
    """Asks for another primary, and waits for ``seconds`` until that has happened or was refused.

    Args:
        to: an instance, or ``any``.
        seconds: None: do not wait.

    Raises:
        ConfigurationError: there is no such instance.
        Refused: the operator has, or did nothing in time.
    """
    cluster = await find_cluster(client, key)
    status = _status(cluster)
    if to != ANY:
        _require(cluster, [to])
        if to == status.primary:
            raise Refused(f"{to} is the primary already")
    await _annotate(client, cluster, SWITCHOVER, to)
    if seconds is None:
        return None
    before = status.last_switchover

    def ended(now: Cluster) -> bool:
        return SWITCHOVER not in now.metadata.annotations and _status(now).last_switchover != before

    kind = type(cluster).api_resource.kind.lower()
    stands = f"the request stands: kubectl annotate {kind} {key.name} {SWITCHOVER}- takes it back"
    cluster = await _until(client, key, ended, seconds, "the switchover", stands)
    last = _status(cluster).last_switchover
    if last is None or last.outcome != "Succeeded":
        raise Refused("nothing is known of the switchover" if last is None else f"the switchover was {last.outcome}")
    return last


async def replace(client: Client, key: ObjectKey, instance: str, *, seconds: float | None) -> None:
    """Asks for another instance in place of this one, and waits for ``seconds`` (None: not) until it is taken away.

    Raises as `switch_over` does.
    """
    cluster = await find_cluster(client, key)
    _require(cluster, [instance])
    if instance == _status(cluster).primary:
        raise Refused(f"{instance} is the primary: make another instance that first")
    await _annotate(client, cluster, REPLACE, instance)
    if seconds is None:
        return

    def ended(now: Cluster) -> bool:
        return REPLACE not in now.metadata.annotations

    def away(now: Cluster) -> bool:
        return instance not in [member.name for member in _status(now).members]

    what = f"the replacement of {instance}"
    cluster = await _until(client, key, ended, seconds, what)
    try:
        # The status is written a moment after the annotation is taken off.
        await _until(client, key, away, _TOLD_WITHIN, what)
    except Refused:
        kind = type(cluster).api_resource.kind.lower()
        raise Refused(f"{instance} is not replaced: kubectl describe {kind} {key.name} says why") from None


async def restart(client: Client, key: ObjectKey) -> str:
    """Asks for a rolling restart of all servers; returns the time that it is known by."""
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    await _annotate(client, await find_cluster(client, key), RESTART, moment)
    return moment


async def fence(client: Client, key: ObjectKey, instances: Sequence[str]) -> tuple[str, ...]:
    """Stops the servers of these instances, or of all (``*``), and returns which are fenced now."""

    def grown(fenced: set[str]) -> set[str]:
        return {ALL} if ALL in instances or ALL in fenced else fenced | set(instances)

    return await _fenced(client, key, instances, grown)


async def unfence(client: Client, key: ObjectKey, instances: Sequence[str]) -> tuple[str, ...]:
    """Lets the servers of these instances, or of all (``*``), start again, and returns which are fenced still."""
    cluster = await find_cluster(client, key)
    members = {member.name for member in _status(cluster).members}

    def shrunk(fenced: set[str]) -> set[str]:
        if ALL in instances:
            return set()
        return (members if ALL in fenced else fenced) - set(instances)

    return await _fenced(client, key, instances, shrunk)


async def _fenced(
    client: Client, key: ObjectKey, instances: Sequence[str], change: Callable[[set[str]], set[str]]
) -> tuple[str, ...]:
    async def once() -> tuple[str, ...]:
        cluster = await find_cluster(client, key)
        _require(cluster, [each for each in instances if each != ALL])
        names = ClusterNames(key)
        written = {called_instance(names, name) for name in fenced_names(cluster)}
        fenced = tuple(sorted(change(written)))
        await _annotate(client, cluster, FENCED_INSTANCES, ",".join(fenced) or None)
        return fenced

    return await retry_on_conflict(once)


async def pause(client: Client, key: ObjectKey) -> None:
    """Has the operator write nothing more for the cluster."""
    await _annotate(client, await find_cluster(client, key), PAUSED, "true")


async def resume(client: Client, key: ObjectKey) -> None:
    """Has the operator go on."""
    await _annotate(client, await find_cluster(client, key), PAUSED, None)


async def hibernate(client: Client, key: ObjectKey, *, seconds: float | None) -> None:
    """Stops all instances, and waits for ``seconds`` (None: not) until they are."""
    await _hibernated(client, key, True)
    if seconds is not None:

        def asleep(now: Cluster) -> bool:
            return _has_seen(now) and _status(now).phase == "Hibernated"

        await _until(client, key, asleep, seconds, "hibernation")


async def wake(client: Client, key: ObjectKey, *, seconds: float | None) -> None:
    """Starts all instances again, and waits for ``seconds`` (None: not) until all are ready and one takes writes.

    The cluster need not be Ready: what it declares besides may be refused, as before it slept.
    """
    await _hibernated(client, key, False)
    if seconds is not None:

        def awake(now: Cluster) -> bool:
            status = _status(now)
            takes_writes = is_true(status.conditions, "Available")
            return _has_seen(now) and takes_writes and (status.ready_instances or 0) >= now.spec.instances

        await _until(client, key, awake, seconds, "the start")


async def _hibernated(client: Client, key: ObjectKey, value: bool) -> None:
    kind = type(await find_cluster(client, key))
    await client.patch(kind, key, MergePatch({"spec": {"hibernated": value}}))


def _has_seen(now: Cluster) -> bool:
    """Whether the operator's word is of what is declared now, not of what was before."""
    return (_status(now).observed_generation or 0) >= now.metadata.generation


async def _annotate(client: Client, cluster: Cluster, name: str, value: str | None) -> None:
    """Sets or removes an annotation of what was read, unless it has changed since. Raises Conflict."""
    metadata: dict[str, Any] = {"annotations": {name: value}}
    if name == FENCED_INSTANCES:  # it depends on what it was
        metadata["resourceVersion"] = cluster.metadata.resource_version
    await client.patch(type(cluster), cluster.key, MergePatch({"metadata": metadata}))


async def _until(
    client: Client, key: ObjectKey, ended: Callable[[Cluster], bool], seconds: float, what: str, *more: str
) -> Cluster:
    deadline = time.monotonic() + seconds
    while True:
        cluster = await find_cluster(client, key)
        if ended(cluster):
            return cluster
        if time.monotonic() > deadline:
            status = _status(cluster)
            ready = [c.message for c in status.conditions if c.type == "Ready" and c.status != "True"]
            words = "; ".join((": ".join((str(status.phase), *ready)), *more))
            raise Refused(f"{what} of {named(key)} has not ended after {seconds:.0f} s; its phase is {words}")
        await asyncio.sleep(_LOOK_EVERY)


def _status(cluster: Cluster) -> ClusterStatus:
    return cluster.status


def _require(cluster: Cluster, instances: Sequence[str]) -> None:
    known = [member.name for member in _status(cluster).members]
    for instance in instances:
        if instance not in known:
            has = f"it has {', '.join(known)}" if known else "none is known yet"
            raise usage(f"cluster {named(cluster.key)} has no instance {instance}: {has}")
