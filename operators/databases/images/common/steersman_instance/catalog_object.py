"""ConfigMap ``<cluster>-backup-catalog``, in which the primary reports its archive to the operator."""

from __future__ import annotations

import os
from collections.abc import Mapping

from steersman_pod.api_client import ApiClient, ApiRequest, ApiUnavailable

CATALOG_KEY = "catalog.json"


def catalog_path(environment: Mapping[str, str]) -> str:
    """Return the ConfigMap's path in the API. A pod is named after its instance: ``<cluster>-<ordinal>-0``."""
    cluster = environment["POD_NAME"].rsplit("-", 2)[0]
    return f"/api/v1/namespaces/{environment['POD_NAMESPACE']}/configmaps/{cluster}-backup-catalog"


class CatalogObject:
    """The ConfigMap of this pod's cluster."""

    def __init__(self) -> None:
        self._api, self._path = ApiClient("steersman-agent"), catalog_path(os.environ)

    def write(self, content: str) -> None:
        """Replace the catalog.

        Args:
            content: JSON document.

        Raises:
            ApiUnavailable: the API server rejected the request or did not respond.
        """
        response = self._api.send(ApiRequest(self._path, {"data": {CATALOG_KEY: content}}))
        if response.status >= 300:
            raise ApiUnavailable(f"{self._path}: {response.error_message}")
