"""Reported use of volumes, and records of their growth."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from steersman.api.core_v1 import PersistentVolumeClaim, Pod
from steersman.meta import Quantity
from steersman_databases.cluster.state import Instance
from steersman_databases.engines.annotation_io import as_mapping, parse_times

USAGE = "databases.steersman.dev/volumes"
"""Annotation of pods with the use of their volumes.

`steersman-instance volumes` writes it.
"""
GROWN = "databases.steersman.dev/grown"
"""Annotation of PVCs with time and cause of the last growth.

The request that grows a PVC writes it, so that no growth is without a record.
"""
VolumeName = Literal["data", "wal"]
_REPORT_LIMIT_CHARACTERS = 4096
_TEXT_LIMIT_CHARACTERS = 256
_RESIZE_ERROR = "ResizeError"
"""End of condition types. Source: Kubernetes, `ControllerResizeError` and `NodeResizeError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InactiveSlot:
    """A replication slot without a client. `retained` is in bytes of WAL."""

    name: str
    retained: int
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeUsage:
    """Use of a mounted volume.

    Attributes:
        size: of the file system, in bytes.
        available: space that the server can use, in bytes.
        fill_rate: bytes a second, if the volume is full within an hour at this rate.
        daily_growth: bytes a day in the last 24 hours. None if unknown.
        retained_by: replication slot or archive that retains WAL, as a noun phrase.
        retained: the amount, such as "1.2 GiB".
        inactive_slot: the one that retains most, if that is a large part of the volume.
    """

    size: int
    available: int
    fill_rate: float | None = None
    daily_growth: float | None = None
    retained_by: str = ""
    retained: str = ""
    inactive_slot: InactiveSlot | None = None

    @property
    def used(self) -> int:
        """Bytes that are not available."""
        return max(self.size - self.available, 0)

    @property
    def percent(self) -> float:
        """Used part of the volume in percent."""
        return 100 * self.used / self.size

    @property
    def seconds_to_full(self) -> float | None:
        """Seconds until the volume is full at the present rate. None if that is more than an hour."""
        return None if not self.fill_rate else self.available / self.fill_rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Record of the last growth of a PVC.

    Attributes:
        at: None for a PVC that was created with the size of the others.
        file_system: size of the file system before, in bytes. None if unknown.
    """

    at: datetime | None = None
    description: str = ""
    file_system: int | None = None
    retained_by: str = ""

    def as_annotation(self) -> str:
        """Return the value of the annotation `GROWN`."""
        found = {
            "at": None if self.at is None else self.at.isoformat(),
            "description": self.description[:_TEXT_LIMIT_CHARACTERS],
            "fileSystemBytes": self.file_system,
            "retainedBy": self.retained_by[:_TEXT_LIMIT_CHARACTERS],
        }
        return json.dumps({key: value for key, value in found.items() if value})


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A PVC in use with its file system. Sizes are in bytes."""

    name: str
    requested: int
    capacity: int | None = None
    usage: VolumeUsage | None = None
    growth: Growth | None = None
    resize_error: str = ""

    def is_growing(self, size: int) -> bool:
        """Return True if it is smaller than `size` bytes.

        Or its agent does not show the growth yet.
        """
        if min(self.requested, self.requested if self.capacity is None else self.capacity) < size:
            return True
        before = None if self.growth is None else self.growth.file_system
        return before is not None and self.usage is not None and self.usage.size <= before


def volumes_of(instances: Iterable[Instance], name: VolumeName) -> Sequence[Volume]:
    """Return the volumes of this name that are not being deleted.

    Retained WAL is the cause of growth only on a volume for WAL.
    """
    found = ((pvc_of(instance, name), usage_of(instance.pod, name)) for instance in instances)
    if name == "data":
        found = ((pvc, usage and replace(usage, retained_by="", retained="")) for pvc, usage in found)
    return [_volume(pvc, usage) for pvc, usage in found if pvc is not None]


def pvc_of(instance: Instance, name: VolumeName) -> PersistentVolumeClaim | None:
    """Return the PVC of this name, unless it is being deleted."""
    pvc = instance.data if name == "data" else instance.wal
    return None if pvc is None or pvc.metadata.deletion_timestamp is not None else pvc


def usage_of(pod: Pod | None, name: VolumeName) -> VolumeUsage | None:
    """Return the reported use of a pod's volume, or None."""
    found = as_mapping(_parse(None if pod is None else pod.metadata.annotations.get(USAGE)).get(name))
    size, available = _positive(found.get("size")), _positive(found.get("available"))
    if not size or available is None or available > size:
        return None
    return VolumeUsage(
        size=int(size),
        available=int(available),
        fill_rate=_positive(found.get("fillRate")) or None,
        daily_growth=_number(found.get("dailyGrowth")),
        retained_by=_text(found.get("retainedBy")),
        retained=_text(found.get("retained")),
        inactive_slot=_inactive_slot(as_mapping(found.get("inactiveSlot"))),
    )


def requested_size(pvc: PersistentVolumeClaim) -> Quantity:
    """Return the requested size of a PVC."""
    return Quantity(str(pvc.spec.resources.requests.get("storage", "0")))


def capacity_of(pvc: PersistentVolumeClaim) -> Quantity | None:
    """Return the size of the volume. None while there is none."""
    capacity = pvc.status.capacity.get("storage")
    return None if capacity is None else Quantity(str(capacity))


def resize_error_of(pvc: PersistentVolumeClaim) -> str:
    """Return the error of a failed resize, or ""."""
    failed = (c for c in pvc.status.conditions if c.type.endswith(_RESIZE_ERROR) and c.status == "True")
    return next((c.message or c.reason or c.type for c in failed), "")


def growth_of(pvc: PersistentVolumeClaim) -> Growth | None:
    """Return the record of the last growth; None without one."""
    if (annotation := pvc.metadata.annotations.get(GROWN)) is None:
        return None
    found = _parse(annotation)
    size = _positive(found.get("fileSystemBytes"))
    return Growth(
        at=_time(found.get("at")),
        description=_text(found.get("description")),
        file_system=None if size is None else int(size),
        retained_by=_text(found.get("retainedBy")),
    )


def _volume(pvc: PersistentVolumeClaim, usage: VolumeUsage | None) -> Volume:
    capacity = capacity_of(pvc)
    return Volume(
        name=pvc.metadata.name,
        requested=int(requested_size(pvc)),
        capacity=None if capacity is None else int(capacity),
        usage=usage,
        growth=growth_of(pvc),
        resize_error=resize_error_of(pvc),
    )


def _inactive_slot(found: Mapping[str, Any]) -> InactiveSlot | None:
    name, size, since = _text(found.get("name")), _positive(found.get("size")), parse_times([found.get("since")], 1)
    return InactiveSlot(name=name, retained=int(size), since=since[0]) if name and size and since else None


def _parse(annotation: str | None) -> Mapping[str, Any]:
    if annotation is None or len(annotation) > _REPORT_LIMIT_CHARACTERS:
        return {}
    try:
        return as_mapping(json.loads(annotation))
    except (ValueError, RecursionError):
        return {}


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) and abs(value) < 2**63 else None


def _positive(value: Any) -> float | None:
    return number if (number := _number(value)) is not None and number >= 0 else None


def _text(value: Any) -> str:
    return value[:_TEXT_LIMIT_CHARACTERS] if isinstance(value, str) else ""


def _time(value: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(_text(value))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
