"""What form of an answer a request accepts: the object, its metadata alone, or a table of it.

Source: "Kubernetes API Concepts", "Alternate representations of resources"; KEP-2334.
"""

from __future__ import annotations

from typing import Literal

from steersman.client.transport import HttpRequest
from steersman_testing.apiserver import failures

PARTIAL = "PartialObjectMetadata"
TABLE = "Table"

Form = Literal["object", "metadata", "table"]

_JSON = ("application/json", "application/*", "*/*")
_GROUP = {"g": "meta.k8s.io", "v": "v1"}


def negotiate(request: HttpRequest, *, listed: bool = False) -> Form:
    """The form of the answer to ``request``: the first that it accepts and that can be had.

    Raises:
        ApiError: 406, there is none.
    """
    wanted = request.accept
    if wanted == "application/json":
        return "object"
    for clause in wanted.split(","):
        media_type, *options = (part.strip() for part in clause.split(";"))
        if media_type not in _JSON:
            continue
        parameters = dict(o.split("=", 1) for o in options if "=" in o)
        match parameters.pop("as", ""):
            case "":
                return "object"
            case "Table" if parameters.items() >= _GROUP.items():
                return "table"
            case ("PartialObjectMetadata" | "PartialObjectMetadataList") as named:
                # The first of these is taken, even where it does not fit the answer's shape.
                if named != (f"{PARTIAL}List" if listed else PARTIAL):
                    break
                return "metadata"
            case _:
                continue
    raise failures.not_acceptable()


def wants_metadata(request: HttpRequest, *, listed: bool = False) -> bool:
    """Whether the answer is to be metadata alone, where a table cannot be had.

    Raises:
        ApiError: 406, there is no form that is accepted; 501, that form is a table.
    """
    form = negotiate(request, listed=listed)
    if form == "table":
        raise failures.refused_here("a Table of what was deleted")
    return form == "metadata"
