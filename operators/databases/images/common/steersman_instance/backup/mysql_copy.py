"""Copy a member by MySQL's clone plugin, and verify the copy.

A server must start on it.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..binlog.stream import LocalServer, ServerUnavailable
from ..gtids import GtidSet
from ..mysqld import MysqldProgram, initialise, running_server

ACCOUNT = "steersman_backup"
_TABLES = """
    SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES
    WHERE TABLE_TYPE = 'BASE TABLE' AND TABLE_SCHEMA NOT IN ('information_schema', 'performance_schema', 'sys')
"""
_SMALL_SERVER = {"innodb-buffer-pool-size": "64M", "performance-schema": "OFF"}


class CopyFailed(Exception):
    """The data of a member could not be copied."""


class CopyDamaged(Exception):
    """A table of the copy is damaged."""


@dataclass(frozen=True, slots=True)
class Donor:
    """A member that is copied, and the client certificate that it accepts."""

    instance: str
    address: str
    port: int
    certificates: Path


@dataclass(frozen=True, slots=True)
class CopyState:
    """State that a server on the copy reported."""

    gtids: GtidSet
    version: str


def clone_member(program: MysqldProgram, donor: Donor, work: Path, run: Path) -> Path:
    """Copy a member's data into `work` and return the data directory.

    Raises:
        CopyFailed: the member cannot be reached, refuses, or ended.
        MysqldFailed: the server that receives the data failed.
    """
    helper, data = work / "helper", work / "data"
    shutil.rmtree(data, ignore_errors=True)
    initialise(program, helper, run, {})
    certificates = donor.certificates
    options = {
        **_SMALL_SERVER,
        "plugin-load-add": "mysql_clone.so",
        "loose-clone-ssl-ca": str(certificates / "ca.crt"),
        "loose-clone-ssl-cert": str(certificates / "tls.crt"),
        "loose-clone-ssl-key": str(certificates / "tls.key"),
        "loose-clone-valid-donor-list": f"{donor.address}:{donor.port}",
        "skip-log-bin": "ON",
    }
    try:
        with running_server(program, helper, run, options) as server:
            _clone(server, donor, data)
    finally:
        shutil.rmtree(helper, ignore_errors=True)
    return data


def prove_copy(program: MysqldProgram, data: Path, run: Path) -> CopyState:
    """Start a server on a copy, check it, and return its state.

    Raises:
        MysqldFailed: no server starts on the copy.
        CopyDamaged: a table is damaged.
    """
    with running_server(program, data, run, {"skip-log-bin": "ON", "super-read-only": "OFF"}) as server:
        ((version,),) = server.query("SELECT VERSION()")
        gtids = server.state().executed
        check_tables(server, quick=True)
    # A server that is restored from it gets an identity of its own.
    (data / "auto.cnf").unlink(missing_ok=True)
    return CopyState(gtids, str(version).partition("-")[0])


def _clone(server: LocalServer, donor: Donor, data: Path) -> None:
    source = f"'{ACCOUNT}'@'{_literal(donor.address)}':{int(donor.port)}"
    try:
        server.query(
            f"CLONE INSTANCE FROM {source} IDENTIFIED BY '' DATA DIRECTORY = '{_literal(str(data))}' REQUIRE SSL",
            unbounded=True,
        )
    except ServerUnavailable as error:
        raise CopyFailed(f"Instance {donor.instance} cannot be copied: {error}") from error


def check_tables(server: LocalServer, *, quick: bool) -> None:
    """Check all tables.

    Args:
        quick: without the rows.

    Raises:
        CopyDamaged: a table is damaged.
        ServerUnavailable: the server ended.
    """
    for name in base_tables(server):
        _raise_if_damaged(name, server.query(f"CHECK TABLE {name}{' QUICK' if quick else ''}", unbounded=True))


_SYSTEM_SCHEMAS = ("mysql", "steersman")


def base_tables(server: LocalServer, *, system: bool = True) -> list[str]:
    """Return the quoted names of all tables with rows.

    Args:
        system: include those of the server itself and of the operator.
    """
    found = [(str(schema), str(table)) for schema, table in server.query(_TABLES)]
    return [
        f"{_quoted(schema)}.{_quoted(table)}" for schema, table in found if system or schema not in _SYSTEM_SCHEMAS
    ]


def _raise_if_damaged(name: str, rows: Sequence[tuple[object, ...]]) -> None:
    errors = [str(row[3]) for row in rows if str(row[2]).lower() == "error"]
    if errors:
        raise CopyDamaged(f"Table {name} is damaged: {errors[0][:200]}")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _literal(text: str) -> str:
    if any(character in text for character in "'\\\0\n"):
        raise CopyFailed("an address or a path has a quotation mark")
    return text
