"""Schema checks of server-side apply, which precede validation.

Source: ``sigs.k8s.io/structured-merge-diff/v6/typed``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from steersman.errors import ApiError
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.builtin.types import metadata_schema, openapi_schema
from steersman_testing.apiserver.fields.field_paths import list_elements, path_text
from steersman_testing.apiserver.go_values import go_value_text
from steersman_testing.apiserver.kinds import ServedKind
from steersman_testing.apiserver.shapes import Shape
from steersman_testing.apiserver.values import MISSING, JsonObject, get_field, get_object, is_list, is_map

_ROOT_FIELDS = ("apiVersion", "kind")
_ANYTHING: JsonObject = {"x-kubernetes-preserve-unknown-fields": True}
_NUMBER: tuple[tuple[type[Any], ...], str] = ((int, float), "numeric (int or float)")
_EXPECTED: dict[str, tuple[tuple[type[Any], ...], str]] = {
    "integer": _NUMBER,
    "number": _NUMBER,
    "string": ((str,), "string"),
    "boolean": ((bool,), "boolean"),
    "array": ((list,), "list"),
    "object": ((dict,), "map"),
}


def validate_applied(kind: ServedKind, config: JsonObject, invalid_times: JsonObject) -> None:
    """Check an applied configuration against the schema of its kind.

    Unknown fields, wrong types and list items without keys are errors.

    Args:
        invalid_times: invalid times in its metadata.

    Raises:
        ApiError: 500 without a reason, as the real server responds.
    """
    schema = openapi_schema(kind.resource) if kind.schema is None else kind.schema
    found = [
        f".metadata.{name}: expected any scalar, got &{{{go_value_text(value)}}}"
        for name, value in invalid_times.items()
        if is_map(value) or is_list(value)
    ]
    found += _errors(config, schema or _ANYTHING, kind.shape, "", root=True)
    if not found:
        return
    text = found[0] if len(found) == 1 else "errors:" + "".join(f"\n  {line}" for line in found)
    raise failures.unclassified_error(
        f"failed to create typed patch object ({describe_object(kind, config)}): {text}"
    )


def describe_object(kind: ServedKind, obj: JsonObject) -> str:
    """Return the description of ``obj`` in errors of server-side apply."""
    resource, meta = kind.resource, get_object(obj, "metadata")
    version = f"{resource.group}/{resource.version}"
    return f"{meta.get('namespace', '')}/{meta.get('name', '')}; {version}, Kind={resource.kind}"


def validate_object(obj: JsonObject, schema: JsonObject, shape: Shape) -> None:
    """Check a custom resource against ``schema``.

    Raises:
        ApiError: 500, it does not match.
    """
    found = list(_errors(obj, schema, shape, "", root=True))
    if found:
        raise failures.unclassified_error(
            found[0] if len(found) == 1 else "errors:" + "".join(f"\n  {e}" for e in found)
        )


def _errors(value: Any, schema: JsonObject, shape: Shape, path: str, *, root: bool = False) -> Iterator[str]:
    if value is None:
        return
    wrong = _expected_type(value, schema)
    if wrong:
        yield f"{path}: expected {wrong}, got {_schema_type_name(value)}"
    elif is_list(value):
        yield from _list_errors(value, schema, shape, path)
    elif is_map(value):
        for name, content in value.items():
            if root and name in _ROOT_FIELDS:
                continue
            inner = metadata_schema() if root and name == "metadata" else get_field(schema.get("properties"), name)
            if inner is MISSING:
                inner = schema.get("additionalProperties")
            if is_map(inner):
                yield from _errors(content, inner, shape.field(name), f"{path}.{name}")
            elif not inner and not schema.get("x-kubernetes-preserve-unknown-fields"):
                yield f"{path}.{name}: field not declared in schema"


def _list_errors(value: list[Any], schema: JsonObject, shape: Shape, path: str) -> Iterator[str]:
    items = get_object(schema, "items")
    if shape.relation == "map":
        for position, item in enumerate(value):
            if not is_map(item):
                element_kind = "a null element" if item is None else "non-map elements"
                yield f"{path}: element {position}: associative list with keys may not have {element_kind}"
                return
    if shape.relation == "set" and None in value:
        text = "associative list without keys has an element that's an explicit null"
        yield f"{path}: element {value.index(None)}: {text}"
        return
    item_paths = [f"[{position}]" for position in range(len(value))]
    if shape.relation in ("map", "set"):
        try:
            item_paths = [path_text((element,)) for element in list_elements(value, shape)]
        except ApiError as error:
            yield f"{path}: {error}"
            return
    for item_path, item in zip(item_paths, value, strict=True):
        yield from _errors(item, items, shape.item(), f"{path}{item_path}")


def _expected_type(value: Any, schema: JsonObject) -> str:
    """Return the expected type, or an empty string if the type matches."""
    declared = schema.get("type")
    if schema.get("x-kubernetes-int-or-string") or declared not in _EXPECTED:
        return ""
    types, description = _EXPECTED[declared]
    is_bool = isinstance(value, bool) and declared != "boolean"
    return "" if isinstance(value, types) and not is_bool else description


def _schema_type_name(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int | float):
        return "numeric"
    return "list" if is_list(value) else "map"
