"""Whether a definition's spec can be served: names, versions, subresources, columns, conversion.

Source: ``validateCustomResourceDefinitionSpec`` in ``pkg/apis/apiextensions/validation/validation.go``. It looks at
an internal form, in which what all versions have alike stands once, for all of them: hence the paths of the errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

from steersman_cel.names import label_problem, subdomain_problem
from steersman_testing.apiserver.definitions.conversions import conversion_errors
from steersman_testing.apiserver.definitions.defaulting import default_errors
from steersman_testing.apiserver.definitions.rules import RuleChecks
from steersman_testing.apiserver.definitions.schemas import (
    Scope,
    has_anywhere,
    not_supported,
    schema_errors,
)
from steersman_testing.apiserver.definitions.structural import structural_errors, unsupported_field
from steersman_testing.apiserver.failures import FieldError, forbidden_field, invalid_value, required
from steersman_testing.apiserver.schemas.paths import PathError, find_place
from steersman_testing.apiserver.values import JsonObject, list_at, map_at

_HOISTED = {
    "schema": "validation",
    "subresources": "subresources",
    "additionalPrinterColumns": "additionalPrinterColumns",
    "selectableFields": "selectableFields",
}
_COLUMN_TYPES = "boolean,date,integer,number,string"
_COLUMN_FORMATS = "byte,date,date-time,double,float,int32,int64,password"
_MOST_SELECTABLE = 8
_LONGEST_WARNING = 256
# Of a schema that is split for the status subresource, only these may stand at the root.
_ROOT_FIELDS = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern "
    "MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields "
    "XValidations"
)
_ROOT_NAMES = {
    "x-kubernetes-preserve-unknown-fields": "XPreserveUnknownFields",
    "x-kubernetes-validations": "XValidations",
}


def spec_errors(spec: JsonObject) -> Iterator[FieldError]:
    """What is wrong with the spec of a new definition, or a changed one."""
    yield from _group(spec.get("group", ""))
    scope = spec.get("scope", "")
    if not scope:
        yield required("spec.scope")
    elif scope not in ("Cluster", "Namespaced"):
        yield not_supported("spec.scope", scope, ("Cluster", "Namespaced"))
    versions: list[JsonObject] = list_at(spec, "versions")
    for position, version in enumerate(versions):
        if "openAPIV3Schema" not in map_at(version, "schema"):
            yield required(f"spec.versions[{position}].schema.openAPIV3Schema")
    yield from _preserving(spec, versions)
    common = {field for field in _HOISTED if _is_common(field, versions)}
    for position, version in enumerate(versions):
        place = f"spec.versions[{position}]"
        if problem := label_problem(version.get("name", "")):
            yield invalid_value(f"{place}.name", version.get("name", ""), problem)
        yield from _warning(version, place)
        yield from _version(version, {f: f"{place}.{f}" for f in _HOISTED if f not in common})
    yield from _storage(versions, common)
    if versions and (problem := label_problem(versions[0].get("name", ""))):
        # The first version stands in a field of its own inside.
        yield invalid_value("spec.version", versions[0].get("name", ""), problem)
    yield from names_required(map_at(spec, "names"))
    yield from names_errors(map_at(spec, "names"), "spec.names")
    if versions:
        yield from _version(versions[0], {f: f"spec.{h}" for f, h in _HOISTED.items() if f in common}, versions)
    yield from conversion_errors(spec)


def _is_common(field: str, versions: list[JsonObject]) -> bool:
    return all((v.get(field) or None) == (versions[0].get(field) or None) for v in versions)


def _group(group: str) -> Iterator[FieldError]:
    if not group:
        yield required("spec.group")
    elif problem := subdomain_problem(group):
        yield invalid_value("spec.group", group, problem)
    elif "." not in group:
        yield invalid_value("spec.group", group, "should be a domain with at least one dot")


def _preserving(spec: JsonObject, versions: list[JsonObject]) -> Iterator[FieldError]:
    if not spec.get("preserveUnknownFields"):
        return
    schemas = [map_at(v, "schema").get("openAPIV3Schema") for v in versions]
    if any(has_anywhere(s, lambda s: "default" in s) for s in schemas):
        text = "must be false in order to use defaults in the schema"
        yield FieldError("spec.preserveUnknownFields", "FieldValueInvalid", f"Invalid value: true: {text}")


def _storage(versions: list[JsonObject], common: set[str]) -> Iterator[FieldError]:
    names = [v.get("name", "") for v in versions]
    if len(set(names)) < len(names):
        yield invalid_value("spec.versions", _inside(versions, common), "must contain unique version names")
    if sum(bool(v.get("storage")) for v in versions) != 1:
        text = "must have exactly one version marked as storage version"
        yield invalid_value("spec.versions", _inside(versions, common), text)


def _inside(versions: list[JsonObject], common: set[str]) -> list[JsonObject]:
    """The versions as the real server has them inside, but for schemas and the like that differ between them."""

    def own(version: JsonObject, field: str) -> Any:
        return None if field in common else version.get(field)

    return [
        {
            "Name": v.get("name", ""),
            "Served": v.get("served", False),
            "Storage": v.get("storage", False),
            "Deprecated": v.get("deprecated", False),
            "DeprecationWarning": v.get("deprecationWarning"),
            "Schema": own(v, "schema"),
            "Subresources": own(v, "subresources"),
            "AdditionalPrinterColumns": own(v, "additionalPrinterColumns"),
            "SelectableFields": own(v, "selectableFields"),
        }
        for v in versions
    ]


def _warning(version: JsonObject, place: str) -> Iterator[FieldError]:
    warning = version.get("deprecationWarning")
    if warning is None:
        return
    problems: list[str] = []
    if not version.get("deprecated"):
        problems = ["can only be set for deprecated versions"]
    elif len(warning.encode()) > _LONGEST_WARNING:
        problems = [f"must be <= {_LONGEST_WARNING} characters long"]
    elif not warning:
        problems = ["must not be an empty string"]
    unprintable = next((i for i, c in enumerate(warning) if not c.isprintable()), None)
    if version.get("deprecated") and unprintable is not None:
        text = "must only contain printable UTF-8 characters; non-printable character found at index"
        problems.append(f"{text} {len(warning[:unprintable].encode())}")
    for problem in problems:
        yield invalid_value(f"{place}.deprecationWarning", warning, problem)


def _version(
    version: JsonObject, places: dict[str, str], versions: list[JsonObject] | None = None
) -> Iterator[FieldError]:
    """What is wrong with the fields of a version that have a path in ``places``."""
    subresources = map_at(version, "subresources")
    if "schema" in places:
        has_status = any("status" in map_at(v, "subresources") for v in versions or [version])
        yield from _schema(map_at(version, "schema").get("openAPIV3Schema"), places["schema"], has_status)
    if "subresources" in places and "scale" in subresources:
        yield from _scale(subresources["scale"], f"{places['subresources']}.scale")
    if "additionalPrinterColumns" in places:
        for position, column in enumerate(list_at(version, "additionalPrinterColumns")):
            yield from _column(column, f"{places['additionalPrinterColumns']}[{position}]")
    if "selectableFields" in places and version.get("selectableFields"):
        # A schema that all versions share is not looked for here where the fields differ.
        shared = versions is None and "schema" not in places
        schema = None if shared else map_at(version, "schema").get("openAPIV3Schema")
        yield from _selectable(list_at(version, "selectableFields"), schema, places["selectableFields"])


def _schema(schema: JsonObject | None, place: str, has_status: bool) -> Iterator[FieldError]:
    if schema is not None:
        yield from _schema_errors(msgspec.json.encode(schema), f"{place}.openAPIV3Schema", has_status)


@lru_cache(maxsize=128)
def _schema_errors(encoded: bytes, path: str, has_status: bool) -> list[FieldError]:
    """What is wrong with a schema, in JSON. Each test has a server of its own, and all install the same schemas."""
    schema = msgspec.json.decode(encoded)
    errors: list[FieldError] = []
    if has_status:
        errors += _root_fields(schema, path)
    if schema.get("nullable"):
        errors.append(forbidden_field(f"{path}.nullable", "nullable cannot be true at the root"))
    unsupported = unsupported_field(schema)
    shape = [] if unsupported else structural_errors(schema, path) or default_errors(schema, path)
    errors += shape
    sound = not unsupported and not shape
    rules = RuleChecks(schema)
    errors += schema_errors(schema, path, Scope(checks_rules=rules if sound else None))
    errors += rules.total_errors(path)
    if unsupported and not errors:
        errors.append(FieldError(path, "FieldValueInvalid", f'Invalid value: "": {unsupported}'))
    return errors


def _root_fields(schema: JsonObject, path: str) -> Iterator[FieldError]:
    kind = schema.get("type", "")
    if kind and kind != "object":
        text = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
        yield invalid_value(f"{path}.type", kind, text)
    elif any(_ROOT_NAMES.get(f, f[0].upper() + f[1:]) not in _ROOT_FIELDS.split() for f in schema):
        text = (
            f"only [{_ROOT_FIELDS}] fields are allowed at the root of the schema if the status subresource is enabled"
        )
        yield FieldError(path, "FieldValueInvalid", f"Invalid value: {text}")


def names_required(names: JsonObject) -> Iterator[FieldError]:
    """The names that a spec lacks."""
    for field in ("plural", "singular", "kind", "listKind"):
        if not names.get(field):
            yield required(f"spec.names.{field}")


def names_errors(names: JsonObject, path: str) -> Iterator[FieldError]:
    """The names that are no labels."""
    for field in ("plural", "singular"):
        if (name := names.get(field, "")) and (problem := label_problem(name)):
            yield invalid_value(f"{path}.{field}", name, problem)
    for field in ("kind", "listKind"):
        if (name := names.get(field, "")) and (problem := label_problem(name.lower())):
            text = f"may have mixed case, but should otherwise match: {problem}"
            yield invalid_value(f"{path}.{field}", name, text)
    for position, name in enumerate(list_at(names, "shortNames")):
        if problem := label_problem(name):
            yield invalid_value(f"{path}.shortNames[{position}]", name, problem)
    kind = names.get("kind", "")
    if kind and kind == names.get("listKind"):
        yield invalid_value(f"{path}.listKind", kind, "kind and listKind may not be the same")
    for position, name in enumerate(list_at(names, "categories")):
        if problem := label_problem(name):
            yield invalid_value(f"{path}.categories[{position}]", name, problem)


def _simple_path(path: str, place: str) -> Iterator[FieldError]:
    if path[0] != ".":
        yield invalid_value(place, path, "must be a simple json path starting with .")


def _scale(scale: JsonObject, place: str) -> Iterator[FieldError]:
    for field, parents in (("specReplicasPath", [".spec."]), ("statusReplicasPath", [".status."])):
        path = scale.get(field, "")
        if not path:
            yield required(f"{place}.{field}")
        else:
            yield from _path_under(
                path, f"{place}.{field}", parents, f"should be a json path under {parents[0][:-1]}"
            )
    path = scale.get("labelSelectorPath", "")
    if path:
        text = "should be a json path under either .spec or .status"
        yield from _path_under(path, f"{place}.labelSelectorPath", [".spec.", ".status."], text)


def _path_under(path: str, place: str, parents: list[str], text: str) -> Iterator[FieldError]:
    malformed = list(_simple_path(path, place))
    yield from malformed
    if not malformed and not path.startswith(tuple(parents)):
        yield invalid_value(place, path, text)


def _column(column: JsonObject, place: str) -> Iterator[FieldError]:
    if not column.get("name"):
        yield required(f"{place}.name")
    kind, form, path = (column.get(f, "") for f in ("type", "format", "jsonPath"))
    if not kind:
        yield required(f"{place}.type", f"must be one of {_COLUMN_TYPES}")
    elif kind not in _COLUMN_TYPES.split(","):
        yield invalid_value(f"{place}.type", kind, f"must be one of {_COLUMN_TYPES}")
    if form and form not in _COLUMN_FORMATS.split(","):
        yield invalid_value(f"{place}.format", form, f"must be one of {_COLUMN_FORMATS}")
    if not path:
        yield required(f"{place}.JSONPath")
    else:
        yield from _simple_path(path, f"{place}.JSONPath")


def _selectable(fields: list[JsonObject], schema: JsonObject | None, place: str) -> Iterator[FieldError]:
    if schema is None:
        text = "may only be set when `version.schema.openAPIV3Schema` is not included"
        yield FieldError(place, "FieldValueInvalid", f'Invalid value: "": {text}')
        return
    seen: set[str] = set()
    for position, field in enumerate(fields):
        inner, path = f"{place}[{position}].jsonPath", field.get("jsonPath", "")
        if not path:
            yield required(inner)
            continue
        try:
            found = find_place(path, schema, brackets=False)
        except PathError as error:
            yield invalid_value(inner, path, f"is an invalid path: {error}")
            continue
        yield from _selected(found.root, found.schema, path, inner)
        if found.path in seen:
            yield FieldError(inner, "FieldValueDuplicate", f'Duplicate value: "{path}"')
        seen.add(found.path)
    if len(seen) > _MOST_SELECTABLE:
        text = f"Too many: {len(seen)}: must have at most {_MOST_SELECTABLE} items"
        yield FieldError(place, "FieldValueTooMany", text)


def _selected(root: str, schema: Any, path: str, place: str) -> Iterator[FieldError]:
    if root == "metadata":
        yield invalid_value(place, path, "must not point to fields in metadata")
    if map_at({"schema": schema}, "schema").get("type") not in ("string", "boolean", "integer"):
        text = (
            "must point to a field of type string, boolean or integer. Enum string fields and strings with formats "
            "are allowed."
        )
        yield invalid_value(place, path, text)
