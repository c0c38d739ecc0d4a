"""CEL rules in wire form, checked against their schema."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, get_args

from steersman.meta import Rule
from steersman.meta.markers import FieldValueErrorReason, cel_name
from steersman_manifests.crd.errors import SchemaError
from steersman_manifests.crd.expressions import check_expressions
from steersman_manifests.crd.paths import FieldPathError, resolve_path

Schema = dict[str, Any]
RULES = "x-kubernetes-validations"

_OLD_SELF = re.compile(r"\boldSelf\b")
_STRING_LITERAL = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")


def with_rules(schema: Schema, rules: Iterable[Rule], *, correlatable: bool, root: bool = False) -> Schema:
    """Append ``rules`` to the rules of ``schema``.

    Args:
        schema: schema of the value.
        rules: in order of evaluation.
        correlatable: the API server can match the value with its old value (KEP-2876).
        root: the value is a whole object.

    Raises:
        SchemaError: a rule is invalid for the schema.
    """
    found = [_to_wire(check_rule(rule, schema, correlatable=correlatable, root=root)) for rule in rules]
    return {**schema, RULES: [*schema.get(RULES, ()), *found]} if found else schema


def check_rule(rule: Rule, schema: Schema, *, correlatable: bool, root: bool = False) -> Rule:
    """Return ``rule`` if it is valid for ``schema``.

    Raises:
        SchemaError: the rule is invalid.
    """
    text = f"the rule {rule.rule!r}"
    if not rule.rule.strip():
        raise SchemaError("a rule is empty: write a CEL expression, such as self == oldSelf")
    if not rule.message.strip() or re.search(r"[\r\n]", rule.message.strip()):
        raise SchemaError(f"{text} needs a message of one line, with advice for the user")
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
            raise SchemaError(f"{text} has the field_path {rule.field_path!r}, which the schema does not declare")
    if not correlatable and is_transition(rule.rule):
        raise SchemaError(
            f"{text} compares with oldSelf, but items of a list that is not a map have no old value: give the list "
            "list_map_keys, or move the rule to the struct around the list"
        )
    if rule.optional_old_self and not is_transition(rule.rule):
        raise SchemaError(f"{text} has optional_old_self, but does not mention oldSelf")
    _check_members(rule, schema)
    check_expressions(rule, schema, root=root)
    return rule


def is_transition(expression: str) -> bool:
    """Return True if ``expression`` reads ``oldSelf``."""
    return _OLD_SELF.search(_STRING_LITERAL.sub("''", expression)) is not None


def _check_members(rule: Rule, schema: Schema) -> None:
    """Check that counted fields are optional and read fields required."""
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
            raise SchemaError(f"a rule names the field {name}, but the struct has {known} (wire names)")
        always_set = name in required or "default" in properties[name]
        if always_set and name in rule.optional_fields:
            raise SchemaError(f"a rule checks that {name} is set, but it always is: declare it as X | None = None")
        if not always_set and name in rule.required_fields:
            raise SchemaError(f"a rule reads {name}, which may be absent: make it required, or declare a default")


def immutability_rule(*, once_set: bool) -> Rule:
    """The rule of an immutable field."""
    text = "cannot be changed once it is set" if once_set else "is immutable"
    return Rule(rule="self == oldSelf", message=f"the field {text}: create a new object instead")


def presence_immutability_rule(name: str, *, once_set: bool) -> Rule:
    """The rule on the struct of an immutable optional field.

    The rule of the field itself is not evaluated if the field is absent.
    """
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
