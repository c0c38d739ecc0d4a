"""Configuration of a read replica's server.

It derives from the declaration and from the control file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..paths import InstancePaths
from ..recovery.server import ServerFailed, control_data
from .lag import RECEIVER_TIMEOUT_SECONDS

# Names that pg_controldata prints, of settings that a standby needs at least as high as its primary.
_CONTROLLED = {
    "max_connections setting": "max_connections",
    "max_worker_processes setting": "max_worker_processes",
    "max_wal_senders setting": "max_wal_senders",
    "max_prepared_xacts setting": "max_prepared_transactions",
    "max_locks_per_xact setting": "max_locks_per_transaction",
}


class InvalidDeclaration(Exception):
    """The operator's file cannot be read. The message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """Declared settings of all read replicas of a cluster.

    Attributes:
        host: of the primary.
        parameters: as the cluster's other servers have them.
        hba: lines of pg_hba.conf.
        ident: lines of pg_ident.conf.
        max_lag_seconds: with a greater lag it is not ready.
    """

    host: str
    port: int = 5432
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    hba: Sequence[str] = ()
    ident: Sequence[str] = ()
    max_lag_seconds: float = 30.0


def load(file: Path) -> Declaration:
    """Read the operator's file.

    Raises:
        InvalidDeclaration: it is missing or malformed.
    """
    try:
        found: Any = json.loads(file.read_text())
        return Declaration(
            host=str(found["host"]),
            port=int(found["port"]),
            parameters={str(name): str(value) for name, value in found["parameters"].items()},
            hba=[str(line) for line in found["hba"]],
            ident=[str(line) for line in found["ident"]],
            max_lag_seconds=float(found["maxLagSeconds"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidDeclaration(f"{file}: {error!r}") from error


@dataclass(frozen=True, slots=True)
class Upstream:
    """Connection of a read replica to the primary.

    It uses the members' client certificate.

    Attributes:
        name: of its pod.
        listen: addresses of its own server.
        port: of its own server.
    """

    declaration: Declaration
    paths: InstancePaths
    name: str
    listen: str = "*"
    port: int = 5432

    @property
    def slot(self) -> str:
        """Its replication slot, which Patroni keeps on every primary."""
        return slot_name(self.name)

    def conninfo(self, **more: str) -> str:
        """Return a connection string of libpq.

        The application name is the pod's, which is the name of no member.
        """
        values = {
            "host": self.declaration.host,
            "port": str(self.declaration.port),
            "user": "steersman_replication",
            "application_name": self.name,
            "sslmode": "verify-ca",
            "sslcert": str(self.paths.peer / "tls.crt"),
            "sslkey": str(self.paths.peer / "tls.key"),
            "sslrootcert": str(self.paths.tls / "ca.crt"),
            "connect_timeout": "5",
            "keepalives_idle": "10",
            "keepalives_interval": "5",
            "keepalives_count": "3",
            **more,
        }
        return " ".join(f"{name}={_quoted(value)}" for name, value in values.items())


def number_of(pod: str) -> int:
    """Return the number of a read replica's pod.

    It is 2 for ``orders-read2-0``.
    """
    _, _, number = pod.removesuffix("-0").rpartition("-read")
    return int(number) if number.isascii() and number.isdecimal() else 0


def slot_name(pod: str) -> str:
    """Return the replication slot of a read replica's pod."""
    return f"steersman_read_{number_of(pod)}"


def write_configuration(upstream: Upstream, data: Path) -> Path:
    """Write the files that the server reads. Return the main one.

    Raises:
        ServerFailed: the control file of the data is damaged.
    """
    directory = upstream.paths.run / "read-replica"
    directory.mkdir(mode=0o700, exist_ok=True)
    declaration = upstream.declaration
    hba, ident, main = (directory / name for name in ("pg_hba.conf", "pg_ident.conf", "postgresql.conf"))
    hba.write_text("".join(f"{line}\n" for line in declaration.hba))
    ident.write_text("".join(f"{line}\n" for line in declaration.ident))
    settings = {
        **parameters(declaration, control_data(data)),
        **_own(upstream),
        "hba_file": str(hba),
        "ident_file": str(ident),
    }
    # Choices of initdb on the primary, such as locales. Later lines take precedence.
    included = f"include_if_exists {_quoted(str(data / 'postgresql.base.conf'))}\n"
    main.write_text(included + "".join(f"{name} = {_quoted(value)}\n" for name, value in sorted(settings.items())))
    # The copy of the primary's. Its values would override all others.
    (data / "postgresql.auto.conf").write_text("")
    (data / "standby.signal").touch()
    return main


def parameters(declaration: Declaration, control: Mapping[str, str]) -> dict[str, str]:
    """Return the declared parameters, at least with the primary's values.

    The control file records these.

    Args:
        control: of pg_controldata.
    """
    values = dict(declaration.parameters)
    for printed, name in _CONTROLLED.items():
        recorded, declared = control.get(printed, ""), values.get(name, "")
        if recorded.isdecimal() and (not declared.isdecimal() or int(declared) < int(recorded)):
            values[name] = recorded
    return values


def is_below_primary(settings: Mapping[str, str], control: Mapping[str, str]) -> bool:
    """Return True if a parameter is lower than the primary's.

    Args:
        settings: all parameters of the server.
        control: of pg_controldata.
    """
    return parameters(Declaration(host="", parameters=settings), control) != settings


def _own(upstream: Upstream) -> dict[str, str]:
    """Settings that make it a standby, which override what is declared."""
    tls = upstream.paths.tls
    return {
        "listen_addresses": upstream.listen,
        "port": str(upstream.port),
        "unix_socket_directories": str(upstream.paths.run),
        "ssl": "on",
        "ssl_cert_file": str(tls / "tls.crt"),
        "ssl_key_file": str(tls / "tls.key"),
        "ssl_ca_file": str(upstream.paths.peer / "ca.crt"),
        "hot_standby": "on",
        "primary_conninfo": upstream.conninfo(),
        "primary_slot_name": upstream.slot,
        "wal_receiver_timeout": f"{RECEIVER_TIMEOUT_SECONDS:.0f}s",
        "recovery_target_timeline": "latest",
        "restore_command": "",
        "archive_mode": "off",
        "archive_command": "",
        "synchronous_standby_names": "",
        "logging_collector": "off",
        # The program reads the server's messages.
        "log_destination": "stderr",
        "lc_messages": "C",
    }


def _quoted(value: str) -> str:
    # libpq escapes quotes by a backslash, as configuration files also accept.
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


__all__ = [
    "Declaration",
    "InvalidDeclaration",
    "ServerFailed",
    "Upstream",
    "is_below_primary",
    "load",
    "number_of",
    "parameters",
    "slot_name",
    "write_configuration",
]
