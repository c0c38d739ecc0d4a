"""`steersman-upgrade` to 18, from 15 and 17: other libraries, kept statistics and checksums."""

from __future__ import annotations

import re

import pytest

from database_support.servers.upgrade_volume import UpgradeVolume, upgrade_volume

pytestmark = pytest.mark.timeout(600)

# Those named due are rebuilt, and those named kept are not.
INDEXES = """
CREATE EXTENSION pg_trgm;
CREATE COLLATION german (provider = icu, locale = 'de-DE');
CREATE TABLE entry (id int PRIMARY KEY, who text COLLATE german, usual text, facts jsonb, words tsvector, plain text);
INSERT INTO entry SELECT i, 'm' || i, 'm' || i, jsonb_build_object('who', i), to_tsvector('simple', 'm' || i), 'x'
  FROM generate_series(1, 500) i;
CREATE INDEX due_collation ON entry (who);
CREATE INDEX due_trigrams ON entry USING gin (usual gin_trgm_ops);
CREATE INDEX due_words ON entry USING gin (to_tsvector('simple', usual));
CREATE INDEX due_when_words ON entry (id) WHERE to_tsvector('simple', usual) @@ 'm1';
CREATE INDEX kept_usual ON entry (usual, lower(usual));
CREATE INDEX kept_facts ON entry (facts);
CREATE INDEX kept_words ON entry USING gin (words);
ANALYZE entry;
ALTER TABLE entry ALTER COLUMN plain SET STATISTICS 0;
"""
FILES = """
SELECT string_agg(relname || ' ' || relfilenode, ', ') FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind = 'i'
"""
# ANALYZE would find none for the last column.
STATISTICS = "SELECT string_agg(attname, ' ' ORDER BY attname) AS columns FROM pg_stats WHERE tablename = 'entry'"


def require_compatible(volume: UpgradeVolume) -> None:
    """Skip where 18 is of an earlier minor release than 17, and rejects options of its columns."""
    found = volume.ask(volume.former, "SELECT string_agg(DISTINCT attoptions::text, ' ') FROM pg_attribute")
    server = volume.programs("18").resolve() / "postgres.elf"
    if "pg_attver" in found and b"pg_attver" not in server.read_bytes():
        pytest.skip("PostgreSQL 18 of Debian forky is of an earlier minor release than 17 of trixie")


def files(volume: UpgradeVolume, major: str) -> dict[str, str]:
    """The file of each index."""
    return dict(re.findall(r"(\w+) (\d+)[,\"]", volume.ask(major, FILES)))


def rebuilt(volume: UpgradeVolume) -> set[str]:
    """Upgrade, and return the indexes that have other files."""
    before = files(volume, volume.former)
    code, said = volume.upgrade()
    assert code == 0, said
    return {name for name, file in files(volume, volume.major).items() if before[name] != file}


def test_text_search_of_builtin_provider_is_rebuilt() -> None:
    """Clusters of 17 have these options of initdb."""
    options = ("--locale=C.UTF-8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8")
    with upgrade_volume("17", "18", *options) as volume:
        volume.fill(INDEXES)
        require_compatible(volume)
        volume.give({"max_connections": "50"})
        assert rebuilt(volume) == {"due_collation", "due_trigrams", "due_words", "due_when_words"}
        assert "facts id plain usual who words" in volume.ask("18", STATISTICS), "the statistics are kept"
        assert 'data_checksums = "off"' in volume.ask("18", "SHOW data_checksums")


def test_text_search_of_c_library_is_kept() -> None:
    """It is the provider of both versions, and its locale C.UTF-8 has no version."""
    options = ("--locale=C.UTF-8", "--locale-provider=libc", "--data-checksums")
    with upgrade_volume("17", "18", *options) as volume:
        volume.fill(INDEXES)
        require_compatible(volume)
        volume.give({"max_connections": "50"})
        assert rebuilt(volume) == {"due_collation"}
        assert 'data_checksums = "on"' in volume.ask("18", "SHOW data_checksums")


def test_data_of_15_are_upgraded_at_once() -> None:
    with upgrade_volume("15", "18") as volume:
        volume.fill(INDEXES)
        volume.give({"old_snapshot_threshold": "1h", "max_connections": "50", "shared_buffers": "16MB"})
        assert rebuilt(volume) == {"due_collation"}
        assert "Ulysses" in volume.ask("18", "SELECT title FROM book")
