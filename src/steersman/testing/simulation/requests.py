"""What an operator asks of the API server, told for people."""

from __future__ import annotations

import re

from steersman.client.transport import HttpRequest
from steersman.testing.simulation.journal import Sort

_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/[^/]+(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[^/]+))?"
)
_VERBS = {"POST": "CREATE", "PUT": "UPDATE"}
_SORTS: dict[str, Sort] = {"GET": "read", "POST": "create", "DELETE": "delete"}
_APPLY = "application/apply-patch"


def _parts(path: str) -> dict[str, str]:
    found = _PATH.fullmatch(path)
    return {} if found is None else {key: value or "" for key, value in found.groupdict().items()}


def resource_of(request: HttpRequest) -> str:
    """``plural.group`` of what a request is about, or ``plural`` in the core group; empty for all else."""
    parts = _parts(request.path)
    return ".".join(part for part in (parts.get("plural", ""), parts.get("group", "")) if part)


def is_election(request: HttpRequest) -> bool:
    """Whether it is about a Lease, which leader election takes."""
    return resource_of(request) == "leases.coordination.k8s.io"


def is_call(request: HttpRequest) -> bool:
    """Whether it is a call of a reconciler whose failure matters.

    Not discovery and lists, which are the cache's, nor Events, which operators send at best effort.
    """
    resource = resource_of(request)
    listed = request.method == "GET" and not _parts(request.path).get("name")
    return bool(resource) and not listed and resource not in ("events", "events.events.k8s.io")


def sort_of(request: HttpRequest) -> Sort:
    """What can go wrong with it."""
    return _SORTS.get(request.method, "update")


def describe(request: HttpRequest) -> str:
    """Such as ``APPLY configmaps default/web`` or ``PATCH websites.example.com default/web status``."""
    parts = _parts(request.path)
    verb = _VERBS.get(request.method, request.method)
    if request.method == "PATCH" and request.content_type.startswith(_APPLY):
        verb = "APPLY"
    if request.method == "DELETE" and not parts.get("name"):
        verb = "DELETECOLLECTION"
    name = "/".join(part for part in (parts.get("namespace", ""), parts.get("name", "")) if part)
    return " ".join(part for part in (verb, resource_of(request), name, parts.get("subresource", "")) if part)
