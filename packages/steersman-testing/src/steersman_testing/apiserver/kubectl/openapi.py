"""OpenAPI v3 documents for explanations, patches and field validation.

Built-in kinds have the schemas of Kubernetes, and custom resources those of their definitions. Paths have the
parameters that clients use, but no schemas of responses.

Source: KEP-2896; "The Kubernetes API", section "OpenAPI V3".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import msgspec

from steersman_manifests.openapi import REFERENCE_PREFIX, published_schemas
from steersman_testing.apiserver.kinds import KindRegistry, ServedKind
from steersman_testing.apiserver.shapes import BuiltinShape
from steersman_testing.apiserver.values import JsonObject, is_list, is_map

_GVK = "x-kubernetes-group-version-kind"
_ACTION = "x-kubernetes-action"
_METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
# Type of apiVersion, kind and metadata, which are the same in all kinds.
_REFERENCE_KIND = "io.k8s.api.core.v1.Namespace"
_PARAMETERS = (("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean"))
_PATCHES = ("apply-patch+yaml", "json-patch+json", "merge-patch+json")
_STRATEGIC_MERGE_PATCH = "strategic-merge-patch+json"


def openapi_document(path: str, kinds: KindRegistry) -> bytes | None:
    """Return the response to a GET of ``path``, or None."""
    match path.strip("/").split("/"):
        case ["openapi", "v3"]:
            return _index(kinds)
        case ["openapi", "v3", "api", version]:
            return _document(_kinds_in("", version, kinds))
        case ["openapi", "v3", "apis", group, version]:
            return _document(_kinds_in(group, version, kinds))
        case _:
            return None


def _index(kinds: KindRegistry) -> bytes:
    paths = sorted({_prefix(k) for k in kinds})
    entries = {p: {"serverRelativeURL": f"/openapi/v3/{p}?hash={_document_hash(p, kinds)}"} for p in paths}
    return msgspec.json.encode({"paths": entries})


def _prefix(kind: ServedKind) -> str:
    resource = kind.resource
    return f"apis/{resource.group}/{resource.version}" if resource.group else f"api/{resource.version}"


def _document_hash(prefix: str, kinds: KindRegistry) -> str:
    """Return the hash of a document, by which clients cache it."""
    digest = hashlib.sha256(prefix.encode())
    for kind in kinds:
        if _prefix(kind) == prefix:
            digest.update(kind.resource.kind.encode())
            digest.update(msgspec.json.encode(kind.schema))
    return digest.hexdigest()[:32].upper()


def _kinds_in(group: str, version: str, kinds: KindRegistry) -> list[ServedKind]:
    return [k for k in kinds if (k.resource.group, k.resource.version) == (group, version)]


def _document(kinds: Sequence[ServedKind]) -> bytes | None:
    if not kinds:
        return None
    own = {_schema_name(k): _schema(k) for k in kinds}
    document: JsonObject = {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": {path: item for k in kinds for path, item in _paths(k)},
        "components": {"schemas": {**_referenced_schemas(own.values()), **own}},
    }
    return msgspec.json.encode(document)


@cache
def _published_names() -> dict[tuple[str, str, str], str]:
    return {
        (k["group"], k["version"], k["kind"]): name
        for name, schema in published_schemas().items()
        for k in schema.get(_GVK, ())
    }


def _schema_name(kind: ServedKind) -> str:
    group, version, name = _gvk_tuple(kind)
    if isinstance(kind.shape, BuiltinShape):
        return _published_names()[group, version, name]
    return ".".join([*reversed(group.split(".")), version, name])


def _gvk_tuple(kind: ServedKind) -> tuple[str, str, str]:
    return kind.resource.group, kind.resource.version, kind.resource.kind


def _schema(kind: ServedKind) -> JsonObject:
    if isinstance(kind.shape, BuiltinShape):
        return published_schemas()[_schema_name(kind)]
    reference_properties: JsonObject = published_schemas()[_REFERENCE_KIND]["properties"]
    schema: JsonObject = kind.schema or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    metadata = {
        "description": reference_properties["metadata"]["description"],
        "allOf": [{"$ref": REFERENCE_PREFIX + _METADATA}],
    }
    properties = {
        **schema.get("properties", {}),
        "apiVersion": reference_properties["apiVersion"],
        "kind": reference_properties["kind"],
        "metadata": metadata,
    }
    return {**schema, "properties": properties, _GVK: [_gvk(kind)]}


def _gvk(kind: ServedKind) -> JsonObject:
    return dict(zip(("group", "version", "kind"), _gvk_tuple(kind), strict=True))


def _referenced_schemas(schemas: Iterable[JsonObject]) -> dict[str, JsonObject]:
    """Return all schemas that are referenced directly or indirectly."""
    found: dict[str, JsonObject] = {}
    pending = [name for schema in schemas for name in _references(schema)]
    while pending:
        name = pending.pop()
        if name not in found:
            found[name] = published_schemas()[name]
            pending.extend(_references(found[name]))
    return found


def _references(value: Any) -> Iterator[str]:
    if is_list(value):
        for item in value:
            yield from _references(item)
    elif is_map(value):
        target = value.get("$ref")
        if isinstance(target, str):
            yield target.removeprefix(REFERENCE_PREFIX)
        for item in value.values():
            yield from _references(item)


def _paths(kind: ServedKind) -> Iterator[tuple[str, JsonObject]]:
    base_path = f"/{_prefix(kind)}" + ("/namespaces/{namespace}" if kind.resource.namespaced else "")
    collection = f"{base_path}/{kind.resource.plural}"
    yield collection, _path_item(kind, {"get": "list", "post": "post", "delete": "deletecollection"})
    yield collection + "/{name}", _path_item(kind, {"get": "get", "put": "put", "patch": "patch", "delete": "delete"})


def _path_item(kind: ServedKind, actions: dict[str, str]) -> JsonObject:
    return {method: _operation(kind, method, action) for method, action in actions.items()}


def _operation(kind: ServedKind, method: str, action: str) -> JsonObject:
    operation: JsonObject = {"responses": {"200": {"description": "OK"}}, _ACTION: action, _GVK: _gvk(kind)}
    if method in ("post", "put", "patch"):
        names = _PARAMETERS if method == "patch" else _PARAMETERS[:3]
        operation["parameters"] = [{"name": n, "in": "query", "schema": {"type": t}} for n, t in names]
        operation["requestBody"] = {"required": True, "content": _content(kind, method)}
    return operation


def _content(kind: ServedKind, method: str) -> JsonObject:
    reference = {"schema": {"$ref": REFERENCE_PREFIX + _schema_name(kind)}}
    if method != "patch":
        return {"application/json": reference}
    patch_types = (*_PATCHES, *(() if kind.is_custom else (_STRATEGIC_MERGE_PATCH,)))
    return {f"application/{form}": {"schema": {"type": "object"}} for form in patch_types}
