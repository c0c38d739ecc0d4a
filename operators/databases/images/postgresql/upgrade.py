#!/usr/bin/python3 -I
"""steersman-upgrade: what a Job does to bring a volume to this image's major version of PostgreSQL.

``offers`` looks whether this image has what the databases use. ``run``, which `steersman-start upgrade` becomes when
it holds the volume, has the new server start with the cluster's parameters, makes new data beside the old ones by
pg_upgrade, checks them, and puts them in their place last: until then the old data are as they were, and afterwards
they are still there. ``forget`` removes them when nobody wants to return any more.

Exit code 3 is a refusal that trying again does not change; what ends with another may be tried again. The words of
both are in /dev/termination-log.
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
DOUBTFUL_INDEXES = Path("/usr/local/share/steersman/doubtful_indexes.sql")
CONFIGURATION = Path("/etc/steersman/patroni/patroni.yaml")
TOLD = Path("/dev/termination-log")
ADMINISTRATOR = "postgres"
REFUSED = 3  # 1 is what Python and steersman-start end with, and 2 is argparse's
_SPARE = 64 << 20  # bytes beside a copy
_LOG = 1 << 30  # bytes of log at most until a checkpoint: initdb's max_wal_size
_LONGEST = 3000  # bytes; the kubelet cuts at 4096
# Nobody is there to wait for, and nobody comes in from outside.
_ALONE = "-c ssl=off -c synchronous_standby_names="
# Wherever a server should write its words, and however few. What it is tried on is nothing to be archived.
_AUDIBLE = (
    "-c log_destination=stderr -c log_line_prefix= -c log_min_messages=warning -c logging_collector=off"
    " -c archive_mode=off -c synchronous_standby_names="
)
# What outranks whatever owners set for all who come to their databases: a superuser must not find what they planted,
# and nothing that would stop or disarm him counts.
_PINNED = {
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
    # Compiling a query of the catalogs takes longer than the query.
    "jit": "off",
}
_ENVIRONMENT = {
    "PGOPTIONS": " ".join(f"-c {name}={value}" for name, value in _PINNED.items()),
    "PGUSER": ADMINISTRATOR,
    # Whatever is named comes as it is kept, and goes back so: each database has an encoding of its own.
    "PGCLIENTENCODING": "SQL_ASCII",
}


class Refused(Exception):
    """The upgrade cannot be done; the words are for people."""


class Interrupted(Exception):
    """Something ended a program from outside: it may come through when it is tried again."""


# What is copied has what the former version computed; it is compared with what this one does. Each time the table is
# read: pg_amcheck --heapallindexed would have that done for indexes of columns alone, too, which have what it has.
# What calls somebody's function was rebuilt, and such a function may say another thing each time.
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


def missing(major: str, extensions: Iterable[str], libraries: Iterable[str]) -> list[str]:
    """What of these this image has not for ``major``, in words."""
    found = [
        f"extension {name} is not in the image for PostgreSQL {major}"
        for name in extensions
        if not (SHARED / major / "extension" / f"{name}.control").exists()
    ]
    for name in libraries:
        file = name.removeprefix("$libdir/").removesuffix(".so")
        # One with a path of its own stays as it is.
        if not (PROGRAMS / major / "lib" / f"{file}.so").exists():
            found.append(f"library {name} is not in the image for PostgreSQL {major}")
    return found


def say(words: str) -> None:
    """To the container's log."""
    sys.stderr.write(f"steersman: {words}\n")


def controlled(text: str) -> dict[str, str]:
    """What pg_controldata printed, by its words."""
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs}


def like(control: Mapping[str, str]) -> list[str]:
    """The options of initdb for data that must agree with these. Locales are copied by pg_upgrade itself.

    So is the encoding. Until then it is none, which takes names of roles, and what is said of them, as they are kept.
    """
    size = int(control["Bytes per WAL segment"]) // (1024 * 1024)
    checksums = control.get("Data page checksum version", "0") != "0"
    return [
        *("--encoding=SQL_ASCII", "--locale=C", f"--username={ADMINISTRATOR}", "--no-instructions"),
        *("--auth-local=peer", "--auth-host=scram-sha-256", f"--wal-segsize={size}"),
        *(["--data-checksums"] if checksums else []),
    ]


def quoted(value: str) -> str:
    """A value as postgresql.conf has it."""
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def written(settings: Mapping[str, str]) -> str:
    """Parameters as postgresql.conf has them."""
    return "".join(f"{name} = {quoted(value)}\n" for name, value in settings.items())


@dataclass(frozen=True)
class Given:
    """What Patroni starts a server with: on its command line, in postgresql.conf, pg_hba.conf and pg_ident.conf."""

    options: Mapping[str, str]
    settings: Mapping[str, str]
    access: Sequence[str]
    accounts: Sequence[str]


def given_by_patroni(major: str, known: Iterable[str]) -> Given:
    """What a server of ``major`` will be given, which has the parameters ``known``: by what is kept in the data.

    Patroni itself is asked: it leaves out what a version does not know and what is of the wrong type, and changes
    what is out of bounds. On the command line it does not.

    Source: patroni/postgresql of 4.0.7, ConfigHandler.write_postgresql_conf and Postgresql.start.
    """
    # Only images have it, and only this needs it.
    names = ("config", "collections", "postgresql.config", "postgresql.validator")
    config, collections, handler, validator = (import_module(f"patroni.{name}") for name in names)
    told: Mapping[str, Any] = config.Config(str(CONFIGURATION))["postgresql"]
    # Where it listens, which is not for these data to say, has no value there.
    parameters = collections.CaseInsensitiveDict({n: v for n, v in told["parameters"].items() if v is not None})
    on_line = [n for n in handler.ConfigHandler.CMDLINE_OPTIONS if n not in ("wal_keep_segments", "wal_keep_size")]
    options = {n: str(parameters[n]) for n in on_line if n in parameters}
    available = collections.CaseInsensitiveSet(known)
    # Its rules differ by major versions, as servers' parameters do.
    take, version = validator.transform_postgresql_parameter_value, int(major) * 10000
    taken = {n: take(version, n, value, available) for n, value in parameters.items()}
    settings = {n: str(value) for n, value in taken.items() if value is not None}
    return Given(options, settings, told.get("pg_hba") or (), told.get("pg_ident") or ())


def keep(directory: Path) -> None:
    """Brings the names in it to the disk: what was renamed there stays so when the machine loses power."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Upgrade:
    """Of the volume's data to ``major``."""

    def __init__(self, major: str) -> None:
        self.major = major
        self.data = VOLUME / "pgdata"
        self.new = VOLUME / "pgdata.new"
        self.sockets = RUN / "upgrade"

    def run(self) -> str:
        """What was done, in words. Raises Refused, with the old data as they were."""
        shutil.rmtree(self.sockets, ignore_errors=True)
        self.sockets.mkdir()
        if not self.data.exists() and self.new.exists():
            # Cut between the two renames: what is new was complete.
            self.new.rename(self.data)
            keep(VOLUME)
        if not self.data.exists():
            raise Refused(f"there are no data on the volume: {self.data} is missing")
        former = (self.data / "PG_VERSION").read_text().strip()
        if former == self.major:
            return f"the data are PostgreSQL {self.major}'s"
        self._clear()
        try:
            self._require_stopped(former)
            self._require_room()
            self._try(former)
            self._make(former)
            told = self._finish()
        except Refused:
            if (self.new / "postmaster.pid").exists():
                # One that was killed leaves the file, too, and why it was is what is told.
                with suppress(Refused):
                    self._stop(self.major, self.new)
            self._clear()
            raise
        # All of it first, on both volumes: a name that is on the disk must not lead to what is not.
        os.sync()
        self.data.rename(VOLUME / f"pgdata.{former}")
        keep(VOLUME)
        self.new.rename(self.data)
        keep(VOLUME)
        return told

    def _clear(self) -> None:
        """Removes what an attempt left that was cut."""
        shutil.rmtree(self.new, ignore_errors=True)
        shutil.rmtree(WAL / f"pg_wal.{self.major}", ignore_errors=True)

    def _control(self, major: str) -> dict[str, str]:
        return controlled(self._do(major, "pg_controldata", "-D", str(self.data)))

    def _require_stopped(self, former: str) -> None:
        """The data must be a primary's that stopped in order; what was killed recovers first."""
        if not (PROGRAMS / former / "bin").exists():
            raise Refused(f"this image has no PostgreSQL {former}, whose data are on the volume")
        if (self.data / "standby.signal").exists():
            raise Refused("the data are a standby's, and may lack what was committed")
        for stale in self.data.glob("postmaster.pid"):
            # The volume is ours alone, so its writer is gone.
            stale.unlink()
        if self._control(former)["Database cluster state"] != "shut down":
            self._start(former, self.data)
            self._stop(former, self.data)
        state = self._control(former)["Database cluster state"]
        if state != "shut down":
            raise Refused(f"the former server was not stopped in order: {state}")

    def _require_room(self) -> None:
        """All is copied: the old files are what can be returned to. The log begins anew, and indexes are rebuilt."""
        log = self.data / "pg_wal"
        files = (path for path in self.data.rglob("*") if path.is_file() and not path.is_symlink())
        copy = sum(path.stat().st_size for path in files if not path.is_relative_to(log))
        self._require(VOLUME, "volume", copy + _SPARE + (0 if WAL.exists() else min(copy, _LOG)))
        if WAL.exists():
            self._require(WAL, "WAL volume", min(copy, _LOG) + _SPARE)

    def _require(self, where: Path, name: str, needed: int) -> None:
        free = shutil.disk_usage(where).free
        if free < needed:
            raise Refused(f"the copy needs {needed >> 20} MiB, and the {name} has {free >> 20} MiB free")

    def _try(self, former: str) -> None:
        """Starts the new server once as Patroni will: what it does not start with must be found out now, and first.

        On data of its own, which go again: libraries that it loads may write.
        """
        self._initdb(former, "--no-sync")
        described = self._do(self.major, "postgres", "--describe-config").splitlines()
        given = given_by_patroni(self.major, [line.split("\t")[0] for line in described])
        with (self.new / "postgresql.conf").open("a") as file:
            file.write(written(given.settings))
        # This file outranks the other, as the command line outranks what ALTER SYSTEM wrote into it.
        (self.new / "postgresql.auto.conf").write_bytes(self._altered() + b"\n" + written(given.options).encode())
        for name, lines in (("pg_hba.conf", given.access), ("pg_ident.conf", given.accounts)):
            if lines:
                (self.new / name).write_text("".join(f"{line}\n" for line in lines))
        try:
            self._start(self.major, self.new, _AUDIBLE)
        except Refused as refused:
            raise Refused(f"with the parameters of the cluster {refused}") from None
        self._stop(self.major, self.new)
        self._clear()

    def _altered(self) -> bytes:
        """What people set by ALTER SYSTEM."""
        file = self.data / "postgresql.auto.conf"
        return file.read_bytes() if file.exists() else b""

    def _initdb(self, former: str, *options: str) -> None:
        separate = [f"--waldir={WAL}/pg_wal.{self.major}"] if WAL.exists() else []
        self._do(self.major, "initdb", f"--pgdata={self.new}", *like(self._control(former)), *separate, *options)

    def _make(self, former: str) -> None:
        self._initdb(former)
        told = self._do(former, "postgres", "-D", str(self.data), "-C", "shared_preload_libraries").splitlines()
        self._load(told[-1] if told else "")
        options = [
            *("--old-bindir", str(PROGRAMS / former / "bin"), "--new-bindir", str(PROGRAMS / self.major / "bin")),
            *("--old-datadir", str(self.data), "--new-datadir", str(self.new)),
            *("--old-options", _ALONE, "--new-options", _ALONE),
            *("--socketdir", str(self.sockets), "--username", ADMINISTRATOR, "--copy"),
        ]
        self._do(self.major, "pg_upgrade", "--check", *options)
        self._do(self.major, "pg_upgrade", *options)

    def _load(self, libraries: str) -> None:
        """Has the new server load them, for as long as this runs: afterwards it is told again what to load."""
        if libraries:
            with (self.new / "postgresql.auto.conf").open("a") as file:
                file.write(f"\nshared_preload_libraries = {quoted(libraries)}\n")

    def _finish(self) -> str:
        """Runs the new server for nobody else, and leaves it as it should be found."""
        # What Patroni keeps beside its own files, and what people set by ALTER SYSTEM.
        if (self.data / "patroni.dynamic.json").exists():
            shutil.copy2(self.data / "patroni.dynamic.json", self.new)
        settings = self.new / "postgresql.auto.conf"
        loading, kept = settings.read_bytes(), self._altered()
        settings.write_bytes(kept + b"\n" + loading)
        shutil.copy2(self.new / "postgresql.conf", self.new / "postgresql.base.conf")
        self._start(self.major, self.new)
        for script in sorted(self.sockets.glob("*.sql")):
            self._psql("postgres", "-f", str(script))
        databases = self._ask("postgres", "SELECT datname FROM pg_database WHERE datallowconn ORDER BY 1")
        doubtful_indexes, rebuilt = DOUBTFUL_INDEXES.read_text(), 0
        for database in databases:
            doubtful = self._ask(database, doubtful_indexes)
            for statement in [*doubtful, *self._ask(database, STALE_COLLATIONS)]:
                self._ask(database, statement)
            rebuilt += len(doubtful)
        # Nobody is served meanwhile, so the quick and rough stages of --analyze-in-stages would only cost time.
        self._do(self.major, "vacuumdb", "--all", "--analyze-only", "--quiet")
        self._check(databases)
        self._stop(self.major, self.new)
        settings.write_bytes(kept)
        return f"{len(databases)} databases, {rebuilt} indexes rebuilt for their collations, amcheck clean"

    def _check(self, databases: Sequence[str]) -> None:
        before: dict[str, list[str]] = {}
        for database in databases:
            before[database] = self._ask(database, WHERE_AMCHECK_WAS) or ["DROP EXTENSION amcheck"]
            self._ask(database, "CREATE EXTENSION IF NOT EXISTS amcheck SCHEMA pg_catalog")
            # Whoever may create in its schema could have a superuser run functions of the same names.
            self._ask(database, "ALTER EXTENSION amcheck SET SCHEMA pg_catalog")
        self._do(self.major, "pg_amcheck", "--all")
        for database in databases:
            for statement in [*self._ask(database, COMPUTED_INDEXES), *before[database]]:
                self._ask(database, statement)

    def _start(self, major: str, data: Path, options: str = _ALONE) -> None:
        given = f"-c listen_addresses= -c unix_socket_directories={self.sockets} {options}"
        log = self.sockets / "server.log"
        log.unlink(missing_ok=True)
        try:
            self._do(
                major, "pg_ctl", "start", "-w", "-t", "86400", "-D", str(data), "-l", str(log), "-o", given,
            )  # fmt: skip
        except Refused as refused:
            words = log.read_text(errors="replace").strip() if log.exists() else ""
            raise Refused(f"PostgreSQL {major} does not start: {words[-_LONGEST:] or refused}") from None

    def _stop(self, major: str, data: Path) -> None:
        self._do(major, "pg_ctl", "stop", "-w", "-t", "86400", "-m", "fast", "-D", str(data))

    def _ask(self, database: str, statement: str) -> list[str]:
        # Names may have lines, and whatever else ends one.
        return [record for record in self._psql(database, "-0", "-c", statement).split("\0") if record]

    def _psql(self, database: str, *arguments: str) -> str:
        # Terse: what an error says besides may be values of rows, and is shown in the cluster's conditions.
        options = "-XAtq", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=terse"
        return self._do(self.major, "psql", *options, *arguments, PGDATABASE=database)

    def _do(self, major: str, program: str, *arguments: str, **environment: str) -> str:
        """Runs a program of a major, and gives what it printed. Raises Refused with its words."""
        variables = {**os.environ, **_ENVIRONMENT, "PGHOST": str(self.sockets), "LC_ALL": "C.UTF-8", **environment}
        command = [str(PROGRAMS / major / "bin" / program), *arguments]
        say(" ".join(f"{program} {' '.join(arguments)}".split())[:300])
        done = subprocess.run(
            command, capture_output=True, cwd=self.sockets, env=variables, check=False, stdin=subprocess.DEVNULL
        )
        if done.returncode:
            said = f"{done.stdout.decode(errors='replace')}\n{done.stderr.decode(errors='replace')}"
            say(said)
            if done.returncode < 0:
                raise Interrupted(f"{program} was ended by signal {-done.returncode}")
            raise Refused(f"{program}: {self._words(said)}")
        # Not as text, whose line ends are made alike: names may have any.
        return done.stdout.decode(errors="surrogateescape")

    def _words(self, printed: str) -> str:
        """The tool's own words, those in the files that it names included."""
        lines = [line.strip() for line in printed.splitlines() if line.strip() and not re.search(r" ok$", line)]
        found = [text.strip() for text in _named(printed, r"\.txt")]
        # Of a database's log no more than its errors: it has commands as well, and those may have passwords.
        logged = [line for log in _named(printed, r"/pg_upgrade_dump_\d+\.log") for line in log.splitlines()]
        errors = [line for line in logged if re.search(r"\b(error|ERROR|FATAL): ", line)]
        return "\n".join([*lines[-15:], *found, *errors[-5:]])[-_LONGEST:]


def _named(printed: str, ending: str) -> list[str]:
    """What stands in those files of the volume that are named with this ending, a pattern."""
    files = re.findall(rf"({re.escape(str(VOLUME))}/\S+{ending})", printed)
    return [Path(f).read_text(errors="replace") for f in dict.fromkeys(files) if Path(f).exists()]


def forget() -> str:
    """Removes what is only there to be returned to."""
    removed: list[str] = []
    in_use = (VOLUME / "pgdata" / "pg_wal").resolve()
    for kept in sorted(VOLUME.glob("former-*")):
        log = (kept / "pg_wal").resolve()
        # Data that were made anew since may have their log where the former ones had it.
        if log.is_relative_to(WAL) and log.exists() and log != in_use:
            shutil.rmtree(log)
        shutil.rmtree(kept)
        removed.append(kept.name)
    return f"removed {', '.join(removed)}" if removed else "there is nothing to remove"


def major_of_image() -> str:
    """The one that the way to the programs leads to."""
    return Path("/usr/local/lib/postgresql").resolve().parent.name


def leave(_signal: int, _frame: object) -> NoReturn:
    """Ends as asked, which is no refusal."""
    sys.exit(143)


def main(arguments: Sequence[str]) -> str:
    """Does it, and gives the words for it. Raises Refused."""
    parser = argparse.ArgumentParser(prog="steersman-upgrade", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    offers = commands.add_parser("offers", help="look whether this image has what is used")
    offers.add_argument("--extension", action="append", default=[])
    offers.add_argument("--library", action="append", default=[])
    commands.add_parser("run", help="upgrade the data on the volume")
    commands.add_parser("forget", help="remove the former data")
    given = parser.parse_args(arguments)
    major = major_of_image()
    if given.command == "forget":
        return forget()
    if given.command == "offers":
        if lacking := missing(major, given.extension, given.library):
            raise Refused("; ".join(lacking))
        return "nothing is missing"
    return Upgrade(major).run()


def tell(words: str) -> None:
    """To people, and to whoever reads why the container ended."""
    say(words)
    if os.access(TOLD, os.W_OK):
        TOLD.write_text(words[-_LONGEST:])


def run(arguments: Sequence[str]) -> int:
    """Does it, tells people how it went, and gives the code to end with."""
    try:
        tell(main(arguments))
    except Refused as refused:
        tell(str(refused))
        return REFUSED
    except Exception as error:
        say(traceback.format_exc())
        tell(str(error) if isinstance(error, Interrupted) else f"{type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, leave)
    os.umask(0o077)
    sys.exit(run(sys.argv[1:]))
