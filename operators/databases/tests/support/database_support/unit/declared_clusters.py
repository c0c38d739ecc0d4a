"""A cluster's view for tests, as small as it can be."""

from __future__ import annotations

from typing import Any

from steersman.meta import ObjectMeta
from steersman_databases.api import PostgreSQLCluster
from steersman_databases.api.postgresql_cluster import PostgreSQLClusterSpec
from steersman_databases.cluster.declared import declare
from steersman_databases.engines.cluster_engine import DeclaredCluster


def cluster(name: str = "orders", namespace: str = "shop", **spec: Any) -> PostgreSQLCluster:
    """A PostgreSQLCluster as it is declared."""
    metadata = ObjectMeta(name=name, namespace=namespace, uid="3b9d2c4e-8a41-4f0a-9d57-1a2b3c4d5e6f")
    return PostgreSQLCluster(metadata=metadata, spec=PostgreSQLClusterSpec(**spec))


def declared_cluster(name: str = "orders", namespace: str = "shop", **spec: Any) -> DeclaredCluster:
    """The same as engines and controllers see it."""
    return declare(cluster(name, namespace, **spec), "steersman.dev/postgresql:17")
