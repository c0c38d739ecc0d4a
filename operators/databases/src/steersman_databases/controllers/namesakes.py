"""Clusters of several engines under one name: their objects are called the same, so one of them has to wait."""

from __future__ import annotations

from steersman.cache import CachedClient
from steersman_databases.api import CLUSTERS, Cluster
from steersman_databases.clusters.claims import winner


async def older_namesake(client: CachedClient, cluster: Cluster) -> Cluster | None:
    """A cluster of another kind in this namespace that has the name, and had it first."""
    others: list[Cluster | None] = [
        await client.get_or_none(kind, cluster.key) for kind in CLUSTERS if kind is not type(cluster)
    ]
    first = winner([cluster, *(other for other in others if other is not None)])
    return None if first.metadata.uid == cluster.metadata.uid else first
