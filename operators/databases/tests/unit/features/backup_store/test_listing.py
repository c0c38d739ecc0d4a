"""Backups as the objects of a store show them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from steersman_databases.features.backup_store.listing import (
    StoredArchive,
    StoredBackup,
    StoredObject,
    StoreListing,
    mysql_backup,
    parse_listing,
    postgresql_backups,
)

START = datetime(2026, 11, 28, 10, tzinfo=UTC)
FULL, CHANGES = "20261128-100000F", "20261128-100000F_20261128-110000I"


def stored(name: str, size: int, minutes: int = 0) -> StoredObject:
    return StoredObject(name=name, size=size, modified=START + timedelta(minutes=minutes))


def test_pgbackrest_backups_have_type_size_and_end() -> None:
    objects = [
        stored(f"{CHANGES}/backup.manifest.copy", 5, 61),
        stored(f"{CHANGES}/bundle/1", 10, 62),
        stored(f"{FULL}/backup.manifest", 7, 3),
        stored(f"{FULL}/bundle/1", 100, 1),
        stored("backup.info", 9, 99),
        stored("backup.history/2026/x.manifest", 9, 99),
    ]
    full, changes = postgresql_backups(objects)
    assert (full.id, full.type, full.stored_bytes, full.complete) == (FULL, "Full", 107, True)
    assert full.stop == "2026-11-28T10:03:00+00:00"
    assert (changes.id, changes.type, changes.complete) == (CHANGES, "Incremental", False)


def test_mysql_backup_is_read_from_its_description() -> None:
    document = {"id": "20261128T100000Z", "type": "Full", "stop": "2026-11-28T10:03:00Z", "stored": 12, "gtid": "x:1"}
    found = mysql_backup(json.dumps(document).encode())
    assert found == StoredBackup(id="20261128T100000Z", type="Full", stop="2026-11-28T10:03:00Z", stored_bytes=12)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"id": 1}', b'{"id": "a", "type": "Full", "stop": "x"}'])
def test_unusable_description_is_not_a_backup(content: bytes) -> None:
    assert mysql_backup(content) is None


def test_listing_survives_the_process() -> None:
    archive = StoredArchive(path="a/b.c/d", engine="mysql", cluster_uid="uid", key_fingerprint="f")
    backup = StoredBackup(id=FULL, type="Full", stop="2026-11-28T10:03:00Z", stored_bytes=1, complete=False)
    listing = StoreListing(archives=(archive,), backups=(backup,))
    assert parse_listing(listing.to_json().encode()) == listing
    with pytest.raises(ValueError, match="listing"):
        parse_listing(b"[]")
