"""Media types of request bodies, from the header ``Content-Type``."""

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
    """Return the media type of the body without parameters.

    Empty without a content type.
    """
    return request.content_type.partition(";")[0].strip()
