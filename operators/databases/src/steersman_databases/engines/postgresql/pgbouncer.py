"""PgBouncer: what it reads, and what its administrator's console is asked for.

Source: PgBouncer 1.24's documentation, "config" and "usage"; each setting was tried with 1.24.1 on PostgreSQL 17.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from . import hba

PORT = 5432
PROGRAM = "/usr/sbin/pgbouncer"
CONFIGURATION = "/etc/steersman/pgbouncer"
TLS = "/etc/steersman/tls"
LOGIN = "/etc/steersman/pooler"
RUN = "/run/steersman"
CONSOLE = "pgbouncer"
"""The database that is none: commands to PgBouncer itself."""
WAIT_SECONDS = 120
"""How long clients wait for a server, where the user says nothing of ``query_wait_timeout``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooling:
    """How a pooler is declared.

    Attributes:
        host: of the servers, as their certificate has it.
        mode: ``transaction`` or ``session``.
        parameters: of PgBouncer, the user's.
        tls_required: whether logins in clear text are refused.
    """

    host: str
    mode: str
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    tls_required: bool = True


def files(pooling: Pooling) -> dict[str, str]:
    """What PgBouncer reads, by name; no secret among it."""
    return {"pgbouncer.ini": _settings(pooling), "hba.conf": _rules(pooling), "users.txt": _users()}


# For a primary that fails over, and for a node that goes without a word. What is left as PgBouncer has it:
# `server_check_query`, asked of connections that were idle for 30 s, and `server_fast_close`, off: each
# `RECONNECT` would end the sessions of mode session, whose servers are mostly the right ones.
_FAILOVER = {
    # One refusal otherwise keeps all clients of a pool out for 15 s, a name that was not found all of them. A node
    # may still lead to the former primary when another serves: a second would double what a switchover takes.
    "server_login_retry": "0.2",
    "dns_nxdomain_ttl": "1",
    # One connection is made at a time: one to an address where nobody is holds up the pool. A busy server logs
    # somebody in within this.
    "server_connect_timeout": "5",
    # A connection of which nothing is heard for half a minute is given up: Patroni has another primary by then, and
    # kernels would wait for a quarter of an hour (of idle ones for two hours). Not less, since this also ends
    # connections to a client, or a server, that is there and takes nothing that long.
    "tcp_keepidle": "10",
    "tcp_keepintvl": "10",
    "tcp_keepcnt": "2",
}


def _settings(pooling: Pooling) -> str:
    settings = {
        # A JDBC driver cannot do without.
        "ignore_startup_parameters": "extra_float_digits",
        "max_prepared_statements": "200",
        "max_client_conn": "1000",
        "query_wait_timeout": str(WAIT_SECONDS),
        "tcp_user_timeout": "30000",
        **pooling.parameters,
        **_FAILOVER,
        # Those who log in while nobody serves wait as long as the others.
        "client_login_timeout": str(WAIT_SECONDS),
        "listen_addr": "*",
        "listen_port": str(PORT),
        "unix_socket_dir": RUN,
        "pool_mode": pooling.mode,
        "auth_type": "hba",
        "auth_hba_file": f"{CONFIGURATION}/hba.conf",
        "auth_file": f"{CONFIGURATION}/users.txt",
        "auth_user": hba.POOLER,
        "auth_dbname": "postgres",
        "auth_query": "SELECT username, verifier FROM steersman.pooled($1)",
        "admin_users": f"{hba.OPERATOR},{hba.ADMINISTRATOR}",
        "client_tls_sslmode": "require" if pooling.tls_required else "allow",
        "client_tls_cert_file": f"{TLS}/tls.crt",
        "client_tls_key_file": f"{TLS}/tls.key",
        "client_tls_ca_file": f"{LOGIN}/clients.crt",
        "server_tls_sslmode": "verify-full",
        "server_tls_ca_file": f"{LOGIN}/ca.crt",
        "server_tls_cert_file": f"{LOGIN}/tls.crt",
        "server_tls_key_file": f"{LOGIN}/tls.key",
    }
    lines = [f"{name} = {value}" for name, value in settings.items()]
    return "\n".join(("[databases]", f"* = host={pooling.host} port={PORT}", "[pgbouncer]", *lines, ""))


def _rules(pooling: Pooling) -> str:
    ours = (*hba.BY_CERTIFICATE, hba.REPLICATION, hba.ADMINISTRATOR)
    lines = (
        f"local {CONSOLE} {hba.ADMINISTRATOR} peer",
        f"hostssl {CONSOLE} {hba.OPERATOR} all cert",
        f"host {CONSOLE} all all reject",
        *(f"host all {role} all reject" for role in ours),
        f"{'hostssl' if pooling.tls_required else 'host'} all all all scram-sha-256",
        "",
    )
    return "\n".join(lines)


def _users() -> str:
    # Without a password: they come by certificate, or over the pod's own socket, and are known while no server is.
    return "".join(f'"{name}" ""\n' for name in (hba.POOLER, hba.OPERATOR, hba.ADMINISTRATOR))
