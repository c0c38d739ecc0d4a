"""The fields of a definition: what typed Go keeps of the JSON that is sent.

Fields that the types do not have are dropped, as are zero values that ``omitempty`` leaves out; another JSON type
than the field's is refused. Source: ``pkg/apis/apiextensions/v1/types.go`` and ``types_jsonschema.go``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from steersman.errors import ApiError
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.values import JsonObject, is_list, is_map, type_of

_Form = Callable[[Any, str, list[str]], Any]
"""Takes a value and its path; returns what is kept of it, and adds the paths of unknown fields to the list."""

_KIND = "CustomResourceDefinition"


def normal_spec(spec: Any) -> tuple[JsonObject, list[str]]:
    """What the typed server keeps of a definition's ``spec``, and the paths of unknown fields.

    Raises:
        ApiError: 400, a field is of another JSON type.
    """
    unknown: list[str] = []
    try:
        kept = _SPEC(spec, "spec", unknown)
    except _WrongTypeError as error:
        raise error.refusal(_KIND) from None
    # Keys of maps stand after a point here, positions in lists in brackets.
    return kept, sorted(re.sub(r"\[(?!\d+\])([^\]]*)\]", r".\1", path) for path in unknown)


class _WrongTypeError(Exception):
    """A value at ``path`` is not of the Go type ``wanted``."""

    def __init__(self, value: Any, path: str, wanted: str) -> None:
        super().__init__(value, path, wanted)
        self.value, self.path, self.wanted = value, path, wanted

    def refusal(self, struct: str) -> ApiError:
        """The answer, which names the Go struct that the field belongs to, and the path without keys."""
        found = {dict: "object", list: "array", str: "string", bool: "bool"}.get(type_of(self.value), "number")
        if type(self.value) is float:
            found = f"number {self.value}"
        path = re.sub(r"\[[^\]]*\]", "", self.path)
        return failures.bad_request(
            f'{_KIND} in version "v1" cannot be handled as a {_KIND}: json: cannot unmarshal {found} into Go struct '
            f"field {struct}.{path} of type {self.wanted}"
        )


def _scalar(wanted: str, *types: type) -> _Form:
    def form(value: Any, path: str, unknown: list[str]) -> Any:
        if type(value) not in types:
            raise _WrongTypeError(value, path, wanted)
        return value

    return form


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


def _list_of(item: _Form, kind: str = "v1.JSONSchemaProps") -> _Form:
    def form(value: Any, path: str, unknown: list[str]) -> Any:
        if not is_list(value):
            raise _WrongTypeError(value, path, f"[]{kind}")
        return [item(v, f"{path}[{i}]", unknown) for i, v in enumerate(value)]

    return form


def _map_of(item: _Form) -> _Form:
    def form(value: Any, path: str, unknown: list[str]) -> Any:
        if not is_map(value):
            raise _WrongTypeError(value, path, "map[string]v1.JSONSchemaProps")
        return {k: item(v, f"{path}[{k}]", unknown) for k, v in value.items()}

    return form


def _struct(struct: str, fields: Callable[[], dict[str, tuple[_Form, bool]]]) -> _Form:
    """A Go struct. Each field: its form, and whether its zero value is dropped."""

    def form(value: Any, path: str, unknown: list[str]) -> Any:
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
            inner, drops = known[name]
            if content is None:
                continue
            try:
                kept = inner(content, f"{path}.{name}", unknown)
            except _WrongTypeError as error:
                raise error.refusal(struct) from None
            if kept or not drops:
                result[name] = kept
        return result

    return form


def _schema_or_bool(value: Any, path: str, unknown: list[str]) -> Any:
    return value if isinstance(value, bool) else _schema(value, path, unknown)


def _schema_or_list(value: Any, path: str, unknown: list[str]) -> Any:
    return _list_of(_schema)(value, path, unknown) if is_list(value) else _schema(value, path, unknown)


def _schema_or_names(value: Any, path: str, unknown: list[str]) -> Any:
    return _list_of(_TEXT)(value, path, unknown) if is_list(value) else _schema(value, path, unknown)


_TEXT = _scalar("string", str)
_TRUTH = _scalar("bool", bool)
_TEXTS = _list_of(_TEXT, "string")


def _kept(form: _Form) -> tuple[_Form, bool]:
    return form, False


def _dropped(form: _Form) -> tuple[_Form, bool]:
    return form, True


_RULE = _struct(
    "ValidationRule",
    lambda: {
        "rule": _kept(_TEXT),
        "message": _dropped(_TEXT),
        "messageExpression": _dropped(_TEXT),
        "reason": _kept(_TEXT),
        "fieldPath": _dropped(_TEXT),
        "optionalOldSelf": _kept(_TRUTH),
    },
)


def _schema_fields() -> dict[str, tuple[_Form, bool]]:
    return _SCHEMA_FIELDS


_schema = _struct("JSONSchemaProps", _schema_fields)
_SCHEMA_FIELDS: dict[str, tuple[_Form, bool]] = {
    **dict.fromkeys(("id", "$schema", "description", "type", "format", "title", "pattern"), _dropped(_TEXT)),
    **dict.fromkeys(("$ref", "x-kubernetes-list-type", "x-kubernetes-map-type"), _kept(_TEXT)),
    **dict.fromkeys(("maximum", "minimum", "multipleOf"), _kept(_number)),
    **dict.fromkeys(
        ("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties"), _kept(_integer)
    ),
    **dict.fromkeys(
        (
            *("exclusiveMaximum", "exclusiveMinimum", "uniqueItems", "nullable"),
            *("x-kubernetes-embedded-resource", "x-kubernetes-int-or-string"),
        ),
        _dropped(_TRUTH),
    ),
    "x-kubernetes-preserve-unknown-fields": _kept(_TRUTH),
    "default": _kept(_json),
    "example": _kept(_json),
    "enum": _dropped(_list_of(_json, "v1.JSON")),
    "required": _dropped(_TEXTS),
    "x-kubernetes-list-map-keys": _dropped(_TEXTS),
    "items": _kept(_schema_or_list),
    **dict.fromkeys(("allOf", "oneOf", "anyOf"), _dropped(_list_of(_schema))),
    "not": _kept(_schema),
    **dict.fromkeys(("properties", "patternProperties", "definitions"), _dropped(_map_of(_schema))),
    **dict.fromkeys(("additionalProperties", "additionalItems"), _kept(_schema_or_bool)),
    "dependencies": _dropped(_map_of(_schema_or_names)),
    "externalDocs": _kept(
        _struct("ExternalDocumentation", lambda: {"description": _dropped(_TEXT), "url": _dropped(_TEXT)})
    ),
    "x-kubernetes-validations": _dropped(_list_of(_RULE, "v1.ValidationRule")),
}
_SCALE = _struct(
    "CustomResourceSubresourceScale",
    lambda: {
        "specReplicasPath": _kept(_TEXT),
        "statusReplicasPath": _kept(_TEXT),
        "labelSelectorPath": _kept(_TEXT),
    },
)
_COLUMN = _struct(
    "CustomResourceColumnDefinition",
    lambda: {
        **dict.fromkeys(("name", "type", "jsonPath"), _kept(_TEXT)),
        **dict.fromkeys(("format", "description"), _dropped(_TEXT)),
        "priority": _dropped(_integer),
    },
)
_VERSION = _struct(
    "CustomResourceDefinitionVersion",
    lambda: {
        "name": _kept(_TEXT),
        "served": _kept(_TRUTH),
        "storage": _kept(_TRUTH),
        "deprecated": _dropped(_TRUTH),
        "deprecationWarning": _kept(_TEXT),
        "schema": _kept(_struct("CustomResourceValidation", lambda: {"openAPIV3Schema": _kept(_schema)})),
        "subresources": _kept(
            _struct(
                "CustomResourceSubresources",
                lambda: {"status": _kept(_struct("CustomResourceSubresourceStatus", dict)), "scale": _kept(_SCALE)},
            )
        ),
        "additionalPrinterColumns": _dropped(_list_of(_COLUMN, "v1.CustomResourceColumnDefinition")),
        "selectableFields": _dropped(_list_of(_struct("SelectableField", lambda: {"jsonPath": _kept(_TEXT)}))),
    },
)
_SERVICE = _struct(
    "ServiceReference",
    lambda: {
        **dict.fromkeys(("namespace", "name"), _kept(_TEXT)),
        "path": _kept(_TEXT),
        "port": _kept(_integer),
    },
)
_CLIENT = _struct(
    "WebhookClientConfig", lambda: {"url": _kept(_TEXT), "service": _kept(_SERVICE), "caBundle": _dropped(_TEXT)}
)
_CONVERSION = _struct(
    "CustomResourceConversion",
    lambda: {
        "strategy": _kept(_TEXT),
        "webhook": _kept(
            _struct(
                "WebhookConversion",
                lambda: {"clientConfig": _kept(_CLIENT), "conversionReviewVersions": _kept(_TEXTS)},
            )
        ),
    },
)
_NAMES = _struct(
    "CustomResourceDefinitionNames",
    lambda: {
        **dict.fromkeys(("plural", "kind"), _kept(_TEXT)),
        **dict.fromkeys(("singular", "listKind"), _dropped(_TEXT)),
        **dict.fromkeys(("shortNames", "categories"), _dropped(_TEXTS)),
    },
)
_SPEC = _struct(
    "CustomResourceDefinitionSpec",
    lambda: {
        "group": _kept(_TEXT),
        "names": _kept(_NAMES),
        "scope": _kept(_TEXT),
        "versions": _kept(_list_of(_VERSION, "v1.CustomResourceDefinitionVersion")),
        "conversion": _kept(_CONVERSION),
        "preserveUnknownFields": _dropped(_TRUTH),
    },
)
