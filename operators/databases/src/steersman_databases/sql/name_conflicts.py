"""Conflicts between objects that declare the same name on one server."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TypeVar

from steersman.meta import Object
from steersman_databases.api import Cluster, Database, DatabaseUser, MySQLCluster, PostgreSQLCluster
from steersman_databases.api.group import TARGET_LABEL
from steersman_databases.api.references import ServerReference
from steersman_databases.engines.registry import SQL_ENGINES

from ..cluster.declared import bootstrap_database_of, kind_of

Claimant = Database | DatabaseUser | Cluster

T = TypeVar("T", bound=Object)

_EARLIEST = datetime.min.replace(tzinfo=UTC)


def server_keys(claimant: Claimant) -> tuple[str, ...]:
    """Keys of the server of an object, equal for equal references.

    A server with two addresses is found by the mark on the server itself. A label names a cluster of either kind.
    Of two clusters with one name only one runs, unless the object names the engine.
    """
    if isinstance(claimant, DatabaseUser) and claimant.spec.cluster_ref is None and claimant.spec.server_ref is None:
        cluster = f"{claimant.metadata.namespace}/{claimant.metadata.labels.get(TARGET_LABEL, '')}"
        named = {"postgresql": f"PostgreSQLCluster {cluster}", "mysql": f"MySQLCluster {cluster}"}
        return tuple(server_key for engine, server_key in named.items() if claimant.spec.engine in (None, engine))
    return (_server_key(claimant),)


def _server_key(claimant: Claimant) -> str:
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
    port = reference.port or SQL_ENGINES[engine].port
    if (service := reference.service) is not None:
        return f"{engine} service {service.namespace or namespace}/{service.name}:{port}"
    return f"{engine} host {(reference.host or '').lower()}:{port}"


def claimed_names(claimant: Claimant) -> tuple[str, ...]:
    """Names that an object declares on its server: `user clerk`, `database orders`."""
    if isinstance(claimant, DatabaseUser):
        return (f"user {claimant.spec.user}",)
    if isinstance(claimant, PostgreSQLCluster | MySQLCluster):
        initial = bootstrap_database_of(claimant)
        return () if initial is None else (f"database {initial.database}", f"user {initial.owner}")
    owner = () if claimant.spec.owner else (f"user {claimant.username}",)
    return (f"database {claimant.database_name}", *owner)


def index_keys(claimant: Claimant) -> tuple[str, ...]:
    """Index keys of an object: name and server."""
    return tuple(
        f"{name} on {server_key}" for name in claimed_names(claimant) for server_key in server_keys(claimant)
    )


def oldest(claimants: Iterable[T]) -> T:
    """Oldest object. Of two created in the same second, the one with the smaller UID."""
    return min(claimants, key=lambda c: (c.metadata.creation_timestamp or _EARLIEST, c.metadata.uid))
