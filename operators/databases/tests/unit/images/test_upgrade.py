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

from database_support.image_script import IMAGES, script
from steersman_databases.resources.upgrade_job import REFUSED

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
    monkeypatch.setattr(upgrade, "DOUBTFUL_INDEXES", IMAGES / "postgresql/doubtful_indexes.sql")
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
    assert upgrade.missing("17", [], ["/usr/lib/own.so"]) == [
        "library /usr/lib/own.so is not in the image for PostgreSQL 17"
    ]
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


def test_the_words_of_pg_upgrade_include_the_errors_of_the_log_that_it_names_and_no_commands(volume: Path) -> None:
    log = volume / "pgdata.new/pg_upgrade_output.d/20261127T083159.208/log/pg_upgrade_dump_16390.log"
    log.parent.mkdir(parents=True)
    command = "Command was: CREATE USER MAPPING FOR shop SERVER far OPTIONS (password 'secret');"
    log.write_text(f"pg_restore: error: could not execute query: ERROR:  no such type\n{command}\n")
    printed = f'*failure*\nConsult the last few lines of "{log}" for\nthe probable cause of the failure.\n'
    words = upgrade.Upgrade("17")._words(printed)  # pyright: ignore[reportPrivateUsage]
    assert "ERROR:  no such type" in words and "secret" not in words


def test_what_a_program_prints_in_no_known_encoding_is_told_all_the_same(
    volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (volume.parent / "told").touch()
    (volume.parent / "programs/17/bin").mkdir(parents=True)
    psql = volume.parent / "programs/17/bin/psql"
    psql.write_text("#!/bin/sh\nprintf 'relation \\326 is bad' >&2; exit 1\n")
    psql.chmod(0o755)
    mended = upgrade.Upgrade("17")
    mended.sockets.mkdir(parents=True)

    def ask(_arguments: object) -> str:
        return mended._psql("shop", "-c", "SELECT 1")

    monkeypatch.setattr(upgrade, "main", ask)
    assert upgrade.run(["run"]) == REFUSED
    assert (volume.parent / "told").read_text() == "psql: relation \ufffd is bad"


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


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (upgrade.Refused("two columns are bad"), REFUSED, "two columns are bad"),
        (upgrade.Interrupted("pg_upgrade was ended by signal 9"), 1, "pg_upgrade was ended by signal 9"),
        (OSError(28, "No space left on device"), 1, "OSError: [Errno 28] No space left on device"),
    ],
)
def test_only_a_refusal_is_final(
    volume: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, words: str
) -> None:
    def fail(_arguments: object) -> str:
        raise error

    (volume.parent / "told").touch()
    monkeypatch.setattr(upgrade, "main", fail)
    assert upgrade.run(["run"]) == code
    assert (volume.parent / "told").read_text() == words


def test_a_program_that_is_killed_has_refused_nothing(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_arguments: object, **_options: object) -> object:
        return subprocess.CompletedProcess((), -9, b"", b"")

    monkeypatch.setattr(subprocess, "run", killed)
    with pytest.raises(upgrade.Interrupted, match="psql was ended by signal 9"):
        upgrade.Upgrade("17")._psql("postgres", "-c", "SELECT 1")


def stopped(volume: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An upgrade of data that need nothing but to be copied."""
    lay = volume / "pgdata"
    lay.mkdir()
    (lay / "PG_VERSION").write_text("15\n")
    (lay / "1").write_bytes(b"x" * (3 << 20))
    mended = upgrade.Upgrade("17")

    def make(_former: str) -> None:
        (volume / "pgdata.new").mkdir()

    monkeypatch.setattr(mended, "_require_stopped", str)
    monkeypatch.setattr(mended, "_try", str)
    monkeypatch.setattr(mended, "_make", make)
    monkeypatch.setattr(mended, "_finish", lambda: "done")
    return mended


def test_data_are_on_the_disk_before_their_name_and_names_when_it_ends(
    volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def noted(what: str, do: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: (done.append(what), do(*arguments))[1]

    for owner, name in ((os, "sync"), (os, "fsync"), (Path, "rename")):
        monkeypatch.setattr(owner, name, noted(name, getattr(owner, name)))
    assert stopped(volume, monkeypatch).run() == "done"
    assert done == ["sync", "rename", "fsync", "rename", "fsync"]
    assert sorted(path.name for path in volume.iterdir()) == ["pgdata", "pgdata.15"]


@pytest.mark.parametrize(("full", "words"), [("volume", "the volume has 1 MiB"), ("wal", "the WAL volume has 1 MiB")])
def test_without_room_nothing_is_copied(volume: Path, monkeypatch: pytest.MonkeyPatch, full: str, words: str) -> None:
    def usage(where: Path) -> object:
        return SimpleNamespace(free=1 << (20 if where.name == full else 40))

    monkeypatch.setattr(upgrade.shutil, "disk_usage", usage)
    with pytest.raises(upgrade.Refused, match=words):
        stopped(volume, monkeypatch).run()
    assert [path.name for path in volume.iterdir()] == ["pgdata"]


def test_libraries_are_loaded_while_it_runs_and_not_afterwards(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mended = upgrade.Upgrade("17")
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
    monkeypatch.setattr(mended, "_do", do)
    mended._finish()
    assert "work_mem = '5MB'" in seen[0]
    assert seen[0].endswith("shared_preload_libraries = 'pg_stat_statements, \"it''s\"'\n")
    assert auto.read_text() == "work_mem = '5MB'\n"


def test_the_new_server_is_given_what_patroni_makes_of_the_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
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
    given = upgrade.given_by_patroni("17", ["max_connections", "work_mem", "wal_keep_size"])
    assert given.options == {"max_connections": "50"}, "what has no value is not for these data to say"
    assert given.settings == {"max_connections": "50", "work_mem": "5MB", "wal_keep_size": "128MB"}
    assert (given.access, given.accounts) == (["local all all peer"], ())


@pytest.mark.parametrize("starts", [True, False])
def test_the_parameters_are_tried_on_data_that_go_again(
    volume: Path, monkeypatch: pytest.MonkeyPatch, starts: bool
) -> None:
    mended, done, seen = upgrade.Upgrade("17"), list[str](), dict[str, str]()
    (volume / "pgdata").mkdir()
    (volume / "pgdata/postgresql.auto.conf").write_text("max_connections = '5'\n")
    given = upgrade.Given({"max_connections": "50"}, {"work_mem": "it's"}, ["local all all peer"], ())

    def do(_major: str, program: str, *arguments: str, **_environment: str) -> str:
        done.append(program)
        if program == "initdb":
            (volume / "pgdata.new").mkdir()
            (volume / "pgdata.new/postgresql.conf").write_text("# initdb's\n")
        if program == "pg_ctl" and "start" in arguments:
            seen.update({path.name: path.read_text() for path in (volume / "pgdata.new").iterdir()})
            if not starts:
                Path(arguments[arguments.index("-l") + 1]).write_text("FATAL:  no\n")
                raise upgrade.Refused("pg_ctl: could not start server")
        return "work_mem\tsighup\n" if program == "postgres" else CONTROL

    def give(major: str, known: list[str]) -> object:
        assert (major, known) == ("17", ["work_mem"])
        return given

    monkeypatch.setattr(mended, "_do", do)
    monkeypatch.setattr(upgrade, "given_by_patroni", give)
    mended.sockets.mkdir()
    if starts:
        mended._try("15")
        assert done == ["pg_controldata", "initdb", "postgres", "pg_ctl", "pg_ctl"]
        assert not (volume / "pgdata.new").exists()
    else:
        with pytest.raises(upgrade.Refused) as refused:
            mended._try("15")
        assert str(refused.value) == "with the parameters of the cluster PostgreSQL 17 does not start: FATAL:  no"
    assert seen == {
        "postgresql.conf": "# initdb's\nwork_mem = 'it''s'\n",
        # The last one counts.
        "postgresql.auto.conf": "max_connections = '5'\n\nmax_connections = '50'\n",
        "pg_hba.conf": "local all all peer\n",
    }


def test_a_new_server_that_is_killed_as_it_starts_is_told_in_its_own_words(
    volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mended = upgrade.Upgrade("17")
    (volume / "pgdata").mkdir()
    (volume / "pgdata/PG_VERSION").write_text("15\n")

    def start(_former: str) -> None:
        (volume / "pgdata.new").mkdir()
        (volume / "pgdata.new/postmaster.pid").write_text("4711\n")
        raise upgrade.Refused("with the parameters of the cluster PostgreSQL 17 does not start: killed")

    def stop(_major: str, _data: Path) -> None:
        raise upgrade.Refused("pg_ctl: could not send stop signal: No such process")

    monkeypatch.setattr(mended, "_require_stopped", str)
    monkeypatch.setattr(mended, "_require_room", lambda: None)
    monkeypatch.setattr(mended, "_try", start)
    monkeypatch.setattr(mended, "_stop", stop)
    with pytest.raises(upgrade.Refused, match="does not start: killed"):
        mended.run()
    assert not (volume / "pgdata.new").exists(), "nothing is left of the trial"
