"""CustomResourceDefinitions: from manifests to served kinds.

Source: ``apiextensions.k8s.io/v1``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

from steersman.meta import ApiResource
from steersman_cel.formats import known_format
from steersman_cel.validation import has_rules
from steersman_testing.apiserver.definitions.approval import approval_errors
from steersman_testing.apiserver.definitions.decoding import decode_spec
from steersman_testing.apiserver.definitions.spec_validation import spec_errors
from steersman_testing.apiserver.definitions.structural import subschemas
from steersman_testing.apiserver.failures import InvalidFieldError, format_value, invalid_value
from steersman_testing.apiserver.kinds import Column, CustomResourceVersions, ScalePaths, ServedKind, version_sort_key
from steersman_testing.apiserver.schemas.cost_budget import may_exceed_budget
from steersman_testing.apiserver.shapes import SchemaShape
from steersman_testing.apiserver.values import JsonObject, clone, get_array, get_object, without_nulls

CRD = ApiResource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False)
_HTTPS_PORT = 443
_AGE_COLUMN = {
    "name": "Age",
    "type": "date",
    "jsonPath": ".metadata.creationTimestamp",
    "description": "CreationTimestamp is a timestamp representing the server time when this object was created. It "
    "is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. "
    "It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More "
    "info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
}


def decode_definition(obj: JsonObject, *, keep_nulls: bool = True) -> list[str]:
    """Decode the spec in place, set its defaults and return unknown fields.

    Args:
        keep_nulls: whether nulls within free-form values are kept.

    Raises:
        ApiError: 400, a field has the wrong JSON type.
    """
    if obj.get("spec") is None:
        return []
    spec_json, unknown = _decode_spec(msgspec.json.encode(obj["spec"]), keep_nulls)
    obj["spec"] = msgspec.json.decode(spec_json)
    return list(unknown)


@lru_cache(maxsize=128)
def _decode_spec(spec: bytes, keep_nulls: bool) -> tuple[bytes, tuple[str, ...]]:
    # Cached because many tests write the same definitions.
    completed, unknown = decode_spec(msgspec.json.decode(spec))
    _set_defaults(completed)
    return msgspec.json.encode(completed if keep_nulls else without_nulls(completed)), tuple(unknown)


def _set_defaults(spec: JsonObject) -> None:
    names = spec.setdefault("names", {})
    kind = str(names.get("kind", ""))
    if kind:
        names.setdefault("singular", kind.lower())
        names.setdefault("listKind", f"{kind}List")
    conversion = spec.setdefault("conversion", {"strategy": "None"})
    service = get_object(get_object(get_object(conversion, "webhook"), "clientConfig"), "service")
    if service:
        service.setdefault("port", _HTTPS_PORT)


def definition_errors(obj: JsonObject, old: JsonObject | None = None) -> Iterator[InvalidFieldError]:
    """Yield the errors of a definition without those of its metadata.

    Args:
        old: the definition before an update. None for a create.

    Raises:
        ApiError: 501, the evaluation of a rule is not implemented.
    """
    name, spec = obj["metadata"].get("name", ""), get_object(obj, "spec")
    names = get_object(spec, "names")
    if old is None and name != f"{names.get('plural', '')}.{spec.get('group', '')}":
        yield invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    yield from spec_errors(spec)
    if old is not None:
        yield from _immutable_errors(
            get_object(old, "spec"), spec, established=has_true_condition(old, "Established")
        )
    yield from _stored_version_errors(stored_versions(obj, old), get_array(spec, "versions"))
    yield from approval_errors(obj, old)
    if spec.get("preserveUnknownFields"):
        text = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        )
        yield InvalidFieldError("spec.preserveUnknownFields", "FieldValueInvalid", f"Invalid value: true: {text}")


def _immutable_errors(old: JsonObject, new: JsonObject, *, established: bool) -> Iterator[InvalidFieldError]:
    before, after = get_object(old, "names"), get_object(new, "names")
    if established:
        yield from _unchanged_error("spec.scope", old.get("scope"), new.get("scope"))
        yield from _unchanged_error("spec.names.kind", before.get("kind"), after.get("kind"))
    yield from _unchanged_error("spec.group", old.get("group"), new.get("group"))
    yield from _unchanged_error("spec.names.plural", before.get("plural"), after.get("plural"))


def _unchanged_error(path: str, old: Any, new: Any) -> Iterator[InvalidFieldError]:
    if old != new:
        yield invalid_value(path, new or "", "field is immutable")


def _stored_version_errors(stored: list[str], versions: list[JsonObject]) -> Iterator[InvalidFieldError]:
    path = "status.storedVersions"
    if not stored:
        yield InvalidFieldError(
            path, "FieldValueInvalid", "Invalid value: null: must have at least one stored version"
        )
        return
    names = [v.get("name") for v in versions]
    for version in versions:
        if version.get("storage") and version.get("name") not in stored:
            text = f"Invalid value: {format_value(stored)}: must have the storage version {version.get('name')}"
            yield InvalidFieldError(path, "FieldValueInvalid", text)
    for position, version in enumerate(stored):
        if version not in names:
            text = (
                f"missing from spec.versions; {version} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {version} and removes "
                f"{version} from status.storedVersions"
            )
            yield InvalidFieldError(
                f"{path}[{position}]", "FieldValueInvalid", f"Invalid value: {format_value(version)}: {text}"
            )


def stored_versions(obj: JsonObject, old: JsonObject | None) -> list[str]:
    """Return ``status.storedVersions``, including the storage version of ``obj``."""
    before: list[str] = get_array(get_object(old, "status") if old is not None else {}, "storedVersions")
    storage = next((v.get("name", "") for v in get_array(obj.get("spec"), "versions") if v.get("storage")), "")
    return before if not storage or storage in before else [*before, storage]


def initial_status(obj: JsonObject) -> JsonObject:
    """Return the status of a new definition before its names are accepted."""
    no_names = {"plural": "", "kind": ""}
    return {"conditions": None, "acceptedNames": no_names, "storedVersions": stored_versions(obj, None)}


def status_after_update(obj: JsonObject, old: JsonObject) -> JsonObject:
    """Return the status after ``obj`` replaced ``old``."""
    return {**clone(get_object(old, "status")), "storedVersions": stored_versions(obj, old)}


def has_true_condition(definition: JsonObject, condition: str) -> bool:
    """Return True if the condition is True."""
    conditions = get_array(get_object(definition, "status"), "conditions")
    return any(c.get("type") == condition and c.get("status") == "True" for c in conditions)


def served_kinds(definition: JsonObject) -> list[ServedKind]:
    """Return the served kinds, one for each version.

    There are none before the names are accepted.
    """
    if not (has_true_condition(definition, "NamesAccepted") or has_true_condition(definition, "Established")):
        return []
    names: JsonObject = get_object(get_object(definition, "status"), "acceptedNames")
    terminating = has_true_condition(definition, "Terminating")
    return _served_kinds(
        msgspec.json.encode((definition["metadata"]["name"], definition["spec"], names, terminating))
    )


@lru_cache(maxsize=128)
def _served_kinds(encoded: bytes) -> list[ServedKind]:
    """Return the kinds of an encoded definition.

    Cached because many tests install the same definitions.
    """
    name, spec, names, terminating = msgspec.json.decode(encoded)
    versions = CustomResourceVersions(
        definition=name,
        storage_version=next(v["name"] for v in spec["versions"] if v.get("storage")),
        schemas={v["name"]: v["schema"]["openAPIV3Schema"] for v in spec["versions"]},
        conversion=spec["conversion"],
        terminating=terminating,
    )
    return [_served_kind(spec, names, v, versions) for v in spec["versions"] if v.get("served")]


def _served_kind(
    spec: JsonObject, names: JsonObject, version: JsonObject, versions: CustomResourceVersions
) -> ServedKind:
    schema: JsonObject = version["schema"]["openAPIV3Schema"]
    selectable: list[JsonObject] = version.get("selectableFields") or []
    namespaced = spec["scope"] == "Namespaced"
    return ServedKind(
        resource=ApiResource(spec["group"], version["name"], names["kind"], names["plural"], namespaced),
        shape=SchemaShape(schema, root=True),
        has_status="status" in get_object(version, "subresources"),
        scale=_scale_paths(get_object(version, "subresources").get("scale")),
        has_generation=True,
        unconditional_update=False,
        schema=schema,
        has_rules=has_rules(schema),
        has_expensive_rules=has_rules(schema) and may_exceed_budget(schema),
        storage_version=versions.storage_version,
        selectable_fields=tuple(f["jsonPath"].lstrip(".") for f in selectable),
        is_custom=True,
        list_kind=names.get("listKind", ""),
        singular=names.get("singular", ""),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        columns=_columns(version),
        versions=versions,
        deprecation_warning=_deprecation_warning(spec, version),
    )


def _scale_paths(scale: JsonObject | None) -> ScalePaths | None:
    if scale is None:
        return None
    return ScalePaths(scale["specReplicasPath"], scale["statusReplicasPath"], scale.get("labelSelectorPath", ""))


def _columns(version: JsonObject) -> tuple[Column, ...]:
    columns = get_array(version, "additionalPrinterColumns") or [_AGE_COLUMN]
    return tuple(
        Column(
            name=c["name"],
            type=c["type"],
            json_path=c["jsonPath"],
            format=c.get("format", ""),
            description=c.get("description", ""),
            priority=c.get("priority", 0),
        )
        for c in columns
    )


def _deprecation_warning(spec: JsonObject, version: JsonObject) -> str:
    """Return the warning for a deprecated version, or an empty string."""
    if not version.get("deprecated"):
        return ""
    if (warning := version.get("deprecationWarning")) is not None:
        return warning
    group, kind, name = spec["group"], spec["names"]["kind"], version["name"]
    others = [v["name"] for v in spec["versions"] if v.get("served") and not v.get("deprecated")]
    newer = sorted((n for n in others if version_sort_key(n) < version_sort_key(name)), key=version_sort_key)
    advice = f"; use {group}/{newer[0]} {kind}" if newer else ""
    return f"{group}/{name} {kind} is deprecated{advice}"


def definition_warnings(obj: JsonObject, old: JsonObject | None) -> list[str]:
    """Return the warnings for new unrecognized formats."""
    before = set(_unrecognized_formats(old)) if old is not None else set[str]()
    return [f'unrecognized format "{form}"' for form in _unrecognized_formats(obj) if form not in before]


def _unrecognized_formats(definition: JsonObject) -> list[str]:
    versions = get_array(definition.get("spec"), "versions")
    schemas = [v.get("schema") for v in versions]
    # One schema is enough if all versions have the same.
    distinct_schemas = schemas[:1] if all(s == schemas[0] for s in schemas) else schemas
    return [
        f
        for s in distinct_schemas
        for f in _unrecognized_formats_of(msgspec.json.encode(get_object(s, "openAPIV3Schema")))
    ]


@lru_cache(maxsize=1024)
def _unrecognized_formats_of(schema: bytes) -> tuple[str, ...]:
    # Cached because many tests write the same schemas.
    return tuple(_formats_in(msgspec.json.decode(schema)))


def _formats_in(schema: JsonObject) -> Iterator[str]:
    form = schema.get("format", "")
    if form and not known_format({"type": schema.get("type", ""), "format": form}):
        yield form
    for inner in subschemas(schema):
        yield from _formats_in(inner)
