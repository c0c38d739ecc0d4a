"""Decide which of several objects may use a name on a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steersman.cache import CachedClient
from steersman_databases.api import Database, DatabaseUser, MySQLCluster, PostgreSQLCluster
from steersman_databases.engines.sql.inspection import InspectionScope
from steersman_databases.engines.sql.ownership_marks import has_mark
from steersman_databases.sql import name_conflicts, tenancy
from steersman_databases.sql.inspector.server_inspector import ServerInspector
from steersman_databases.sql.object_marks import ObjectMarks
from steersman_databases.sql.server_resolver import ResolvedServer, ServerNotResolved, ServerResolver

NAME_INDEX = "claims"
"""Index of all kinds by declared name and server."""
_FOREIGN_DATABASE = "a Database of another namespace"


@dataclass(frozen=True, slots=True)
class NameOwnership:
    """Decides which of several objects has a name on a server."""

    client: CachedClient
    resolver: ServerResolver
    inspector: ServerInspector
    marks: ObjectMarks

    async def require_oldest(self, obj: name_conflicts.Claimant, resolved: ResolvedServer) -> None:
        """Reject an object whose name an older permitted object declares.

        Age decides only which object may create it on the server. The creator, found by the mark on the server, keeps
        it, since an older object may be permitted at any time. It also keeps its other names against an object that
        declares the same ones: the owner is created before its database, and each of two objects could hold one of
        them. The message names the older object only within the same namespace.

        Between namespaces that refer to a server by host, only the mark on the server decides. There is no list of
        permitted namespaces, and an object with an arbitrary Secret could block a name.

        Raises:
            ServerNotResolved: the name belongs to an older object.
            ServerBusy: other objects read the marks first.
            EngineError: the marks cannot be read.
        """
        marked: frozenset[str] | None = None
        for key in name_conflicts.index_keys(obj):
            older = await self._older_competitors(obj, key)
            if older and marked is None:
                marked = await self._marked_as_ours(obj, resolved)
            older = [
                competitor
                for competitor in older
                if marked is None or marked.isdisjoint(name_conflicts.claimed_names(competitor))
            ]
            if not older:
                continue
            claimed_name = key.partition(" on ")[0]
            first, name = name_conflicts.oldest(older), "an object of another namespace"
            if first.metadata.namespace == obj.metadata.namespace:
                name = f"{type(first).api_resource.kind} {first.metadata.name}"
            raise ServerNotResolved(
                "OwnedByAnother", f"the older {name} already declares {claimed_name} on this server"
            )

    async def _older_competitors(self, obj: name_conflicts.Claimant, key: str) -> Sequence[name_conflicts.Claimant]:
        competitors: list[name_conflicts.Claimant] = [
            *(await self.client.list(Database, index=(NAME_INDEX, key))),
            *(await self.client.list(DatabaseUser, index=(NAME_INDEX, key))),
            *(await self.client.list(PostgreSQLCluster, index=(NAME_INDEX, key))),
            *(await self.client.list(MySQLCluster, index=(NAME_INDEX, key))),
        ]
        older = [
            competitor
            for competitor in competitors
            if name_conflicts.oldest([obj, competitor]).metadata.uid != obj.metadata.uid
        ]
        return [rival for rival in older if await _is_admitted(self.resolver, obj, rival)]

    async def _marked_as_ours(self, obj: name_conflicts.Claimant, resolved: ResolvedServer) -> frozenset[str]:
        """Declared names that bear the object's mark on the server."""
        claimed_names = [thing.partition(" ") for thing in name_conflicts.claimed_names(obj)]
        users = frozenset(name for kind_name, _, name in claimed_names if kind_name == "user")
        databases = frozenset(name for what, _, name in claimed_names if what == "database")
        scope = InspectionScope(without_contents=users, databases=databases)
        inspection = await self.inspector.inspect(resolved, type(obj).api_resource.kind, obj.key, scope)
        found = {f"user {name}": inspection.users.get(name) for name in users}
        found |= {f"database {name}": inspection.databases.get(name) for name in databases}
        mark = await self.marks.mark_of(obj)
        return frozenset(thing for thing, state in found.items() if state is not None and has_mark(state.mark, mark))


async def database_naming_owner(
    client: CachedClient, obj: Database | DatabaseUser, username: str, server_namespace: str | None
) -> str:
    """Object that declares this user as owner elsewhere, or "".

    The server may not show it yet, since the database may not exist. Without the user, the next user of that name
    would receive the database.
    """
    own_server, servers = obj.metadata.namespace, set(name_conflicts.server_keys(obj))
    for other in await client.list(Database):
        if other.spec.owner != username or other.metadata.deletion_timestamp is not None:
            continue
        if other.metadata.namespace in (own_server, server_namespace) and not servers.isdisjoint(
            name_conflicts.server_keys(other)
        ):
            named = f"Database {other.metadata.name}" if other.metadata.namespace == own_server else _FOREIGN_DATABASE
            return f"{named} declares it as its owner"
    return ""


def require_namespace_rights(obj: Database | DatabaseUser, server_namespace: str | None) -> None:
    """Raise `ServerNotResolved` for forbidden fields of another namespace's object."""
    if tenancy.is_cross_namespace(obj, server_namespace) and (why := tenancy.forbidden_field(obj)):
        raise ServerNotResolved("NotPermitted", why)


async def _is_admitted(
    resolver: ServerResolver, obj: name_conflicts.Claimant, competitor: name_conflicts.Claimant
) -> bool:
    if competitor.metadata.namespace == obj.metadata.namespace or not isinstance(competitor, Database | DatabaseUser):
        return True
    reference = competitor.spec.server_ref
    return (reference is None or reference.host is None) and await resolver.is_permitted(competitor)
