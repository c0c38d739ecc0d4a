"""OpenAPI v3: what kubectl asks for explanations, patches and the validation of fields.

Schemas are published as they are: of built-in kinds those of Kubernetes, of custom resources those of their
definitions. Of the paths there is what clients look for; the bodies of answers are not described.

Source: KEP-2896; "The Kubernetes API", section "OpenAPI V3".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import msgspec

from steersman.api.openapi import REFERENCE, published
from steersman_testing.apiserver.fields.shapes import BuiltinShape
from steersman_testing.apiserver.kinds import Kind, KindRegistry
from steersman_testing.apiserver.values import JsonObject, is_list, is_map

_GVK = "x-kubernetes-group-version-kind"
_ACTION = "x-kubernetes-action"
_METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
# Every object has these, and says the same of them.
_TYPICAL = "io.k8s.api.core.v1.Namespace"
_PARAMETERS = (("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean"))
_PATCHES = ("apply-patch+yaml", "json-patch+json", "merge-patch+json")
_STRATEGIC = "strategic-merge-patch+json"


def publish(path: str, kinds: KindRegistry) -> bytes | None:
    """The answer to a GET of ``path``; None where nothing is published."""
    match path.strip("/").split("/"):
        case ["openapi", "v3"]:
            return _index(kinds)
        case ["openapi", "v3", "api", version]:
            return _document(_below("", version, kinds))
        case ["openapi", "v3", "apis", group, version]:
            return _document(_below(group, version, kinds))
        case _:
            return None


def _index(kinds: KindRegistry) -> bytes:
    paths = sorted({_prefix(k) for k in kinds})
    entries = {p: {"serverRelativeURL": f"/openapi/v3/{p}?hash={_fingerprint(p, kinds)}"} for p in paths}
    return msgspec.json.encode({"paths": entries})


def _prefix(kind: Kind) -> str:
    resource = kind.resource
    return f"apis/{resource.group}/{resource.version}" if resource.group else f"api/{resource.version}"


def _fingerprint(prefix: str, kinds: KindRegistry) -> str:
    """Another one when the document is another one: clients keep what they have under it."""
    digest = hashlib.sha256(prefix.encode())
    for kind in kinds:
        if _prefix(kind) == prefix:
            digest.update(kind.resource.kind.encode())
            digest.update(msgspec.json.encode(kind.schema))
    return digest.hexdigest()[:32].upper()


def _below(group: str, version: str, kinds: KindRegistry) -> list[Kind]:
    return [k for k in kinds if (k.resource.group, k.resource.version) == (group, version)]


def _document(kinds: Sequence[Kind]) -> bytes | None:
    if not kinds:
        return None
    own = {_name(k): _schema(k) for k in kinds}
    document: JsonObject = {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": {path: item for k in kinds for path, item in _paths(k)},
        "components": {"schemas": {**_referred(own.values()), **own}},
    }
    return msgspec.json.encode(document)


@cache
def _published_names() -> dict[tuple[str, str, str], str]:
    return {
        (k["group"], k["version"], k["kind"]): name
        for name, schema in published().items()
        for k in schema.get(_GVK, ())
    }


def _name(kind: Kind) -> str:
    group, version, name = _identity(kind)
    if isinstance(kind.shape, BuiltinShape):
        return _published_names()[group, version, name]
    return ".".join([*reversed(group.split(".")), version, name])


def _identity(kind: Kind) -> tuple[str, str, str]:
    return kind.resource.group, kind.resource.version, kind.resource.kind


def _schema(kind: Kind) -> JsonObject:
    if isinstance(kind.shape, BuiltinShape):
        return published()[_name(kind)]
    typical: JsonObject = published()[_TYPICAL]["properties"]
    described: JsonObject = kind.schema or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    metadata = {"description": typical["metadata"]["description"], "allOf": [{"$ref": REFERENCE + _METADATA}]}
    properties = {
        **described.get("properties", {}),
        "apiVersion": typical["apiVersion"],
        "kind": typical["kind"],
        "metadata": metadata,
    }
    return {**described, "properties": properties, _GVK: [_gvk(kind)]}


def _gvk(kind: Kind) -> JsonObject:
    return dict(zip(("group", "version", "kind"), _identity(kind), strict=True))


def _referred(schemas: Iterable[JsonObject]) -> dict[str, JsonObject]:
    """What ``schemas`` refer to, and what that does."""
    found: dict[str, JsonObject] = {}
    left = [name for schema in schemas for name in _references(schema)]
    while left:
        name = left.pop()
        if name not in found:
            found[name] = published()[name]
            left.extend(_references(found[name]))
    return found


def _references(value: Any) -> Iterator[str]:
    if is_list(value):
        for item in value:
            yield from _references(item)
    elif is_map(value):
        target = value.get("$ref")
        if isinstance(target, str):
            yield target.removeprefix(REFERENCE)
        for item in value.values():
            yield from _references(item)


def _paths(kind: Kind) -> Iterator[tuple[str, JsonObject]]:
    place = f"/{_prefix(kind)}" + ("/namespaces/{namespace}" if kind.resource.namespaced else "")
    collection = f"{place}/{kind.resource.plural}"
    yield collection, _item(kind, {"get": "list", "post": "post", "delete": "deletecollection"})
    yield collection + "/{name}", _item(kind, {"get": "get", "put": "put", "patch": "patch", "delete": "delete"})


def _item(kind: Kind, actions: dict[str, str]) -> JsonObject:
    return {method: _operation(kind, method, action) for method, action in actions.items()}


def _operation(kind: Kind, method: str, action: str) -> JsonObject:
    operation: JsonObject = {"responses": {"200": {"description": "OK"}}, _ACTION: action, _GVK: _gvk(kind)}
    if method in ("post", "put", "patch"):
        names = _PARAMETERS if method == "patch" else _PARAMETERS[:3]
        operation["parameters"] = [{"name": n, "in": "query", "schema": {"type": t}} for n, t in names]
        operation["requestBody"] = {"required": True, "content": _content(kind, method)}
    return operation


def _content(kind: Kind, method: str) -> JsonObject:
    reference = {"schema": {"$ref": REFERENCE + _name(kind)}}
    if method != "patch":
        return {"application/json": reference}
    forms = (*_PATCHES, *(() if kind.custom else (_STRATEGIC,)))
    return {f"application/{form}": {"schema": {"type": "object"}} for form in forms}
