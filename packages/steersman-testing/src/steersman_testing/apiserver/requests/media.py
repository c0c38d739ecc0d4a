"""Media types of bodies."""

from __future__ import annotations

from steersman.client.transport import HttpRequest

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


def media_type(request: HttpRequest) -> str:
    """What the body of ``request`` is said to be, without parameters; empty where nothing is said."""
    return request.content_type.partition(";")[0].strip()
