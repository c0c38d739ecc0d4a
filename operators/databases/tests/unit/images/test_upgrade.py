"""What `steersman-upgrade` decides without a server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from database_support.unit.image_script import IMAGES, script
from steersman_databases.features.major_upgrade.specs import EXIT_CODE_REJECTED

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
    monkeypatch.setattr(upgrade, "TERMINATION_LOG", tmp_path / "told")
    monkeypatch.setattr(upgrade, "SUSPECT_INDEXES_FILE", IMAGES / "postgresql/doubtful_indexes.sql")
    return tmp_path / "volume"


def test_initdb_options_match_old_data() -> None:
    options = upgrade.initdb_options("17", upgrade.parse_control_data(CONTROL))
    assert "--wal-segsize=32" in options and "--data-checksums" in options
    without = upgrade.parse_control_data(
        CONTROL.replace("checksum version:           1", "checksum version:           0")
    )
    assert not [one for one in upgrade.initdb_options("17", without) if "checksums" in one]
    assert "--no-data-checksums" in upgrade.initdb_options("18", without), "18 has them by default"


def test_missing_programs_are_named(volume: Path) -> None:
    for file in ("shared/17/extension/pgcrypto.control", "programs/17/lib/pgcrypto.so"):
        path = volume.parent / file
        path.parent.mkdir(parents=True)
        path.touch()
    assert upgrade.missing_programs("17", ["pgcrypto"], ["$libdir/pgcrypto", "pgcrypto.so"]) == []
    assert upgrade.missing_programs("17", [], ["/usr/lib/own.so"]) == [
        "library /usr/lib/own.so is not in the image for PostgreSQL 17"
    ]
    assert upgrade.missing_programs("17", ["postgis"], ["$libdir/postgis-3"]) == [
        "extension postgis is not in the image for PostgreSQL 17",
        "library $libdir/postgis-3 is not in the image for PostgreSQL 17",
    ]


def test_unknown_column_options_are_named(volume: Path) -> None:
    server = volume.parent / "programs/18/bin/postgres"
    server.parent.mkdir(parents=True)
    server.write_bytes(b"\0n_distinct\0")
    assert upgrade.missing_programs("18", [], [], ["n_distinct", "pg_attver"]) == [
        "pg_attver of columns is unknown to its PostgreSQL 18: use an image with a later minor version"
    ]


def test_interrupted_rename_is_finished(volume: Path) -> None:
    (volume / "pgdata.15").mkdir()
    (volume / "pgdata.new").mkdir()
    (volume / "pgdata.new/PG_VERSION").write_text("17\n")
    assert upgrade.VolumeUpgrade("17").run() == "the data are PostgreSQL 17's"
    assert sorted(path.name for path in volume.iterdir()) == ["pgdata", "pgdata.15"]


def test_missing_old_programs_change_nothing(volume: Path) -> None:
    (volume / "pgdata").mkdir()
    (volume / "pgdata/PG_VERSION").write_text("14\n")
    with pytest.raises(upgrade.UpgradeRejected, match="no PostgreSQL 14"):
        upgrade.VolumeUpgrade("17").run()
    assert [path.name for path in volume.iterdir()] == ["pgdata"]


def test_standby_data_is_rejected(volume: Path) -> None:
    (volume / "pgdata").mkdir()
    (volume / "pgdata/PG_VERSION").write_text("15\n")
    (volume / "pgdata/standby.signal").touch()
    (volume.parent / "programs/15/bin").mkdir(parents=True)
    with pytest.raises(upgrade.UpgradeRejected, match="standby"):
        upgrade.VolumeUpgrade("17").run()


def test_tool_error_includes_named_files(volume: Path) -> None:
    found = volume / "pgdata.new/tables_using_aclitem.txt"
    found.parent.mkdir()
    found.write_text("In database: postgres\n  public.bad.a\n")
    printed = f"Checking cluster versions      ok\nChecking for aclitem     fatal\nsee the file:\n    {found}\n"
    words = upgrade.VolumeUpgrade("17")._error_text(printed)  # pyright: ignore[reportPrivateUsage]
    assert "public.bad.a" in words and "cluster versions" not in words


def test_pg_upgrade_error_includes_log_without_commands(volume: Path) -> None:
    log = volume / "pgdata.new/pg_upgrade_output.d/20261127T083159.208/log/pg_upgrade_dump_16390.log"
    log.parent.mkdir(parents=True)
    command = "Command was: CREATE USER MAPPING FOR shop SERVER far OPTIONS (password 'secret');"
    log.write_text(f"pg_restore: error: could not execute query: ERROR:  no such type\n{command}\n")
    printed = f'*failure*\nConsult the last few lines of "{log}" for\nthe probable cause of the failure.\n'
    words = upgrade.VolumeUpgrade("17")._error_text(printed)  # pyright: ignore[reportPrivateUsage]
    assert "ERROR:  no such type" in words and "secret" not in words


def test_undecodable_output_is_reported(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (volume.parent / "told").touch()
    (volume.parent / "programs/17/bin").mkdir(parents=True)
    psql = volume.parent / "programs/17/bin/psql"
    psql.write_text("#!/bin/sh\nprintf 'relation \\326 is bad' >&2; exit 1\n")
    psql.chmod(0o755)
    mended = upgrade.VolumeUpgrade("17")
    mended.sockets.mkdir(parents=True)

    def ask(_arguments: object) -> str:
        return mended._psql("shop", "-c", "SELECT 1")

    monkeypatch.setattr(upgrade, "main", ask)
    assert upgrade.run(["run"]) == EXIT_CODE_REJECTED
    assert (volume.parent / "told").read_text() == "psql: relation \ufffd is bad"


def test_remove_previous_removes_wal(volume: Path) -> None:
    (volume / "former-15").mkdir()
    log = volume.parent / "wal/pg_wal"
    log.mkdir()
    (volume / "former-15/pg_wal").symlink_to(log)
    assert upgrade.remove_previous() == "removed former-15"
    assert not log.exists() and list(volume.iterdir()) == []
    assert upgrade.remove_previous() == "there is nothing to remove"


def test_remove_previous_keeps_wal_in_use(volume: Path) -> None:
    (log := volume.parent / "wal/pg_wal").mkdir()
    for data in ("former-15", "pgdata"):
        (volume / data).mkdir()
        (volume / data / "pg_wal").symlink_to(log)
    assert upgrade.remove_previous() == "removed former-15"
    assert log.exists() and (volume / "pgdata").exists()


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (upgrade.UpgradeRejected("two columns are bad"), EXIT_CODE_REJECTED, "two columns are bad"),
        (upgrade.UpgradeInterrupted("pg_upgrade was ended by signal 9"), 1, "pg_upgrade was ended by signal 9"),
        (OSError(28, "No space left on device"), 1, "OSError: [Errno 28] No space left on device"),
    ],
)
def test_only_rejection_is_final(
    volume: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, words: str
) -> None:
    def fail(_arguments: object) -> str:
        raise error

    (volume.parent / "told").touch()
    monkeypatch.setattr(upgrade, "main", fail)
    assert upgrade.run(["run"]) == code
    assert (volume.parent / "told").read_text() == words


def test_killed_program_is_not_a_rejection(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_arguments: object, **_options: object) -> object:
        return subprocess.CompletedProcess((), -9, b"", b"")

    monkeypatch.setattr(subprocess, "run", killed)
    with pytest.raises(upgrade.UpgradeInterrupted, match="psql was ended by signal 9"):
        upgrade.VolumeUpgrade("17")._psql("postgres", "-c", "SELECT 1")


def stopped(volume: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An upgrade of data that need nothing but to be copied."""
    lay = volume / "pgdata"
    lay.mkdir()
    (lay / "PG_VERSION").write_text("15\n")
    (lay / "1").write_bytes(b"x" * (3 << 20))
    mended = upgrade.VolumeUpgrade("17")

    def make(_former: str) -> None:
        (volume / "pgdata.new").mkdir()

    monkeypatch.setattr(mended, "_require_stopped", str)
    monkeypatch.setattr(mended, "_trial_start", str)
    monkeypatch.setattr(mended, "_run_pg_upgrade", make)
    monkeypatch.setattr(mended, "_finish", lambda: "done")
    return mended


def test_data_is_fsynced_before_rename(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def noted(what: str, do: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: (done.append(what), do(*arguments))[1]

    for owner, name in ((os, "sync"), (os, "fsync"), (Path, "rename")):
        monkeypatch.setattr(owner, name, noted(name, getattr(owner, name)))
    assert stopped(volume, monkeypatch).run() == "done"
    assert done == ["sync", "rename", "fsync", "rename", "fsync"]
    assert sorted(path.name for path in volume.iterdir()) == ["pgdata", "pgdata.15"]


@pytest.mark.parametrize(("full", "words"), [("volume", "the volume has 1 MiB"), ("wal", "the WAL volume has 1 MiB")])
def test_missing_space_copies_nothing(volume: Path, monkeypatch: pytest.MonkeyPatch, full: str, words: str) -> None:
    def usage(where: Path) -> object:
        return SimpleNamespace(free=1 << (20 if where.name == full else 40))

    monkeypatch.setattr(upgrade.shutil, "disk_usage", usage)
    with pytest.raises(upgrade.UpgradeRejected, match=words):
        stopped(volume, monkeypatch).run()
    assert [path.name for path in volume.iterdir()] == ["pgdata"]


def test_libraries_are_loaded_during_upgrade_only(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mended = upgrade.VolumeUpgrade("17")
    for data, text in (("pgdata", b"work_mem = '5MB'\n"), ("pgdata.new", b"# initdb's\n")):
        (volume / data).mkdir()
        (volume / data / "postgresql.auto.conf").write_bytes(text)
        (volume / data / "postgresql.conf").touch()
    auto, seen = volume / "pgdata.new/postgresql.auto.conf", list[str]()
    mended._load('pg_stat_statements, "it\'s"')

    def look(*_arguments: object) -> None:
        seen.append(auto.read_text())

    def do(*_arguments: object, **_environment: str) -> str:
        return ""

    monkeypatch.setattr(mended, "_start", look)
    monkeypatch.setattr(mended, "_run_program", do)
    mended._finish()
    assert "work_mem = '5MB'" in seen[0]
    assert seen[0].endswith("shared_preload_libraries = 'pg_stat_statements, \"it''s\"'\n")
    assert auto.read_text() == "work_mem = '5MB'\n"


def test_new_server_gets_patroni_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {
        "parameters": {"port": None, "max_connections": 50, "gone": "1", "work_mem": "5MB", "wal_keep_size": "128MB"},
        "pg_hba": ["local all all peer"],
    }

    def transform(version: int, name: str, value: object, known: set[str]) -> object:
        return value if version == 170000 and name in known else None

    def load(path: str) -> object:
        assert path == "/etc/steersman/patroni/patroni.yaml"
        return {"postgresql": told}

    on_line = dict.fromkeys(("port", "max_connections", "wal_keep_size"))
    parts: dict[str, dict[str, object]] = {
        "config": {"Config": load},
        "collections": {"CaseInsensitiveDict": dict, "CaseInsensitiveSet": set},
        "postgresql.config": {"ConfigHandler": SimpleNamespace(CMDLINE_OPTIONS=on_line)},
        "postgresql.validator": {"transform_postgresql_parameter_value": transform},
    }
    for name in ("", ".postgresql", *(f".{part}" for part in parts)):
        module = ModuleType(f"patroni{name}")
        module.__dict__.update(parts.get(name[1:], {}))
        monkeypatch.setitem(sys.modules, module.__name__, module)
    given = upgrade.patroni_settings("17", ["max_connections", "work_mem", "wal_keep_size"])
    assert given.options == {"max_connections": "50"}, "what has no value is not for these data to say"
    assert given.settings == {"max_connections": "50", "work_mem": "5MB", "wal_keep_size": "128MB"}
    assert (given.hba_lines, given.ident_lines) == (["local all all peer"], ())


@pytest.mark.parametrize("starts", [True, False])
def test_settings_are_tried_on_discarded_data(volume: Path, monkeypatch: pytest.MonkeyPatch, starts: bool) -> None:
    mended, done, seen = upgrade.VolumeUpgrade("17"), list[str](), dict[str, str]()
    (volume / "pgdata").mkdir()
    (volume / "pgdata/postgresql.auto.conf").write_text("max_connections = '5'\n")
    given = upgrade.ServerSettings({"max_connections": "50"}, {"work_mem": "it's"}, ["local all all peer"], ())

    def do(_major: str, program: str, *arguments: str, **_environment: str) -> str:
        done.append(program)
        if program == "initdb":
            (volume / "pgdata.new").mkdir()
            (volume / "pgdata.new/postgresql.conf").write_text("# initdb's\n")
        if program == "pg_ctl" and "start" in arguments:
            seen.update({path.name: path.read_text() for path in (volume / "pgdata.new").iterdir()})
            if not starts:
                Path(arguments[arguments.index("-l") + 1]).write_text("FATAL:  no\n")
                raise upgrade.UpgradeRejected("pg_ctl: could not start server")
        return "work_mem\tsighup\n" if program == "postgres" else CONTROL

    def give(major: str, known: list[str]) -> object:
        assert (major, known) == ("17", ["work_mem"])
        return given

    monkeypatch.setattr(mended, "_run_program", do)
    monkeypatch.setattr(upgrade, "patroni_settings", give)
    mended.sockets.mkdir()
    if starts:
        mended._trial_start("15")
        assert done == ["pg_controldata", "initdb", "postgres", "pg_ctl", "pg_ctl"]
        assert not (volume / "pgdata.new").exists()
    else:
        with pytest.raises(upgrade.UpgradeRejected) as refused:
            mended._trial_start("15")
        assert str(refused.value) == "with the parameters of the cluster PostgreSQL 17 does not start: FATAL:  no"
    assert seen == {
        "postgresql.conf": "# initdb's\nwork_mem = 'it''s'\n",
        # The last one counts.
        "postgresql.auto.conf": "max_connections = '5'\n\nmax_connections = '50'\n",
        "pg_hba.conf": "local all all peer\n",
    }


def test_new_server_killed_at_start_reports_message(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mended = upgrade.VolumeUpgrade("17")
    (volume / "pgdata").mkdir()
    (volume / "pgdata/PG_VERSION").write_text("15\n")

    def start(_former: str) -> None:
        (volume / "pgdata.new").mkdir()
        (volume / "pgdata.new/postmaster.pid").write_text("4711\n")
        raise upgrade.UpgradeRejected("with the parameters of the cluster PostgreSQL 17 does not start: killed")

    def stop(_major: str, _data: Path) -> None:
        raise upgrade.UpgradeRejected("pg_ctl: could not send stop signal: No such process")

    monkeypatch.setattr(mended, "_require_stopped", str)
    monkeypatch.setattr(mended, "_require_room", lambda: None)
    monkeypatch.setattr(mended, "_trial_start", start)
    monkeypatch.setattr(mended, "_stop", stop)
    with pytest.raises(upgrade.UpgradeRejected, match="does not start: killed"):
        mended.run()
    assert not (volume / "pgdata.new").exists(), "nothing is left of the trial"
