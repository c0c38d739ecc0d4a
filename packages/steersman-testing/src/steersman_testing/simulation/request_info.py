"""Classification and description of requests to the API server."""

from __future__ import annotations

import re

import msgspec

from steersman.client.transport import HttpRequest
from steersman_testing.simulation.trace import CallKind

# Paths below a namespace are of objects in it, except for the subresources of the namespace itself.
_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/[^/]+(?:/namespaces/(?P<namespace>[^/]+)(?!/(?:status|finalize)$))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[^/]+))?"
)
_VERBS = {"POST": "CREATE", "PUT": "UPDATE"}
_CALL_KINDS: dict[str, CallKind] = {"GET": "read", "POST": "create", "DELETE": "delete"}
_APPLY = "application/apply-patch"
IGNORED_RESOURCES = ("leases.coordination.k8s.io", "events.events.k8s.io", "events")
"""Resources whose changes do not count as progress of an operator."""
ELECTION_LEASE_NAME = "simulated"
"""Name of the Lease for leader election between simulated replicas."""


class _Metadata(msgspec.Struct):
    name: str = ""
    generate_name: str = msgspec.field(name="generateName", default="")


class _ObjectHeader(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


def _name_in(body: bytes | None) -> str:
    """Return metadata.name of an object, or its generateName with an asterisk."""
    try:
        metadata = msgspec.json.decode(body or b"{}", type=_ObjectHeader).metadata
    except msgspec.DecodeError:
        return ""
    return metadata.name or (f"{metadata.generate_name}*" if metadata.generate_name else "")


def _parse_path(path: str) -> dict[str, str]:
    found = _PATH.fullmatch(path)
    return {} if found is None else {key: value or "" for key, value in found.groupdict().items()}


def resource_of(request: HttpRequest) -> str:
    """Return ``plural.group`` of a request, or ``plural`` in the core group. Empty for non-resource requests."""
    parts = _parse_path(request.path)
    return ".".join(part for part in (parts.get("plural", ""), parts.get("group", "")) if part)


def object_path(request: HttpRequest) -> str:
    """Return the path of the requested object without subresource."""
    subresource = _parse_path(request.path).get("subresource", "")
    return request.path.removesuffix(f"/{subresource}") if subresource else request.path


def is_leader_election(request: HttpRequest) -> bool:
    """Return True if the request concerns the Lease for leader election."""
    if resource_of(request) != "leases.coordination.k8s.io":
        return False
    is_selected = request.query.get("fieldSelector") == f"metadata.name={ELECTION_LEASE_NAME}"
    return is_selected or ELECTION_LEASE_NAME in (_parse_path(request.path).get("name"), _name_in(request.body))


def is_reconciler_call(request: HttpRequest) -> bool:
    """Return True if the request can receive faults.

    Discovery and lists are excluded because they belong to the cache, Events and Leases because they are best effort.
    """
    resource = resource_of(request)
    is_list = request.method == "GET" and not _parse_path(request.path).get("name")
    return bool(resource) and not is_list and resource not in IGNORED_RESOURCES


def call_kind_of(request: HttpRequest) -> CallKind:
    """Return the kind of call, which selects the applicable faults."""
    return _CALL_KINDS.get(request.method, "update")


def describe_request(request: HttpRequest) -> str:
    """Describe a request, such as ``APPLY configmaps default/web``."""
    parts = _parse_path(request.path)
    if not parts:
        return f"{request.method} {request.path}"
    verb = _VERBS.get(request.method, request.method)
    if request.method == "GET" and not parts.get("name"):
        verb = "LIST"
    object_name = parts.get("name") or (_name_in(request.body) if request.method == "POST" else "")
    if request.method == "PATCH" and request.content_type.startswith(_APPLY):
        verb = "APPLY"
    if request.method == "DELETE" and not parts.get("name"):
        verb = "DELETECOLLECTION"
    name = "/".join(part for part in (parts.get("namespace", ""), object_name) if part)
    return " ".join(part for part in (verb, resource_of(request), name, parts.get("subresource", "")) if part)
