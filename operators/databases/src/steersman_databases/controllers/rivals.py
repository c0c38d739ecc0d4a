"""What an object may declare beside the others of its server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steersman.cache import CachedClient
from steersman_databases.api import Database, DatabaseUser, MySQLCluster, PostgreSQLCluster
from steersman_databases.clusters import claims, tenancy
from steersman_databases.clusters.desires import claim_of
from steersman_databases.controllers.marks import ClusterMark
from steersman_databases.controllers.servers import Located, NotLocated, Servers
from steersman_databases.controllers.surveys import Surveys
from steersman_databases.engines.survey import Scope

CLAIMS = "claims"
"""The index of all kinds by what they claim."""
_SOMEBODYS = "a Database of another namespace"


@dataclass(frozen=True, slots=True)
class Rivals:
    """Who has a name on a server that several objects claim."""

    client: CachedClient
    servers: Servers
    surveys: Surveys
    mark: ClusterMark

    async def require_first(self, of: claims.Claimant, located: Located) -> None:
        """Refuses an object that claims what is an older one's whose namespace is let in to the server.

        Age decides only who may make a thing. Who has made it, by its mark on the server, keeps it: an older object
        may come to be let in at any time. From who claims that, too, it keeps its other things with it: the owner is
        made before its database, and each of two could have one of them. Against others it vouches for nothing else,
        since what an object claims can change. The message names the older one only if it is of the same namespace.

        Between namespaces that name a host, the mark on the server alone decides: nobody lets in there, and an object
        with any Secret at all could keep a name from everybody.

        Raises:
            NotLocated: it is an older one's.
            ServerBusy: others go first to look at the marks.
            EngineError: the marks cannot be looked at.
        """
        made: frozenset[str] | None = None
        for key in claims.keys(of):
            older = await self._older(of, key)
            if older and made is None:
                made = await self._made(of, located)
            older = [rival for rival in older if made is None or made.isdisjoint(claims.things(rival))]
            if not older:
                continue
            thing = key.partition(" on ")[0]
            first, name = claims.winner(older), "an object of another namespace"
            if first.metadata.namespace == of.metadata.namespace:
                name = f"{type(first).api_resource.kind} {first.metadata.name}"
            raise NotLocated("Claimed", f"{thing} on this server is claimed by {name}, which is older")

    async def _older(self, of: claims.Claimant, key: str) -> Sequence[claims.Claimant]:
        rivals: list[claims.Claimant] = [
            *(await self.client.list(Database, index=(CLAIMS, key))),
            *(await self.client.list(DatabaseUser, index=(CLAIMS, key))),
            *(await self.client.list(PostgreSQLCluster, index=(CLAIMS, key))),
            *(await self.client.list(MySQLCluster, index=(CLAIMS, key))),
        ]
        older = [rival for rival in rivals if claims.winner([of, rival]).metadata.uid != of.metadata.uid]
        return [rival for rival in older if await _counts(self.servers, of, rival)]

    async def _made(self, of: claims.Claimant, located: Located) -> frozenset[str]:
        """Which of the things that the object claims bear its mark on the server."""
        things = [thing.partition(" ") for thing in claims.things(of)]
        users = frozenset(name for what, _, name in things if what == "user")
        databases = frozenset(name for what, _, name in things if what == "database")
        scope = Scope(unfollowed=users, databases=databases)
        survey = await self.surveys.look(located, type(of).api_resource.kind, of.key, scope)
        found = {f"user {name}": survey.users.get(name) for name in users}
        found |= {f"database {name}": survey.databases.get(name) for name in databases}
        mark = claim_of(of, await self.mark.read()).text
        return frozenset(thing for thing, state in found.items() if state is not None and state.mark == mark)


async def named_owner(client: CachedClient, of: Database | DatabaseUser, username: str, home: str | None) -> str:
    """Who names a user of this object's as the owner of another database; empty if nobody does who is heard.

    The server may know nothing of it: what is declared may not be made yet. Without the user, whoever got its
    name next would get the database, too.
    """
    ours, there = of.metadata.namespace, set(claims.places(of))
    for other in await client.list(Database):
        if other.spec.owner != username or other.metadata.deletion_timestamp is not None:
            continue
        if other.metadata.namespace in (ours, home) and not there.isdisjoint(claims.places(other)):
            named = f"Database {other.metadata.name}" if other.metadata.namespace == ours else _SOMEBODYS
            return f"{named} names it as its owner"
    return ""


def require_tenant(of: Database | DatabaseUser, home: str | None) -> None:
    """Raises NotLocated where an object from another namespace than ``home``, the server's, declares too much."""
    if tenancy.is_guest(of, home) and (why := tenancy.overreach(of)):
        raise NotLocated("NotPermitted", why)


async def _counts(servers: Servers, of: claims.Claimant, rival: claims.Claimant) -> bool:
    if rival.metadata.namespace == of.metadata.namespace or not isinstance(rival, Database | DatabaseUser):
        return True
    reference = rival.spec.server_ref
    return (reference is None or reference.host is None) and await servers.lets_in(rival)
