"""Base backups of MySQL in a store.

Each is an object, written when the backup is complete.

restic's tags cannot hold a GTID set, whose text has commas. So an object describes the backup and names its snapshot,
and a snapshot without one is not a backup.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from ..archive.errors import ArchiveError
from ..archive.objects import ObjectNotFound, Objects
from ..gtids import GtidSet
from ..recovery.gtid_plan import GtidBackup
from ..recovery.target import InvalidTarget, format_time, parse_time
from .catalog import BaseBackup, Trigger

DIRECTORY = "mysql/catalog"
_SUFFIX = ".json"


@dataclass(frozen=True, slots=True, kw_only=True)
class MysqlBackup:
    """A complete base backup.

    Args:
        id: when it was started, for example `20260501T120000Z`.
        snapshot: restic's id.
        size: bytes of the data directory.
        stored: bytes that it added to the store.
        version: of the server, for example `9.7.4`.
        job: UID of the Backup object, by which a Job's second pod finds what the first made.
    """

    id: str
    snapshot: str
    start: datetime.datetime
    stop: datetime.datetime
    gtids: GtidSet
    size: int
    stored: int
    version: str
    instance: str = ""
    name: str = ""
    trigger: str = "OnDemand"
    job: str = ""

    def entry(self) -> dict[str, Any]:
        """Return the backup for catalog.json and for a Job's result."""
        return {
            "id": self.id,
            "type": "Full",
            "trigger": self.trigger,
            **({"name": self.name} if self.name else {}),
            "start": format_time(self.start),
            "stop": format_time(self.stop),
            "gtid": str(self.gtids),
            "size": self.size,
            "stored": self.stored,
            "dependsOn": [],
            "version": self.version,
            **({"instance": self.instance} if self.instance else {}),
        }

    def planned(self) -> GtidBackup:
        """Return what a recovery's plan needs to know."""
        return GtidBackup(id=self.id, stop=self.stop, gtids=self.gtids)

    def retained(self) -> BaseBackup:
        """Return the input of retention.

        Each snapshot is complete, even with shared data.
        """
        return BaseBackup(
            id=self.id,
            type="Full",
            start=self.start,
            stop=self.stop,
            timeline=0,
            start_lsn=0,
            stop_lsn=0,
            trigger=cast(Trigger, self.trigger),
        )


def backup_id(start: datetime.datetime) -> str:
    """Return the id of a backup that starts now."""
    return f"{start.astimezone(datetime.UTC):%Y%m%dT%H%M%SZ}"


class MysqlCatalog:
    """The descriptions of one cluster's base backups."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def add(self, backup: MysqlBackup) -> None:
        """Make a backup count. Raises ObjectExists, ArchiveError."""
        content = {"format": 1, "snapshot": backup.snapshot, "job": backup.job, **backup.entry()}
        self._objects.create(backup.id + _SUFFIX, json.dumps(content).encode())

    def backups(self) -> list[MysqlBackup]:
        """Return all backups, oldest first. Raises ArchiveError."""
        found: list[MysqlBackup] = []
        for name in self._objects.names(""):
            try:
                found.append(_parse(name, self._objects.read(name)))
            except ObjectNotFound:
                continue  # expired since it was listed
        return sorted(found, key=lambda backup: (backup.stop, backup.id))

    def remove(self, ids: Iterable[str]) -> None:
        """Make backups count no longer. Raises ArchiveError."""
        self._objects.delete([each + _SUFFIX for each in ids])


def _parse(name: str, content: bytes) -> MysqlBackup:
    try:
        found: Any = json.loads(content)
        if found["format"] != 1:
            raise ArchiveError("ArchiveDamaged", f"Backup {name} was written by a newer release: use its image.")
        return MysqlBackup(
            id=str(found["id"]),
            snapshot=str(found["snapshot"]),
            start=parse_time(found["start"]),
            stop=parse_time(found["stop"]),
            gtids=GtidSet.parse(found["gtid"]),
            size=int(found["size"]),
            stored=int(found["stored"]),
            version=str(found["version"]),
            instance=str(found.get("instance", "")),
            name=str(found.get("name", "")),
            trigger=str(found.get("trigger", "OnDemand")),
            job=str(found.get("job", "")),
        )
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, InvalidTarget):
        raise ArchiveError("ArchiveDamaged", f"The description {name} of a base backup is malformed.") from None
