"""What tells this Kubernetes cluster from others that share a server with it."""

from __future__ import annotations

from steersman.api.core_v1 import Namespace
from steersman.cache import CachedClient
from steersman.meta import ObjectKey


class ClusterMark:
    """The start of the UID of the namespace ``kube-system``, which no two clusters share. Read once."""

    def __init__(self, client: CachedClient) -> None:
        self._client = client
        self._read = ""

    async def read(self) -> str:
        """The mark. Raises what the API server answers."""
        if not self._read:
            space = await self._client.live.get(Namespace, ObjectKey("", "kube-system"))
            self._read = space.metadata.uid.partition("-")[0]
        return self._read
