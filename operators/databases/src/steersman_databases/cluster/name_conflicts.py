"""Name conflicts of clusters of different kinds.

Their objects would have equal names, so one cluster waits.
"""

from __future__ import annotations

from steersman.cache import CachedClient
from steersman_databases.api import CLUSTER_KINDS, Cluster
from steersman_databases.sql.name_conflicts import oldest


async def older_cluster_of_same_name(client: CachedClient, cluster: Cluster) -> Cluster | None:
    """Older cluster of another kind with this name in the namespace."""
    others: list[Cluster | None] = [
        await client.get_or_none(kind, cluster.key) for kind in CLUSTER_KINDS if kind is not type(cluster)
    ]
    created = oldest([cluster, *(other for other in others if other is not None)])
    return None if created.metadata.uid == cluster.metadata.uid else created
