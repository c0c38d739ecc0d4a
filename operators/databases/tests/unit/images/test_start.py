"""What `steersman-start` does before Patroni."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from database_support.unit.image_script import IMAGES, script

start = script("postgresql", "start")
CONTRACT = start.CONTRACT


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
def test_pod_configuration_uses_addresses(address: str) -> None:
    environment = {"POD_NAME": "pg-0-0", "POD_NAMESPACE": "shop", "POD_IPS": f"{address},192.0.2.1"}
    told = start.pod_configuration(environment, "17.12", "pg")
    host = f"[{address}]" if ":" in address else address
    assert told["name"] == "pg-0-0"
    assert told["kubernetes"] == {"namespace": "shop", "pod_ip": address}
    assert told["postgresql"]["connect_address"] == f"{host}:5432"
    assert told["postgresql"]["pre_promote"] == "/usr/local/bin/steersman-room pg"
    assert told["postgresql"]["bin_name"] == {
        "initdb": "/usr/local/bin/steersman-initdb",
        "postgres": "/usr/local/bin/steersman-postgres",
    }
    assert told["restapi"]["connect_address"] == f"{host}:8008"
    assert told["tags"] == {"version": "17.12", "contract": CONTRACT}
    assert told["watchdog"]["mode"] == "required"


def test_data_of_other_major_is_rejected(volume: Path) -> None:
    (volume / "pgdata").mkdir()
    (volume / "pgdata/PG_VERSION").write_text("15\n")
    with pytest.raises(SystemExit, match=r"PostgreSQL 15's, which PostgreSQL 17\.12 cannot read"):
        start.check_version("17.12")
    start.check_version("15.18")


def test_interrupted_initdb_is_set_aside(volume: Path) -> None:
    lay(volume, "wal/pg_wal/left-over")
    start.clear_unfinished()
    assert not (volume / "wal/pg_wal").exists()
    lay(volume, "pgdata/global/pg_control", "wal/pg_wal/1")
    start.clear_unfinished()
    assert not (volume / "pgdata").exists() and not (volume / "wal/pg_wal").exists()
    assert (volume / ".pgdata.unfinished/global/pg_control").exists()


def test_finished_and_foreign_data_are_kept(volume: Path) -> None:
    lay(volume, "pgdata/global/pg_control", "wal/pg_wal/1")
    start.clear_unfinished()
    assert (volume / "pgdata/global/pg_control").exists()
    lay(volume, ".pgdata.begun", "pgdata/postgresql.base.conf")
    start.clear_unfinished()
    assert (volume / "pgdata/global/pg_control").exists() and (volume / "wal/pg_wal/1").exists()


@pytest.mark.parametrize("laid", [("PG_VERSION", "backup_label", "postgresql.base.conf"), ("PG_VERSION",)])
def test_interrupted_copy_without_control_file_is_removed(volume: Path, laid: tuple[str, ...]) -> None:
    """pg_basebackup writes it last. Patroni would wait for somebody to remove such data."""
    start.clear_unfinished()
    lay(volume, *(f"pgdata/{file}" for file in laid), "wal/pg_wal/1", "former-15/PG_VERSION", "wal/pg_wal.15/1")
    (volume / "pgdata/pg_wal").symlink_to(volume / "wal/pg_wal")
    start.clear_unfinished()
    assert not (volume / "pgdata").exists() and not (volume / "wal/pg_wal").exists()
    assert (volume / "former-15/PG_VERSION").exists() and (volume / "wal/pg_wal.15/1").exists()


def test_served_or_foreign_data_is_kept_if_incomplete(volume: Path) -> None:
    """The log of the former is on its own volume."""
    start.clear_unfinished()
    lay(volume, "pgdata/PG_VERSION", "pgdata/postmaster.opts", "wal/pg_wal/1")
    start.clear_unfinished()
    assert (volume / "pgdata/PG_VERSION").exists() and (volume / "wal/pg_wal/1").exists()
    (volume / ".pgdata.begun").unlink()
    (volume / "pgdata/postmaster.opts").unlink()
    for _ in range(2):
        start.clear_unfinished()
        assert (volume / "pgdata/PG_VERSION").exists() and (volume / "wal/pg_wal/1").exists()


@pytest.mark.parametrize("cut", ["before", "between", "after"])
def test_old_major_takes_its_data_back(volume: Path, cut: str) -> None:
    """Whether the upgrade was cut before, between or after its two renames."""
    lay(volume, "pgdata/old" if cut == "before" else "pgdata.15/old")
    lay(volume, "pgdata/new" if cut == "after" else "pgdata.new/new")
    start.finish_upgrade("15.20")
    assert (volume / "pgdata/old").exists()
    assert [path.name for path in volume.iterdir()] == ["pgdata"]


def test_started_new_major_cannot_roll_back(volume: Path) -> None:
    lay(volume, "pgdata/new", "pgdata.15/old")
    start.finish_upgrade("17.12")
    start.finish_upgrade("15.20")
    assert (volume / "pgdata/new").exists() and (volume / "former-15/old").exists()


def test_undeclared_major_image_keeps_upgrade_state(volume: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lay(volume, "pgdata/PG_VERSION")
    for declared, version in (("17", "15.20"), ("15", "17.12"), ("", "15.20")):
        start.require_declared({"DECLARED_VERSION": declared}, version)
    lay(volume, "pgdata.15/old")
    for declared, version in (("17", "15.20"), ("15", "17.12")):
        with pytest.raises(SystemExit) as ended:
            start.require_declared({"DECLARED_VERSION": declared}, version)
        assert ended.value.code == 1
        said = f"the image has PostgreSQL {version}, and version {declared} is declared"
        assert said in capsys.readouterr().err
    for environment in ({"DECLARED_VERSION": "15"}, {"DECLARED_VERSION": ""}, {}):
        start.require_declared(environment, "15.20")


def test_undeclared_major_image_initialises_nothing(volume: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start.require_declared({"DECLARED_VERSION": "15"}, "15.20")
    with pytest.raises(SystemExit) as ended:
        start.require_declared({"DECLARED_VERSION": "17"}, "15.20")
    assert ended.value.code == 1
    assert "version 17 is declared: use an image of 17" in capsys.readouterr().err


def test_rejected_image_changes_nothing(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay(volume, "pgdata/new", "pgdata.15/old")
    (volume / "postgres").write_text("#!/bin/sh\necho 'postgres (PostgreSQL) 15.20'\n")
    (volume / "postgres").chmod(0o755)
    monkeypatch.setenv("PATH", f"{volume}:{os.environ['PATH']}")
    monkeypatch.setenv("DECLARED_VERSION", "17")
    monkeypatch.setattr(start, "lock_volume", str)
    mask = os.umask(0o077)
    try:
        with pytest.raises(SystemExit):
            start.main([])
    finally:
        os.umask(mask)
    assert (volume / "pgdata/new").exists() and (volume / "pgdata.15/old").exists()


def test_old_data_keeps_its_own_wal(volume: Path) -> None:
    """Wherever that is cut: what is made anew has its log where the former data had theirs."""
    lay(volume, "pgdata/new", "pgdata.15/old", "wal/pg_wal/old", "wal/pg_wal.17/new")
    (volume / "pgdata/pg_wal").symlink_to(volume / "wal/pg_wal.17")
    (volume / "pgdata.15/pg_wal").symlink_to(volume / "wal/pg_wal")
    (volume / "wal/pg_wal").rename(volume / "wal/pg_wal.15")
    for _ in range(2):
        start.finish_upgrade("17.12")
        assert (volume / "former-15/pg_wal/old").exists() and (volume / "pgdata/pg_wal/new").exists()
        assert (volume / "pgdata/pg_wal").readlink() == volume / "wal/pg_wal"
    shutil.rmtree(volume / "pgdata")
    start.clear_unfinished()
    assert (volume / "former-15/pg_wal/old").exists() and not (volume / "wal/pg_wal").exists()


def test_wal_is_fsynced_before_data_refers_to_it(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two volumes lose power each with its own journal: what is renamed on one is no word about the other."""
    lay(volume, "pgdata/new", "former-15/old", "wal/pg_wal/old", "wal/pg_wal.17/new")
    (volume / "pgdata/pg_wal").symlink_to(volume / "wal/pg_wal.17")
    (volume / "former-15/pg_wal").symlink_to(volume / "wal/pg_wal")
    kept: list[tuple[str, list[str], bool, bool]] = []

    def fsync(descriptor: int) -> None:
        at = Path(f"/proc/self/fd/{descriptor}").readlink().name
        logs = sorted(path.name for path in (volume / "wal").iterdir())
        kept.append((at, logs, (volume / "former-15/pg_wal").exists(), (volume / "pgdata/pg_wal/new").exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    start.finish_wal_move()
    assert kept == [
        ("wal", ["pg_wal.15", "pg_wal.17"], False, True),
        ("former-15", ["pg_wal.15", "pg_wal.17"], True, True),
        ("wal", ["pg_wal", "pg_wal.15"], True, False),
        ("pgdata", ["pg_wal", "pg_wal.15"], True, True),
    ]


def test_rollback_leaves_no_wal_on_volume(volume: Path) -> None:
    """Whether the upgrade was cut before the new data were complete, or had put them in their place."""
    for new in ("pgdata.new", "pgdata"):
        lay(volume, "pgdata.15/old", f"{new}/new", "wal/pg_wal/old", "wal/pg_wal.17/new")
        (volume / "pgdata.15/pg_wal").symlink_to(volume / "wal/pg_wal")
        (volume / new / "pg_wal").symlink_to(volume / "wal/pg_wal.17")
        start.finish_upgrade("15.20")
        assert (volume / "pgdata/pg_wal/old").exists()
        assert [path.name for path in (volume / "wal").iterdir()] == ["pg_wal"]
        shutil.rmtree(volume / "pgdata")


def test_referenced_wal_is_kept(volume: Path) -> None:
    lay(volume, "pgdata/new", "put-aside/old", "wal/pg_wal/new", "wal/pg_wal.15/old", "wal/pg_wal.16/nobodys")
    (volume / "pgdata/pg_wal").symlink_to(volume / "wal/pg_wal")
    (volume / "put-aside/pg_wal").symlink_to(volume / "wal/pg_wal.15")
    start.finish_wal_move()
    assert sorted(path.name for path in (volume / "wal").iterdir()) == ["pg_wal", "pg_wal.15"]


def test_shared_wal_stays_with_served_data(volume: Path) -> None:
    lay(volume, "pgdata/new", "former-15/old", "wal/pg_wal/new")
    for data in ("pgdata", "former-15"):
        (volume / data / "pg_wal").symlink_to(volume / "wal/pg_wal")
    start.finish_wal_move()
    assert (volume / "pgdata/pg_wal").resolve() == volume / "wal/pg_wal"


def test_unreadable_control_file_is_corruption(
    volume: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(volume))
    start.check_data()
    lay(volume, "pgdata/global/pg_control")
    program = volume / "pg_controldata"
    program.write_text("#!/bin/sh\necho read 6 of 296 >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(SystemExit) as ended:
        start.check_data()
    assert ended.value.code == 65
    assert "the data are broken: read 6 of 296" in capsys.readouterr().err
    for other in ("exit 0", "kill -9 $$"):
        program.write_text(f"#!/bin/sh\n{other}\n")
        start.check_data()


WHOLE = "Backup start location:                0/0"


@pytest.fixture
def laid(volume: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Data with two databases, as far as `steersman-start` looks at them; a third one is being made, or dropped."""
    lay(volume, "pgdata/global/pg_control", "pgdata/pg_xact/0000", "pgdata/base/99/1259")
    for directory in ("global", "base/1", "base/5"):
        lay(volume, f"pgdata/{directory}/1262", f"pgdata/{directory}/2671")
        named = struct.pack("=iI4I", 0x592717, 2, 1262, 1262, 2671, 2671)
        (volume / f"pgdata/{directory}/pg_filenode.map").write_bytes(named.ljust(524, b"\0"))
    controlled(volume, WHOLE)
    monkeypatch.setenv("PATH", f"{volume}:{os.environ['PATH']}")
    return volume / "pgdata"


def controlled(volume: Path, says: str) -> None:
    program = volume / "pg_controldata"
    program.write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        (["global/1262"], "global/1262 is missing"),
        (["global/pg_filenode.map"], "global/pg_filenode.map is missing"),
        (["base"], "no database is left in base"),
        (["base/1/1262", "base/5/pg_filenode.map"], "no database is left in base"),
        (["pg_xact/0000"], "nothing is left in pg_xact"),
    ],
)
def test_missing_essential_files_are_corruption(
    laid: Path, capsys: pytest.CaptureFixture[str], gone: list[str], words: str
) -> None:
    start.check_data()
    for path in gone:
        shutil.rmtree(laid / path) if (laid / path).is_dir() else (laid / path).unlink()
    with pytest.raises(SystemExit) as ended:
        start.check_data()
    assert ended.value.code == 65
    assert capsys.readouterr().err == f"steersman: the data are broken: {words}\n"


def test_dropped_database_and_running_copy_are_not_corruption(laid: Path) -> None:
    shutil.rmtree(laid / "base/5")
    start.check_data()
    (laid / "global/1262").unlink()
    controlled(laid.parent, "Backup start location:                0/2000028")
    start.check_data()
    controlled(laid.parent, WHOLE)
    (laid / "backup_label").touch()
    start.check_data()


INVALID = 'LOG:  invalid value for parameter "shared_buffers": "abc"'


@pytest.mark.parametrize(
    ("says", "told"),
    [
        (f"2026-11-22 10:18:47.676 UTC [7] {INVALID}\nFATAL:  errors", f"{INVALID} FATAL:  errors"),
        ("LOG:  at work\nFATAL:  no memory\nHINT:  shared_buffers", "FATAL:  no memory HINT:  shared_buffers"),
        ("", ""),
    ],
)
def test_first_start_failure_reports_server_message(
    volume: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], says: str, told: str
) -> None:
    monkeypatch.setenv("PATH", f"{volume}:{os.environ['PATH']}")
    program = volume / "postgres"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit 1\n")
    program.chmod(0o755)
    start.report_start_failure()
    assert capsys.readouterr().err == "", "nothing was put aside"
    lay(volume, "pgdata.failed/PG_VERSION")
    start.report_start_failure()
    assert capsys.readouterr().err == (f"steersman: {told}\n" if told else "")
    lay(volume, "pgdata/PG_VERSION")
    start.report_start_failure()
    assert capsys.readouterr().err == "", "that was before these data"


def test_watcher_is_restarted_after_any_exit(tmp_path: Path) -> None:
    for name, body in {
        "steersman-watch": 'echo >> "$COUNT"; [ "$(wc -l < "$COUNT")" -gt 2 ] || kill -9 $$',
        "sleep": "exit 0",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    count = tmp_path / "count"
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "COUNT": str(count)}
    subprocess.run(start.WATCH, env=environment, check=True, timeout=20, stderr=subprocess.DEVNULL)
    assert len(count.read_text().splitlines()) == 3


def test_installed_programs_are_executable() -> None:
    recipe = (IMAGES / "postgresql/Containerfile").read_text()
    programs = re.findall(r"^COPY (\S+) /usr/local/bin/", recipe, re.MULTILINE)
    assert "postgresql/watchdog.py" in programs
    assert [program for program in programs if not os.access(IMAGES / program, os.X_OK)] == []
