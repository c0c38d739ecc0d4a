"""An annotation of this pod, for reports to the operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from steersman_pod.api_client import ApiClient, ApiRequest, ApiUnavailable


@dataclass(slots=True)
class PodAnnotation:
    """The annotation of this pod with this name. A later pod of the same name is left alone."""

    name: str
    environment: Mapping[str, str]
    _api: ApiClient = field(default_factory=lambda: ApiClient("steersman-agent"))

    def write(self, value: str) -> None:
        """Write the annotation. Raises ApiUnavailable."""
        path = f"/api/v1/namespaces/{self.environment['POD_NAMESPACE']}/pods/{self.environment['POD_NAME']}"
        metadata = {"uid": self.environment["POD_UID"], "annotations": {self.name: value}}
        response = self._api.send(ApiRequest(path, {"metadata": metadata}))
        if response.status >= 300:
            raise ApiUnavailable(f"{path}: {response.error_message}")
