"""CustomResourceDefinitions: from a manifest to kinds that are served. Source: ``apiextensions.k8s.io/v1``."""

from __future__ import annotations

from collections.abc import Iterator

from steersman.meta import ApiResource
from steersman.testing.apiserver import failures
from steersman.testing.apiserver.failures import FieldError, forbidden_field, invalid_value, required
from steersman.testing.apiserver.kinds import Kind, ScalePaths
from steersman.testing.apiserver.rules import check_definition_rules, has_rules
from steersman.testing.apiserver.shapes import SchemaShape
from steersman.testing.apiserver.values import JsonObject, is_list, is_map, list_at, map_at

CRD = ApiResource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False)


def complete_definition(obj: JsonObject) -> None:
    """Fills in what the real server does: conversion, ``singular``, ``listKind``."""
    spec = obj.get("spec")
    if not is_map(spec) or not is_map(spec.get("names")):
        return
    names = spec["names"]
    kind = str(names.get("kind", ""))
    names.setdefault("singular", kind.lower())
    names.setdefault("listKind", f"{kind}List")
    spec.setdefault("conversion", {"strategy": "None"})


def check_definition(obj: JsonObject) -> None:
    """Refuses what cannot be served.

    Raises:
        ApiError: 422, the manifest is wrong; 501, it converts by webhook.
    """
    name = obj["metadata"].get("name", "")
    errors = list(_errors(name, map_at(obj, "spec")))
    if errors:
        raise failures.invalid(CRD, name, errors)
    if obj["spec"].get("conversion", {}).get("strategy") == "Webhook":
        raise failures.refused_here(f"CustomResourceDefinition {name} converts its versions by webhook")


def _errors(name: str, spec: JsonObject) -> Iterator[FieldError]:
    names = map_at(spec, "names")
    for path, value in (
        ("spec.group", spec.get("group")),
        ("spec.names.plural", names.get("plural")),
        ("spec.names.kind", names.get("kind")),
        ("spec.versions", spec.get("versions")),
    ):
        if not value:
            yield required(path)
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        text = 'supported values: "Cluster", "Namespaced"'
        yield FieldError("spec.scope", "FieldValueNotSupported", f"Unsupported value: {spec.get('scope')!r}: {text}")
    expected = f"{names.get('plural')}.{spec.get('group')}"
    if name != expected:
        yield invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    versions = spec.get("versions")
    if not is_list(versions):
        return
    if sum(bool(v.get("storage")) for v in versions) != 1:
        yield invalid_value("spec.versions", versions, "must have exactly one version marked as storage version")
    for position, version in enumerate(versions):
        schema = map_at(version, "schema").get("openAPIV3Schema")
        # With one version alone, the real server speaks of the place where it keeps the schema internally.
        place = "spec.validation" if len(versions) == 1 else f"spec.versions[{position}].schema"
        path = f"{place}.openAPIV3Schema"
        if not is_map(schema):
            yield required(path, "schemas are required")
        else:
            yield from _structural_errors(schema, path)
            yield from check_definition_rules(schema, path)


def _structural_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    free = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if not schema.get("type") and not free:
        yield required(f"{path}.type", "must not be empty for specified object fields")
    properties = schema.get("properties")
    if is_map(properties) and schema.get("additionalProperties"):
        yield forbidden_field(
            f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive"
        )
    if schema.get("type") == "array" and not is_map(schema.get("items")):
        yield required(f"{path}.items", "must be specified")
    if is_map(properties):
        for name, inner in properties.items():
            yield from _structural_errors(inner, f"{path}.properties[{name}]")
    for field in ("items", "additionalProperties"):
        inner = schema.get(field)
        if is_map(inner):
            yield from _structural_errors(inner, f"{path}.{field}")


def kinds_of(definition: JsonObject) -> list[Kind]:
    """The kinds that ``definition`` serves, one a version."""
    spec = definition["spec"]
    names: JsonObject = spec["names"]
    storage = next(v["name"] for v in spec["versions"] if v.get("storage"))
    return [_kind(spec, names, v, storage) for v in spec["versions"] if v.get("served")]


def _kind(spec: JsonObject, names: JsonObject, version: JsonObject, storage: str) -> Kind:
    schema: JsonObject = version["schema"]["openAPIV3Schema"]
    selectable: list[JsonObject] = version.get("selectableFields") or []
    namespaced = spec["scope"] == "Namespaced"
    return Kind(
        resource=ApiResource(spec["group"], version["name"], names["kind"], names["plural"], namespaced),
        shape=SchemaShape(schema, root=True),
        has_status="status" in (version.get("subresources") or {}),
        scale=_scale_paths(map_at(version, "subresources").get("scale")),
        has_generation=True,
        unconditional_update=False,
        schema=schema,
        has_rules=has_rules(schema),
        storage_version=storage,
        fields=tuple(f["jsonPath"].lstrip(".") for f in selectable),
        custom=True,
        singular=names.get("singular", ""),
        short_names=tuple(names.get("shortNames") or ()),
    )


def _scale_paths(scale: JsonObject | None) -> ScalePaths | None:
    if scale is None:
        return None
    return ScalePaths(scale["specReplicasPath"], scale["statusReplicasPath"], scale.get("labelSelectorPath", ""))


def established_status(definition: JsonObject, now: str) -> JsonObject:
    """The status of a definition that is served."""
    spec = definition["spec"]
    former = map_at(definition, "status")
    known: dict[str, JsonObject] = {c["type"]: c for c in list_at(former, "conditions")}
    storage = next(v["name"] for v in spec["versions"] if v.get("storage"))
    stored: list[str] = list_at(former, "storedVersions")
    accepted = {
        "lastTransitionTime": now,
        "message": "no conflicts found",
        "reason": "NoConflicts",
        "status": "True",
        "type": "NamesAccepted",
    }
    established = {
        "lastTransitionTime": now,
        "message": "the initial names have been accepted",
        "reason": "InitialNamesAccepted",
        "status": "True",
        "type": "Established",
    }
    return {
        "acceptedNames": spec["names"],
        "conditions": [known.get(c["type"], c) for c in (accepted, established)],
        "storedVersions": stored if storage in stored else [*stored, storage],
    }
