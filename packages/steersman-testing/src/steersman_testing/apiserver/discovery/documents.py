"""Discovery documents: version, health, groups and resources.

Groups and resources have an aggregated form as well (KEP-3352).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

import msgspec

from steersman.client.transport import HttpRequest
from steersman.meta import ApiResource
from steersman_testing.apiserver.extensions import load_kubectl
from steersman_testing.apiserver.kinds import KindRegistry, ServedKind, version_sort_key
from steersman_testing.apiserver.shapes import BuiltinShape
from steersman_testing.apiserver.values import JsonObject

_SUBRESOURCE_VERBS = ["get", "patch", "update"]
# Subresources of single kinds: name, kind if it differs, verbs.
_SUBRESOURCES: dict[tuple[str, str], list[tuple[str, tuple[str, str, str] | None, list[str]]]] = {
    ("", "pods"): [
        ("eviction", ("policy", "v1", "Eviction"), ["create"]),
        ("log", None, ["get"]),
        ("resize", None, ["get", "patch", "update"]),
    ],
    ("", "serviceaccounts"): [("token", ("authentication.k8s.io", "v1", "TokenRequest"), ["create"])],
}
_WRITE_VERBS = ("create", "patch", "update")
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.3", "platform": "in-memory"}
_AGGREGATED_MEDIA_TYPE = "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_AGGREGATED_PATTERN = re.compile(re.escape(_AGGREGATED_MEDIA_TYPE) + r"\b")
_SHORT_NAMES = {
    "configmaps": ("cm",),
    "cronjobs": ("cj",),
    "customresourcedefinitions": ("crd", "crds"),
    "daemonsets": ("ds",),
    "deployments": ("deploy",),
    "endpoints": ("ep",),
    "events": ("ev",),
    "horizontalpodautoscalers": ("hpa",),
    "ingresses": ("ing",),
    "limitranges": ("limits",),
    "namespaces": ("ns",),
    "networkpolicies": ("netpol",),
    "nodes": ("no",),
    "persistentvolumeclaims": ("pvc",),
    "persistentvolumes": ("pv",),
    "poddisruptionbudgets": ("pdb",),
    "pods": ("po",),
    "priorityclasses": ("pc",),
    "replicasets": ("rs",),
    "resourcequotas": ("quota",),
    "serviceaccounts": ("sa",),
    "services": ("svc",),
    "statefulsets": ("sts",),
    "storageclasses": ("sc",),
}
_IN_CATEGORY_ALL = {
    "cronjobs",
    "daemonsets",
    "deployments",
    "horizontalpodautoscalers",
    "jobs",
    "pods",
    "replicasets",
    "services",
    "statefulsets",
}


class OpenApiSupport(Protocol):
    """Functions of the package ``kubectl`` for OpenAPI."""

    def openapi_document(self, path: str, kinds: KindRegistry) -> bytes | None: ...


def discover(path: str, accept: str, kinds: KindRegistry) -> bytes | None:
    """Return the response to a GET of a discovery path, or None."""
    aggregated = _AGGREGATED_PATTERN.search(accept) is not None
    match path.strip("/").split("/"):
        case ["version"]:
            return msgspec.json.encode(_VERSION)
        case ["healthz" | "livez" | "readyz"]:
            return b"ok"
        case ["api"] if aggregated:
            return _aggregated_document([""], kinds)
        case ["apis"] if aggregated:
            return _aggregated_document(_groups(kinds), kinds)
        case ["api"]:
            return msgspec.json.encode({"kind": "APIVersions", "versions": ["v1"]})
        case ["apis"]:
            listed = [_group_document(g, kinds) for g in _groups(kinds)]
            return msgspec.json.encode({"kind": "APIGroupList", "apiVersion": "v1", "groups": listed})
        case ["api", "v1"]:
            return _resource_list("", "v1", kinds)
        case ["apis", group] if any(k.resource.group == group for k in kinds):
            return msgspec.json.encode({"kind": "APIGroup", "apiVersion": "v1", **_group_document(group, kinds)})
        case ["apis", group, version]:
            return _resource_list(group, version, kinds)
        case ["openapi", *_]:
            support: OpenApiSupport = load_kubectl()
            return support.openapi_document(path, kinds)
        case _:
            return None


def content_type(request: HttpRequest, body: bytes) -> str:
    """Return the content type of a response.

    Clients recognise the form of a discovery document by it.
    """
    if not body.startswith(b"{") or request.path.endswith("/log"):
        return "text/plain; charset=utf-8"
    is_aggregated = (
        request.path.strip("/") in ("api", "apis") and _AGGREGATED_PATTERN.search(request.accept) is not None
    )
    return f"application/json;{_AGGREGATED_MEDIA_TYPE}" if is_aggregated else "application/json"


def _groups(kinds: KindRegistry) -> list[str]:
    """Return the groups, built-in ones first."""
    custom = {k.resource.group: k.is_custom for k in kinds if k.resource.group}
    return sorted(custom, key=lambda group: (custom[group], group))


def _versions_of(group: str, kinds: KindRegistry) -> list[str]:
    """Return the versions of a group, most stable and newest first."""
    return sorted({k.resource.version for k in kinds if k.resource.group == group}, key=version_sort_key)


def _group_document(group: str, kinds: KindRegistry) -> JsonObject:
    versions = [{"groupVersion": f"{group}/{v}", "version": v} for v in _versions_of(group, kinds)]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _aggregated_document(groups: Sequence[str], kinds: KindRegistry) -> bytes:
    items: list[JsonObject] = [
        {
            "metadata": {"name": group} if group else {},
            "versions": [
                {"version": v, "resources": _aggregated_resources(group, v, kinds), "freshness": "Current"}
                for v in _versions_of(group, kinds)
            ],
        }
        for group in groups
    ]
    head: JsonObject = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}}
    return msgspec.json.encode(head | {"items": items})


def _aggregated_resources(group: str, version: str, kinds: KindRegistry) -> list[JsonObject]:
    """Return the resources in aggregated form."""
    found: list[JsonObject] = []
    for kind in _served_kinds(group, version, kinds):
        entry, *subresources = _resource_entries(kind)
        document: JsonObject = {
            "resource": entry["name"],
            "responseKind": {"group": "", "version": "", "kind": entry["kind"]},
            "scope": "Namespaced" if entry["namespaced"] else "Cluster",
            "singularResource": entry["singularName"],
            "verbs": entry["verbs"],
        }
        document |= {name: entry[name] for name in ("shortNames", "categories") if name in entry}
        if subresources:
            document["subresources"] = [
                {
                    "subresource": b["name"].partition("/")[2],
                    "responseKind": {"group": b.get("group", ""), "version": b.get("version", ""), "kind": b["kind"]},
                    "verbs": b["verbs"],
                }
                for b in subresources
            ]
        found.append(document)
    return found


def _served_kinds(group: str, version: str, kinds: KindRegistry) -> list[ServedKind]:
    found = [k for k in kinds if (k.resource.group, k.resource.version) == (group, version)]
    return sorted(found, key=lambda k: k.resource.plural)


def _resource_list(group: str, version: str, kinds: KindRegistry) -> bytes | None:
    served = _served_kinds(group, version, kinds)
    if not served:
        return None
    resources = [r for k in served for r in _resource_entries(k)]
    name = f"{group}/{version}" if group else version
    listed = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": resources}
    return msgspec.json.encode(listed)


def supported_verbs(kind: ServedKind) -> list[str]:
    """Return the verbs of a kind."""
    if kind.versions is not None and kind.versions.terminating:
        return [v for v in _VERBS if v not in _WRITE_VERBS]
    # Namespaces have no deletecollection.
    return [v for v in _VERBS if (v, kind.resource.plural) != ("deletecollection", "namespaces")]


def _resource_entries(kind: ServedKind) -> list[JsonObject]:
    resource = kind.resource
    entry: JsonObject = {
        "name": resource.plural,
        "singularName": kind.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": supported_verbs(kind),
    }
    if names := kind.short_names or (() if kind.is_custom else _SHORT_NAMES.get(resource.plural, ())):
        entry["shortNames"] = list(names)
    if categories := _categories(kind):
        entry["categories"] = list(categories)
    subresources = [
        *([("scale", ("autoscaling", "v1", "Scale"), _SUBRESOURCE_VERBS)] if kind.scale is not None else ()),
        *([("status", None, _SUBRESOURCE_VERBS)] if kind.has_status else ()),
        *(_SUBRESOURCES.get((resource.group, resource.plural), ())),
    ]
    return [entry, *(_subresource_entry(resource, *b) for b in subresources)]


def _categories(kind: ServedKind) -> tuple[str, ...]:
    if kind.is_custom:
        return kind.categories
    return ("all",) if isinstance(kind.shape, BuiltinShape) and kind.resource.plural in _IN_CATEGORY_ALL else ()


def _subresource_entry(
    resource: ApiResource, name: str, other_kind: tuple[str, str, str] | None, verbs: list[str]
) -> JsonObject:
    entry: JsonObject = {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": verbs,
    }
    return entry if other_kind is None else entry | dict(zip(("group", "version", "kind"), other_kind, strict=True))
