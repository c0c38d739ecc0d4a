"""What a server tells about itself: version, health, groups and resources."""

from __future__ import annotations

import msgspec

from steersman.testing.apiserver.kinds import Kind, KindRegistry
from steersman.testing.apiserver.values import JsonObject

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.3", "platform": "in-memory"}


def discover(path: str, kinds: KindRegistry) -> bytes | None:
    """The answer to a GET of ``path``; None where it is no discovery path."""
    match path.strip("/").split("/"):
        case ["version"]:
            return msgspec.json.encode(_VERSION)
        case ["healthz" | "livez" | "readyz"]:
            return b"ok"
        case ["api"]:
            return msgspec.json.encode({"kind": "APIVersions", "versions": ["v1"]})
        case ["apis"]:
            groups = sorted({k.resource.group for k in kinds} - {""})
            listed = [_group(g, kinds) for g in groups]
            return msgspec.json.encode({"kind": "APIGroupList", "apiVersion": "v1", "groups": listed})
        case ["api", "v1"]:
            return _resources("", "v1", kinds)
        case ["apis", group] if any(k.resource.group == group for k in kinds):
            return msgspec.json.encode({"kind": "APIGroup", "apiVersion": "v1", **_group(group, kinds)})
        case ["apis", group, version]:
            return _resources(group, version, kinds)
        case _:
            return None


def _group(group: str, kinds: KindRegistry) -> JsonObject:
    served = {k.resource.version: k for k in kinds if k.resource.group == group}
    versions = [{"groupVersion": f"{group}/{v}", "version": v} for v in sorted(served)]
    preferred = next((v for v in versions if served[v["version"]].storage_version == v["version"]), versions[0])
    return {"name": group, "versions": versions, "preferredVersion": preferred}


def _resources(group: str, version: str, kinds: KindRegistry) -> bytes | None:
    served = [k for k in kinds if (k.resource.group, k.resource.version) == (group, version)]
    if not served:
        return None
    resources = [r for k in sorted(served, key=lambda k: k.resource.plural) for r in _entries(k)]
    name = f"{group}/{version}" if group else version
    listed = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": resources}
    return msgspec.json.encode(listed)


def _entries(kind: Kind) -> list[JsonObject]:
    resource = kind.resource
    entry: JsonObject = {
        "name": resource.plural,
        "singularName": kind.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": _VERBS,
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if not kind.has_status:
        return [entry]
    status = {**entry, "name": f"{resource.plural}/status", "singularName": "", "verbs": ["get", "patch", "update"]}
    status.pop("shortNames", None)
    return [entry, status]
