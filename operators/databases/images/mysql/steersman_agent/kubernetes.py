"""Requests of the agent to the API server with its pod's ServiceAccount.

Each request has a deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from steersman_pod import api_client
from steersman_pod.api_client import ApiRequest, ApiResponse, ApiUnavailable


class PatchConflict(Exception):
    """Another client has changed the object since it was read."""


class KubernetesApi:
    """The API server of this pod's cluster. Not thread-safe."""

    def __init__(self) -> None:
        self._server = api_client.ApiClient("steersman-agent")

    def get(self, path: str) -> Mapping[str, Any] | None:
        """Return the object, or None if it does not exist. Raises ApiUnavailable."""
        answer = self.send(ApiRequest(path))
        return None if answer.status == 404 else answer.body

    def patch(self, path: str, change: Mapping[str, Any]) -> Mapping[str, Any]:
        """Apply a merge patch and return the object. Raises PatchConflict, ApiUnavailable."""
        answer = self.send(ApiRequest(path, change))
        if answer.status == 409:
            raise PatchConflict(str(answer.body.get("message", "")))
        if answer.status == 404:
            raise ApiUnavailable(f"{path}: {answer.error_message}")
        return answer.body

    def send(self, request: ApiRequest) -> ApiResponse:
        """Return a response with status 200, 404 or 409. Raises ApiUnavailable."""
        answer = self._server.send(request)
        if answer.status not in (200, 404, 409):
            raise ApiUnavailable(f"{request.path}: {answer.error_message}")
        return answer


def object_path(kind: str, namespace: str, name: str, group: str = "api/v1") -> str:
    """Return the path of one object."""
    return f"/{group}/namespaces/{namespace}/{kind}/{name}"


def list_path(kind: str, namespace: str, selector: str) -> str:
    """Return the path of a consistent list.

    etcd provides all its objects of one moment.
    """
    return f"/api/v1/namespaces/{namespace}/{kind}?labelSelector={quote(selector)}"
