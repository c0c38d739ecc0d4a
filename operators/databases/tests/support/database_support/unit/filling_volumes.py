"""Volumes that fill up in virtual time: a driver that resizes them, and the agents' program that reports them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from database_support.unit.cluster_harness import ClusterHarness
from steersman.api.core_v1 import PersistentVolumeClaim, Pod
from steersman.client import MergePatch
from steersman.errors import NotFound
from steersman.meta import Quantity
from steersman_databases.engines.naming import INSTANCE_LABEL
from steersman_databases.features.storage.usage import USAGE
from steersman_instance.volumes.report import VolumeReporter
from steersman_instance.volumes.wal_retention import InactiveSlot, Retainer

_FILE_SYSTEM_PART = 0.95
_STEP_SECONDS = 1.0


class FixedRetention:
    """A cause of full WAL volumes, as an agent finds it."""

    def __init__(self, retainer: Retainer, slot: InactiveSlot | None = None) -> None:
        self._retainer, self._slot, self.needed = retainer, slot, False

    def largest(self, used: int) -> Retainer | None:
        return self._retainer

    def inactive_slot(self, used: int) -> InactiveSlot | None:
        return self._slot


@dataclass
class FillingVolumes:
    """The volumes of a cluster.

    Attributes:
        resize_seconds: time of the driver. None: it resizes nothing.
        used: bytes by PVC.
        rates: bytes a second by PVC.
        refused: PVCs of which a write was refused.
        retention: cause of full WAL volumes.
        resize_error: why the driver fails.
    """

    world: ClusterHarness
    resize_seconds: float | None = 4.0
    used: dict[str, float] = field(default_factory=dict[str, float])
    rates: dict[str, float] = field(default_factory=dict[str, float])
    refused: set[str] = field(default_factory=set[str])
    retention: FixedRetention | None = None
    resize_error: str = ""
    _since: dict[str, float] = field(default_factory=dict[str, float])
    _reporters: dict[str, VolumeReporter] = field(default_factory=dict[str, VolumeReporter])

    async def run(self) -> None:
        """Never returns."""
        clock = self.world.runtime.clock
        while True:
            for pvc in self.world.server.read_all(PersistentVolumeClaim):
                await self._resize(pvc, clock.monotonic())
                self._fill(pvc)
            for pod in self._pods():
                await self._report(pod)
            await clock.sleep(_STEP_SECONDS)

    def fill(self, name: str, percent: float) -> None:
        """Fill a volume up to this part. The agents start again, so that they measure no rate."""
        pvc = next(p for p in self.world.server.read_all(PersistentVolumeClaim) if p.metadata.name == name)
        self.used[name] = percent / 100 * _file_system(pvc)
        self._reporters.clear()

    def sizes(self, volume: str = "data") -> list[str]:
        """Requested sizes of the volumes of this name."""
        pvcs = self.world.server.read_all(PersistentVolumeClaim)
        return [
            str(pvc.spec.resources.requests["storage"]) for pvc in pvcs if pvc.metadata.name.startswith(f"{volume}-")
        ]

    def _pods(self) -> Iterator[Pod]:
        for pod in self.world.server.read_all(Pod):
            if INSTANCE_LABEL in pod.metadata.labels and pod.metadata.deletion_timestamp is None:
                yield pod

    def _fill(self, pvc: PersistentVolumeClaim) -> None:
        name, size = pvc.metadata.name, _file_system(pvc)
        used = self.used.get(name, 0.1 * size) + self.rates.get(name, 0.0) * _STEP_SECONDS
        if used > size:
            self.refused.add(name)
        self.used[name] = min(used, size)

    async def _resize(self, pvc: PersistentVolumeClaim, now: float) -> None:
        name, requested = pvc.metadata.name, str(pvc.spec.resources.requests["storage"])
        if str(pvc.status.capacity.get("storage", "")) == requested:
            self._since.pop(name, None)
            return
        since = self._since.setdefault(name, now)
        is_new = not pvc.status.capacity
        status: dict[str, Any] = {}
        if is_new or (self.resize_seconds is not None and now - since >= self.resize_seconds):
            status = {"phase": "Bound", "capacity": {"storage": requested}, "conditions": None}
        elif self.resize_error and not pvc.status.conditions:
            condition = {"type": "ControllerResizeError", "status": "True", "message": self.resize_error}
            status = {"conditions": [condition]}
        if status:
            with suppress(NotFound):
                body = MergePatch({"status": status})
                await self.world.client.patch(PersistentVolumeClaim, pvc.key, body, subresource="status")

    async def _report(self, pod: Pod) -> None:
        instance, written = pod.metadata.name.removesuffix("-0"), list[str]()
        volumes = {"data": Path(f"data-{instance}"), "wal": Path(f"wal-{instance}")}
        if pod.metadata.uid not in self._reporters:
            retention: Any = self.retention
            self._reporters[pod.metadata.uid] = VolumeReporter(
                volumes=volumes,
                write=written.append,
                retention=retention,
                space=self._space,
                clock=self.world.runtime.clock.monotonic,
            )
        reporter = self._reporters[pod.metadata.uid]
        reporter.write = written.append
        reporter.step()
        for annotation in written:
            with suppress(NotFound):
                body = MergePatch({"metadata": {"annotations": {USAGE: annotation}}})
                await self.world.client.patch(Pod, pod.key, body)

    def _space(self, path: Path) -> tuple[int, int] | None:
        pvcs = (p for p in self.world.server.read_all(PersistentVolumeClaim) if p.metadata.name == path.name)
        pvc = next(pvcs, None)
        if pvc is None:
            return None
        size = _file_system(pvc)
        return size, max(size - int(self.used.get(path.name, 0)), 0)


def _file_system(pvc: PersistentVolumeClaim) -> int:
    capacity = pvc.status.capacity.get("storage", pvc.spec.resources.requests["storage"])
    return int(_FILE_SYSTEM_PART * int(Quantity(str(capacity))))
