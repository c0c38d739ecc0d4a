"""`steersman-instance verify` with PostgreSQL, pgBackRest and an object store."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping
from contextlib import contextmanager

import pytest

from database_support.archive.archived_server import (
    ArchivedPostgreSQL,
    JobOutcome,
    empty_volumes,
    run_job,
    write_store,
)
from database_support.archive.story import Story
from database_support.servers.matrix import WHOLE_MATRIX

pytestmark = pytest.mark.xdist_group("postgresql-archive-verification")

HOSTILE = "shop's = \\x"
"""A name of a database that libpq would read as connection parameters."""


def verify(server: ArchivedPostgreSQL, store: Mapping[str, object] | None = None, **job: object) -> JobOutcome:
    """Verify the newest backup in a pod of its own.

    Args:
        store: fields of the store file that differ.
    """
    with empty_volumes(server) as volumes:
        write_store(volumes.paths.store_file, server.store_fields(**(store or {})))
        return run_job(volumes, "verify", job)


def content(server: ArchivedPostgreSQL) -> dict[str, str]:
    """Return a digest of every object of the store."""
    return {key: hashlib.sha256(server.store.read(key)).hexdigest() for key in server.store.keys("")}


def segments(server: ArchivedPostgreSQL) -> list[str]:
    """Return the keys of archived segments, the oldest first."""
    keys = [key for key in server.store.keys(server.path) if "/archive/main/17-1/0000" in key]
    return sorted(key for key in keys if ".history" not in key and ".backup" not in key)


def base(server: ArchivedPostgreSQL) -> list[str]:
    """Return the keys with data of base backups."""
    return [key for key in server.store.keys(server.path) if "/backup/main/2" in key and "manifest" not in key]


def name_of(key: str) -> str:
    return key.rpartition("/")[2][:24]


@contextmanager
def database(server: ArchivedPostgreSQL, name: str) -> Generator[None]:
    quoted = '"' + name.replace('"', '""') + '"'
    server.sql(f"CREATE DATABASE {quoted}")
    # Its owner may set these. They must not stop the verification.
    for setting in ("default_transaction_read_only = on", "statement_timeout = '1ms'", "search_path = nowhere"):
        server.sql(f"ALTER DATABASE {quoted} SET {setting}")
    try:
        yield
    finally:
        server.sql(f"DROP DATABASE {quoted}")


@pytest.mark.requirement("pattern/backups")
def test_verification_reads_all_data_and_writes_nothing(story: Story) -> None:
    server = story.server
    with database(server, HOSTILE), database(server, "dropped"):
        # As after an interrupted DROP DATABASE.
        server.sql("UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'dropped'")
        server.archive_all()
        before = content(server)
        done = verify(server, archived=name_of(segments(server)[-1]))
        assert done.code == 0, done.logs
        assert content(server) == before
    found = done.result["verification"]
    assert (found["tables"], found["rows"]) == (1, 7)
    assert found["backup"] == server.pgbackrest("--output=json", "info").rpartition('"label":"')[2].partition('"')[0]
    assert found["recoveredTo"] >= story.time["g"][:19]
    assert found["recoverySeconds"] == pytest.approx(found["restoreSeconds"] + found["replaySeconds"], abs=1)
    assert found["dataLossSeconds"] >= 0
    secrets = [server.store.credentials.secret_access_key]
    assert [secret for secret in secrets if secret in done.logs] == []


def object_of(server: ArchivedPostgreSQL, kind: str) -> str:
    """Return the key of an object that the newest backup needs."""
    found = {"last segment": segments(server)[-1], "segment": segments(server)[-2], "backup": base(server)[-1]}
    return found[kind]


@pytest.mark.parametrize("kind", ["last segment", "segment", "backup"] if WHOLE_MATRIX else ["segment", "backup"])
def test_flipped_bit_is_found(story: Story, kind: str) -> None:
    key = object_of(story.server, kind)
    with story.server.store.corrupted(key):
        done = verify(story.server)
    assert (done.code, done.result.get("reason")) in ((1, "ArchiveDamaged"), (3, "ArchiveDamaged")), done.logs
    if kind != "backup":
        assert name_of(key) in done.result["message"]


MISSING = [("segment", "WALMissing"), ("last segment", "WALMissing"), ("backup", "ArchiveDamaged")]


@pytest.mark.parametrize(("kind", "reason"), MISSING if WHOLE_MATRIX else MISSING[1:])
def test_missing_object_is_found(story: Story, kind: str, reason: str) -> None:
    archived = name_of(segments(story.server)[-1])
    with story.server.store.missing(object_of(story.server, kind)):
        done = verify(story.server, archived=archived)
    # Another attempt may find an object that could not be read.
    assert (done.code, done.result.get("reason")) == (1 if kind == "backup" else 3, reason), done.logs


def test_rejected_credentials_are_no_damage(story: Story) -> None:
    done = verify(story.server, {"secretAccessKey": "x" * 40})
    assert (done.code, done.result["reason"]) == (1, "CredentialsRejected"), done.logs


@pytest.mark.parametrize("program", ["recover", "verify"])
def test_undetectable_damage_of_last_segment_is_found(story: Story, program: str) -> None:
    """pgBackRest decompresses random bytes whatever they are, and PostgreSQL takes them for the end of WAL."""
    server = story.server
    random = "decode(string_agg(md5(random()::text), ''), 'hex')"
    server.sql(f"SELECT pg_logical_emit_message(false, 'x', {random}) FROM generate_series(1, 500000)")
    server.mark(f"after random bytes, {program}")
    server.archive_all()
    key = segments(server)[-1]
    with server.store.corrupted(key), empty_volumes(server) as volumes:
        if program == "verify":
            write_store(volumes.paths.store_file, server.store_fields())
        done = run_job(volumes, program, {"cluster_uid": "" if program == "verify" else "99999999"})
    assert (done.code, done.result.get("reason")) == (3, "ArchiveDamaged"), done.logs
    assert name_of(key) in done.result["message"]


def test_damaged_data_are_found(archived: ArchivedPostgreSQL) -> None:
    """Last in this module: a page was damaged before the backup was made."""
    archived.sql("CREATE TABLE damaged AS SELECT generate_series(1, 1000) AS id")
    archived.sql("CREATE INDEX damaged_id ON damaged (id)")
    archived.sql("CHECKPOINT")
    file = archived.paths.postgresql_data / archived.sql("SELECT pg_relation_filepath('damaged_id')")[0][0]
    archived.stop()
    with file.open("r+b") as index:
        index.seek(8192 + 4000)
        index.write(b"\xff" * 2000)
    archived.start()
    archived.pgbackrest("--type=full", "--start-fast", "backup")
    done = verify(archived)
    assert (done.code, done.result["reason"]) == (3, "DataDamaged"), done.logs
    assert "damaged_id" in done.result["message"]
