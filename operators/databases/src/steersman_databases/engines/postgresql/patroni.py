"""What Patroni is told: the file that each member reads, and the dynamic configuration that all share.

Source of the names: Patroni 4.0's documentation, "YAML Configuration Settings" and "Dynamic Configuration Settings".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from steersman.meta import Quantity
from steersman_databases.engines.cluster import ClusterView, Synchronous
from steersman_databases.engines.cluster_names import MEMBER_OF_LABEL, ROLE_LABEL

from . import hba, parameters

PORT = 5432
REST_PORT = 8008
DATA = "/var/lib/steersman/data/pgdata"
WAL = "/var/lib/steersman/wal/pg_wal"
RUN = "/run/steersman"
TLS = "/etc/steersman/tls"
PEER = "/etc/steersman/peer"
ROLE_COMMAND = "/usr/local/bin/steersman-role"

_MIB = 1024 * 1024
# Who is cut off stops before its ttl has passed: 2 s until it tries, in which it may say how it is, retry_timeout,
# and two questions to the others, of 2 s each; decision 29 says what may come in between. Patroni wants 20 s at the
# least: patroni.patch has it take these, and an image without it goes on with 20.
_TTL, _LOOP_WAIT, _RETRY_TIMEOUT = 15, 2, 3
# A replica that has been away for longer than this is copied anew rather than waited for.
_SLOT_TTL = "30min"
_UTF8 = ("UTF8", "UTF-8")


def store_labels(cluster: ClusterView) -> dict[str, str]:
    """The labels by which Patroni finds its ConfigMaps and its members."""
    return {
        "app.kubernetes.io/managed-by": "steersman-databases",
        "app.kubernetes.io/instance": cluster.key.name,
        MEMBER_OF_LABEL: cluster.key.name,
    }


def local_configuration(cluster: ClusterView) -> str:
    """Patroni's file, the same for all members. It is JSON, which is YAML too."""
    labels = store_labels(cluster)
    scope = labels.pop(MEMBER_OF_LABEL)
    configuration: dict[str, Any] = {
        "scope": scope,
        "kubernetes": {
            "labels": labels,
            "scope_label": MEMBER_OF_LABEL,
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
            # With a client certificate this leaves out the host name only: members know each other by address, and
            # the authority, which signs for this cluster alone, is still asked for.
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
                "superuser": {"username": hba.ADMINISTRATOR},
                "replication": {"username": hba.REPLICATION, **_certificate()},
                "rewind": {"username": hba.REWIND, **_certificate()},
            },
            "callbacks": dict.fromkeys(("on_start", "on_restart", "on_role_change"), ROLE_COMMAND),
            "create_replica_methods": ["basebackup"],
            "basebackup": [{"checkpoint": "fast"}, *([{"waldir": WAL}] if cluster.wal_size else [])],
        },
    }
    return json.dumps(configuration, indent=2)


def settings(cluster: ClusterView) -> Mapping[str, Any]:
    """Patroni's dynamic configuration, whole."""
    return {
        "ttl": _TTL,
        "loop_wait": _LOOP_WAIT,
        "retry_timeout": _RETRY_TIMEOUT,
        # A server that died is not waited for where another can take over.
        "primary_start_timeout": 0,
        "maximum_lag_on_failover": _MIB,
        "failsafe_mode": True,
        **_synchronous(cluster.synchronous),
        "member_slots_ttl": "1s" if cluster.forgets_absent else _SLOT_TTL,
        "postgresql": {
            "use_slots": True,
            "use_pg_rewind": True,
            # Data that do not follow are the operator's to put aside, never silently removed.
            "remove_data_directory_on_rewind_failure": False,
            "remove_data_directory_on_diverged_timelines": False,
            "parameters": server_parameters(cluster),
            "pg_hba": list(
                hba.access_rules(
                    cluster.access_rules, tls_required=cluster.tls_required, superuser=cluster.superuser_access
                )
            ),
            "pg_ident": list(hba.account_map()),
        },
    }


def server_parameters(cluster: ClusterView) -> dict[str, str]:
    """What postgresql.conf says: our defaults, over them the user's, over these what is the operator's."""
    space = cluster.wal_size or cluster.storage_size
    # Fewer than two segments of either size a server refuses to start with.
    least = 2 * cluster.initial.wal_segment_size
    # Checkpoints come early enough for the volume, and a replica that stays away does not fill it.
    quarter = max(_mebibytes(space) // 4, 64, least)
    sizes = {"max_wal_size": min(quarter, 1024), "min_wal_size": min(quarter // 2, 80)}
    defaults = {name: f"{max(size, least)}MB" for name, size in sizes.items()}
    ours = {
        "ssl": "on",
        "ssl_cert_file": f"{TLS}/tls.crt",
        "ssl_key_file": f"{TLS}/tls.key",
        "ssl_ca_file": f"{PEER}/ca.crt",
        "max_slot_wal_keep_size": f"{quarter}MB",
        "password_encryption": "scram-sha-256",
        # What it sets outranks all that stands here.
        **({} if can_be_altered(cluster) else {"allow_alter_system": "on" if cluster.alterable else "off"}),
    }
    preload = {"shared_preload_libraries": ",".join(cluster.preload_libraries)} if cluster.preload_libraries else {}
    # Nobody looks at it: where a value changes, Patroni has the server read its files again, without anybody's TLS.
    reread = {"steersman.estranged": " ".join(map(str, sorted(cluster.estranged)))} if cluster.estranged else {}
    # Where no server could be asked yet, nobody has judged them.
    declared = {n: v for n, v in cluster.parameters.items() if parameters.refused(n, v) is None}
    return {**defaults, **declared, **preload, **ours, **reread}


def can_be_altered(cluster: ClusterView) -> bool:
    """Whether its servers cannot be kept from taking ``ALTER SYSTEM``."""
    return int(cluster.version) < 17


def keeps(cluster: ClusterView, names: Iterable[str]) -> frozenset[str]:
    """Those of the parameters that are declared, the operator's, Patroni's, or what a promise of theirs rests on."""
    written = {name.lower() for name in server_parameters(cluster)}
    if cluster.synchronous.mode != "Off":
        written.add("synchronous_commit")
    return frozenset(n for n in names if n.lower() in written or parameters.is_ours(n.lower()))


def _synchronous(declared: Synchronous) -> dict[str, Any]:
    modes: Mapping[str, Any] = {"Off": False, "Priority": True, "Quorum": "quorum"}
    return {
        "synchronous_mode": modes[declared.mode],
        "synchronous_mode_strict": declared.required,
        "synchronous_node_count": declared.standbys,
    }


def _certificate() -> dict[str, str]:
    return {
        # By authority and not by name, as with the REST API.
        "sslmode": "verify-ca",
        "sslcert": f"{PEER}/tls.crt",
        "sslkey": f"{PEER}/tls.key",
        "sslrootcert": f"{TLS}/ca.crt",
    }


def _initdb(cluster: ClusterView) -> list[str | dict[str, str]]:
    initial = cluster.initial
    locale = initial.locale
    if initial.locale_provider == "icu":
        # The C library's, which has neither ICU's names nor, in our images, any but these; C goes with all encodings.
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
