"""The cluster of a name, whichever engine's it is: two kinds of one name in a namespace never both serve."""

from __future__ import annotations

from steersman.client import Client
from steersman.errors import NotFound
from steersman.meta import ObjectKey
from steersman_databases.api import Cluster, MySQLCluster, PostgreSQLCluster


async def find_cluster(client: Client, key: ObjectKey) -> Cluster:
    """The cluster; the one that serves where there are two. Raises NotFound."""
    found: list[Cluster] = []
    try:
        found.append(await client.get(MySQLCluster, key))
    except NotFound:
        return await client.get(PostgreSQLCluster, key)
    try:
        found.append(await client.get(PostgreSQLCluster, key))
    except NotFound:
        return found[0]
    return min(found, key=lambda each: each.status is None or not each.status.primary)


async def all_clusters(client: Client, namespace: str) -> list[Cluster]:
    """Those of a namespace, or, where it is empty, of all."""
    ours: list[Cluster] = []
    ours += (await client.list(PostgreSQLCluster, namespace=namespace)).items
    ours += (await client.list(MySQLCluster, namespace=namespace)).items
    return sorted(ours, key=lambda each: each.key)
