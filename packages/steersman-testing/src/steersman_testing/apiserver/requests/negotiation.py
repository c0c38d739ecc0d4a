"""Content negotiation: object, PartialObjectMetadata or Table.

Source: "Kubernetes API Concepts", "Alternate representations of resources"; KEP-2334.
"""

from __future__ import annotations

from typing import Literal

from steersman.client.transport import HttpRequest
from steersman_testing.apiserver import failures

PARTIAL_OBJECT_METADATA = "PartialObjectMetadata"
TABLE = "Table"

Representation = Literal["object", "metadata", "table"]

_JSON_MEDIA_TYPES = ("application/json", "application/*", "*/*")
_META_V1 = {"g": "meta.k8s.io", "v": "v1"}


def negotiate(request: HttpRequest, *, is_list: bool = False) -> Representation:
    """Return the first accepted representation.

    Raises:
        ApiError: 406, no representation is acceptable.
    """
    accept = request.accept
    if accept == "application/json":
        return "object"
    for clause in accept.split(","):
        media_type, *options = (part.strip() for part in clause.split(";"))
        if media_type not in _JSON_MEDIA_TYPES:
            continue
        parameters = dict(o.split("=", 1) for o in options if "=" in o)
        match parameters.pop("as", ""):
            case "":
                return "object"
            case "Table" if parameters.items() >= _META_V1.items():
                return "table"
            case ("PartialObjectMetadata" | "PartialObjectMetadataList") as requested_kind:
                # The first of these decides, even if it does not fit the response.
                if requested_kind != (f"{PARTIAL_OBJECT_METADATA}List" if is_list else PARTIAL_OBJECT_METADATA):
                    break
                return "metadata"
            case _:
                continue
    raise failures.not_acceptable()


def negotiate_metadata(request: HttpRequest, *, is_list: bool = False) -> bool:
    """Return True if the response has metadata only.

    Raises:
        ApiError: 406, no representation is acceptable; 501, it is a Table.
    """
    representation = negotiate(request, is_list=is_list)
    if representation == "table":
        raise failures.not_implemented("a Table of what was deleted")
    return representation == "metadata"
