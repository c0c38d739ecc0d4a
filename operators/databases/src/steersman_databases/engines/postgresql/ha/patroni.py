"""Patroni's configuration: the file of each member, and the shared dynamic configuration.

Source of the names: Patroni 4.1's documentation, "YAML Configuration Settings" and "Dynamic Configuration
Settings".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from steersman.meta import Quantity
from steersman_databases.engines.cluster_engine import DeclaredCluster, SynchronousReplication
from steersman_databases.engines.naming import CLUSTER_LABEL, ROLE_LABEL, member_slot_pattern, read_replica_slot

from ..config import hba, logging, parameters

PORT = 5432
REST_PORT = 8008
DATA = "/var/lib/steersman/data/pgdata"
WAL = "/var/lib/steersman/wal/pg_wal"
RUN = "/run/steersman"
TLS = "/etc/steersman/tls"
PEER = "/etc/steersman/peer"
ROLE_COMMAND = "/usr/local/bin/steersman-role"
_ARCHIVE_PROGRAM = "/usr/local/bin/pgbackrest-archive"
# An image without the program archives nothing. Failing instead would fill the volume with WAL.
ARCHIVE_COMMAND = f"test ! -x {_ARCHIVE_PROGRAM} || exec {_ARCHIVE_PROGRAM} %p"

_MIB = 1024 * 1024
# A partitioned primary stops before its TTL has passed: 2 s until the next attempt, in which it may report its state,
# retry_timeout, and two requests to the other members of 2 s each. Decision 29 lists further delays. Patroni requires
# at least 20 s: our patches make it accept these values, and an unpatched image uses 20 s.
_TTL, _LOOP_WAIT, _RETRY_TIMEOUT = 15, 2, 3
# A replica that was unreachable for longer gets a new copy of the data.
_SLOT_TTL = "30min"
_UTF8 = ("UTF8", "UTF-8")
# For the operator's role. Only versions from 16 on have the parameter and pg_use_reserved_connections.
_RESERVED_CONNECTIONS = 5
_RESERVED_CONNECTIONS_SINCE = 16
_DEFAULT_CONNECTIONS = {"max_connections": 100, "superuser_reserved_connections": 3}


def dcs_labels(cluster: DeclaredCluster) -> dict[str, str]:
    """Return the labels by which Patroni finds its ConfigMaps and its members."""
    return {
        "app.kubernetes.io/managed-by": "steersman-databases",
        "app.kubernetes.io/instance": cluster.key.name,
        CLUSTER_LABEL: cluster.key.name,
    }


def local_configuration(cluster: DeclaredCluster) -> str:
    """Return Patroni's file, the same for all members.

    It is JSON, which is valid YAML.
    """
    labels = dcs_labels(cluster)
    scope = labels.pop(CLUSTER_LABEL)
    configuration: dict[str, Any] = {
        "scope": scope,
        "kubernetes": {
            "labels": labels,
            "scope_label": CLUSTER_LABEL,
            "role_label": ROLE_LABEL,
            "leader_label_value": "primary",
            "follower_label_value": "replica",
            "use_endpoints": False,
        },
        "restapi": {
            "listen": f"*:{REST_PORT}",
            "certfile": f"{TLS}/tls.crt",
            "keyfile": f"{TLS}/tls.key",
            "cafile": f"{PEER}/ca.crt",
            "verify_client": "optional",
        },
        "ctl": {
            "certfile": f"{PEER}/tls.crt",
            "keyfile": f"{PEER}/tls.key",
            "cacert": f"{TLS}/ca.crt",
            # With a client certificate this skips only the check of the host name: members use addresses. The
            # authority, which signs for this cluster only, is still verified.
            "insecure": True,
        },
        "bootstrap": {"initdb": _initdb(cluster)},
        "postgresql": {
            "listen": f"*:{PORT}",
            "data_dir": DATA,
            "bin_dir": "/usr/local/lib/postgresql",
            "pgpass": f"{RUN}/pgpass",
            "use_unix_socket": True,
            "use_unix_socket_repl": True,
            "parameters": {"unix_socket_directories": RUN},
            "authentication": {
                "superuser": {"username": hba.ADMINISTRATOR_ROLE},
                "replication": {"username": hba.REPLICATION_ROLE, **_certificate()},
                "rewind": {"username": hba.REWIND_ROLE, **_certificate()},
            },
            "callbacks": dict.fromkeys(("on_start", "on_restart", "on_role_change"), ROLE_COMMAND),
            "create_replica_methods": ["basebackup"],
            "basebackup": [{"checkpoint": "fast"}, *([{"waldir": WAL}] if cluster.wal_size else [])],
        },
    }
    # With an indentation, json.dumps does not use its C encoder.
    return msgspec.json.format(json.dumps(configuration), indent=2)


def dynamic_configuration(cluster: DeclaredCluster) -> Mapping[str, Any]:
    """Return the complete dynamic configuration of Patroni."""
    return {
        "ttl": _TTL,
        "loop_wait": _LOOP_WAIT,
        "retry_timeout": _RETRY_TIMEOUT,
        # A failover to another member is faster than waiting for a crashed server.
        "primary_start_timeout": 0,
        "maximum_lag_on_failover": _MIB,
        "failsafe_mode": True,
        **_synchronous(cluster.synchronous),
        "member_slots_ttl": "1s" if cluster.drop_absent_slots else _SLOT_TTL,
        **_slots(cluster),
        "postgresql": {
            "use_slots": True,
            "use_pg_rewind": True,
            # Diverged data are the operator's to move aside, never removed silently.
            "remove_data_directory_on_rewind_failure": False,
            "remove_data_directory_on_diverged_timelines": False,
            "parameters": server_parameters(cluster),
            "pg_hba": list(
                hba.hba_lines(
                    cluster.hba_rules, tls_required=cluster.tls_required, superuser=cluster.superuser_access
                )
            ),
            "pg_ident": list(hba.ident_lines()),
        },
    }


def _slots(cluster: DeclaredCluster) -> dict[str, Any]:
    """Return permanent slots, and those that Patroni never drops.

    Each slot is limited by `max_slot_wal_keep_size`. Patroni drops only the slots of members and read replicas.
    """
    slots: dict[str, dict[str, str]] = {
        read_replica_slot(number): {"type": "physical"} for number in sorted(cluster.read_replicas)
    }
    for slot in cluster.replication_slots:
        logical = {"type": "logical", "plugin": slot.plugin, "database": slot.database}
        slots[slot.name] = logical if slot.plugin else {"type": "physical"}
    own = member_slot_pattern(cluster.names)
    # An image without our patch reads no pattern, and protects the logical ones only.
    ignored = [{"type": "logical"}, {"name": f"(?!(?:{own})$).+"}]
    return {"ignore_slots": ignored, **({"slots": slots} if slots else {})}


def server_parameters(cluster: DeclaredCluster) -> dict[str, str]:
    """Return the parameters of postgresql.conf.

    The user's values override sized ones and the operator's defaults. The operator's fixed values override all.
    """
    # A server refuses to start with fewer than two segments in either size.
    minimum = 2 * cluster.bootstrap.wal_segment_size
    # Checkpoints occur early enough for the volume, and an absent replica does not fill it.
    quarter = max(_mebibytes(cluster.usable_size) // 4, 64, minimum)
    sizes = {"max_wal_size": min(quarter, 1024), "min_wal_size": min(quarter // 2, 80)}
    defaults = {
        **{name: f"{max(size, minimum)}MB" for name, size in sizes.items()},
        # Writes wait this long for a synchronous standby whose node is lost.
        "wal_sender_timeout": "10s",
        **_reserved_connections(cluster),
        **logging.parameters(cluster.slow_statement_seconds),
    }
    operator_parameters = {
        "ssl": "on",
        "ssl_cert_file": f"{TLS}/tls.crt",
        "ssl_key_file": f"{TLS}/tls.key",
        "ssl_ca_file": f"{PEER}/ca.crt",
        "max_slot_wal_keep_size": f"{quarter}MB",
        "password_encryption": "scram-sha-256",
        # With `on` a replica marks WAL as archived that the primary may not have archived, so a failover would lose
        # it. Both are set without a store, too, so that declaring one restarts nothing.
        "archive_mode": "always",
        "archive_command": ARCHIVE_COMMAND,
        "archive_timeout": f"{round(cluster.archive_interval_seconds or 0)}s",
        # Values of ALTER SYSTEM override all values here.
        **(
            {}
            if allows_alter_system(cluster)
            else {"allow_alter_system": "on" if cluster.allows_alter_system else "off"}
        ),
    }
    preload = {"shared_preload_libraries": ",".join(cluster.preload_libraries)} if cluster.preload_libraries else {}
    # No code reads this parameter. When its value changes, Patroni makes the server reload its files, without TLS.
    reloaded = (
        {"steersman.distrusting": " ".join(map(str, sorted(cluster.distrusting)))} if cluster.distrusting else {}
    )
    # Before a server was reachable, no server has validated them.
    declared = {n: v for n, v in cluster.parameters.items() if parameters.rejection_reason(n, v) is None}
    sized = {one.name: one.value for one in cluster.sized}
    return {**defaults, **sized, **declared, **preload, **operator_parameters, **reloaded}


def _reserved_connections(cluster: DeclaredCluster) -> dict[str, str]:
    """Return the connections of the operator, unless few would remain."""
    declared = [cluster.parameters.get(name, str(number)) for name, number in _DEFAULT_CONNECTIONS.items()]
    if int(cluster.version) < _RESERVED_CONNECTIONS_SINCE or not all(text.strip().isdecimal() for text in declared):
        return {}
    limit, superusers = map(int, declared)
    if limit - superusers < 4 * _RESERVED_CONNECTIONS:
        return {}
    return {"reserved_connections": str(_RESERVED_CONNECTIONS)}


def allows_alter_system(cluster: DeclaredCluster) -> bool:
    """Return True if its servers cannot be prevented from accepting `ALTER SYSTEM`."""
    return int(cluster.version) < 17


def managed_parameters(cluster: DeclaredCluster, names: Iterable[str]) -> frozenset[str]:
    """Return the parameters that are declared or reserved.

    Reserved are those of the operator, of Patroni, and those on which a declared guarantee depends.
    """
    written = {name.lower() for name in server_parameters(cluster)}
    if cluster.synchronous.mode != "Disabled":
        written.add("synchronous_commit")
    return frozenset(n for n in names if n.lower() in written or parameters.is_operator_parameter(n.lower()))


def _synchronous(declared: SynchronousReplication) -> dict[str, Any]:
    modes: Mapping[str, Any] = {"Disabled": False, "Priority": True, "Quorum": "quorum"}
    return {
        "synchronous_mode": modes[declared.mode],
        "synchronous_mode_strict": declared.required,
        "synchronous_node_count": declared.number,
    }


def _certificate() -> dict[str, str]:
    return {
        # Verified by authority and not by name, as with the REST API.
        "sslmode": "verify-ca",
        "sslcert": f"{PEER}/tls.crt",
        "sslkey": f"{PEER}/tls.key",
        "sslrootcert": f"{TLS}/ca.crt",
    }


def _initdb(cluster: DeclaredCluster) -> list[str | dict[str, str]]:
    initial = cluster.bootstrap
    locale = initial.locale
    if initial.locale_provider == "icu":
        # The locale of the C library, which does not have ICU's names. Our images have only these two, and C works
        # with all encodings.
        locale = "C.UTF-8" if initial.encoding.upper() in _UTF8 else "C"
    options: list[str | dict[str, str]] = [
        {"encoding": initial.encoding},
        {"locale": locale},
        "data-checksums",
        {"auth-local": "peer"},
        {"auth-host": "scram-sha-256"},
        {"wal-segsize": str(initial.wal_segment_size)},
    ]
    match initial.locale_provider:
        case "builtin":
            options += [{"locale-provider": "builtin"}, {"builtin-locale": initial.locale}]
        case "icu":
            options += [{"locale-provider": "icu"}, {"icu-locale": initial.locale}]
        case _:
            options += [{"locale-provider": "libc"}]
    return [*options, *([{"waldir": WAL}] if cluster.wal_size else [])]


def _mebibytes(quantity: Quantity) -> int:
    return int(quantity.value) // _MIB
