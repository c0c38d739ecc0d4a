"""Decoding of definitions into the fields of the Go types.

Unknown fields are dropped, and so are zero values of fields with ``omitempty``. A value of the wrong JSON type is
rejected. Source: ``pkg/apis/apiextensions/v1/types.go`` and ``types_jsonschema.go``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from steersman.errors import ApiError
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.values import JsonObject, is_list, is_map, type_of

_FieldDecoder = Callable[[Any, str, list[str]], Any]
"""Decodes a value at a path. The list receives unknown fields."""

_KIND = "CustomResourceDefinition"


def decode_spec(spec: Any) -> tuple[JsonObject, list[str]]:
    """Return the decoded spec and the paths of unknown fields.

    Raises:
        ApiError: 400, a field has the wrong JSON type.
    """
    unknown: list[str] = []
    try:
        decoded = _SPEC(spec, "spec", unknown)
    except _WrongTypeError as error:
        raise error.to_api_error(_KIND) from None
    # In these messages, keys of maps follow a dot and list indexes are in brackets.
    return decoded, sorted(re.sub(r"\[(?!\d+\])([^\]]*)\]", r".\1", path) for path in unknown)


class _WrongTypeError(Exception):
    """The value at ``path`` does not have the Go type ``go_type``."""

    def __init__(self, value: Any, path: str, go_type: str) -> None:
        super().__init__(value, path, go_type)
        self.value, self.path, self.go_type = value, path, go_type

    def to_api_error(self, struct: str) -> ApiError:
        """Return the API error.

        It has the Go struct of the field and a path without keys.
        """
        found = {dict: "object", list: "array", str: "string", bool: "bool"}.get(type_of(self.value), "number")
        if type(self.value) is float:
            found = f"number {self.value}"
        path = re.sub(r"\[[^\]]*\]", "", self.path)
        return failures.bad_request(
            f'{_KIND} in version "v1" cannot be handled as a {_KIND}: json: cannot unmarshal {found} into Go struct '
            f"field {struct}.{path} of type {self.go_type}"
        )


def _scalar(go_type: str, *types: type) -> _FieldDecoder:
    def decode(value: Any, path: str, unknown: list[str]) -> Any:
        if type(value) not in types:
            raise _WrongTypeError(value, path, go_type)
        return value

    return decode


def _integer(value: Any, path: str, unknown: list[str]) -> Any:
    whole = type(value) is int or (type(value) is float and value.is_integer())
    if not whole:
        raise _WrongTypeError(value, path, "int64")
    return int(value)


def _number(value: Any, path: str, unknown: list[str]) -> Any:
    if type(value) not in (int, float):
        raise _WrongTypeError(value, path, "float64")
    # Go prints whole numbers without a fraction.
    return int(value) if float(value).is_integer() else value


def _json(value: Any, path: str, unknown: list[str]) -> Any:
    return value


def _list_of(item: _FieldDecoder, kind: str = "v1.JSONSchemaProps") -> _FieldDecoder:
    def decode(value: Any, path: str, unknown: list[str]) -> Any:
        if not is_list(value):
            raise _WrongTypeError(value, path, f"[]{kind}")
        return [item(v, f"{path}[{i}]", unknown) for i, v in enumerate(value)]

    return decode


def _map_of(item: _FieldDecoder) -> _FieldDecoder:
    def decode(value: Any, path: str, unknown: list[str]) -> Any:
        if not is_map(value):
            raise _WrongTypeError(value, path, "map[string]v1.JSONSchemaProps")
        return {k: item(v, f"{path}[{k}]", unknown) for k, v in value.items()}

    return decode


def _struct(struct: str, fields: Callable[[], dict[str, tuple[_FieldDecoder, bool]]]) -> _FieldDecoder:
    """Return the decoder of a Go struct.

    Args:
        fields: decoder of each field, and whether its zero value is dropped.
    """

    def decode(value: Any, path: str, unknown: list[str]) -> Any:
        if value is None:
            return {}
        if not is_map(value):
            raise _WrongTypeError(value, path, f"v1.{struct}")
        known = fields()
        result: JsonObject = {}
        for name, content in value.items():
            if name not in known:
                unknown.append(f"{path}.{name}")
                continue
            inner, omit_empty = known[name]
            if content is None:
                continue
            try:
                decoded = inner(content, f"{path}.{name}", unknown)
            except _WrongTypeError as error:
                raise error.to_api_error(struct) from None
            if decoded or not omit_empty:
                result[name] = decoded
        return result

    return decode


def _schema_or_bool(value: Any, path: str, unknown: list[str]) -> Any:
    return value if isinstance(value, bool) else _schema(value, path, unknown)


def _schema_or_list(value: Any, path: str, unknown: list[str]) -> Any:
    return _list_of(_schema)(value, path, unknown) if is_list(value) else _schema(value, path, unknown)


def _schema_or_names(value: Any, path: str, unknown: list[str]) -> Any:
    return _list_of(_STRING)(value, path, unknown) if is_list(value) else _schema(value, path, unknown)


_STRING = _scalar("string", str)
_BOOL = _scalar("bool", bool)
_STRINGS = _list_of(_STRING, "string")


def _required_field(form: _FieldDecoder) -> tuple[_FieldDecoder, bool]:
    return form, False


def _omit_empty(form: _FieldDecoder) -> tuple[_FieldDecoder, bool]:
    return form, True


_RULE = _struct(
    "ValidationRule",
    lambda: {
        "rule": _required_field(_STRING),
        "message": _omit_empty(_STRING),
        "messageExpression": _omit_empty(_STRING),
        "reason": _required_field(_STRING),
        "fieldPath": _omit_empty(_STRING),
        "optionalOldSelf": _required_field(_BOOL),
    },
)


def _schema_fields() -> dict[str, tuple[_FieldDecoder, bool]]:
    return _SCHEMA_FIELDS


_schema = _struct("JSONSchemaProps", _schema_fields)
_SCHEMA_FIELDS: dict[str, tuple[_FieldDecoder, bool]] = {
    **dict.fromkeys(("id", "$schema", "description", "type", "format", "title", "pattern"), _omit_empty(_STRING)),
    **dict.fromkeys(("$ref", "x-kubernetes-list-type", "x-kubernetes-map-type"), _required_field(_STRING)),
    **dict.fromkeys(("maximum", "minimum", "multipleOf"), _required_field(_number)),
    **dict.fromkeys(
        ("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties"),
        _required_field(_integer),
    ),
    **dict.fromkeys(
        (
            *("exclusiveMaximum", "exclusiveMinimum", "uniqueItems", "nullable"),
            *("x-kubernetes-embedded-resource", "x-kubernetes-int-or-string"),
        ),
        _omit_empty(_BOOL),
    ),
    "x-kubernetes-preserve-unknown-fields": _required_field(_BOOL),
    "default": _required_field(_json),
    "example": _required_field(_json),
    "enum": _omit_empty(_list_of(_json, "v1.JSON")),
    "required": _omit_empty(_STRINGS),
    "x-kubernetes-list-map-keys": _omit_empty(_STRINGS),
    "items": _required_field(_schema_or_list),
    **dict.fromkeys(("allOf", "oneOf", "anyOf"), _omit_empty(_list_of(_schema))),
    "not": _required_field(_schema),
    **dict.fromkeys(("properties", "patternProperties", "definitions"), _omit_empty(_map_of(_schema))),
    **dict.fromkeys(("additionalProperties", "additionalItems"), _required_field(_schema_or_bool)),
    "dependencies": _omit_empty(_map_of(_schema_or_names)),
    "externalDocs": _required_field(
        _struct("ExternalDocumentation", lambda: {"description": _omit_empty(_STRING), "url": _omit_empty(_STRING)})
    ),
    "x-kubernetes-validations": _omit_empty(_list_of(_RULE, "v1.ValidationRule")),
}
_SCALE = _struct(
    "CustomResourceSubresourceScale",
    lambda: {
        "specReplicasPath": _required_field(_STRING),
        "statusReplicasPath": _required_field(_STRING),
        "labelSelectorPath": _required_field(_STRING),
    },
)
_COLUMN = _struct(
    "CustomResourceColumnDefinition",
    lambda: {
        **dict.fromkeys(("name", "type", "jsonPath"), _required_field(_STRING)),
        **dict.fromkeys(("format", "description"), _omit_empty(_STRING)),
        "priority": _omit_empty(_integer),
    },
)
_VERSION = _struct(
    "CustomResourceDefinitionVersion",
    lambda: {
        "name": _required_field(_STRING),
        "served": _required_field(_BOOL),
        "storage": _required_field(_BOOL),
        "deprecated": _omit_empty(_BOOL),
        "deprecationWarning": _required_field(_STRING),
        "schema": _required_field(
            _struct("CustomResourceValidation", lambda: {"openAPIV3Schema": _required_field(_schema)})
        ),
        "subresources": _required_field(
            _struct(
                "CustomResourceSubresources",
                lambda: {
                    "status": _required_field(_struct("CustomResourceSubresourceStatus", dict)),
                    "scale": _required_field(_SCALE),
                },
            )
        ),
        "additionalPrinterColumns": _omit_empty(_list_of(_COLUMN, "v1.CustomResourceColumnDefinition")),
        "selectableFields": _omit_empty(
            _list_of(_struct("SelectableField", lambda: {"jsonPath": _required_field(_STRING)}))
        ),
    },
)
_SERVICE = _struct(
    "ServiceReference",
    lambda: {
        **dict.fromkeys(("namespace", "name"), _required_field(_STRING)),
        "path": _required_field(_STRING),
        "port": _required_field(_integer),
    },
)
_CLIENT = _struct(
    "WebhookClientConfig",
    lambda: {"url": _required_field(_STRING), "service": _required_field(_SERVICE), "caBundle": _omit_empty(_STRING)},
)
_CONVERSION = _struct(
    "CustomResourceConversion",
    lambda: {
        "strategy": _required_field(_STRING),
        "webhook": _required_field(
            _struct(
                "WebhookConversion",
                lambda: {
                    "clientConfig": _required_field(_CLIENT),
                    "conversionReviewVersions": _required_field(_STRINGS),
                },
            )
        ),
    },
)
_NAMES = _struct(
    "CustomResourceDefinitionNames",
    lambda: {
        **dict.fromkeys(("plural", "kind"), _required_field(_STRING)),
        **dict.fromkeys(("singular", "listKind"), _omit_empty(_STRING)),
        **dict.fromkeys(("shortNames", "categories"), _omit_empty(_STRINGS)),
    },
)
_SPEC = _struct(
    "CustomResourceDefinitionSpec",
    lambda: {
        "group": _required_field(_STRING),
        "names": _required_field(_NAMES),
        "scope": _required_field(_STRING),
        "versions": _required_field(_list_of(_VERSION, "v1.CustomResourceDefinitionVersion")),
        "conversion": _required_field(_CONVERSION),
        "preserveUnknownFields": _omit_empty(_BOOL),
    },
)
