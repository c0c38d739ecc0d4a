"""Replicas of a Prometheus from its pods and their reports."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from steersman.api.core_v1 import Pod

from monitoring_operator.resources import RELOADER_CONTAINER
from monitoring_operator.servers import ServerReport, Servers, Unreachable


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A running replica.

    Attributes:
        name: name of the pod.
        report: report of the server. None if it does not respond.
        rejected: revision that promtool rejected last, as a whole or in part.
        rejection: lines that say why. For rules they start with the name of the file.
    """

    name: str
    report: ServerReport | None
    rejected: str = ""
    rejection: tuple[str, ...] = ()


async def inspect_replicas(servers: Servers, pods: Iterable[Pod]) -> list[Replica]:
    """Return the running replicas, in the order of their names."""
    running = sorted((pod for pod in pods if _is_running(pod)), key=lambda pod: pod.metadata.name)
    return list(await asyncio.gather(*(_inspect(servers, pod) for pod in running)))


async def _inspect(servers: Servers, pod: Pod) -> Replica:
    try:
        report = await servers.report(pod.status.pod_ip or "")
    except Unreachable:
        report = None
    revision, *lines = _reloader_message(pod).splitlines() or [""]
    return Replica(name=pod.metadata.name, report=report, rejected=revision, rejection=tuple(lines))


def _is_running(pod: Pod) -> bool:
    return bool(pod.status.pod_ip) and pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None


def _reloader_message(pod: Pod) -> str:
    """Return the last termination message of the reloader: a revision, then lines."""
    for status in pod.status.container_statuses:
        if status.name == RELOADER_CONTAINER:
            ended = status.state.terminated or status.last_state.terminated
            return (ended.message or "") if ended is not None else ""
    return ""
