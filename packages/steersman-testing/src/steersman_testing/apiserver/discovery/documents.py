"""What a server tells about itself: version, health, groups and resources, the latter in both forms (KEP-3352)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from steersman.client.transport import HttpRequest
from steersman.meta import ApiResource
from steersman_testing.apiserver.discovery.openapi import publish
from steersman_testing.apiserver.fields.shapes import BuiltinShape
from steersman_testing.apiserver.kinds import Kind, KindRegistry, version_rank
from steersman_testing.apiserver.values import JsonObject

_CHANGED = ["get", "patch", "update"]
# Subresources that belong to one kind alone: name, kind where it is another, verbs.
_BELOW: dict[tuple[str, str], list[tuple[str, tuple[str, str, str] | None, list[str]]]] = {
    ("", "pods"): [("eviction", ("policy", "v1", "Eviction"), ["create"]), ("log", None, ["get"])],
    ("", "serviceaccounts"): [("token", ("authentication.k8s.io", "v1", "TokenRequest"), ["create"])],
}
_CHANGES = ("create", "patch", "update")
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.3", "platform": "in-memory"}
_AGGREGATED_TYPE = "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_AGGREGATED = re.compile(re.escape(_AGGREGATED_TYPE) + r"\b")
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
_CATEGORY_ALL = {
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


def discover(path: str, accept: str, kinds: KindRegistry) -> bytes | None:
    """The answer to a GET of ``path``; None where it is no discovery path."""
    aggregated = _AGGREGATED.search(accept) is not None
    match path.strip("/").split("/"):
        case ["version"]:
            return msgspec.json.encode(_VERSION)
        case ["healthz" | "livez" | "readyz"]:
            return b"ok"
        case ["api"] if aggregated:
            return _aggregated([""], kinds)
        case ["apis"] if aggregated:
            return _aggregated(_groups(kinds), kinds)
        case ["api"]:
            return msgspec.json.encode({"kind": "APIVersions", "versions": ["v1"]})
        case ["apis"]:
            listed = [_group(g, kinds) for g in _groups(kinds)]
            return msgspec.json.encode({"kind": "APIGroupList", "apiVersion": "v1", "groups": listed})
        case ["api", "v1"]:
            return _resources("", "v1", kinds)
        case ["apis", group] if any(k.resource.group == group for k in kinds):
            return msgspec.json.encode({"kind": "APIGroup", "apiVersion": "v1", **_group(group, kinds)})
        case ["apis", group, version]:
            return _resources(group, version, kinds)
        case ["openapi", *_]:
            return publish(path, kinds)
        case _:
            return None


def content_type(request: HttpRequest, body: bytes) -> str:
    """What the answer ``body`` to ``request`` is. Clients know the form of a discovery document by it alone."""
    if not body.startswith(b"{") or request.path.endswith("/log"):
        return "text/plain; charset=utf-8"
    described = request.path.strip("/") in ("api", "apis") and _AGGREGATED.search(request.accept) is not None
    return f"application/json;{_AGGREGATED_TYPE}" if described else "application/json"


def _groups(kinds: KindRegistry) -> list[str]:
    """Built-in groups come first."""
    custom = {k.resource.group: k.custom for k in kinds if k.resource.group}
    return sorted(custom, key=lambda group: (custom[group], group))


def _versions(group: str, kinds: KindRegistry) -> list[str]:
    """The most stable and newest version first, whichever is stored."""
    return sorted({k.resource.version for k in kinds if k.resource.group == group}, key=version_rank)


def _group(group: str, kinds: KindRegistry) -> JsonObject:
    versions = [{"groupVersion": f"{group}/{v}", "version": v} for v in _versions(group, kinds)]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _aggregated(groups: Sequence[str], kinds: KindRegistry) -> bytes:
    items: list[JsonObject] = [
        {
            "metadata": {"name": group} if group else {},
            "versions": [
                {"version": v, "resources": _aggregated_resources(group, v, kinds), "freshness": "Current"}
                for v in _versions(group, kinds)
            ],
        }
        for group in groups
    ]
    head: JsonObject = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}}
    return msgspec.json.encode(head | {"items": items})


def _aggregated_resources(group: str, version: str, kinds: KindRegistry) -> list[JsonObject]:
    """The same as ``_resources`` tells, in the other form."""
    found: list[JsonObject] = []
    for kind in _served(group, version, kinds):
        entry, *below = _entries(kind)
        told: JsonObject = {
            "resource": entry["name"],
            "responseKind": {"group": "", "version": "", "kind": entry["kind"]},
            "scope": "Namespaced" if entry["namespaced"] else "Cluster",
            "singularResource": entry["singularName"],
            "verbs": entry["verbs"],
        }
        told |= {name: entry[name] for name in ("shortNames", "categories") if name in entry}
        if below:
            told["subresources"] = [
                {
                    "subresource": b["name"].partition("/")[2],
                    "responseKind": {"group": b.get("group", ""), "version": b.get("version", ""), "kind": b["kind"]},
                    "verbs": b["verbs"],
                }
                for b in below
            ]
        found.append(told)
    return found


def _served(group: str, version: str, kinds: KindRegistry) -> list[Kind]:
    found = [k for k in kinds if (k.resource.group, k.resource.version) == (group, version)]
    return sorted(found, key=lambda k: k.resource.plural)


def _resources(group: str, version: str, kinds: KindRegistry) -> bytes | None:
    served = _served(group, version, kinds)
    if not served:
        return None
    resources = [r for k in served for r in _entries(k)]
    name = f"{group}/{version}" if group else version
    listed = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": resources}
    return msgspec.json.encode(listed)


def verbs_of(kind: Kind) -> list[str]:
    """What can be done with a kind."""
    if kind.versions is not None and kind.versions.terminating:
        return [v for v in _VERBS if v not in _CHANGES]
    # Each namespace is deleted by itself.
    return [v for v in _VERBS if (v, kind.resource.plural) != ("deletecollection", "namespaces")]


def _entries(kind: Kind) -> list[JsonObject]:
    resource = kind.resource
    entry: JsonObject = {
        "name": resource.plural,
        "singularName": kind.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": verbs_of(kind),
    }
    if names := kind.short_names or (() if kind.custom else _SHORT_NAMES.get(resource.plural, ())):
        entry["shortNames"] = list(names)
    if groups := _categories(kind):
        entry["categories"] = list(groups)
    below = [
        *([("scale", ("autoscaling", "v1", "Scale"), _CHANGED)] if kind.scale is not None else ()),
        *([("status", None, _CHANGED)] if kind.has_status else ()),
        *(_BELOW.get((resource.group, resource.plural), ())),
    ]
    return [entry, *(_subresource(resource, *b) for b in below)]


def _categories(kind: Kind) -> tuple[str, ...]:
    if kind.custom:
        return kind.categories
    return ("all",) if isinstance(kind.shape, BuiltinShape) and kind.resource.plural in _CATEGORY_ALL else ()


def _subresource(
    resource: ApiResource, name: str, other: tuple[str, str, str] | None, verbs: list[str]
) -> JsonObject:
    told: JsonObject = {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": verbs,
    }
    return told if other is None else told | dict(zip(("group", "version", "kind"), other, strict=True))
