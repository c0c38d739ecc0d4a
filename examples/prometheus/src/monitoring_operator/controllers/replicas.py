"""Replicas of a Prometheus: running pods and reports of their servers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from steersman.api.core_v1 import Pod

from monitoring_operator.servers import ServerReport, Servers, Unreachable


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A running replica.

    Attributes:
        name: name of the pod.
        report: report of the server. None if it does not respond.
    """

    name: str
    report: ServerReport | None


async def inspect_replicas(servers: Servers, pods: Iterable[Pod]) -> list[Replica]:
    """Return the running replicas, in the order of their names."""
    running = sorted((pod for pod in pods if _is_running(pod)), key=lambda pod: pod.metadata.name)
    return list(await asyncio.gather(*(_inspect(servers, pod) for pod in running)))


async def _inspect(servers: Servers, pod: Pod) -> Replica:
    try:
        report = await servers.report(pod.status.pod_ip or "")
    except Unreachable:
        report = None
    return Replica(name=pod.metadata.name, report=report)


def _is_running(pod: Pod) -> bool:
    return bool(pod.status.pod_ip) and pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None
