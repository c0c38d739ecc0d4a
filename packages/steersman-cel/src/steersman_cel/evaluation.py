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
from steersman_cel.types import DYN, schema_type
from steersman_cel.values import MISSING, JsonObject, child, is_list, is_map, list_at, map_at

RULES = "x-kubernetes-validations"
_LONGEST_MESSAGE = 5 * 1024


@dataclass(frozen=True, slots=True)
class Broken:
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
    return is_map(schema) and (bool(schema.get(RULES)) or any(has_rules(s) for s in schema.values()))


def broken_rules(
    value: Any, old: Any, schema: JsonObject, *, path: str = "", root: bool = False, ratcheting: bool = True
) -> Iterator[Broken]:
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
    return _check(value, old, _whole(schema_key(schema, root)), path, unchanged=False if ratcheting else None)


def broken_by_default(default: Any, schema: JsonObject, *, path: str = "") -> list[Broken]:
    """The rules that ``default`` breaks, as a value that stays what it was, and else as a new one.

    Raises as ``broken_rules``.
    """
    kept = list(broken_rules(default, default, schema, path=path, ratcheting=False))
    return kept or list(broken_rules(default, MISSING, schema, path=path))


def items_by_key(old: Any, schema: JsonObject) -> dict[Any, Any]:
    """The items of a list of type map by their keys; of others nothing, as nothing tells them apart."""
    if schema.get("x-kubernetes-list-type") != "map" or not is_list(old):
        return {}
    return {key_of(item, schema): item for item in reversed(old)}


def key_of(item: Any, schema: JsonObject) -> Any:
    """The keys of an item of a list of type map."""
    keys = list_at(schema, "x-kubernetes-list-map-keys")
    if not keys or not is_map(item):
        return None
    properties = map_at(map_at(schema, "items"), "properties")
    return tuple(item.get(k, map_at(properties, k).get("default")) for k in keys)


def schema_key(schema: JsonObject, root: bool) -> bytes:
    """What ``program`` takes for ``schema``, which is that of a whole object if ``root``."""
    return msgspec.json.encode((root, schema))


@lru_cache(maxsize=4096)
def program(key: bytes, expression: str, optional_old: bool) -> Program:
    """The program of an expression in a schema, which ``key`` encodes. Tests install the same schemas all the time.

    Raises as ``compile_rule``.
    """
    root, schema = msgspec.json.decode(key)
    return compile_rule(expression, schema_type(schema, root=root) or DYN, optional_old=optional_old)


class _Ruled:
    """A schema with rules, its own or within; what has none is left out, and never looked at."""

    def __init__(self, schema: JsonObject, *, root: bool = False) -> None:
        self.schema = schema
        self.root = root or bool(schema.get("x-kubernetes-embedded-resource"))
        self.rules = list_at(schema, RULES)
        self.declared = map_at(schema, "properties")
        self.properties = {n: found for n, inner in self.declared.items() if (found := _ruled(inner))}
        self.additional = _ruled(schema.get("additionalProperties"))
        self.items = _ruled(schema.get("items"))

    @cached_property
    def programs(self) -> list[_Compiled]:
        """Of the rules, in their order. Raises as ``compile_rule``, and only when a value is there."""
        return _programs(schema_key(self.schema, self.root))

    def of(self, name: str) -> _Ruled | None:
        """That of a field."""
        return self.properties.get(name) if name in self.declared else self.additional


def _ruled(schema: Any) -> _Ruled | None:
    if not is_map(schema):
        return None
    found = _Ruled(schema)
    return found if found.rules or found.properties or found.additional or found.items else None


@lru_cache(maxsize=1024)
def _whole(key: bytes) -> _Ruled:
    """A schema, which ``key`` encodes, with all that is within."""
    root, schema = msgspec.json.decode(key)
    return _Ruled(schema, root=root)


def _check(value: Any, old: Any, at: _Ruled, path: str, *, unchanged: bool | None) -> Iterator[Broken]:
    """``unchanged``: whether what encloses ``value`` is as it was, so that only transitions are judged.

    None: nobody asks.
    """
    if value is None:
        return
    if unchanged is not None and old is not MISSING:
        unchanged = value == old
    if at.rules:
        after = to_cel(value, at.schema, root=at.root)
        before = MISSING if old is MISSING or old is None else to_cel(old, at.schema, root=at.root)
        case = _Case(value, after, before, at.schema, bool(unchanged), path)
        for rule, compiled in zip(at.rules, at.programs, strict=True):
            found = case.judge(rule, compiled)
            if found is not None:
                yield found
    if is_map(value):
        yield from _check_fields(value, old, at, path, unchanged=unchanged)
    elif is_list(value) and at.items is not None:
        before_by_key = items_by_key(old, at.schema)
        for position, item in enumerate(value):
            former = before_by_key.get(key_of(item, at.schema), MISSING)
            yield from _check(item, former, at.items, f"{path}[{position}]", unchanged=unchanged)


def _check_fields(value: JsonObject, old: Any, at: _Ruled, path: str, *, unchanged: bool | None) -> Iterator[Broken]:
    for name, content in value.items():
        inner = at.of(name)
        if inner is None:
            continue
        place = f"{path}[{name}]" if name not in at.declared else f"{path}.{name}" if path else name
        yield from _check(content, child(old, name), inner, place, unchanged=unchanged)


@dataclass(frozen=True, slots=True)
class _Compiled:
    rule: Program
    message: Program | None


@lru_cache(maxsize=4096)
def _programs(key: bytes) -> list[_Compiled]:
    """The compiled rules of a schema, which ``key`` encodes."""
    _, schema = msgspec.json.decode(key)
    found: list[_Compiled] = []
    for rule in schema[RULES]:
        optional = bool(rule.get("optionalOldSelf"))
        message = rule.get("messageExpression")
        rule_program = program(key, rule["rule"], optional)
        found.append(_Compiled(rule_program, program(key, message, optional) if message else None))
    return found


@dataclass(frozen=True, slots=True)
class _Case:
    """What a rule is evaluated on: the value in JSON, and as CEL sees it now and before (or MISSING)."""

    value: Any
    after: Any
    before: Any
    schema: JsonObject
    unchanged: bool
    path: str

    def judge(self, rule: JsonObject, compiled: _Compiled) -> Broken | None:
        """What is wrong with the value by ``rule``; None where it holds, or is not asked."""
        transition = compiled.rule.uses_old
        # A transition rule needs something to compare with; what did not change is not judged again (KEP-4008).
        if transition and self.before is MISSING and not rule.get("optionalOldSelf"):
            return None
        try:
            outcome = self._run(compiled.rule)
        except EvaluationError as error:
            return Broken(rule, self.schema, self.value, self.path, "", str(error))
        if outcome is True or (self.unchanged and not transition):
            return None
        return Broken(rule, self.schema, self.value, self.path, self._message(rule, compiled))

    def _run(self, found: Program) -> Any:
        """The value of an expression. Raises EvaluationError."""
        present = self.before is not MISSING
        # Where there is nothing before, nothing looks at it.
        old = self.before if present else None
        return found.run({"self": self.after, "oldSelf": old, "hasOldSelf": present})

    def _message(self, rule: JsonObject, compiled: _Compiled) -> str:
        if compiled.message is not None:
            try:
                found = str(self._run(compiled.message)).strip()
            except EvaluationError:
                found = ""
            if found and "\n" not in found and len(found.encode()) <= _LONGEST_MESSAGE:
                return found
        return rule.get("message", "").strip() or f"failed rule: {rule['rule'].strip()}"
