"""Archives and backups in an object store, from its objects. Pure.

The probe process imports this module. It must not import the framework, which would slow the process down.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, cast

from steersman_databases.features.backup_store.report import REACHABLE

MAX_LISTING_BYTES = 4 * 1024 * 1024
POSTGRESQL_BACKUPS = "pgbackrest/backup/main"
MYSQL_CATALOG = "mysql/catalog"
_TYPES = {"F": "Full", "D": "Differential", "I": "Incremental"}
_LABEL = re.compile(r"(?:\d{8}-\d{6}F_)?\d{8}-\d{6}([FDI])")
_MANIFEST = "backup.manifest"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """An object. ``name`` is relative to the directory that was listed."""

    name: str
    size: int
    modified: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredArchive:
    """The path of a cluster, with the content of its ``steersman.json``."""

    path: str
    engine: str
    cluster_uid: str
    key_fingerprint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBackup:
    """A backup. ``stop`` is RFC 3339, and ``stored_bytes`` what it alone has in the store.

    An incomplete one was interrupted, or is running.
    """

    id: str
    type: str
    stop: str
    stored_bytes: int
    complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreListing:
    """Content of a store, or the reason why it cannot be listed."""

    reason: str = REACHABLE
    message: str = ""
    archives: tuple[StoredArchive, ...] = field(default=())
    backups: tuple[StoredBackup, ...] = field(default=())

    def to_json(self) -> str:
        """Return the listing as one line."""
        return json.dumps(asdict(self))


def parse_listing(content: bytes) -> StoreListing:
    """Parse the output of the probe process.

    Raises:
        ValueError: the output is not a listing.
    """
    try:
        fields: Any = json.loads(content)
        return StoreListing(
            reason=str(fields["reason"]),
            message=str(fields["message"]),
            archives=tuple(StoredArchive(**each) for each in fields["archives"]),
            backups=tuple(StoredBackup(**each) for each in fields["backups"]),
        )
    except (TypeError, KeyError) as error:
        raise ValueError("not a listing") from error


def postgresql_backups(objects: Iterable[StoredObject]) -> tuple[StoredBackup, ...]:
    """Return the backups of pgBackRest, oldest first.

    Args:
        objects: below `POSTGRESQL_BACKUPS`.
    """
    sizes: dict[str, int] = {}
    newest: dict[str, datetime] = {}
    complete: set[str] = set()
    for each in objects:
        label, _, rest = each.name.partition("/")
        if not rest or _LABEL.fullmatch(label) is None:
            continue
        sizes[label] = sizes.get(label, 0) + each.size
        newest[label] = max(each.modified, newest.get(label, each.modified))
        # pgBackRest writes the manifest last; until then there is only a copy of it.
        if rest == _MANIFEST:
            complete.add(label)
    return tuple(
        StoredBackup(
            id=label,
            type=_TYPES[label[-1]],
            stop=newest[label].isoformat(),
            stored_bytes=size,
            complete=label in complete,
        )
        for label, size in sorted(sizes.items(), key=lambda each: newest[each[0]])
    )


def mysql_backup(content: bytes) -> StoredBackup | None:
    """Parse an object below `MYSQL_CATALOG`. None if it does not describe a backup."""
    try:
        found: Any = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    fields = cast("Mapping[str, Any]", found)
    stored = fields.get("stored")
    if not isinstance(stored, int) or not all(isinstance(fields.get(name), str) for name in ("id", "type", "stop")):
        return None
    return StoredBackup(id=fields["id"], type=fields["type"], stop=fields["stop"], stored_bytes=stored)
