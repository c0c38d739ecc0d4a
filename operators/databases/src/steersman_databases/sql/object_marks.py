"""Ownership marks of Kubernetes objects."""

from __future__ import annotations

from steersman.api.core_v1 import Namespace
from steersman.cache import CachedClient
from steersman.meta import ObjectKey
from steersman_databases.api import Cluster, Database, DatabaseUser
from steersman_databases.core.cached_reads import get_live
from steersman_databases.engines.sql.desired import OwnershipMark
from steersman_databases.sql.desired import mark_of

_MAX_KNOWN_OBJECTS = 50_000


class ObjectMarks:
    """Creates the ownership marks of objects.

    Its memory saves requests only. The UID of a namespace is known by the UID of an object in it, because another
    object may be in a later namespace of the same name.
    """

    def __init__(self, client: CachedClient) -> None:
        self._client = client
        self._cluster_id = ""
        self._namespace_uids: dict[str, str] = {}

    async def cluster_id(self) -> str:
        """Return the first characters of the UID of namespace `kube-system`. Raises the error of the API server."""
        if not self._cluster_id:
            namespace = await self._client.live.get(Namespace, ObjectKey("", "kube-system"))
            self._cluster_id = namespace.metadata.uid.partition("-")[0]
        return self._cluster_id

    async def mark_of(self, obj: Database | DatabaseUser | Cluster) -> OwnershipMark:
        """Return the mark of the objects that `obj` creates. Raises the error of the API server."""
        uid = self._namespace_uids.get(obj.metadata.uid)
        if uid is None:
            namespace = await get_live(self._client, Namespace, ObjectKey("", obj.metadata.namespace))
            if namespace is None:
                return mark_of(obj, await self.cluster_id())
            if len(self._namespace_uids) >= _MAX_KNOWN_OBJECTS:
                self._namespace_uids.clear()
            uid = self._namespace_uids[obj.metadata.uid] = namespace.metadata.uid
        return mark_of(obj, await self.cluster_id(), uid)
