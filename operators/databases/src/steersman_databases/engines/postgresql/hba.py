"""Who may log in to a cluster's servers: the lines of pg_hba.conf and pg_ident.conf. The first match decides."""

from __future__ import annotations

from collections.abc import Sequence

REPLICATION = "steersman_replication"
REWIND = "steersman_rewind"
OPERATOR = "steersman_operator"
SUPERUSER = "steersman_superuser"
POOLER = "steersman_pooler"
ADMINISTRATOR = "postgres"
BY_CERTIFICATE = (REWIND, OPERATOR, SUPERUSER, POOLER)
"""The roles that come in by a certificate of the cluster's client authority and by nothing else, ever."""

_ACCOUNT = "postgres"  # the operating system's, in the image
_MAP = "steersman"


def access_rules(declared: Sequence[str], *, tls_required: bool) -> tuple[str, ...]:
    """The lines of pg_hba.conf.

    Args:
        declared: the user's lines, as they stand. They come after ours, so they cannot let anybody in as one of our
            accounts, nor lock these out.
        tls_required: whether passwords are taken over encrypted connections only.
    """
    ours = (*BY_CERTIFICATE, REPLICATION)
    return (
        # The pod's own account, for Patroni and for who may exec into the pod.
        f"local all {ADMINISTRATOR} peer",
        f"local replication {REPLICATION} peer map={_MAP}",
        f"hostssl replication {REPLICATION} all cert",
        *(f"hostssl all {role} all cert map={_MAP}" for role in BY_CERTIFICATE),
        f"hostssl all {ADMINISTRATOR} all scram-sha-256",
        *(f"host {what} {role} all reject" for role in (*ours, ADMINISTRATOR) for what in ("all", "replication")),
        *declared,
        "hostssl all all all scram-sha-256",
        *(() if tls_required else ("host all all all scram-sha-256",)),
    )


def account_map() -> tuple[str, ...]:
    """The lines of pg_ident.conf: which account may be which role.

    The members have one certificate, for streaming and for pg_rewind.
    """
    return (
        f"{_MAP} {_ACCOUNT} {REPLICATION}",
        f"{_MAP} {REPLICATION} {REWIND}",
        *(f"{_MAP} {role} {role}" for role in BY_CERTIFICATE),
    )
