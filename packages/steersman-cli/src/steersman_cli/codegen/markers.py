"""Keywords of schemas as the markers that users write: ``Field``, ``@schema``, ``Rule``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import UNSET

from steersman.meta.formats import known_format
from steersman_cli.codegen.layout import Expression, call, literal, named, sequence, text

Schema = dict[str, Any]

_OF_VALUES = {
    "multipleOf": "multiple_of",
    "minLength": "min_length",
    "maxLength": "max_length",
    "pattern": "pattern",
    "format": "format",
    "minItems": "min_items",
    "maxItems": "max_items",
    "title": "title",
}
_OF_MAPS = {"minProperties": "min_properties", "maxProperties": "max_properties"}
_BOUNDS = (("minimum", "exclusiveMinimum", "ge", "gt"), ("maximum", "exclusiveMaximum", "le", "lt"))
_RULE = {"messageExpression": "message_expression", "reason": "reason", "fieldPath": "field_path"}
_UNSAID = ("oneOf", "allOf", "not")


def field_arguments(schema: Schema, *, struct: bool, default: Any = UNSET) -> Iterator[Expression]:
    """What ``Field`` says of a value of ``schema``.

    Args:
        schema: without the keywords that its type says already.
        struct: whether the value has a class, which says by ``@schema`` what is true of all of its values.
        default: what ``Field`` has to tell, in wire form.
    """
    for keyword, exclusive, at, beyond in _BOUNDS:
        if keyword in schema:
            yield named(beyond if schema.get(exclusive) else at, literal(schema[keyword]))
    told = _OF_VALUES if struct else {**_OF_VALUES, **_OF_MAPS}
    for keyword, argument in told.items():
        if keyword in schema and not (struct and keyword == "title"):
            yield named(argument, literal(schema[keyword]))
    if default is not UNSET:
        yield named("default", literal(default))
    if "example" in schema:
        yield named("example", literal(schema["example"]))
    if not struct and (link := _link(schema)):
        yield named("external_docs", literal(link))
    if keys := schema.get("x-kubernetes-list-map-keys"):
        yield named("list_map_keys", literal(keys))
    elif kind := schema.get("x-kubernetes-list-type"):
        yield named("list_type", literal(kind))
    if not struct and (kind := schema.get("x-kubernetes-map-type")):
        yield named("map_type", literal(kind))
    for keyword, argument in (("nullable", "nullable"), ("x-kubernetes-embedded-resource", "embedded_resource")):
        if schema.get(keyword):
            yield named(argument, "True")
    if not struct:
        if schema.get("type") == "object" and schema.get("x-kubernetes-preserve-unknown-fields"):
            yield named("preserve_unknown", "True")
        yield from _rules(schema)


def struct_arguments(schema: Schema) -> Iterator[Expression]:
    """What ``@schema`` says of a struct of ``schema``."""
    yield from _rules(schema)
    if kind := schema.get("x-kubernetes-map-type"):
        yield named("map_type", literal(kind))
    for keyword, argument in _OF_MAPS.items():
        if keyword in schema:
            yield named(argument, literal(schema[keyword]))
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        yield named("preserve_unknown", "True")
    if "title" in schema:
        yield named("title", literal(schema["title"]))
    if link := _link(schema):
        yield named("external_docs", literal(link))


def _link(schema: Schema) -> str:
    return schema.get("externalDocs", {}).get("url", "")


def _rules(schema: Schema) -> Iterator[Expression]:
    if found := rules(schema):
        yield named("rules", found)


def rules(schema: Schema) -> Expression | None:
    """The CEL rules of ``schema`` as a tuple."""
    told = schema.get("x-kubernetes-validations", ())
    return sequence(_rule(rule) for rule in told) if told else None


def _rule(rule: Schema) -> Expression:
    # Where there is no message, the API server says this.
    message = rule.get("message") or f"failed rule: {rule['rule']}"
    arguments = [named("rule", text(rule["rule"])), named("message", text(message))]
    arguments += [
        named(argument, text(rule[keyword]))
        for keyword, argument in _RULE.items()
        if rule.get(keyword) and (keyword, rule[keyword]) != ("reason", "FieldValueInvalid")
    ]
    if rule.get("optionalOldSelf"):
        arguments.append(named("optional_old_self", "True"))
    return call("Rule", *arguments)


def unsaid(schema: Schema) -> Iterator[str]:
    """The keywords of ``schema`` itself that no marker can say, each with what it asks for."""
    for keyword in _UNSAID:
        if keyword in schema:
            yield f"{keyword} {_short(schema[keyword])}"
    if "anyOf" in schema and not schema.get("x-kubernetes-int-or-string"):
        yield f"anyOf {_short(schema['anyOf'])}"
    if "format" in schema and not known_format(schema):
        yield f"the format {schema['format']!r}"
    if "enum" in schema and not is_literal(schema):
        yield f"enum {_short(schema['enum'])}"


def is_literal(schema: Schema) -> bool:
    """Whether the enum of ``schema`` is one of texts or of whole numbers."""
    values: list[Any] = schema.get("enum", [])
    return bool(values) and (all(isinstance(v, str) for v in values) or all(type(v) is int for v in values))


def _short(value: Any) -> str:
    told = repr(value)
    return told if len(told) < 60 else f"{told[:60]} …"
