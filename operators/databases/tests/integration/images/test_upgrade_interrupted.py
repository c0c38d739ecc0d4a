"""`steersman-upgrade` is killed, with all that it runs, and the data are one version's or the other's."""

from __future__ import annotations

import pytest

from database_support.servers.upgrade_volume import UpgradeVolume
from database_support.unit.image_script import script

start = script("postgresql", "start")

BEFORE_THE_RENAMES = (
    # 17 runs on data that go again.
    "pg_ctl stop",
    # 15 runs for pg_upgrade, as it must be stopped in order before the next attempt.
    "--globals-only",
    # All files are copied, and pg_upgrade is not through.
    "pg_resetwal -o",
    # 17 runs on the copy.
    "-c REINDEX INDEX",
    "-c DROP EXTENSION amcheck",
)
BETWEEN_AND_AFTER_THEM = ("are kept", "are kept")
CONTENT = """
CREATE EXTENSION ltree;
CREATE INDEX book_title ON book (title COLLATE "de-x-icu");
CREATE TABLE author AS SELECT 'Joyce'::text AS name, 'Ireland.Dublin'::ltree AS home FROM generate_series(1, 20000);
"""
EXTENSIONS = "SELECT string_agg(extname || ' ' || extversion, ', ' ORDER BY extname) FROM pg_extension"


@pytest.fixture
def pod(volume: UpgradeVolume, monkeypatch: pytest.MonkeyPatch) -> UpgradeVolume:
    """The volume as pods of servers have it, too."""
    named = {"VOLUME": "volume", "DATA": "volume/pgdata", "UNFINISHED": "volume/.pgdata.unfinished", "WAL": "wal"}
    for name, path in named.items():
        monkeypatch.setattr(start, name, volume.directory / path)
    return volume


def settle(pod: UpgradeVolume, major: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the pod of a server does before it starts one. Raises SystemExit."""
    with monkeypatch.context() as image:
        image.setenv("PATH", str(pod.programs(major)), prepend=":")
        start.finish_upgrade(f"{major}.0")
        start.check_version(f"{major}.0")
        start.check_data()
    # The number in it was a process of another container, and may be a dead one of this machine that nobody reaped.
    (pod.data / "postmaster.pid").unlink(missing_ok=True)


@pytest.mark.timeout(1800)
def test_upgrade_killed_at_any_point_keeps_15_and_reaches_17(
    pod: UpgradeVolume, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod.fill(CONTENT)
    pod.give({"max_connections": "50"})
    pod.add_wal_volume()
    pod.intercept("17", "pg_dumpall", "pg_resetwal")
    # Each begins with what the one before has left.
    for moment in (*BEFORE_THE_RENAMES, *BETWEEN_AND_AFTER_THEM):
        pod.interrupt(moment)
        with pod.restored_afterwards():
            settle(pod, "15", monkeypatch)
            assert pod.names() == ["volume/pgdata", "wal/pg_wal"], moment
            assert "Ulysses" in pod.ask("15", "SELECT title FROM book"), moment
            assert '"20000"' in pod.ask("15", "SELECT count(*) FROM author WHERE home <@ 'Ireland'"), moment

    assert pod.upgrade() == (0, "the data are PostgreSQL 17's")
    settle(pod, "17", monkeypatch)
    assert pod.names() == ["volume/former-15", "volume/pgdata", "wal/pg_wal", "wal/pg_wal.15"]
    assert "Ulysses" in pod.ask("17", "SELECT title FROM book")
    assert '"20000"' in pod.ask("17", "SELECT count(*) FROM author WHERE home <@ 'Ireland'")
    assert "ltree 1.3, plpgsql 1.0" in pod.ask("17", EXTENSIONS), "updated, and nothing is left of the check"
