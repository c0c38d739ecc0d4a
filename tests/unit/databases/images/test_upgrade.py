"""What `steersman-upgrade` decides without a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from image_script import script

upgrade = script("postgresql", "upgrade")

CONTROL = """\
pg_control version number:            1300
Database cluster state:               shut down
Latest checkpoint's REDO WAL file:    000000010000000000000003
Bytes per WAL segment:                33554432
Data page checksum version:           1
"""


@pytest.fixture
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("VOLUME", "WAL", "RUN", "PROGRAMS", "SHARED"):
        monkeypatch.setattr(upgrade, name, tmp_path / name.lower())
        (tmp_path / name.lower()).mkdir()
    monkeypatch.setattr(upgrade, "TOLD", tmp_path / "told")
    return tmp_path / "volume"


def test_new_data_are_made_like_the_former() -> None:
    options = upgrade.like(upgrade.controlled(CONTROL))
    assert "--wal-segsize=32" in options and "--data-checksums" in options
    without = upgrade.controlled(CONTROL.replace("checksum version:           1", "checksum version:           0"))
    assert "--data-checksums" not in upgrade.like(without)


def test_what_the_image_lacks_is_named(volume: Path) -> None:
    for file in ("shared/17/extension/pgcrypto.control", "programs/17/lib/pgcrypto.so"):
        path = volume.parent / file
        path.parent.mkdir(parents=True)
        path.touch()
    assert upgrade.missing("17", ["pgcrypto"], ["$libdir/pgcrypto", "pgcrypto.so"]) == []
    assert upgrade.missing("17", ["postgis"], ["$libdir/postgis-3"]) == [
        "extension postgis is not in the image for PostgreSQL 17",
        "library $libdir/postgis-3 is not in the image for PostgreSQL 17",
    ]


def test_a_cut_between_the_renames_is_finished(volume: Path) -> None:
    (volume / "pgdata.15").mkdir()
    (volume / "pgdata.new").mkdir()
    (volume / "pgdata.new/PG_VERSION").write_text("17\n")
    assert upgrade.Upgrade("17").run() == "the data are PostgreSQL 17's"
    assert sorted(path.name for path in volume.iterdir()) == ["pgdata", "pgdata.15"]


def test_without_the_programs_of_the_former_major_nothing_changes(volume: Path) -> None:
    (volume / "pgdata").mkdir()
    (volume / "pgdata/PG_VERSION").write_text("14\n")
    with pytest.raises(upgrade.Refused, match="no PostgreSQL 14"):
        upgrade.Upgrade("17").run()
    assert [path.name for path in volume.iterdir()] == ["pgdata"]


def test_a_standbys_data_are_refused(volume: Path) -> None:
    (volume / "pgdata").mkdir()
    (volume / "pgdata/PG_VERSION").write_text("15\n")
    (volume / "pgdata/standby.signal").touch()
    (volume.parent / "programs/15/bin").mkdir(parents=True)
    with pytest.raises(upgrade.Refused, match="standby"):
        upgrade.Upgrade("17").run()


def test_the_words_of_a_tool_include_the_files_that_it_names(volume: Path) -> None:
    found = volume / "pgdata.new/tables_using_aclitem.txt"
    found.parent.mkdir()
    found.write_text("In database: postgres\n  public.bad.a\n")
    printed = f"Checking cluster versions      ok\nChecking for aclitem     fatal\nsee the file:\n    {found}\n"
    words = upgrade.Upgrade("17")._words(printed)  # pyright: ignore[reportPrivateUsage]
    assert "public.bad.a" in words and "cluster versions" not in words


def test_forgetting_takes_the_log_along(volume: Path) -> None:
    (volume / "former-15").mkdir()
    log = volume.parent / "wal/pg_wal"
    log.mkdir()
    (volume / "former-15/pg_wal").symlink_to(log)
    assert upgrade.forget() == "removed former-15"
    assert not log.exists() and list(volume.iterdir()) == []
    assert upgrade.forget() == "there is nothing to remove"


def test_forgetting_leaves_the_log_that_is_in_use(volume: Path) -> None:
    (log := volume.parent / "wal/pg_wal").mkdir()
    for data in ("former-15", "pgdata"):
        (volume / data).mkdir()
        (volume / data / "pg_wal").symlink_to(log)
    assert upgrade.forget() == "removed former-15"
    assert log.exists() and (volume / "pgdata").exists()
