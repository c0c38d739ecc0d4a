"""What changes a cluster: an annotation or a field each, which the operator acts upon ("How a cluster changes")."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from steersman.client import Client, MergePatch, retry_on_conflict
from steersman.meta import ObjectKey
from steersman_databases.api import PostgreSQLCluster
from steersman_databases.api.group import PAUSED
from steersman_databases.api.postgresql_cluster import ClusterPhase, LastSwitchover, PostgreSQLClusterStatus
from steersman_databases.clusters.view import FENCED_INSTANCES, RESTART, SWITCHOVER
from steersman_databases.kubectl.place import Refused, named, usage

ALL = "*"
ANY = "any"
_LOOK_EVERY = 0.5


async def switch_over(client: Client, key: ObjectKey, to: str, *, seconds: float | None) -> LastSwitchover | None:
    """Asks for another primary, and waits for ``seconds`` until that has happened or was refused.

    Args:
        to: an instance, or ``any``.
        seconds: None: do not wait.

    Raises:
        ConfigurationError: there is no such instance.
        Refused: the operator has, or did nothing in time.
    """
    cluster = await client.get(PostgreSQLCluster, key)
    status = _status(cluster)
    if to != ANY:
        _require(cluster, [to])
        if to == status.primary:
            raise Refused(f"{to} is the primary already")
    await _annotate(client, cluster, SWITCHOVER, to)
    if seconds is None:
        return None
    before = status.last_switchover

    def ended(now: PostgreSQLCluster) -> bool:
        return SWITCHOVER not in now.metadata.annotations and _status(now).last_switchover != before

    cluster = await _until(client, key, ended, seconds, "the switchover")
    last = _status(cluster).last_switchover
    if last is None or last.outcome != "Succeeded":
        raise Refused("nothing is known of the switchover" if last is None else f"the switchover was {last.outcome}")
    return last


async def restart(client: Client, key: ObjectKey) -> str:
    """Asks for a rolling restart of all servers; returns the time that it is known by."""
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    await _annotate(client, await client.get(PostgreSQLCluster, key), RESTART, moment)
    return moment


async def fence(client: Client, key: ObjectKey, instances: Sequence[str]) -> tuple[str, ...]:
    """Stops the servers of these instances, or of all (``*``), and returns which are fenced now."""

    def grown(fenced: set[str]) -> set[str]:
        return {ALL} if ALL in instances or ALL in fenced else fenced | set(instances)

    return await _fenced(client, key, instances, grown)


async def unfence(client: Client, key: ObjectKey, instances: Sequence[str]) -> tuple[str, ...]:
    """Lets the servers of these instances, or of all (``*``), start again, and returns which are fenced still."""
    cluster = await client.get(PostgreSQLCluster, key)
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
        cluster = await client.get(PostgreSQLCluster, key)
        _require(cluster, [each for each in instances if each != ALL])
        text = cluster.metadata.annotations.get(FENCED_INSTANCES, "")
        fenced = tuple(sorted(change({name.strip() for name in text.split(",") if name.strip()})))
        await _annotate(client, cluster, FENCED_INSTANCES, ",".join(fenced) or None)
        return fenced

    return await retry_on_conflict(once)


async def pause(client: Client, key: ObjectKey) -> None:
    """Has the operator write nothing more for the cluster."""
    await _annotate(client, await client.get(PostgreSQLCluster, key), PAUSED, "true")


async def resume(client: Client, key: ObjectKey) -> None:
    """Has the operator go on."""
    await _annotate(client, await client.get(PostgreSQLCluster, key), PAUSED, None)


async def hibernate(client: Client, key: ObjectKey, *, seconds: float | None) -> None:
    """Stops all instances, and waits for ``seconds`` (None: not) until they are."""
    await _hibernated(client, key, True)
    if seconds is not None:
        await _until(client, key, _in_phase("Hibernated"), seconds, "hibernation")


async def wake(client: Client, key: ObjectKey, *, seconds: float | None) -> None:
    """Starts all instances again, and waits for ``seconds`` (None: not) until the cluster is ready."""
    await _hibernated(client, key, False)
    if seconds is not None:
        await _until(client, key, _in_phase("Ready"), seconds, "the start")


async def _hibernated(client: Client, key: ObjectKey, value: bool) -> None:
    await client.patch(PostgreSQLCluster, key, MergePatch({"spec": {"hibernated": value}}))


def _in_phase(phase: ClusterPhase) -> Callable[[PostgreSQLCluster], bool]:
    """Whether the operator says so of what is declared now, not of what was before."""

    def ended(now: PostgreSQLCluster) -> bool:
        seen = _status(now).observed_generation or 0
        return seen >= now.metadata.generation and _status(now).phase == phase

    return ended


async def _annotate(client: Client, cluster: PostgreSQLCluster, name: str, value: str | None) -> None:
    """Sets or removes an annotation of what was read, unless it has changed since. Raises Conflict."""
    metadata: dict[str, Any] = {"annotations": {name: value}}
    if name == FENCED_INSTANCES:  # it depends on what it was
        metadata["resourceVersion"] = cluster.metadata.resource_version
    await client.patch(PostgreSQLCluster, cluster.key, MergePatch({"metadata": metadata}))


async def _until(
    client: Client, key: ObjectKey, ended: Callable[[PostgreSQLCluster], bool], seconds: float, what: str
) -> PostgreSQLCluster:
    deadline = time.monotonic() + seconds
    while True:
        cluster = await client.get(PostgreSQLCluster, key)
        if ended(cluster):
            return cluster
        if time.monotonic() > deadline:
            status = _status(cluster)
            raise Refused(f"{what} of {named(key)} has not ended after {seconds:.0f} s; its phase is {status.phase}")
        await asyncio.sleep(_LOOK_EVERY)


def _status(cluster: PostgreSQLCluster) -> PostgreSQLClusterStatus:
    return cluster.status or PostgreSQLClusterStatus()


def _require(cluster: PostgreSQLCluster, instances: Sequence[str]) -> None:
    known = [member.name for member in _status(cluster).members]
    for instance in instances:
        if instance not in known:
            has = f"it has {', '.join(known)}" if known else "none is known yet"
            raise usage(f"cluster {named(cluster.key)} has no instance {instance}: {has}")
