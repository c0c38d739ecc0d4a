"""The rules of a schema, evaluated on values: those of custom resources, and defaults.

Source: "Extend the Kubernetes API with CustomResourceDefinitions", "Validation rules"; ``pkg/apiserver/schema/cel``
of ``k8s.io/apiextensions-apiserver``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from steersman_cel.conversion import to_cel
from steersman_cel.engine import EvaluationError, Program, compile_rule
from steersman_cel.types import DYN, type_from_schema
from steersman_cel.values import MISSING, JsonObject, get_array, get_field, get_object, is_list, is_map

VALIDATIONS_KEY = "x-kubernetes-validations"
_MAX_MESSAGE_BYTES = 5 * 1024


@dataclass(frozen=True, slots=True)
class RuleViolation:
    """A rule that does not hold.

    Attributes:
        rule: as the schema has it.
        schema: of the value that the rule is on.
        value: that value.
        path: where it is, from the root on: ``spec.sizes[0]``, of a map ``labels[key]``.
        message: what the rule says of it.
        error: why the rule could not be evaluated; empty where it was.
    """

    rule: JsonObject
    schema: JsonObject
    value: Any
    path: str
    message: str
    error: str = ""


def has_rules(schema: Any) -> bool:
    """Whether ``schema`` has rules at any depth."""
    if is_list(schema):
        return any(has_rules(s) for s in schema)
    return is_map(schema) and (bool(schema.get(VALIDATIONS_KEY)) or any(has_rules(s) for s in schema.values()))


def find_violations(
    value: Any, old: Any, schema: JsonObject, *, path: str = "", root: bool = False, ratcheting: bool = True
) -> Iterator[RuleViolation]:
    """The rules that ``value`` breaks.

    Args:
        value: in wire form, and otherwise valid.
        old: what it replaces; MISSING where it is new.
        schema: of the value, with its rules.
        path: where the value is.
        root: whether it is a whole object.
        ratcheting: whether what is as it was may stay so, but for rules that compare with it.

    Raises:
        ApiError: 501, a rule cannot be evaluated here.
    """
    return _validate(
        value, old, _schema_rules(schema_key(schema, root)), path, unchanged=False if ratcheting else None
    )


def find_default_violations(default: Any, schema: JsonObject, *, path: str = "") -> list[RuleViolation]:
    """The rules that ``default`` breaks, as a value that stays what it was, and else as a new one.

    Raises as ``broken_rules``.
    """
    violations = list(find_violations(default, default, schema, path=path, ratcheting=False))
    return violations or list(find_violations(default, MISSING, schema, path=path))


def items_by_key(old: Any, schema: JsonObject) -> dict[Any, Any]:
    """The items of a list of type map by their keys; of others nothing, as nothing tells them apart."""
    if schema.get("x-kubernetes-list-type") != "map" or not is_list(old):
        return {}
    return {list_item_key(item, schema): item for item in reversed(old)}


def list_item_key(item: Any, schema: JsonObject) -> Any:
    """The keys of an item of a list of type map."""
    keys = get_array(schema, "x-kubernetes-list-map-keys")
    if not keys or not is_map(item):
        return None
    properties = get_object(get_object(schema, "items"), "properties")
    return tuple(item.get(k, get_object(properties, k).get("default")) for k in keys)


def schema_key(schema: JsonObject, root: bool) -> bytes:
    """What ``program`` takes for ``schema``, which is that of a whole object if ``root``."""
    return msgspec.json.encode((root, schema))


@lru_cache(maxsize=4096)
def cached_program(key: bytes, expression: str, optional_old_self: bool) -> Program:
    """The program of an expression in a schema, which ``key`` encodes. Tests install the same schemas all the time.

    Raises as ``compile_rule``.
    """
    root, schema = msgspec.json.decode(key)
    return compile_rule(expression, type_from_schema(schema, root=root) or DYN, optional_old_self=optional_old_self)


class _SchemaRules:
    """A schema with rules, its own or within; what has none is left out, and never looked at."""

    def __init__(self, schema: JsonObject, *, root: bool = False) -> None:
        self.schema = schema
        self.root = root or bool(schema.get("x-kubernetes-embedded-resource"))
        self.rules = get_array(schema, VALIDATIONS_KEY)
        self.properties_schema = get_object(schema, "properties")
        self.property_rules = {
            n: found for n, inner in self.properties_schema.items() if (found := _schema_rules_or_none(inner))
        }
        self.additional_rules = _schema_rules_or_none(schema.get("additionalProperties"))
        self.item_rules = _schema_rules_or_none(schema.get("items"))

    @cached_property
    def programs(self) -> list[_CompiledRule]:
        """Of the rules, in their order. Raises as ``compile_rule``, and only when a value is there."""
        return _compile_rules(schema_key(self.schema, self.root))

    def field_rules(self, name: str) -> _SchemaRules | None:
        """That of a field."""
        return self.property_rules.get(name) if name in self.properties_schema else self.additional_rules


def _schema_rules_or_none(schema: Any) -> _SchemaRules | None:
    if not is_map(schema):
        return None
    found = _SchemaRules(schema)
    return found if found.rules or found.property_rules or found.additional_rules or found.item_rules else None


@lru_cache(maxsize=1024)
def _schema_rules(key: bytes) -> _SchemaRules:
    """A schema, which ``key`` encodes, with all that is within."""
    root, schema = msgspec.json.decode(key)
    return _SchemaRules(schema, root=root)


def _validate(
    value: Any, old: Any, rules: _SchemaRules, path: str, *, unchanged: bool | None
) -> Iterator[RuleViolation]:
    """``unchanged``: whether what encloses ``value`` is as it was, so that only transitions are judged.

    None: nobody asks.
    """
    if value is None:
        return
    if unchanged is not None and old is not MISSING:
        unchanged = value == old
    if rules.rules:
        new = to_cel(value, rules.schema, root=rules.root)
        before = MISSING if old is MISSING or old is None else to_cel(old, rules.schema, root=rules.root)
        context = _RuleContext(value, new, before, rules.schema, bool(unchanged), path)
        for rule, compiled in zip(rules.rules, rules.programs, strict=True):
            found = context.evaluate(rule, compiled)
            if found is not None:
                yield found
    if is_map(value):
        yield from _validate_fields(value, old, rules, path, unchanged=unchanged)
    elif is_list(value) and rules.item_rules is not None:
        before_by_key = items_by_key(old, rules.schema)
        for position, item in enumerate(value):
            old_item = before_by_key.get(list_item_key(item, rules.schema), MISSING)
            yield from _validate(item, old_item, rules.item_rules, f"{path}[{position}]", unchanged=unchanged)


def _validate_fields(
    value: JsonObject, old: Any, rules: _SchemaRules, path: str, *, unchanged: bool | None
) -> Iterator[RuleViolation]:
    for name, content in value.items():
        inner = rules.field_rules(name)
        if inner is None:
            continue
        field_path = f"{path}[{name}]" if name not in rules.properties_schema else f"{path}.{name}" if path else name
        yield from _validate(content, get_field(old, name), inner, field_path, unchanged=unchanged)


@dataclass(frozen=True, slots=True)
class _CompiledRule:
    rule: Program
    message: Program | None


@lru_cache(maxsize=4096)
def _compile_rules(key: bytes) -> list[_CompiledRule]:
    """The compiled rules of a schema, which ``key`` encodes."""
    _, schema = msgspec.json.decode(key)
    found: list[_CompiledRule] = []
    for rule in schema[VALIDATIONS_KEY]:
        optional = bool(rule.get("optionalOldSelf"))
        message = rule.get("messageExpression")
        rule_program = cached_program(key, rule["rule"], optional)
        found.append(_CompiledRule(rule_program, cached_program(key, message, optional) if message else None))
    return found


@dataclass(frozen=True, slots=True)
class _RuleContext:
    """What a rule is evaluated on: the value in JSON, and as CEL sees it now and before (or MISSING)."""

    value: Any
    new: Any
    old: Any
    schema: JsonObject
    unchanged: bool
    path: str

    def evaluate(self, rule: JsonObject, compiled: _CompiledRule) -> RuleViolation | None:
        """What is wrong with the value by ``rule``; None where it holds, or is not asked."""
        transition = compiled.rule.uses_old_self
        # A transition rule needs something to compare with; what did not change is not judged again (KEP-4008).
        if transition and self.old is MISSING and not rule.get("optionalOldSelf"):
            return None
        try:
            result = self._evaluate_program(compiled.rule)
        except EvaluationError as error:
            return RuleViolation(rule, self.schema, self.value, self.path, "", str(error))
        if result is True or (self.unchanged and not transition):
            return None
        return RuleViolation(rule, self.schema, self.value, self.path, self._message(rule, compiled))

    def _evaluate_program(self, program: Program) -> Any:
        """The value of an expression. Raises EvaluationError."""
        present = self.old is not MISSING
        # Where there is nothing before, nothing looks at it.
        old = self.old if present else None
        return program.evaluate({"self": self.new, "oldSelf": old, "hasOldSelf": present})

    def _message(self, rule: JsonObject, compiled: _CompiledRule) -> str:
        if compiled.message is not None:
            try:
                found = str(self._evaluate_program(compiled.message)).strip()
            except EvaluationError:
                found = ""
            if found and "\n" not in found and len(found.encode()) <= _MAX_MESSAGE_BYTES:
                return found
        return rule.get("message", "").strip() or f"failed rule: {rule['rule'].strip()}"
