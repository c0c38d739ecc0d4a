"""The catalog that the primary's agent reports in the ConfigMap ``<cluster>-backup-catalog``. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, field

CATALOG_KEY = "catalog.json"
_MAX_BYTES = 1024 * 1024
_Time = Annotated[datetime, Meta(tz=True)]
_Id = Annotated[str, Meta(pattern="^[A-Za-z0-9][-._A-Za-z0-9]{0,127}$")]
_Text = Annotated[str, Meta(max_length=1024)]
_Gtids = Annotated[str, Meta(max_length=65536)]


class CatalogBackup(Struct, frozen=True, rename="camel"):
    """A complete backup in the store. Sizes are in bytes."""

    id: _Id
    type: Literal["Full", "Differential", "Incremental"]
    start: _Time
    stop: _Time
    timeline: int | None = None
    gtid: _Gtids | None = None
    start_lsn: Annotated[str, Meta(max_length=32)] | None = field(default=None, name="startLSN")
    stop_lsn: Annotated[str, Meta(max_length=32)] | None = field(default=None, name="stopLSN")
    size: int | None = None
    stored: int | None = None
    depends_on: tuple[_Id, ...] = ()
    instance: Annotated[str, Meta(max_length=253)] | None = None
    version: Annotated[str, Meta(max_length=63)] | None = None
    name: Annotated[str, Meta(max_length=253)] | None = None


class RecoveryPoints(Struct, frozen=True, rename="camel"):
    """The moments that a point-in-time recovery can reach."""

    first: _Time | None = None
    last: _Time | None = None


class ArchiveReport(Struct, frozen=True, rename="camel"):
    """The state of continuous archiving. ``message`` is one sentence."""

    state: Annotated[str, Meta(max_length=63)]
    message: _Text = ""
    since: _Time | None = None
    waiting_bytes: int | None = None
    last_archived: _Gtids | None = None


class Catalog(Struct, frozen=True, rename="camel"):
    """All backups of a cluster's path in the store, and its archive."""

    format: Literal[1]
    at: _Time
    archive: ArchiveReport | None = None
    recovery: RecoveryPoints = RecoveryPoints()
    backups: Annotated[tuple[CatalogBackup, ...], Meta(max_length=10_000)] = ()

    def find(self, backup_id: str) -> CatalogBackup | None:
        """Backup of this ID; None if the store does not have it."""
        return next((backup for backup in self.backups if backup.id == backup_id), None)


def read_catalog(data: Mapping[str, str]) -> Catalog | None:
    """Parse the data of the ConfigMap. None before the first report, and if it is malformed."""
    text = data.get(CATALOG_KEY, "")
    if not text or len(text) > _MAX_BYTES:
        return None
    try:
        return msgspec.json.decode(text, type=Catalog)
    except (msgspec.DecodeError, RecursionError):
        return None


def backup_from(document: object) -> CatalogBackup | None:
    """Parse the member ``backup`` of a Job's result. None if it is malformed."""
    try:
        return msgspec.convert(document, CatalogBackup)
    except (msgspec.ValidationError, RecursionError):
        return None
