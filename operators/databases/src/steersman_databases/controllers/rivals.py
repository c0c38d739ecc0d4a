"""What an object may declare beside the others of its server."""

from __future__ import annotations

from steersman.controller import CachedClient
from steersman_databases.api import Database, DatabaseUser, MySQLCluster, PostgreSQLCluster
from steersman_databases.clusters import claims, tenancy
from steersman_databases.controllers.servers import NotLocated, Servers

CLAIMS = "claims"
"""The index of all kinds by what they claim."""


async def require_first(client: CachedClient, servers: Servers, of: claims.Claimant) -> None:
    """Raises NotLocated where an older object claims the same, and its namespace is let in to the server.

    The message names it only if it is of the same namespace. Between namespaces that name a host, the mark on the
    server decides: nobody lets in there, and an object with any Secret at all could keep a name from everybody.
    """
    for key in claims.keys(of):
        rivals: list[claims.Claimant] = [
            *(await client.list(Database, index=(CLAIMS, key))),
            *(await client.list(DatabaseUser, index=(CLAIMS, key))),
            *(await client.list(PostgreSQLCluster, index=(CLAIMS, key))),
            *(await client.list(MySQLCluster, index=(CLAIMS, key))),
        ]
        older = [rival for rival in rivals if claims.winner([of, rival]).metadata.uid != of.metadata.uid]
        counted = [rival for rival in older if await _counts(servers, of, rival)]
        if not counted:
            continue
        first = claims.winner(counted)
        known = first.metadata.namespace == of.metadata.namespace
        name = f"{type(first).api_resource.kind} {first.metadata.name}" if known else "an object of another namespace"
        raise NotLocated("Claimed", f"{key.partition(' on ')[0]} on this server is claimed by {name}, which is older")


def require_tenant(of: Database | DatabaseUser, home: str | None) -> None:
    """Raises NotLocated where an object from another namespace than ``home``, the server's, declares too much."""
    if tenancy.is_guest(of, home) and (why := tenancy.overreach(of)):
        raise NotLocated("NotPermitted", why)


async def _counts(servers: Servers, of: claims.Claimant, rival: claims.Claimant) -> bool:
    if rival.metadata.namespace == of.metadata.namespace or not isinstance(rival, Database | DatabaseUser):
        return True
    reference = rival.spec.server_ref
    return (reference is None or reference.host is None) and await servers.lets_in(rival)
