"""Use of resources as the pods report it, by hour."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard, cast

from steersman.api.core_v1 import Pod
from steersman.meta import Quantity
from steersman_databases.engines.annotation_io import as_mapping
from steersman_databases.engines.server_pod import container_status

RESOURCE_USAGE = "databases.steersman.dev/resource-usage"
"""Annotation of pods with their use.

It has the present hour and the one before. The server's container writes it: `steersman_instance/resource_usage`.
"""
_LIMIT_CHARACTERS = 8192
_MOST_HOURS = 4
_MOST_VALUES = 60
_LARGEST = float(1 << 60)


@dataclass(frozen=True, slots=True, kw_only=True)
class HourlyUse:
    """Use of a server in one hour.

    Attributes:
        hour: number of the hour since 1970.
        cpu: minutes by their average number of cores.
        memory: most bytes that the kernel could not reclaim. None if unknown.
        disk: most used bytes of the data volume. None if unknown.
    """

    hour: int
    cpu: Mapping[float, float] = field(default_factory=dict[float, float])
    memory: float | None = None
    disk: float | None = None

    @property
    def core_minutes(self) -> float:
        """CPU time."""
        return sum(cores * minutes for cores, minutes in self.cpu.items())


def reported_hours(pod: Pod) -> Sequence[HourlyUse]:
    """Return the hours that a pod reports. Malformed ones are ignored."""
    text = pod.metadata.annotations.get(RESOURCE_USAGE, "")
    if not text or len(text) > _LIMIT_CHARACTERS:
        return ()
    try:
        listed = as_mapping(json.loads(text)).get("hours")
    except (ValueError, RecursionError):
        return ()
    return tuple(_hours(cast(Sequence[Any], listed)[:_MOST_HOURS])) if isinstance(listed, list) else ()


def out_of_memory(pod: Pod) -> Sequence[HourlyUse]:
    """Return the hour of the server's last OOM kill.

    Its whole memory limit counts as used. The report of that hour is lost with the process.
    """
    server = next(iter(pod.spec.containers), None)
    status = None if server is None else container_status(pod, server.name)
    if server is None or status is None or "memory" not in server.resources.limits:
        return ()
    ended = status.state.terminated or status.last_state.terminated
    if ended is None or ended.reason != "OOMKilled" or ended.finished_at is None:
        return ()
    limit = Quantity(str(server.resources.limits["memory"]))
    return (HourlyUse(hour=int(ended.finished_at.timestamp() // 3600), memory=float(limit.value)),)


def busiest(hours: Iterable[HourlyUse]) -> HourlyUse | None:
    """Return the largest use of any server in the same hour. Each server must bear the load of the primary."""
    found = list(hours)
    if not found:
        return None
    return HourlyUse(
        hour=found[0].hour,
        cpu=max(found, key=lambda use: use.core_minutes).cpu,
        memory=max((use.memory for use in found if use.memory is not None), default=None),
        disk=max((use.disk for use in found if use.disk is not None), default=None),
    )


def _hours(listed: Iterable[Any]) -> Iterator[HourlyUse]:
    for each in listed:
        found = as_mapping(each)
        hour = found.get("hour")
        if isinstance(hour, int) and not isinstance(hour, bool) and 0 <= hour < 1 << 31:
            cpu = dict(_minutes(as_mapping(found.get("cpu"))))
            yield HourlyUse(hour=hour, cpu=cpu, memory=_amount(found.get("memory")), disk=_amount(found.get("disk")))


def _minutes(listed: Mapping[str, Any]) -> Iterator[tuple[float, float]]:
    for text, minutes in list(listed.items())[:_MOST_VALUES]:
        try:
            cores = float(text)
        except ValueError:
            continue
        if _is_amount(cores) and _is_amount(minutes):
            yield cores, min(minutes, 60.0)


def _amount(value: Any) -> float | None:
    return float(value) if _is_amount(value) else None


def _is_amount(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _LARGEST
