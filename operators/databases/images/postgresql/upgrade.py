#!/usr/bin/python3 -I
"""steersman-upgrade: upgrades a volume to this image's major version of PostgreSQL.

``offers`` checks that this image has what the databases use. ``run`` starts the new server with the cluster's
parameters, runs pg_upgrade next to the old data, checks the result, and moves it into place last. ``forget`` removes
the old data. Exit code 3 is a rejection that a retry does not change; the message is in /dev/termination-log.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

VOLUME = Path("/var/lib/steersman/data")
WAL = Path("/var/lib/steersman/wal")
RUN = Path("/run/steersman")
PROGRAMS = Path("/usr/lib/postgresql")
SHARED = Path("/usr/share/postgresql")
SUSPECT_INDEXES_FILE = Path("/usr/local/share/steersman/doubtful_indexes.sql")
CONFIGURATION = Path("/etc/steersman/patroni/patroni.yaml")
TERMINATION_LOG = Path("/dev/termination-log")
ADMINISTRATOR = "postgres"
EXIT_CODE_REJECTED = 3  # 1 is used by Python and steersman-start, 2 by argparse
_SPARE_BYTES = 64 << 20  # bytes in addition to a copy
_WAL_BYTES = 1 << 30  # bytes of WAL at most until a checkpoint: initdb's max_wal_size
_MAX_MESSAGE_LENGTH = 3000  # bytes; the kubelet cuts at 4096
_ISOLATED_OPTIONS = "-c ssl=off -c synchronous_standby_names="
# Logs go to stderr whatever the parameters say, and a trial start archives nothing.
_LOG_OPTIONS = (
    "-c log_destination=stderr -c log_line_prefix= -c log_min_messages=warning -c logging_collector=off"
    " -c archive_mode=off -c synchronous_standby_names="
)
# These outrank per-database settings of owners, so that a superuser's session cannot be hijacked or stopped by them.
_PINNED_SETTINGS = {
    "search_path": "pg_catalog",
    "role": "none",
    "local_preload_libraries": "",
    "default_transaction_read_only": "off",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_session_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "vacuum_cost_delay": "0",
    "exit_on_error": "off",
    "client_min_messages": "error",
    "jit": "off",
}
_ENVIRONMENT = {
    "PGOPTIONS": " ".join(f"-c {name}={value}" for name, value in _PINNED_SETTINGS.items()),
    "PGUSER": ADMINISTRATOR,
    "PGCLIENTENCODING": "SQL_ASCII",
}


class UpgradeRejected(Exception):
    """The upgrade is not possible. The message is for users."""


class UpgradeInterrupted(Exception):
    """A signal ended a program, so that a retry may succeed."""


# Copied indexes contain values that the previous version computed. The check compares them with those of the new
# version and reads the whole table. pg_amcheck --heapallindexed would check plain column indexes, too, which cannot
# differ. Indexes on functions of users were rebuilt, and such a function may return another value each time.
COMPUTED_INDEXES = """
SELECT format('SELECT bt_index_check(%s::regclass, true)', x.oid)
FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
WHERE x.relam = (SELECT oid FROM pg_am WHERE amname = 'btree') AND x.relkind = 'i' AND x.relpersistence <> 't'
AND i.indisvalid AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL) AND NOT EXISTS (SELECT FROM pg_depend p
    WHERE p.objid = x.oid AND p.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass))
"""
WHERE_AMCHECK_WAS = """
SELECT format('ALTER EXTENSION amcheck SET SCHEMA %I', n.nspname)
FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'amcheck'
"""
STALE_COLLATIONS = """
SELECT format('ALTER COLLATION %I.%I REFRESH VERSION', n.nspname, c.collname)
FROM pg_collation c JOIN pg_namespace n ON n.oid = c.collnamespace
WHERE c.collversion IS DISTINCT FROM pg_collation_actual_version(c.oid) AND c.collprovider <> 'd'
UNION ALL SELECT format('ALTER DATABASE %I REFRESH COLLATION VERSION', datname) FROM pg_database
WHERE datname = current_database() AND datcollversion IS DISTINCT FROM pg_database_collation_actual_version(oid)
"""


def missing_programs(
    major: str, extensions: Iterable[str], libraries: Iterable[str], options: Sequence[str] = ()
) -> list[str]:
    """Return messages about what databases use and the image lacks."""
    found = [
        f"extension {name} is not in the image for PostgreSQL {major}"
        for name in extensions
        if not (SHARED / major / "extension" / f"{name}.control").exists()
    ]
    for name in libraries:
        file = name.removeprefix("$libdir/").removesuffix(".so")
        # A library with its own path stays as it is.
        if not (PROGRAMS / major / "lib" / f"{file}.so").exists():
            found.append(f"library {name} is not in the image for PostgreSQL {major}")
    # A minor version may add an option, which an earlier minor version of the next major rejects.
    server = (PROGRAMS / major / "bin/postgres").read_bytes() if options else b""
    advice = "use an image with a later minor version"
    unknown = [name for name in options if name.encode() not in server]
    return found + [f"{name} of columns is unknown to its PostgreSQL {major}: {advice}" for name in unknown]


def log(message: str) -> None:
    """Write to the container's log."""
    sys.stderr.write(f"steersman: {message}\n")


def parse_control_data(text: str) -> dict[str, str]:
    """Parse the output of pg_controldata."""
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs}


def initdb_options(major: str, control: Mapping[str, str]) -> list[str]:
    """Return options of initdb. pg_upgrade copies locales and encoding itself."""
    size = int(control["Bytes per WAL segment"]) // (1024 * 1024)
    checksums = control.get("Data page checksum version", "0") != "0"
    without = ["--no-data-checksums"] if int(major) >= 18 else []  # earlier versions lack the option
    return [
        *("--encoding=SQL_ASCII", "--locale=C", f"--username={ADMINISTRATOR}", "--no-instructions"),
        *("--auth-local=peer", "--auth-host=scram-sha-256", f"--wal-segsize={size}"),
        *(["--data-checksums"] if checksums else without),
    ]


def quote_value(value: str) -> str:
    """Quote a value for postgresql.conf."""
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def format_settings(settings: Mapping[str, str]) -> str:
    """Format parameters for postgresql.conf."""
    return "".join(f"{name} = {quote_value(value)}\n" for name, value in settings.items())


@dataclass(frozen=True)
class ServerSettings:
    """Patroni's settings of a server: command line and three files."""

    options: Mapping[str, str]
    settings: Mapping[str, str]
    hba_lines: Sequence[str]
    ident_lines: Sequence[str]


def patroni_settings(major: str, known_parameters: Iterable[str]) -> ServerSettings:
    """Return Patroni's settings for a server of `major`.

    Patroni's own code computes them from its stored configuration: it leaves out unknown parameters and values of
    the wrong type, and adjusts those out of bounds, but not on the command line.

    Source: patroni/postgresql of 4.1.5, ConfigHandler.write_postgresql_conf and Postgresql.start.
    """
    names = ("config", "collections", "postgresql.config", "postgresql.validator")
    config, collections, handler, validator = (import_module(f"patroni.{name}") for name in names)
    reported: Mapping[str, Any] = config.Config(str(CONFIGURATION))["postgresql"]
    # Listen addresses have no value here, because they do not depend on the data.
    parameters = collections.CaseInsensitiveDict({n: v for n, v in reported["parameters"].items() if v is not None})
    on_line = [n for n in handler.ConfigHandler.CMDLINE_OPTIONS if n not in ("wal_keep_segments", "wal_keep_size")]
    options = {n: str(parameters[n]) for n in on_line if n in parameters}
    available = collections.CaseInsensitiveSet(known_parameters)
    # Patroni's rules differ by major version, as the parameters do.
    accept, version = validator.transform_postgresql_parameter_value, int(major) * 10000
    taken = {n: accept(version, n, value, available) for n, value in parameters.items()}
    settings = {n: str(value) for n, value in taken.items() if value is not None}
    return ServerSettings(options, settings, reported.get("pg_hba") or (), reported.get("pg_ident") or ())


def fsync_directory(directory: Path) -> None:
    """Sync a directory, so that renames survive a power failure."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class VolumeUpgrade:
    """Upgrade of the volume's data to `major`."""

    def __init__(self, major: str) -> None:
        self.major = major
        self.data = VOLUME / "pgdata"
        self.new = VOLUME / "pgdata.new"
        self.sockets = RUN / "upgrade"

    def run(self) -> str:
        """Upgrade. Raises UpgradeRejected, with the old data unchanged."""
        shutil.rmtree(self.sockets, ignore_errors=True)
        self.sockets.mkdir()
        if not self.data.exists() and self.new.exists():
            # Interrupted between the two renames: the new data are complete.
            self.new.rename(self.data)
            fsync_directory(VOLUME)
        if not self.data.exists():
            raise UpgradeRejected(f"there are no data on the volume: {self.data} is missing")
        previous = (self.data / "PG_VERSION").read_text().strip()
        if previous == self.major:
            return f"the data are PostgreSQL {self.major}'s"
        self._clear()
        try:
            self._require_stopped(previous)
            self._require_room()
            self._trial_start(previous)
            self._run_pg_upgrade(previous)
            reported = self._finish()
        except UpgradeRejected:
            if (self.new / "postmaster.pid").exists():
                # A killed server leaves the file, too. The original error is the one to report.
                with suppress(UpgradeRejected):
                    self._stop(self.major, self.new)
            self._clear()
            raise
        # Sync both volumes first: a name on the disk must not refer to data that are not.
        os.sync()
        self.data.rename(VOLUME / f"pgdata.{previous}")
        fsync_directory(VOLUME)
        self.new.rename(self.data)
        fsync_directory(VOLUME)
        return reported

    def _clear(self) -> None:
        """Remove the remains of an interrupted attempt."""
        shutil.rmtree(self.new, ignore_errors=True)
        shutil.rmtree(WAL / f"pg_wal.{self.major}", ignore_errors=True)

    def _control(self, major: str) -> dict[str, str]:
        return parse_control_data(self._run_program(major, "pg_controldata", "-D", str(self.data)))

    def _require_stopped(self, previous: str) -> None:
        """Require a primary's data, stopped in order. Killed servers recover first."""
        if not (PROGRAMS / previous / "bin").exists():
            raise UpgradeRejected(f"this image has no PostgreSQL {previous}, whose data are on the volume")
        if (self.data / "standby.signal").exists():
            raise UpgradeRejected("the data are a standby's, and may lack what was committed")
        for stale in self.data.glob("postmaster.pid"):
            # This process uses the volume exclusively, so the writer of the file is gone.
            stale.unlink()
        if self._control(previous)["Database cluster state"] != "shut down":
            self._start(previous, self.data)
            self._stop(previous, self.data)
        state = self._control(previous)["Database cluster state"]
        if state != "shut down":
            raise UpgradeRejected(f"the previous server was not shut down cleanly: {state}")

    def _require_room(self) -> None:
        """Require space for a copy, WAL and indexes. Old files stay."""
        log = self.data / "pg_wal"
        files = (path for path in self.data.rglob("*") if path.is_file() and not path.is_symlink())
        copy = sum(path.stat().st_size for path in files if not path.is_relative_to(log))
        self._require_space(VOLUME, "volume", copy + _SPARE_BYTES + (0 if WAL.exists() else min(copy, _WAL_BYTES)))
        if WAL.exists():
            self._require_space(WAL, "WAL volume", min(copy, _WAL_BYTES) + _SPARE_BYTES)

    def _require_space(self, where: Path, name: str, needed: int) -> None:
        free = shutil.disk_usage(where).free
        if free < needed:
            raise UpgradeRejected(f"the copy needs {needed >> 20} MiB, and the {name} has {free >> 20} MiB free")

    def _trial_start(self, previous: str) -> None:
        """Start the new server once as Patroni will, to find problems early.

        It uses temporary data, because loaded libraries may write.
        """
        self._initdb(previous, "--no-sync")
        described = self._run_program(self.major, "postgres", "--describe-config").splitlines()
        settings = patroni_settings(self.major, [line.split("\t")[0] for line in described])
        with (self.new / "postgresql.conf").open("a") as file:
            file.write(format_settings(settings.settings))
        # This file overrides postgresql.conf, as the command line overrides values of ALTER SYSTEM.
        (self.new / "postgresql.auto.conf").write_bytes(
            self._auto_conf() + b"\n" + format_settings(settings.options).encode()
        )
        for name, lines in (("pg_hba.conf", settings.hba_lines), ("pg_ident.conf", settings.ident_lines)):
            if lines:
                (self.new / name).write_text("".join(f"{line}\n" for line in lines))
        try:
            self._start(self.major, self.new, _LOG_OPTIONS)
        except UpgradeRejected as refused:
            raise UpgradeRejected(f"with the parameters of the cluster {refused}") from None
        self._stop(self.major, self.new)
        self._clear()

    def _auto_conf(self) -> bytes:
        """Return the values of ALTER SYSTEM."""
        file = self.data / "postgresql.auto.conf"
        return file.read_bytes() if file.exists() else b""

    def _initdb(self, previous: str, *options: str) -> None:
        separate = [f"--waldir={WAL}/pg_wal.{self.major}"] if WAL.exists() else []
        kept = initdb_options(self.major, self._control(previous))
        self._run_program(self.major, "initdb", f"--pgdata={self.new}", *kept, *separate, *options)

    def _run_pg_upgrade(self, previous: str) -> None:
        self._initdb(previous)
        reported = self._run_program(
            previous, "postgres", "-D", str(self.data), "-C", "shared_preload_libraries"
        ).splitlines()
        self._load(reported[-1] if reported else "")
        options = [
            *("--old-bindir", str(PROGRAMS / previous / "bin"), "--new-bindir", str(PROGRAMS / self.major / "bin")),
            *("--old-datadir", str(self.data), "--new-datadir", str(self.new)),
            *("--old-options", _ISOLATED_OPTIONS, "--new-options", _ISOLATED_OPTIONS),
            *("--socketdir", str(self.sockets), "--username", ADMINISTRATOR, "--copy"),
        ]
        self._run_program(self.major, "pg_upgrade", "--check", *options)
        self._run_program(self.major, "pg_upgrade", *options)

    def _load(self, libraries: str) -> None:
        """Load libraries during the upgrade. Patroni sets them again afterwards."""
        if libraries:
            with (self.new / "postgresql.auto.conf").open("a") as file:
                file.write(f"\nshared_preload_libraries = {quote_value(libraries)}\n")

    def _finish(self) -> str:
        """Run the new server without clients, and complete the upgrade."""
        # Patroni's stored configuration, and values of ALTER SYSTEM.
        if (self.data / "patroni.dynamic.json").exists():
            shutil.copy2(self.data / "patroni.dynamic.json", self.new)
        settings = self.new / "postgresql.auto.conf"
        loading, kept = settings.read_bytes(), self._auto_conf()
        settings.write_bytes(kept + b"\n" + loading)
        shutil.copy2(self.new / "postgresql.conf", self.new / "postgresql.base.conf")
        self._start(self.major, self.new)
        for script in sorted(self.sockets.glob("*.sql")):
            self._psql("postgres", "-f", str(script))
        databases = self._query("postgres", "SELECT datname FROM pg_database WHERE datallowconn ORDER BY 1")
        doubtful_indexes, reindexed = SUSPECT_INDEXES_FILE.read_text(), 0
        for database in databases:
            suspect = self._query(database, doubtful_indexes)
            for statement in [*suspect, *self._query(database, STALE_COLLATIONS)]:
                self._query(database, statement)
            reindexed += len(suspect)
        # Without clients quick stages would only cost time. pg_upgrade of 18 keeps most statistics.
        missing = ["--missing-stats-only"] if int(self.major) >= 18 else []
        self._run_program(self.major, "vacuumdb", "--all", "--analyze-only", *missing, "--quiet")
        self._check(databases)
        self._stop(self.major, self.new)
        settings.write_bytes(kept)
        return f"{len(databases)} databases, {reindexed} indexes rebuilt for their collations, amcheck clean"

    def _check(self, databases: Sequence[str]) -> None:
        before: dict[str, list[str]] = {}
        for database in databases:
            before[database] = self._query(database, WHERE_AMCHECK_WAS) or ["DROP EXTENSION amcheck"]
            self._query(database, "CREATE EXTENSION IF NOT EXISTS amcheck SCHEMA pg_catalog")
            # A user who may create objects in its schema could make a superuser run functions of the same names.
            self._query(database, "ALTER EXTENSION amcheck SET SCHEMA pg_catalog")
        self._run_program(self.major, "pg_amcheck", "--all")
        for database in databases:
            for statement in [*self._query(database, COMPUTED_INDEXES), *before[database]]:
                self._query(database, statement)

    def _start(self, major: str, data: Path, options: str = _ISOLATED_OPTIONS) -> None:
        settings = f"-c listen_addresses= -c unix_socket_directories={self.sockets} {options}"
        log = self.sockets / "server.log"
        log.unlink(missing_ok=True)
        try:
            self._run_program(
                major, "pg_ctl", "start", "-w", "-t", "86400", "-D", str(data), "-l", str(log), "-o", settings,
            )  # fmt: skip
        except UpgradeRejected as refused:
            message = log.read_text(errors="replace").strip() if log.exists() else ""
            raise UpgradeRejected(
                f"PostgreSQL {major} does not start: {message[-_MAX_MESSAGE_LENGTH:] or refused}"
            ) from None

    def _stop(self, major: str, data: Path) -> None:
        self._run_program(major, "pg_ctl", "stop", "-w", "-t", "86400", "-m", "fast", "-D", str(data))

    def _query(self, database: str, statement: str) -> list[str]:
        # Names may contain line breaks, and any other separator.
        return [record for record in self._psql(database, "-0", "-c", statement).split("\0") if record]

    def _psql(self, database: str, *arguments: str) -> str:
        # Terse: further error text may contain values of rows, and appears in the cluster's conditions.
        options = "-XAtq", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=terse"
        return self._run_program(self.major, "psql", *options, *arguments, PGDATABASE=database)

    def _run_program(self, major: str, program: str, *arguments: str, **environment: str) -> str:
        """Run a program. Raises UpgradeRejected with output, or UpgradeInterrupted."""
        variables = {**os.environ, **_ENVIRONMENT, "PGHOST": str(self.sockets), "LC_ALL": "C.UTF-8", **environment}
        command = [str(PROGRAMS / major / "bin" / program), *arguments]
        log(" ".join(f"{program} {' '.join(arguments)}".split())[:300])
        done = subprocess.run(
            command, capture_output=True, cwd=self.sockets, env=variables, check=False, stdin=subprocess.DEVNULL
        )
        if done.returncode:
            reported = f"{done.stdout.decode(errors='replace')}\n{done.stderr.decode(errors='replace')}"
            log(reported)
            if done.returncode < 0:
                raise UpgradeInterrupted(f"{program} was ended by signal {-done.returncode}")
            raise UpgradeRejected(f"{program}: {self._error_text(reported)}")
        # Not as text, which normalises line ends: names may contain any.
        return done.stdout.decode(errors="surrogateescape")

    def _error_text(self, output: str) -> str:
        """Return the tool's error messages, including those in files that it names."""
        lines = [line.strip() for line in output.splitlines() if line.strip() and not re.search(r" ok$", line)]
        found = [text.strip() for text in _files_named(output, r"\.txt")]
        # Only errors of a database's log: its commands may contain passwords.
        logged = [line for log in _files_named(output, r"/pg_upgrade_dump_\d+\.log") for line in log.splitlines()]
        errors = [line for line in logged if re.search(r"\b(error|ERROR|FATAL): ", line)]
        return "\n".join([*lines[-15:], *found, *errors[-5:]])[-_MAX_MESSAGE_LENGTH:]


def _files_named(output: str, ending: str) -> list[str]:
    """Return contents of files that the output names (`ending`: pattern)."""
    files = re.findall(rf"({re.escape(str(VOLUME))}/\S+{ending})", output)
    return [Path(f).read_text(errors="replace") for f in dict.fromkeys(files) if Path(f).exists()]


def remove_previous() -> str:
    """Remove the previous data, which were kept for a rollback."""
    removed: list[str] = []
    in_use = (VOLUME / "pgdata" / "pg_wal").resolve()
    for kept in sorted(VOLUME.glob("former-*")):
        log = (kept / "pg_wal").resolve()
        # Recreated data may have their WAL in the place of the previous ones.
        if log.is_relative_to(WAL) and log.exists() and log != in_use:
            shutil.rmtree(log)
        shutil.rmtree(kept)
        removed.append(kept.name)
    return f"removed {', '.join(removed)}" if removed else "there is nothing to remove"


def major_of_image() -> str:
    """Return the major version of the image's programs."""
    return Path("/usr/local/lib/postgresql").resolve().parent.name


def terminate(_signal: int, _frame: object) -> NoReturn:
    """End as requested, which is not a rejection."""
    sys.exit(143)


def main(arguments: Sequence[str]) -> str:
    """Run a command and return its message. Raises UpgradeRejected."""
    parser = argparse.ArgumentParser(prog="steersman-upgrade", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    offers = commands.add_parser("offers", help="look whether this image has what is used")
    offers.add_argument("--extension", action="append", default=[])
    offers.add_argument("--library", action="append", default=[])
    offers.add_argument("--column-option", action="append", default=[])
    commands.add_parser("run", help="upgrade the data on the volume")
    commands.add_parser("forget", help="remove the previous data")
    given = parser.parse_args(arguments)
    major = major_of_image()
    if given.command == "forget":
        return remove_previous()
    if given.command == "offers":
        if lacking := missing_programs(major, given.extension, given.library, given.column_option):
            raise UpgradeRejected("; ".join(lacking))
        return "nothing is missing"
    return VolumeUpgrade(major).run()


def report(message: str) -> None:
    """Write a message to the log and to the termination log."""
    log(message)
    if os.access(TERMINATION_LOG, os.W_OK):
        TERMINATION_LOG.write_text(message[-_MAX_MESSAGE_LENGTH:])


def run(arguments: Sequence[str]) -> int:
    """Run a command, report the result, and return the exit code."""
    try:
        report(main(arguments))
    except UpgradeRejected as refused:
        report(str(refused))
        return EXIT_CODE_REJECTED
    except Exception as error:
        log(traceback.format_exc())
        report(str(error) if isinstance(error, UpgradeInterrupted) else f"{type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, terminate)
    os.umask(0o077)
    sys.exit(run(sys.argv[1:]))
