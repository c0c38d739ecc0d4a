"""``volumes``: reports the use of volumes on the pod.

It needs no server, so it reports a full volume of a stopped one as well. Each change of 1 % is reported within
seconds, because the operator grows the volumes by these reports.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from steersman_pod.api_client import ApiUnavailable

from ..paths import PATHS, InstancePaths
from ..pod_annotation import PodAnnotation
from .fill_meter import FillMeter
from .wal_retention import WalRetention

ANNOTATION = "databases.steersman.dev/volumes"
INTERVAL_SECONDS = 1.0
REPEAT_SECONDS = 300.0
"""Interval of reports without a change.

Another client may have removed the annotation.
"""
RETENTION_PERCENT = 50
"""Use of the volume from which on retained WAL is inspected."""

Report = dict[str, dict[str, Any]]


def volume_space(path: Path) -> tuple[int, int] | None:
    """Return size and available bytes of a volume.

    None if it is not mounted.
    """
    try:
        found = os.statvfs(path)
    except FileNotFoundError:
        return None
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


@dataclass(slots=True)
class VolumeReporter:
    """Measures the volumes and reports changes.

    Args:
        volumes: mount points by name.
        write: stores the annotation; raises ApiUnavailable.
        retention: cause of retained WAL. None if the engine has no WAL.
        space: size and available bytes of a mount point.
        clock: monotonic time in seconds.
    """

    volumes: Mapping[str, Path]
    write: Callable[[str], None]
    retention: WalRetention | None = None
    space: Callable[[Path], tuple[int, int] | None] = volume_space
    clock: Callable[[], float] = time.monotonic
    _meters: dict[str, FillMeter] = field(default_factory=dict[str, FillMeter])
    _written: Report | None = None
    _written_at: float = 0.0

    def step(self) -> None:
        """Measure, and report what has changed."""
        now = self.clock()
        report = self._measure(now)
        overdue = now - self._written_at >= REPEAT_SECONDS
        if self._written is None or overdue or has_changed(self._written, report):
            self.write(json.dumps(report))
            self._written, self._written_at = report, now

    def _measure(self, now: float) -> Report:
        report: Report = {}
        # Without a volume of its own, WAL is on the other one.
        wal_volume = "data" if "wal" not in self.volumes or self.space(self.volumes["wal"]) is None else "wal"
        for name, path in self.volumes.items():
            if (found := self.space(path)) is None or not found[0]:
                continue
            size, available = found
            meter = self._meters.setdefault(name, FillMeter())
            meter.add(now, size - available)
            values = {
                "size": size,
                "available": available,
                "fillRate": _rounded(meter.fill_rate(available)),
                "dailyGrowth": _rounded(meter.daily_growth()),
                **(self._retainer(size, available) if name == wal_volume else {}),
            }
            report[name] = {key: value for key, value in values.items() if value is not None}
        return report

    def _retainer(self, size: int, available: int) -> Mapping[str, Any]:
        if self.retention is None:
            return {}
        used = size - available
        self.retention.needed = used * 100 >= size * RETENTION_PERCENT
        if not self.retention.needed:
            return {}
        retainer, slot = self.retention.largest(used), self.retention.inactive_slot(used)
        return {
            **({} if retainer is None else {"retainedBy": retainer.name, "retained": retainer.amount}),
            **({} if slot is None else {"inactiveSlot": asdict(slot)}),
        }


def has_changed(previous: Report, report: Report) -> bool:
    """Return True if the operator may decide otherwise."""
    return previous.keys() != report.keys() or any(
        _volume_changed(previous[name], values) for name, values in report.items()
    )


def _volume_changed(previous: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    if any(previous.get(key) != values.get(key) for key in ("size", "retainedBy")):
        return True
    known, slot = previous.get("inactiveSlot", {}), values.get("inactiveSlot", {})
    if any(known.get(key) != slot.get(key) for key in ("name", "since")):
        return True
    if abs(previous["available"] - values["available"]) * 100 >= values["size"]:
        return True
    before, rate = previous.get("fillRate", 0.0), values.get("fillRate", 0.0)
    return (not before) != (not rate) or rate > 2 * before


def _rounded(value: float | None) -> float | None:
    """Return the value with two digits, so that it rarely changes."""
    return None if value is None else float(f"{value:.1e}")


def postgresql_retention(paths: InstancePaths) -> WalRetention:
    """Return the inspection of a PostgreSQL instance."""
    # The image of the other engine does not have the driver.
    from ..metrics.postgresql.session import PostgreSQLSession, ServerAddress

    return WalRetention(paths, lambda: PostgreSQLSession(ServerAddress(host=str(paths.run))))


def main(arguments: Sequence[str]) -> int:
    """Report until SIGTERM, such as ``volumes postgresql``."""
    if len(arguments) != 1 or arguments[0] not in ("postgresql", "mysql"):
        sys.stderr.write("usage: steersman-instance volumes postgresql|mysql\n")
        return 2
    stop = threading.Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda _signal, _frame: stop.set())
    retention = postgresql_retention(PATHS) if arguments[0] == "postgresql" else None
    if retention is not None:
        threading.Thread(target=retention.run, args=(stop,), name="wal-retention", daemon=True).start()
    volumes = {"data": PATHS.volume, "wal": PATHS.wal_volume}
    reporter = VolumeReporter(volumes=volumes, write=PodAnnotation(ANNOTATION, os.environ).write, retention=retention)
    failed = ""
    while not stop.wait(INTERVAL_SECONDS):
        try:
            reporter.step()
            failed = ""
        except (ApiUnavailable, OSError) as error:
            if str(error) != failed:
                sys.stderr.write(f"volumes: {error}\n")
            failed = str(error)
    return 0
