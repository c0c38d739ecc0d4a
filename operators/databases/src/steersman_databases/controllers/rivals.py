"""What an object may declare beside the others of its server."""

from __future__ import annotations

from steersman.controller import CachedClient
from steersman_databases.api import Database, DatabaseUser, MySQLCluster, PostgreSQLCluster
from steersman_databases.clusters import claims, tenancy
from steersman_databases.controllers.servers import NotLocated

CLAIMS = "claims"
"""The index of all kinds by what they claim."""


async def require_first(client: CachedClient, of: claims.Claimant) -> None:
    """Raises NotLocated where an older object claims the same.

    The message names it only if it is of the same namespace.
    """
    for key in claims.keys(of):
        rivals: list[claims.Claimant] = [
            *(await client.list(Database, index=(CLAIMS, key))),
            *(await client.list(DatabaseUser, index=(CLAIMS, key))),
            *(await client.list(PostgreSQLCluster, index=(CLAIMS, key))),
            *(await client.list(MySQLCluster, index=(CLAIMS, key))),
        ]
        first = claims.winner([of, *(rival for rival in rivals if rival.metadata.uid != of.metadata.uid)])
        if first.metadata.uid == of.metadata.uid:
            continue
        known = first.metadata.namespace == of.metadata.namespace
        name = f"{type(first).api_resource.kind} {first.metadata.name}" if known else "an object of another namespace"
        raise NotLocated("Claimed", f"{key.partition(' on ')[0]} on this server is claimed by {name}, which is older")


def require_tenant(of: Database | DatabaseUser, home: str | None) -> None:
    """Raises NotLocated where an object from another namespace than ``home``, the server's, declares too much."""
    if tenancy.is_guest(of, home) and (why := tenancy.overreach(of)):
        raise NotLocated("NotPermitted", why)
