"""What an operator asks of the API server, told for people."""

from __future__ import annotations

import re

import msgspec

from steersman.client.transport import HttpRequest
from steersman_testing.simulation.trace import CallKind

# What is below a namespace is of that namespace, but for its own subresources.
_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/[^/]+(?:/namespaces/(?P<namespace>[^/]+)(?!/(?:status|finalize)$))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[^/]+))?"
)
_VERBS = {"POST": "CREATE", "PUT": "UPDATE"}
_CALL_KINDS: dict[str, CallKind] = {"GET": "read", "POST": "create", "DELETE": "delete"}
_APPLY = "application/apply-patch"
IGNORED_RESOURCES = ("leases.coordination.k8s.io", "events.events.k8s.io", "events")
"""Resources that say nothing about whether an operator's work is done."""
ELECTION_LEASE_NAME = "simulated"
"""The name of the Lease by which simulated replicas elect their leader."""


class _Metadata(msgspec.Struct):
    name: str = ""
    generate_name: str = msgspec.field(name="generateName", default="")


class _ObjectHeader(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


def _name_in(body: bytes | None) -> str:
    """The name that an object is created by; of one that is generated, what it begins with."""
    try:
        metadata = msgspec.json.decode(body or b"{}", type=_ObjectHeader).metadata
    except msgspec.DecodeError:
        return ""
    return metadata.name or (f"{metadata.generate_name}*" if metadata.generate_name else "")


def _parse_path(path: str) -> dict[str, str]:
    found = _PATH.fullmatch(path)
    return {} if found is None else {key: value or "" for key, value in found.groupdict().items()}


def resource_of(request: HttpRequest) -> str:
    """``plural.group`` of what a request is about, or ``plural`` in the core group; empty for all else."""
    parts = _parse_path(request.path)
    return ".".join(part for part in (parts.get("plural", ""), parts.get("group", "")) if part)


def object_path(request: HttpRequest) -> str:
    """The path of the object that a request is about, without subresource."""
    subresource = _parse_path(request.path).get("subresource", "")
    return request.path.removesuffix(f"/{subresource}") if subresource else request.path


def is_leader_election(request: HttpRequest) -> bool:
    """Whether it is about the Lease by which a leader is elected."""
    if resource_of(request) != "leases.coordination.k8s.io":
        return False
    is_selected = request.query.get("fieldSelector") == f"metadata.name={ELECTION_LEASE_NAME}"
    return is_selected or ELECTION_LEASE_NAME in (_parse_path(request.path).get("name"), _name_in(request.body))


def is_reconciler_call(request: HttpRequest) -> bool:
    """Whether it is a call of a reconciler whose failure matters.

    Not discovery and lists, which are the cache's, nor Events and Leases, which operators send at best effort or
    again and again.
    """
    resource = resource_of(request)
    is_list = request.method == "GET" and not _parse_path(request.path).get("name")
    return bool(resource) and not is_list and resource not in IGNORED_RESOURCES


def call_kind_of(request: HttpRequest) -> CallKind:
    """What can go wrong with it."""
    return _CALL_KINDS.get(request.method, "update")


def describe_request(request: HttpRequest) -> str:
    """Such as ``APPLY configmaps default/web`` or ``PATCH websites.example.com default/web status``."""
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
