"""Evaluation of the rules of a schema on values and defaults.

Source: "Extend the Kubernetes API with CustomResourceDefinitions", "Validation rules"; ``pkg/apiserver/schema/cel``
of ``k8s.io/apiextensions-apiserver``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from steersman_cel.conversion import object_names, to_cel
from steersman_cel.engine import EvaluationError, Program, compile_rule
from steersman_cel.syntax_tree import union_of_fields
from steersman_cel.types import DYN, Type, escape_identifier, type_from_schema
from steersman_cel.values import MISSING, JsonObject, get_array, get_field, get_object, is_list, is_map

VALIDATIONS_KEY = "x-kubernetes-validations"
_MAX_MESSAGE_BYTES = 5 * 1024
_MAX_CONFORMING_VALUES = 256


@dataclass(frozen=True, slots=True)
class RuleViolation:
    """A violated rule.

    Attributes:
        rule: the rule in the schema.
        schema: schema of the value.
        value: value that violates the rule.
        path: path of the value, such as ``spec.sizes[0]`` or ``labels[key]``.
        message: message of the rule.
        error: evaluation error, or empty.
    """

    rule: JsonObject
    schema: JsonObject
    value: Any
    path: str
    message: str
    error: str = ""


def has_rules(schema: Any) -> bool:
    """Return True if ``schema`` has rules at any level."""
    if is_list(schema):
        return any(has_rules(s) for s in schema)
    return is_map(schema) and (bool(schema.get(VALIDATIONS_KEY)) or any(has_rules(s) for s in schema.values()))


def find_violations(
    value: Any, old: Any, schema: JsonObject, *, path: str = "", root: bool = False, ratcheting: bool = True
) -> Iterator[RuleViolation]:
    """Evaluate the rules of ``schema`` on ``value``, and yield the violated ones.

    Args:
        value: value in wire form, valid except for its rules.
        old: current value. MISSING if the value is new.
        schema: schema of the value.
        path: path of the value. Defaults to the root.
        root: the value is a whole object. Defaults to False.
        ratcheting: unchanged values may violate rules that do not read ``oldSelf`` (KEP-4008). Defaults to True.

    Raises:
        ApiError: 501 if a function of a rule is not implemented.
    """
    return schema_rules(schema, root=root).find_violations(value, old, path=path, ratcheting=ratcheting)


def schema_rules(schema: JsonObject, *, root: bool = False) -> SchemaRules:
    """Compile the rules of ``schema``. Cached for equal schemas.

    Args:
        schema: the schema.
        root: its values are whole objects. Defaults to False.
    """
    return _schema_rules(schema_key(schema, root))


def find_default_violations(default: Any, schema: JsonObject, *, path: str = "") -> list[RuleViolation]:
    """The rules that ``default`` violates as an unchanged or a new value.

    Raises as ``find_violations``.
    """
    violations = list(find_violations(default, default, schema, path=path, ratcheting=False))
    return violations or list(find_violations(default, MISSING, schema, path=path))


def items_by_key(old: Any, schema: JsonObject) -> dict[Any, Any]:
    """Items of a list of type map by their keys. Empty for other lists."""
    if schema.get("x-kubernetes-list-type") != "map" or not is_list(old):
        return {}
    return {list_item_key(item, schema): item for item in reversed(old)}


def list_item_key(item: Any, schema: JsonObject) -> Any:
    """The key values of an item in a list of type map."""
    keys = get_array(schema, "x-kubernetes-list-map-keys")
    if not keys or not is_map(item):
        return None
    properties = get_object(get_object(schema, "items"), "properties")
    return tuple(item.get(k, get_object(properties, k).get("default")) for k in keys)


def schema_key(schema: JsonObject, root: bool) -> bytes:
    """The key of ``schema`` for ``cached_program``. ``root`` marks the schema of a whole object."""
    return msgspec.json.encode((root, schema))


@lru_cache(maxsize=4096)
def cached_program(key: bytes, expression: str, optional_old_self: bool) -> Program:
    """Compile an expression for the schema that ``key`` encodes. Tests reinstall equal schemas.

    Raises as ``compile_rule``.
    """
    return compile_rule(expression, _self_type(key), optional_old_self=optional_old_self)


@lru_cache(maxsize=1024)
def _self_type(key: bytes) -> Type:
    root, schema = msgspec.json.decode(key)
    return type_from_schema(schema, root=root) or DYN


class SchemaRules:
    """A schema with the rules of its subtree. Nested schemas without rules are left out."""

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
        self.conforming: dict[bytes, None] = {}

    def find_violations(
        self, value: Any, old: Any, *, path: str = "", ratcheting: bool = True
    ) -> Iterator[RuleViolation]:
        """Evaluate the rules on ``value``, and yield the violated ones. See ``find_violations``."""
        return _validate(value, old, self, path, unchanged=False if ratcheting else None)

    @cached_property
    def programs(self) -> list[_CompiledRule]:
        """Compiled rules in order. Compiled lazily. Raises as ``compile_rule``."""
        return _compile_rules(schema_key(self.schema, self.root))

    @cached_property
    def fields(self) -> frozenset[str] | None:
        """Fields of a value that its rules read. None for all."""
        programs = [p for compiled in self.programs for p in (compiled.rule, compiled.message) if p is not None]
        return union_of_fields(p.fields for p in programs)

    def field_rules(self, name: str) -> SchemaRules | None:
        return self.property_rules.get(name) if name in self.properties_schema else self.additional_rules


def _schema_rules_or_none(schema: Any) -> SchemaRules | None:
    if not is_map(schema):
        return None
    found = SchemaRules(schema)
    return found if found.rules or found.property_rules or found.additional_rules or found.item_rules else None


@lru_cache(maxsize=1024)
def _schema_rules(key: bytes) -> SchemaRules:
    """The rules of the schema that ``key`` encodes."""
    root, schema = msgspec.json.decode(key)
    return SchemaRules(schema, root=root)


def _validate(
    value: Any, old: Any, rules: SchemaRules, path: str, *, unchanged: bool | None
) -> Iterator[RuleViolation]:
    """Yield violations in ``value``.

    Args:
        unchanged: the enclosing value is unchanged, so that only transition rules count. None without ratcheting.
    """
    if value is None:
        return
    if unchanged is not None and old is not MISSING:
        unchanged = value == old
    if rules.rules and not rules.root:
        yield from _evaluate_rules(value, value, old, rules, path, unchanged=bool(unchanged))
    elif rules.rules:
        read, before = _without_unread(value, rules), _without_unread(old, rules)
        found = _evaluate_rules(value, read, before, rules, path, unchanged=bool(unchanged))
        yield from _unless_known(rules, ("rules", read, before, unchanged), found)
    if is_map(value):
        yield from _validate_fields(value, old, rules, path, unchanged=unchanged)
    elif is_list(value) and rules.item_rules is not None:
        before_by_key = items_by_key(old, rules.schema)
        for position, item in enumerate(value):
            old_item = before_by_key.get(list_item_key(item, rules.schema), MISSING)
            yield from _validate(item, old_item, rules.item_rules, f"{path}[{position}]", unchanged=unchanged)


def _evaluate_rules(
    value: Any, read: Any, old: Any, rules: SchemaRules, path: str, *, unchanged: bool
) -> Iterator[RuleViolation]:
    """Yield violations of the rules of ``value`` itself.

    Args:
        read: ``value``, at least with the fields that the rules read.
    """
    new = to_cel(read, rules.schema, root=rules.root)
    before = MISSING if old is MISSING or old is None else to_cel(old, rules.schema, root=rules.root)
    context = _RuleContext(value, new, before, rules.schema, unchanged, path)
    for rule, compiled in zip(rules.rules, rules.programs, strict=True):
        found = context.evaluate(rule, compiled)
        if found is not None:
            yield found


def _without_unread(value: Any, rules: SchemaRules) -> Any:
    """Return the object ``value`` without the fields that no rule reads."""
    fields = rules.fields
    if fields is None or not is_map(value):
        return value
    read = {n: v for n, v in value.items() if n in fields or escape_identifier(n) in fields}
    if is_map(metadata := read.get("metadata")):
        read["metadata"] = object_names(metadata)
    return read


def _unless_known(
    rules: SchemaRules, values: tuple[Any, ...], violations: Iterator[RuleViolation]
) -> Iterator[RuleViolation]:
    """Yield ``violations``, unless there were none for equal ``values`` before.

    Rules are pure functions of the values. Most writes change only the spec or only the status, and repeat the other.
    """
    try:
        key = msgspec.json.encode([() if v is MISSING else (v,) for v in values])
    except OverflowError:  # an integer of more than 64 bits
        yield from violations
        return
    if key in rules.conforming:
        return
    found = list(violations)
    yield from found
    if not found:
        if len(rules.conforming) == _MAX_CONFORMING_VALUES:
            rules.conforming.pop(next(iter(rules.conforming)))
        rules.conforming[key] = None


def _validate_fields(
    value: JsonObject, old: Any, rules: SchemaRules, path: str, *, unchanged: bool | None
) -> Iterator[RuleViolation]:
    for name, content in value.items():
        inner = rules.field_rules(name)
        if inner is None:
            continue
        field_path = f"{path}[{name}]" if name not in rules.properties_schema else f"{path}.{name}" if path else name
        before = get_field(old, name)
        found = _validate(content, before, inner, field_path, unchanged=unchanged)
        yield from _unless_known(inner, (content, before, unchanged), found) if rules.root else found


@dataclass(frozen=True, slots=True)
class _CompiledRule:
    rule: Program
    message: Program | None


@lru_cache(maxsize=4096)
def _compile_rules(key: bytes) -> list[_CompiledRule]:
    """The compiled rules of the schema that ``key`` encodes."""
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
    """Input of a rule: JSON value, new and old CEL values."""

    value: Any
    new: Any
    old: Any
    schema: JsonObject
    unchanged: bool
    path: str

    def evaluate(self, rule: JsonObject, compiled: _CompiledRule) -> RuleViolation | None:
        """The violation of ``rule``. None if it holds or is not evaluated."""
        transition = compiled.rule.uses_old_self
        # Transition rules need an old value. Unchanged values are not validated again (KEP-4008).
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
        """Evaluate a program. Raises EvaluationError."""
        present = self.old is not MISSING
        # Without an old value, expressions do not read the variable.
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
