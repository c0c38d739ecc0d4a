"""Two objects that name one thing on one server: who keeps it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TypeVar

from steersman.meta import Object
from steersman_databases.api import Cluster, Database, DatabaseUser, MySQLCluster, PostgreSQLCluster
from steersman_databases.api.group import TARGET_LABEL
from steersman_databases.api.references import ServerReference
from steersman_databases.engines import ENGINES

from .view import declared_database, kind_of

Claimant = Database | DatabaseUser | Cluster

T = TypeVar("T", bound=Object)

_FIRST = datetime.min.replace(tzinfo=UTC)


def places(claimant: Claimant) -> tuple[str, ...]:
    """The server that an object is for, as its spec names it: the same text for the same server.

    One server under two names is found by the mark on the server itself. The label names a cluster of either kind,
    and of two of one name only one is run, unless the object says of which engine it is.
    """
    if isinstance(claimant, DatabaseUser) and claimant.spec.cluster_ref is None and claimant.spec.server_ref is None:
        cluster = f"{claimant.metadata.namespace}/{claimant.metadata.labels.get(TARGET_LABEL, '')}"
        named = {"postgresql": f"PostgreSQLCluster {cluster}", "mysql": f"MySQLCluster {cluster}"}
        return tuple(place for engine, place in named.items() if claimant.spec.engine in (None, engine))
    return (_place(claimant),)


def _place(claimant: Claimant) -> str:
    namespace = claimant.metadata.namespace
    if isinstance(claimant, PostgreSQLCluster | MySQLCluster):
        return f"{type(claimant).api_resource.kind} {namespace}/{claimant.metadata.name}"
    spec = claimant.spec
    if (cluster := spec.cluster_ref) is not None:
        return f"{cluster.kind} {cluster.namespace or namespace}/{cluster.name}"
    if spec.server_ref is not None:
        return _address(spec.server_ref, claimant.engine, namespace)
    return f"{kind_of(claimant.engine).api_resource.kind} {claimant.key}"


def _address(reference: ServerReference, engine: str, namespace: str) -> str:
    port = reference.port or ENGINES[engine].port
    if (service := reference.service) is not None:
        return f"{engine} service {service.namespace or namespace}/{service.name}:{port}"
    return f"{engine} host {(reference.host or '').lower()}:{port}"


def things(claimant: Claimant) -> tuple[str, ...]:
    """What an object claims on its server: ``user clerk``, ``database orders``."""
    if isinstance(claimant, DatabaseUser):
        return (f"user {claimant.spec.user}",)
    if isinstance(claimant, PostgreSQLCluster | MySQLCluster):
        initial = declared_database(claimant)
        return () if initial is None else (f"database {initial.database}", f"user {initial.owner}")
    owner = () if claimant.spec.owner else (f"user {claimant.username}",)
    return (f"database {claimant.database_name}", *owner)


def keys(claimant: Claimant) -> tuple[str, ...]:
    """What an index finds rivals by: thing and server."""
    return tuple(f"{thing} on {place}" for thing in things(claimant) for place in places(claimant))


def winner(claimants: Iterable[T]) -> T:
    """The oldest; of two from the same second, the one with the smaller UID."""
    return min(claimants, key=lambda c: (c.metadata.creation_timestamp or _FIRST, c.metadata.uid))
