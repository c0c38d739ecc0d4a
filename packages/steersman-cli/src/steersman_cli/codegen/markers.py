"""Schema keywords as the arguments of ``Field``, ``@schema`` and ``@resource``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import UNSET

from steersman_cel.formats import known_format
from steersman_cli.codegen.expressions import call, keyword_argument, literal, string_literal, tuple_literal

Schema = dict[str, Any]
AddImport = Callable[[str, str], str]
"""Imports a module's name and returns its local name."""

_VALUE_KEYWORDS = {
    "multipleOf": "multiple_of",
    "minLength": "min_length",
    "maxLength": "max_length",
    "pattern": "pattern",
    "format": "format",
    "minItems": "min_items",
    "maxItems": "max_items",
    "title": "title",
}
_MAP_KEYWORDS = {"minProperties": "min_properties", "maxProperties": "max_properties"}
_BOUNDS = (("minimum", "exclusiveMinimum", "ge", "gt"), ("maximum", "exclusiveMaximum", "le", "lt"))
_RULE_KEYWORDS = {"messageExpression": "message_expression", "reason": "reason", "fieldPath": "field_path"}
_UNSUPPORTED_KEYWORDS = ("oneOf", "allOf", "not")


def field_arguments(schema: Schema, add_import: AddImport, *, struct: bool, default: Any = UNSET) -> Iterator[str]:
    """The arguments of ``Field`` for a value of ``schema``.

    Args:
        schema: without the keywords that the type of the field expresses.
        struct: the value has a class, whose ``@schema`` has the keywords that hold for all its values.
        default: default value in wire form, if ``Field`` declares it.
    """
    for keyword, exclusive, inclusive_argument, exclusive_argument in _BOUNDS:
        if keyword in schema:
            yield keyword_argument(
                exclusive_argument if schema.get(exclusive) else inclusive_argument, literal(schema[keyword])
            )
    keywords = _VALUE_KEYWORDS if struct else {**_VALUE_KEYWORDS, **_MAP_KEYWORDS}
    for keyword, argument in keywords.items():
        if keyword in schema and not (struct and keyword == "title"):
            yield keyword_argument(argument, literal(schema[keyword]))
    if default is not UNSET:
        yield keyword_argument("default", literal(default))
    if "example" in schema:
        yield keyword_argument("example", literal(schema["example"]))
    if not struct and (link := _external_docs_url(schema)):
        yield keyword_argument("external_docs", literal(link))
    if keys := schema.get("x-kubernetes-list-map-keys"):
        yield keyword_argument("list_map_keys", literal(keys))
    elif kind := schema.get("x-kubernetes-list-type"):
        yield keyword_argument("list_type", literal(kind))
    if not struct and (kind := schema.get("x-kubernetes-map-type")):
        yield keyword_argument("map_type", literal(kind))
    for keyword, argument in (("nullable", "nullable"), ("x-kubernetes-embedded-resource", "embedded_resource")):
        if schema.get(keyword):
            yield keyword_argument(argument, "True")
    if not struct:
        if schema.get("type") == "object" and schema.get("x-kubernetes-preserve-unknown-fields"):
            yield keyword_argument("preserve_unknown", "True")
        yield from _rules_argument(schema, add_import)


def struct_arguments(schema: Schema, add_import: AddImport) -> Iterator[str]:
    """The arguments of ``@schema`` for a struct of ``schema``."""
    yield from _rules_argument(schema, add_import)
    if kind := schema.get("x-kubernetes-map-type"):
        yield keyword_argument("map_type", literal(kind))
    for keyword, argument in _MAP_KEYWORDS.items():
        if keyword in schema:
            yield keyword_argument(argument, literal(schema[keyword]))
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        yield keyword_argument("preserve_unknown", "True")
    if "title" in schema:
        yield keyword_argument("title", literal(schema["title"]))
    if link := _external_docs_url(schema):
        yield keyword_argument("external_docs", literal(link))


def _external_docs_url(schema: Schema) -> str:
    return schema.get("externalDocs", {}).get("url", "")


def _rules_argument(schema: Schema, add_import: AddImport) -> Iterator[str]:
    if found := rules_literal(schema, add_import):
        yield keyword_argument("rules", found)


def rules_literal(schema: Schema, add_import: AddImport) -> str:
    """The CEL rules of ``schema`` as a tuple of ``Rule``, or empty."""
    validations = schema.get("x-kubernetes-validations", ())
    if not validations:
        return ""
    rule_class = add_import("steersman.meta", "Rule")
    return tuple_literal(_rule(rule, rule_class) for rule in validations)


def _rule(rule: Schema, rule_class: str) -> str:
    # The API server's message for a rule without one.
    message = rule.get("message") or f"failed rule: {rule['rule']}"
    arguments = [
        keyword_argument("rule", string_literal(rule["rule"])),
        keyword_argument("message", string_literal(message)),
    ]
    arguments += [
        keyword_argument(argument, string_literal(rule[keyword]))
        for keyword, argument in _RULE_KEYWORDS.items()
        if rule.get(keyword) and (keyword, rule[keyword]) != ("reason", "FieldValueInvalid")
    ]
    if rule.get("optionalOldSelf"):
        arguments.append(keyword_argument("optional_old_self", "True"))
    return call(rule_class, *arguments)


def unsupported_keywords(schema: Schema) -> Iterator[str]:
    """Keywords that no marker can express, with their values."""
    for keyword in _UNSUPPORTED_KEYWORDS:
        if keyword in schema:
            yield f"{keyword} {_shorten(schema[keyword])}"
    if "anyOf" in schema and not schema.get("x-kubernetes-int-or-string"):
        yield f"anyOf {_shorten(schema['anyOf'])}"
    if "format" in schema and not known_format(schema):
        yield f"the format {schema['format']!r}"
    if "enum" in schema and not is_literal_enum(schema):
        yield f"enum {_shorten(schema['enum'])}"


def is_literal_enum(schema: Schema) -> bool:
    """Return True if the enum has only strings or only integers."""
    values: list[Any] = schema.get("enum", [])
    return bool(values) and (all(isinstance(v, str) for v in values) or all(type(v) is int for v in values))


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:60]} …"
