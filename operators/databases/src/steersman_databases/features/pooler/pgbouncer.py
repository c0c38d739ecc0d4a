"""Configuration of PgBouncer.

Source: PgBouncer 1.24's documentation, "config" and "usage"; each setting was tried with 1.24.1 on PostgreSQL 17.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from steersman_databases.engines.postgresql.config import hba

PORT = 5432
PROGRAM = "/usr/sbin/pgbouncer"
CONFIGURATION = "/etc/steersman/pgbouncer"
TLS = "/etc/steersman/tls"
LOGIN = "/etc/steersman/pooler"
RUN = "/run/steersman"
ADMIN_DATABASE = "pgbouncer"
"""Virtual database of the admin console."""
WAIT_SECONDS = 120
"""Default of `query_wait_timeout`: time for which clients wait for a server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PgBouncerSettings:
    """Declared settings of a pooler.

    Attributes:
        host: host name of the servers, as in their certificate.
        mode: `transaction` or `session`.
        parameters: the user's parameters of PgBouncer.
        tls_required: refuse logins in clear text.
    """

    host: str
    mode: str
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    tls_required: bool = True


def files(settings: PgBouncerSettings) -> dict[str, str]:
    """Return PgBouncer's files by name. They contain no secrets."""
    return {"pgbouncer.ini": _settings(settings), "hba.conf": _hba_rules(settings), "users.txt": _users()}


# For a failover, and for a node that disappears. Two settings keep PgBouncer's defaults: `server_check_query` checks
# connections that were idle for 30 s, and `server_fast_close` is off. With it each `RECONNECT` would end sessions of
# mode session, whose servers are usually the right ones.
_FAILOVER = {
    # By default one refused login blocks all clients of a pool for 15 s, and so does a name that was not found. A
    # node may still route to the previous primary when the new one serves. A delay of a second would double the time
    # of a switchover.
    "server_login_retry": "0.2",
    "dns_nxdomain_ttl": "1",
    # PgBouncer opens one connection at a time, so one to an unused address blocks the pool. A busy server completes a
    # login within this time.
    "server_connect_timeout": "5",
    # A connection without a response for half a minute is closed: by then Patroni has another primary. Kernels would
    # wait for a quarter of an hour (two hours if idle). A shorter time would also close connections to peers that are
    # alive but read nothing for that long.
    "tcp_keepidle": "10",
    "tcp_keepintvl": "10",
    "tcp_keepcnt": "2",
}


def _settings(pooler: PgBouncerSettings) -> str:
    settings = {
        # JDBC drivers need this.
        "ignore_startup_parameters": "extra_float_digits",
        "max_prepared_statements": "200",
        "max_client_conn": "1000",
        "query_wait_timeout": str(WAIT_SECONDS),
        "tcp_user_timeout": "30000",
        **pooler.parameters,
        **_FAILOVER,
        # Clients that log in without a primary wait as long as the others.
        "client_login_timeout": str(WAIT_SECONDS),
        "listen_addr": "*",
        "listen_port": str(PORT),
        "unix_socket_dir": RUN,
        "pool_mode": pooler.mode,
        "auth_type": "hba",
        "auth_hba_file": f"{CONFIGURATION}/hba.conf",
        "auth_file": f"{CONFIGURATION}/users.txt",
        "auth_user": hba.POOLER_ROLE,
        "auth_dbname": "postgres",
        "auth_query": "SELECT username, verifier FROM steersman.pooled($1)",
        "admin_users": f"{hba.OPERATOR_ROLE},{hba.ADMINISTRATOR_ROLE}",
        "client_tls_sslmode": "require" if pooler.tls_required else "allow",
        "client_tls_cert_file": f"{TLS}/tls.crt",
        "client_tls_key_file": f"{TLS}/tls.key",
        "client_tls_ca_file": f"{LOGIN}/clients.crt",
        "server_tls_sslmode": "verify-full",
        "server_tls_ca_file": f"{LOGIN}/ca.crt",
        "server_tls_cert_file": f"{LOGIN}/tls.crt",
        "server_tls_key_file": f"{LOGIN}/tls.key",
    }
    lines = [f"{name} = {value}" for name, value in settings.items()]
    return "\n".join(("[databases]", f"* = host={pooler.host} port={PORT}", "[pgbouncer]", *lines, ""))


def _hba_rules(settings: PgBouncerSettings) -> str:
    operator_lines = (*hba.CERTIFICATE_ROLES, hba.REPLICATION_ROLE, hba.ADMINISTRATOR_ROLE)
    lines = (
        f"local {ADMIN_DATABASE} {hba.ADMINISTRATOR_ROLE} peer",
        f"hostssl {ADMIN_DATABASE} {hba.OPERATOR_ROLE} all cert",
        f"host {ADMIN_DATABASE} all all reject",
        *(f"host all {role} all reject" for role in operator_lines),
        f"{'hostssl' if settings.tls_required else 'host'} all all all scram-sha-256",
        "",
    )
    return "\n".join(lines)


def _users() -> str:
    # Without passwords: they log in by certificate or over the pod's own socket, and are known without a server.
    return "".join(f'"{name}" ""\n' for name in (hba.POOLER_ROLE, hba.OPERATOR_ROLE, hba.ADMINISTRATOR_ROLE))
