"""What `steersman-start` does before Patroni."""

from __future__ import annotations

from pathlib import Path

import pytest

from image_script import script

start = script("postgresql", "start")


@pytest.fixture
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, path in {"VOLUME": "", "DATA": "pgdata", "UNFINISHED": ".pgdata.unfinished", "WAL": "wal"}.items():
        monkeypatch.setattr(start, name, tmp_path / path)
    return tmp_path


def lay(volume: Path, *files: str) -> None:
    for file in files:
        path = volume / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


@pytest.mark.parametrize("address", ["10.0.0.7", "fd00::7"])
def test_members_are_found_by_address(address: str) -> None:
    environment = {"POD_NAME": "pg-0-0", "POD_NAMESPACE": "shop", "POD_IPS": f"{address},192.0.2.1"}
    told = start.about_pod(environment, "17.12")
    host = f"[{address}]" if ":" in address else address
    assert told["name"] == "pg-0-0"
    assert told["kubernetes"] == {"namespace": "shop", "pod_ip": address}
    assert told["postgresql"]["connect_address"] == f"{host}:5432"
    assert told["restapi"]["connect_address"] == f"{host}:8008"
    assert told["tags"] == {"version": "17.12"}


def test_data_of_another_major_are_refused(volume: Path) -> None:
    (volume / "pgdata").mkdir()
    (volume / "pgdata/PG_VERSION").write_text("15\n")
    with pytest.raises(SystemExit, match=r"PostgreSQL 15's, which PostgreSQL 17\.12 cannot read"):
        start.check_version("17.12")
    start.check_version("15.18")


def test_an_initdb_that_was_cut_is_put_aside(volume: Path) -> None:
    lay(volume, "wal/pg_wal/left-over")
    start.clear_unfinished()
    assert not (volume / "wal/pg_wal").exists()
    lay(volume, "pgdata/global/pg_control", "wal/pg_wal/1")
    start.clear_unfinished()
    assert not (volume / "pgdata").exists() and not (volume / "wal/pg_wal").exists()
    assert (volume / ".pgdata.unfinished/global/pg_control").exists()


def test_finished_data_and_those_from_elsewhere_stay(volume: Path) -> None:
    lay(volume, "pgdata/global/pg_control", "wal/pg_wal/1")
    start.clear_unfinished()
    assert (volume / "pgdata/global/pg_control").exists()
    lay(volume, ".pgdata.begun", "pgdata/postgresql.base.conf")
    start.clear_unfinished()
    assert (volume / "pgdata/global/pg_control").exists() and (volume / "wal/pg_wal/1").exists()


@pytest.mark.parametrize("cut", ["before", "between", "after"])
def test_the_former_major_takes_its_data_back(volume: Path, cut: str) -> None:
    """Whether the upgrade was cut before, between or after its two renames."""
    lay(volume, "pgdata/old" if cut == "before" else "pgdata.15/old")
    lay(volume, "pgdata/new" if cut == "after" else "pgdata.new/new")
    start.settle_upgrade("15.20")
    assert (volume / "pgdata/old").exists()
    assert [path.name for path in volume.iterdir()] == ["pgdata"]


def test_after_the_first_start_of_the_new_major_nothing_goes_back(volume: Path) -> None:
    lay(volume, "pgdata/new", "pgdata.15/old")
    start.settle_upgrade("17.12")
    start.settle_upgrade("15.20")
    assert (volume / "pgdata/new").exists() and (volume / "former-15/old").exists()
