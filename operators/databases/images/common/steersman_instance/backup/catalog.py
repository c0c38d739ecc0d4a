"""The backups in PostgreSQL's archive, from pgBackRest's report.

Source: pgBackRest's command reference, "info --output=json".
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from ..recovery.target import format_time
from ..recovery.wal import InvalidWalName, format_lsn, parse_lsn

MAX_BACKUPS = 20_000

BackupType = Literal["Full", "Differential", "Incremental"]
Trigger = Literal["Schedule", "OnDemand", "BeforeUpgrade", "AfterUpgrade", "Final"]

TYPE_OPTIONS: Mapping[BackupType, str] = {"Full": "full", "Differential": "diff", "Incremental": "incr"}
"""pgBackRest's name of each type."""

_TYPES: Mapping[str, BackupType] = {option: name for name, option in TYPE_OPTIONS.items()}
# Annotations of a set. The last two are those of a backup without a server, for which pgBackRest records no WAL.
NAME_ANNOTATION = "name"
TRIGGER_ANNOTATION = "trigger"
JOB_ANNOTATION = "job"
TIMELINE_ANNOTATION = "timeline"
LSN_ANNOTATION = "lsn"


class InvalidCatalog(ValueError):
    """pgBackRest's report cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseBackup:
    """A complete backup.

    Args:
        id: pgBackRest's label.
        stop: when it was complete; the clock is that of the program that made it, with a resolution of one second.
        start_lsn: replay begins here.
        stop_lsn: the data are consistent from here on.
        size: bytes of the database.
        stored: bytes that this backup added to the store.
        depends_on: all backups that a recovery from this one reads, and those that they were made from.
        offline: made without a server. It has its own last WAL segment.
        job: UID of the ``Backup`` object that it was made for.
        damaged: pages with wrong checksums were found while it was made.
    """

    id: str
    type: BackupType
    start: datetime.datetime
    stop: datetime.datetime
    timeline: int
    start_lsn: int
    stop_lsn: int
    size: int = 0
    stored: int = 0
    depends_on: tuple[str, ...] = ()
    version: str = ""
    system_identifier: str = ""
    name: str = ""
    job: str = ""
    trigger: Trigger = "OnDemand"
    offline: bool = False
    damaged: bool = False

    def entry(self) -> dict[str, Any]:
        """Return the backup as an element of catalog.json."""
        return {
            "id": self.id,
            "type": self.type,
            "trigger": self.trigger,
            **({"name": self.name} if self.name else {}),
            "start": format_time(self.start),
            "stop": format_time(self.stop),
            "timeline": self.timeline,
            "startLSN": format_lsn(self.start_lsn),
            "stopLSN": format_lsn(self.stop_lsn),
            "size": self.size,
            "stored": self.stored,
            "dependsOn": list(self.depends_on),
            "version": self.version,
        }


@dataclass(frozen=True, slots=True)
class ArchivedDatabase:
    """A PostgreSQL database that an archive has had. A major upgrade adds one.

    Args:
        id: pgBackRest's number of it.
    """

    id: int
    system_identifier: str
    version: str

    @property
    def archive(self) -> str:
        """Name of the directory with its WAL, for example ``17-1``."""
        return f"{self.version}-{self.id}"


@dataclass(frozen=True, slots=True)
class Catalog:
    """Databases of an archive and their complete backups, oldest first."""

    databases: tuple[ArchivedDatabase, ...] = ()
    backups: Mapping[int, tuple[BaseBackup, ...]] = field(default_factory=dict[int, tuple[BaseBackup, ...]])
    backup_runs: bool = False

    @property
    def current(self) -> ArchivedDatabase | None:
        """The database that is archived now."""
        return self.databases[-1] if self.databases else None

    @property
    def all_backups(self) -> tuple[BaseBackup, ...]:
        """All complete backups, oldest first."""
        found = [backup for backups in self.backups.values() for backup in backups]
        return tuple(sorted(found, key=lambda backup: (backup.stop, backup.id)))

    def current_backups(self) -> tuple[BaseBackup, ...]:
        """Return the backups of the database that is archived now."""
        return self.backups.get(self.current.id, ()) if self.current else ()

    def find(self, backup_id: str) -> BaseBackup | None:
        """Return a backup by its id, or None."""
        return next((backup for backup in self.all_backups if backup.id == backup_id), None)


def parse_info(text: str) -> Catalog:
    """Return the catalog of a report of one stanza. A path without an archive gives an empty one.

    Raises:
        InvalidCatalog: the report is not pgBackRest's.
    """
    try:
        report: Any = json.loads(text or "[]")
        if not report:
            return Catalog()
        stanza: dict[str, Any] = report[0]
        databases = tuple(
            ArchivedDatabase(int(each["id"]), str(each["system-id"]), str(each["version"])) for each in stanza["db"]
        )
        found: list[dict[str, Any]] = stanza["backup"]
        if len(found) > MAX_BACKUPS:
            raise InvalidCatalog(f"the archive has {len(found)} backups, and {MAX_BACKUPS} are supported")
        backups: dict[int, list[BaseBackup]] = {}
        by_id = {database.id: database for database in databases}
        priors = {str(each["label"]): each.get("prior") for each in found}
        for each in found:
            database = by_id[int(each["database"]["id"])]
            if backup := _backup(each, database, priors):
                backups.setdefault(database.id, []).append(backup)
        lock: Any = stanza.get("status", {}).get("lock", {}).get("backup", {}).get("held", False)
    except (KeyError, TypeError, IndexError, AttributeError, InvalidWalName) as error:
        raise InvalidCatalog(f"pgBackRest reports backups in an unknown form: {error!r:.80}") from None
    except (ValueError, RecursionError):
        raise InvalidCatalog("pgBackRest's report is not JSON") from None
    ordered = {number: tuple(sorted(each, key=lambda b: (b.stop, b.id))) for number, each in backups.items()}
    return Catalog(databases, ordered, lock is True)


def _backup(each: Mapping[str, Any], database: ArchivedDatabase, priors: Mapping[str, Any]) -> BaseBackup | None:
    """Return a backup, or None if its WAL is unknown.

    Another program made it without a server then.
    """
    annotations = cast("dict[str, str]", each.get("annotation") or {})
    offline = each["lsn"].get("start") is None if each.get("lsn") else True
    if not offline:
        timeline = int(str(each["archive"]["start"])[:8], 16)
        start_lsn, stop_lsn = parse_lsn(each["lsn"]["start"]), parse_lsn(each["lsn"]["stop"])
    elif TIMELINE_ANNOTATION in annotations and LSN_ANNOTATION in annotations:
        timeline = int(annotations[TIMELINE_ANNOTATION])
        start_lsn = stop_lsn = parse_lsn(annotations[LSN_ANNOTATION])
    else:
        return None
    label = str(each["label"])
    trigger = annotations.get(TRIGGER_ANNOTATION, "OnDemand")
    return BaseBackup(
        id=label,
        type=_TYPES[each["type"]],
        start=_time(each["timestamp"]["start"]),
        stop=_time(each["timestamp"]["stop"]),
        timeline=timeline,
        start_lsn=start_lsn,
        stop_lsn=stop_lsn,
        size=int(each["info"]["size"]),
        stored=int(each["info"]["repository"]["delta"]),
        depends_on=_dependencies(label, each.get("reference") or (), priors),
        version=database.version,
        system_identifier=database.system_identifier,
        name=annotations.get(NAME_ANNOTATION, ""),
        job=annotations.get(JOB_ANNOTATION, ""),
        trigger=cast(Trigger, trigger) if trigger in get_args(Trigger) else "OnDemand",
        offline=offline,
        damaged=each.get("error") is True,
    )


def _dependencies(label: str, references: Sequence[str], priors: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the dependencies of a backup.

    They are files of its references, and the chain that pgBackRest expires it with.
    """
    chain: set[str] = set()
    prior = priors.get(label)
    while prior and prior not in chain:
        chain.add(str(prior))
        prior = priors.get(prior)
    return tuple(sorted(chain.union(map(str, references))))


def _time(seconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(int(seconds), datetime.UTC)
