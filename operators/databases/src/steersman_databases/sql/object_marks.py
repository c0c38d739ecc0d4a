"""Identifier of this Kubernetes cluster on servers that several clusters share."""

from __future__ import annotations

from steersman.api.core_v1 import Namespace
from steersman.cache import CachedClient
from steersman.meta import ObjectKey


class KubernetesClusterId:
    """First characters of the UID of namespace `kube-system`. Read once."""

    def __init__(self, client: CachedClient) -> None:
        self._client = client
        self._value = ""

    async def read(self) -> str:
        """Read the identifier. Raises the error of the API server."""
        if not self._value:
            space = await self._client.live.get(Namespace, ObjectKey("", "kube-system"))
            self._value = space.metadata.uid.partition("-")[0]
        return self._value
