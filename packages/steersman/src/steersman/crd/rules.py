"""CEL rules in wire form, held to the schema that they are about."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, get_args

from steersman.crd.errors import SchemaError
from steersman.crd.expressions import check_expressions
from steersman.crd.paths import FieldPathError, resolve_path
from steersman.meta import Rule
from steersman.meta.markers import FieldValueErrorReason, cel_name

Schema = dict[str, Any]
RULES = "x-kubernetes-validations"

_OLD_SELF = re.compile(r"\boldSelf\b")
_STRING_LITERAL = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")


def with_rules(schema: Schema, rules: Iterable[Rule], *, correlatable: bool, root: bool = False) -> Schema:
    """``schema`` and its ``rules``, after those that it has.

    Args:
        schema: of the value that the rules are about.
        rules: in their order.
        correlated: whether the API server can tell which old value belongs to a new one.
        root: whether the value is a whole object.

    Raises:
        SchemaError: a rule cannot hold here.
    """
    found = [_to_wire(check_rule(rule, schema, correlatable=correlatable, root=root)) for rule in rules]
    return {**schema, RULES: [*schema.get(RULES, ()), *found]} if found else schema


def check_rule(rule: Rule, schema: Schema, *, correlatable: bool, root: bool = False) -> Rule:
    """``rule``, if it can hold of values of ``schema``.

    Raises:
        SchemaError: it cannot.
    """
    text = f"the rule {rule.rule!r}"
    if not rule.rule.strip():
        raise SchemaError("a rule is empty: write a CEL expression, such as self == oldSelf")
    if not rule.message.strip() or re.search(r"[\r\n]", rule.message.strip()):
        raise SchemaError(f"{text} needs a message of one line, which says what to do")
    if rule.reason not in get_args(FieldValueErrorReason):
        raise SchemaError(
            f"{text} has the reason {rule.reason!r}: it is one of {', '.join(get_args(FieldValueErrorReason))}"
        )
    if rule.field_path:
        try:
            known = resolve_path(schema, rule.field_path) is not None
        except FieldPathError as error:
            raise SchemaError(f"{text} has the field_path {rule.field_path!r}, which {error}") from None
        if not known:
            raise SchemaError(f"{text} has the field_path {rule.field_path!r}, of which the schema says nothing")
    if not correlatable and is_transition(rule.rule):
        raise SchemaError(
            f"{text} compares with oldSelf, but items of a list that is no map have no old value: give the list "
            "list_map_keys, or put the rule on a struct around the list"
        )
    if rule.optional_old_self and not is_transition(rule.rule):
        raise SchemaError(f"{text} has optional_old_self, but does not mention oldSelf")
    _check_members(rule, schema)
    check_expressions(rule, schema, root=root)
    return rule


def is_transition(expression: str) -> bool:
    """Whether ``expression`` compares with the value before an update."""
    return _OLD_SELF.search(_STRING_LITERAL.sub("''", expression)) is not None


def _check_members(rule: Rule, schema: Schema) -> None:
    """The fields of which so many must be set can be absent, and those that the rule reads cannot."""
    properties, required = schema.get("properties", {}), schema.get("required", ())
    if (
        rule.optional_fields
        and not rule.required_fields
        and len(set(rule.optional_fields)) < max(2, len(rule.optional_fields))
    ):
        raise SchemaError(
            f"{', '.join(rule.optional_fields)}: name two different fields or more, by their wire names"
        )
    for name in (*rule.optional_fields, *rule.required_fields):
        if name not in properties:
            known = ", ".join(properties) or "none"
            raise SchemaError(f"a rule speaks of the field {name}, but the struct has {known} (wire names)")
        always_set = name in required or "default" in properties[name]
        if always_set and name in rule.optional_fields:
            raise SchemaError(f"a rule asks whether {name} is set, which it always is: make it X | None = None")
        if not always_set and name in rule.required_fields:
            raise SchemaError(f"a rule reads {name}, which may be absent: make it required, or give a default")


def immutability_rule(*, once_set: bool) -> Rule:
    """The rule on a value that never changes."""
    text = "cannot be changed once it is set" if once_set else "is immutable"
    return Rule(rule="self == oldSelf", message=f"the field {text}: create a new object instead")


def presence_immutability_rule(name: str, *, once_set: bool) -> Rule:
    """The rule on the struct around an optional field that never changes: a field's own sees no absence."""
    field = cel_name(name)
    if once_set:
        expression = f"!has(oldSelf.{field}) || has(self.{field})"
        message = f"{name} cannot be removed once it is set: create a new object instead"
    else:
        expression = f"has(self.{field}) == has(oldSelf.{field})"
        message = f"{name} is immutable, it can neither be added nor removed: create a new object instead"
    return Rule(rule=expression, message=message, field_path=f".{name}" if name.isidentifier() else f"['{name}']")


def _to_wire(rule: Rule) -> Schema:
    wire: Schema = {"rule": rule.rule, "message": rule.message, "reason": rule.reason}
    if rule.message_expression:
        wire["messageExpression"] = rule.message_expression
    if rule.field_path:
        wire["fieldPath"] = rule.field_path
    if rule.optional_old_self:
        wire["optionalOldSelf"] = True
    return wire
