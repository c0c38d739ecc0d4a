"""Validation of the spec of a definition.

Source: ``validateCustomResourceDefinitionSpec`` in ``pkg/apis/apiextensions/validation/validation.go``. It validates
an internal type, in which fields that are equal in all versions exist once. The paths of the errors follow that type.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

from steersman_cel.name_validation import dns1035_label_error, dns1123_subdomain_error
from steersman_testing.apiserver.definitions.conversion_validation import conversion_errors
from steersman_testing.apiserver.definitions.default_validation import default_errors
from steersman_testing.apiserver.definitions.rule_validation import RuleValidator
from steersman_testing.apiserver.definitions.schema_validation import (
    SchemaContext,
    any_subschema,
    schema_errors,
)
from steersman_testing.apiserver.definitions.structural import structural_errors, unsupported_field
from steersman_testing.apiserver.failures import (
    InvalidFieldError,
    forbidden_field,
    invalid_value,
    required_value,
    unsupported_value,
)
from steersman_testing.apiserver.schemas.paths import InvalidFieldPath, resolve_path
from steersman_testing.apiserver.values import JsonObject, get_array, get_object

_INTERNAL_NAMES = {
    "schema": "validation",
    "subresources": "subresources",
    "additionalPrinterColumns": "additionalPrinterColumns",
    "selectableFields": "selectableFields",
}
_COLUMN_TYPES = "boolean,date,integer,number,string"
_COLUMN_FORMATS = "byte,date,date-time,double,float,int32,int64,password"
_MAX_SELECTABLE_FIELDS = 8
_MAX_WARNING_LENGTH = 256
# Fields that a schema may have at its root with the subresource status.
_ALLOWED_ROOT_FIELDS = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern "
    "MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields "
    "XValidations"
)
_GO_FIELD_NAMES = {
    "x-kubernetes-preserve-unknown-fields": "XPreserveUnknownFields",
    "x-kubernetes-validations": "XValidations",
}


def spec_errors(spec: JsonObject) -> Iterator[InvalidFieldError]:
    """Yield the errors of the spec of a new or updated definition."""
    yield from _group_errors(spec.get("group", ""))
    scope = spec.get("scope", "")
    if not scope:
        yield required_value("spec.scope")
    elif scope not in ("Cluster", "Namespaced"):
        yield unsupported_value("spec.scope", scope, ("Cluster", "Namespaced"))
    versions: list[JsonObject] = get_array(spec, "versions")
    for position, version in enumerate(versions):
        if "openAPIV3Schema" not in get_object(version, "schema"):
            yield required_value(f"spec.versions[{position}].schema.openAPIV3Schema")
    yield from _preserve_unknown_fields_errors(spec, versions)
    common = {field for field in _INTERNAL_NAMES if _is_equal_in_all_versions(field, versions)}
    for position, version in enumerate(versions):
        path = f"spec.versions[{position}]"
        if problem := dns1035_label_error(version.get("name", "")):
            yield invalid_value(f"{path}.name", version.get("name", ""), problem)
        yield from _deprecation_warning_errors(version, path)
        yield from _version_errors(version, {f: f"{path}.{f}" for f in _INTERNAL_NAMES if f not in common})
    yield from _storage_version_errors(versions, common)
    if versions and (problem := dns1035_label_error(versions[0].get("name", ""))):
        # The internal type has the first version in a field of its own.
        yield invalid_value("spec.version", versions[0].get("name", ""), problem)
    yield from required_name_errors(get_object(spec, "names"))
    yield from name_errors(get_object(spec, "names"), "spec.names")
    if versions:
        yield from _version_errors(
            versions[0], {f: f"spec.{h}" for f, h in _INTERNAL_NAMES.items() if f in common}, versions
        )
    yield from conversion_errors(spec)


def _is_equal_in_all_versions(field: str, versions: list[JsonObject]) -> bool:
    return all((v.get(field) or None) == (versions[0].get(field) or None) for v in versions)


def _group_errors(group: str) -> Iterator[InvalidFieldError]:
    if not group:
        yield required_value("spec.group")
    elif problem := dns1123_subdomain_error(group):
        yield invalid_value("spec.group", group, problem)
    elif "." not in group:
        yield invalid_value("spec.group", group, "should be a domain with at least one dot")


def _preserve_unknown_fields_errors(spec: JsonObject, versions: list[JsonObject]) -> Iterator[InvalidFieldError]:
    if not spec.get("preserveUnknownFields"):
        return
    schemas = [get_object(v, "schema").get("openAPIV3Schema") for v in versions]
    if any(any_subschema(s, lambda s: "default" in s) for s in schemas):
        text = "must be false in order to use defaults in the schema"
        yield InvalidFieldError("spec.preserveUnknownFields", "FieldValueInvalid", f"Invalid value: true: {text}")


def _storage_version_errors(versions: list[JsonObject], common: set[str]) -> Iterator[InvalidFieldError]:
    names = [v.get("name", "") for v in versions]
    if len(set(names)) < len(names):
        yield invalid_value(
            "spec.versions", _internal_versions(versions, common), "must contain unique version names"
        )
    if sum(bool(v.get("storage")) for v in versions) != 1:
        text = "must have exactly one version marked as storage version"
        yield invalid_value("spec.versions", _internal_versions(versions, common), text)


def _internal_versions(versions: list[JsonObject], common: set[str]) -> list[JsonObject]:
    """Return the versions as the internal Go type has them."""

    def own_value(version: JsonObject, field: str) -> Any:
        return None if field in common else version.get(field)

    return [
        {
            "Name": v.get("name", ""),
            "Served": v.get("served", False),
            "Storage": v.get("storage", False),
            "Deprecated": v.get("deprecated", False),
            "DeprecationWarning": v.get("deprecationWarning"),
            "Schema": own_value(v, "schema"),
            "Subresources": own_value(v, "subresources"),
            "AdditionalPrinterColumns": own_value(v, "additionalPrinterColumns"),
            "SelectableFields": own_value(v, "selectableFields"),
        }
        for v in versions
    ]


def _deprecation_warning_errors(version: JsonObject, path: str) -> Iterator[InvalidFieldError]:
    warning = version.get("deprecationWarning")
    if warning is None:
        return
    problems: list[str] = []
    if not version.get("deprecated"):
        problems = ["can only be set for deprecated versions"]
    elif len(warning.encode()) > _MAX_WARNING_LENGTH:
        problems = [f"must be <= {_MAX_WARNING_LENGTH} characters long"]
    elif not warning:
        problems = ["must not be an empty string"]
    unprintable = next((i for i, c in enumerate(warning) if not c.isprintable()), None)
    if version.get("deprecated") and unprintable is not None:
        text = "must only contain printable UTF-8 characters; non-printable character found at index"
        problems.append(f"{text} {len(warning[:unprintable].encode())}")
    for problem in problems:
        yield invalid_value(f"{path}.deprecationWarning", warning, problem)


def _version_errors(
    version: JsonObject, places: dict[str, str], versions: list[JsonObject] | None = None
) -> Iterator[InvalidFieldError]:
    """Yield the errors of the fields of a version.

    Args:
        places: error path of each field to validate.
    """
    subresources = get_object(version, "subresources")
    if "schema" in places:
        has_status = any("status" in get_object(v, "subresources") for v in versions or [version])
        yield from _schema_errors_at(
            get_object(version, "schema").get("openAPIV3Schema"), places["schema"], has_status
        )
    if "subresources" in places and "scale" in subresources:
        yield from _scale_errors(subresources["scale"], f"{places['subresources']}.scale")
    if "additionalPrinterColumns" in places:
        for position, column in enumerate(get_array(version, "additionalPrinterColumns")):
            yield from _column_errors(column, f"{places['additionalPrinterColumns']}[{position}]")
    if "selectableFields" in places and version.get("selectableFields"):
        # If all versions share the schema but not these fields, the real server finds no schema here.
        shared = versions is None and "schema" not in places
        schema = None if shared else get_object(version, "schema").get("openAPIV3Schema")
        yield from _selectable_field_errors(
            get_array(version, "selectableFields"), schema, places["selectableFields"]
        )


def _schema_errors_at(schema: JsonObject | None, path: str, has_status: bool) -> Iterator[InvalidFieldError]:
    if schema is not None:
        yield from _schema_errors(msgspec.json.encode(schema), f"{path}.openAPIV3Schema", has_status)


@lru_cache(maxsize=128)
def _schema_errors(encoded: bytes, path: str, has_status: bool) -> list[InvalidFieldError]:
    """Return the errors of an encoded schema.

    Cached because many tests install the same schemas.
    """
    schema = msgspec.json.decode(encoded)
    errors: list[InvalidFieldError] = []
    if has_status:
        errors += _root_field_errors(schema, path)
    if schema.get("nullable"):
        errors.append(forbidden_field(f"{path}.nullable", "nullable cannot be true at the root"))
    unsupported = unsupported_field(schema)
    structural = [] if unsupported else structural_errors(schema, path) or default_errors(schema, path)
    errors += structural
    is_structural = not unsupported and not structural
    rules = RuleValidator(schema)
    errors += schema_errors(schema, path, SchemaContext(rule_validator=rules if is_structural else None))
    errors += rules.total_cost_errors(path)
    if unsupported and not errors:
        errors.append(InvalidFieldError(path, "FieldValueInvalid", f'Invalid value: "": {unsupported}'))
    return errors


def _root_field_errors(schema: JsonObject, path: str) -> Iterator[InvalidFieldError]:
    kind = schema.get("type", "")
    if kind and kind != "object":
        text = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
        yield invalid_value(f"{path}.type", kind, text)
    elif any(_GO_FIELD_NAMES.get(f, f[0].upper() + f[1:]) not in _ALLOWED_ROOT_FIELDS.split() for f in schema):
        text = (
            f"only [{_ALLOWED_ROOT_FIELDS}] fields are allowed at the root of the schema if the status subresource "
            "is enabled"
        )
        yield InvalidFieldError(path, "FieldValueInvalid", f"Invalid value: {text}")


def required_name_errors(names: JsonObject) -> Iterator[InvalidFieldError]:
    """Yield the errors of missing names."""
    for field in ("plural", "singular", "kind", "listKind"):
        if not names.get(field):
            yield required_value(f"spec.names.{field}")


def name_errors(names: JsonObject, path: str) -> Iterator[InvalidFieldError]:
    """Yield the errors of names that are not DNS labels."""
    for field in ("plural", "singular"):
        if (name := names.get(field, "")) and (problem := dns1035_label_error(name)):
            yield invalid_value(f"{path}.{field}", name, problem)
    for field in ("kind", "listKind"):
        if (name := names.get(field, "")) and (problem := dns1035_label_error(name.lower())):
            text = f"may have mixed case, but should otherwise match: {problem}"
            yield invalid_value(f"{path}.{field}", name, text)
    for position, name in enumerate(get_array(names, "shortNames")):
        if problem := dns1035_label_error(name):
            yield invalid_value(f"{path}.shortNames[{position}]", name, problem)
    kind = names.get("kind", "")
    if kind and kind == names.get("listKind"):
        yield invalid_value(f"{path}.listKind", kind, "kind and listKind may not be the same")
    for position, name in enumerate(get_array(names, "categories")):
        if problem := dns1035_label_error(name):
            yield invalid_value(f"{path}.categories[{position}]", name, problem)


def _simple_path_errors(path: str, field_path: str) -> Iterator[InvalidFieldError]:
    if path[0] != ".":
        yield invalid_value(field_path, path, "must be a simple json path starting with .")


def _scale_errors(scale: JsonObject, field_path: str) -> Iterator[InvalidFieldError]:
    for field, prefixes in (("specReplicasPath", [".spec."]), ("statusReplicasPath", [".status."])):
        path = scale.get(field, "")
        if not path:
            yield required_value(f"{field_path}.{field}")
        else:
            yield from _path_prefix_errors(
                path, f"{field_path}.{field}", prefixes, f"should be a json path under {prefixes[0][:-1]}"
            )
    path = scale.get("labelSelectorPath", "")
    if path:
        text = "should be a json path under either .spec or .status"
        yield from _path_prefix_errors(path, f"{field_path}.labelSelectorPath", [".spec.", ".status."], text)


def _path_prefix_errors(path: str, field_path: str, prefixes: list[str], text: str) -> Iterator[InvalidFieldError]:
    malformed = list(_simple_path_errors(path, field_path))
    yield from malformed
    if not malformed and not path.startswith(tuple(prefixes)):
        yield invalid_value(field_path, path, text)


def _column_errors(column: JsonObject, field_path: str) -> Iterator[InvalidFieldError]:
    if not column.get("name"):
        yield required_value(f"{field_path}.name")
    kind, form, path = (column.get(f, "") for f in ("type", "format", "jsonPath"))
    if not kind:
        yield required_value(f"{field_path}.type", f"must be one of {_COLUMN_TYPES}")
    elif kind not in _COLUMN_TYPES.split(","):
        yield invalid_value(f"{field_path}.type", kind, f"must be one of {_COLUMN_TYPES}")
    if form and form not in _COLUMN_FORMATS.split(","):
        yield invalid_value(f"{field_path}.format", form, f"must be one of {_COLUMN_FORMATS}")
    if not path:
        yield required_value(f"{field_path}.JSONPath")
    else:
        yield from _simple_path_errors(path, f"{field_path}.JSONPath")


def _selectable_field_errors(
    fields: list[JsonObject], schema: JsonObject | None, field_path: str
) -> Iterator[InvalidFieldError]:
    if schema is None:
        text = "may only be set when `version.schema.openAPIV3Schema` is not included"
        yield InvalidFieldError(field_path, "FieldValueInvalid", f'Invalid value: "": {text}')
        return
    seen: set[str] = set()
    for position, field in enumerate(fields):
        inner, path = f"{field_path}[{position}].jsonPath", field.get("jsonPath", "")
        if not path:
            yield required_value(inner)
            continue
        try:
            found = resolve_path(path, schema, brackets=False)
        except InvalidFieldPath as error:
            yield invalid_value(inner, path, f"is an invalid path: {error}")
            continue
        yield from _selected_field_errors(found.root, found.schema, path, inner)
        if found.path in seen:
            yield InvalidFieldError(inner, "FieldValueDuplicate", f'Duplicate value: "{path}"')
        seen.add(found.path)
    if len(seen) > _MAX_SELECTABLE_FIELDS:
        text = f"Too many: {len(seen)}: must have at most {_MAX_SELECTABLE_FIELDS} items"
        yield InvalidFieldError(field_path, "FieldValueTooMany", text)


def _selected_field_errors(root: str, schema: Any, path: str, field_path: str) -> Iterator[InvalidFieldError]:
    if root == "metadata":
        yield invalid_value(field_path, path, "must not point to fields in metadata")
    if get_object({"schema": schema}, "schema").get("type") not in ("string", "boolean", "integer"):
        text = (
            "must point to a field of type string, boolean or integer. Enum string fields and strings with formats "
            "are allowed."
        )
        yield invalid_value(field_path, path, text)
