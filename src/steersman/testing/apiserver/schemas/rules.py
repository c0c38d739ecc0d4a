"""CEL validation rules of custom resources: checked when a definition is written, evaluated on each object.

Not imitated: the costs of rules, neither the estimate that the real server refuses definitions by, nor the budget
that it evaluates objects with. What cannot be told apart here (see ``cel.rewriting``) is refused with 501 when a
definition is written, so no rule is ever passed over in silence.

Source: "Extend the Kubernetes API with CustomResourceDefinitions", "Validation rules"; ``pkg/apiserver/schema/cel``
of ``k8s.io/apiextensions-apiserver``.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from steersman.cel.engine import (
    CompilationError,
    EvaluationError,
    Program,
    compile_rule,
)
from steersman.cel.types import Type, escaped, schema_type
from steersman.testing.apiserver.failures import FieldError, invalid_value
from steersman.testing.apiserver.schemas.paths import PathError, find_place
from steersman.testing.apiserver.schemas.validation import items_by_key, key_of, shown_value
from steersman.testing.apiserver.values import MISSING, JsonObject, child, is_list, is_map, list_at, map_at

NOT_CHECKED = FieldError(
    "<nil>",
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the "
    "existing errors to complete validation",
)
# With one of these, the rules are not evaluated at all.
BLOCKING = {
    "FieldValueNotSupported",
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
}

_RULES = "x-kubernetes-validations"
_UNTYPED = (
    "Internal error: internal error: failed to construct type information for x-kubernetes-validations rules: "
    "unable to convert structural schema to CEL declarations"
)
_LONGEST_MESSAGE = 5 * 1024
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-zµ]+)")
_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
}
_UNITS = {
    **dict.fromkeys(("nano",), "ns"),
    **dict.fromkeys(("micro",), "us"),
    **dict.fromkeys(("milli",), "ms"),
    **dict.fromkeys(("sec",), "s"),
    **dict.fromkeys(("min",), "m"),
    **dict.fromkeys(("hr", "hour"), "h"),
    **dict.fromkeys(("day",), "d"),
    **dict.fromkeys(("wk", "week"), "w"),
}


def has_rules(schema: Any) -> bool:
    """Whether ``schema`` has rules at any depth."""
    if is_list(schema):
        return any(has_rules(s) for s in schema)
    return is_map(schema) and (bool(schema.get(_RULES)) or any(has_rules(s) for s in schema.values()))


# Definitions


def rule_checks(root: JsonObject) -> Callable[[JsonObject, str, str], Iterator[FieldError]]:
    """What checks the rules at one place of the schema ``root``.

    It takes the schema at the place, its path, and the path from which on old values cannot be told, which may be
    empty. Raises ApiError (501) where a rule cannot be evaluated here.
    """

    def checks(schema: JsonObject, path: str, uncorrelated: str) -> Iterator[FieldError]:
        if schema_type(schema, root=schema is root) is None:
            yield FieldError(f"{path}.{_RULES}", "InternalError", _UNTYPED)
            return
        key = _key(schema, schema is root)
        for position, rule in enumerate(list_at(schema, _RULES)):
            yield from _rule_errors(rule, key, f"{path}.{_RULES}[{position}]", uncorrelated)

    return checks


def _rule_errors(rule: JsonObject, key: bytes, place: str, uncorrelated: str) -> Iterator[FieldError]:
    optional = bool(rule.get("optionalOldSelf"))
    uses_old = False
    try:
        program = _program(key, rule["rule"], optional)
        uses_old = program.uses_old
        if program.type.name != "bool":
            yield _wrong(rule, f"{place}.rule", "cel expression must evaluate to a bool")
        elif rule.get("messageExpression"):
            yield from _message_errors(rule, key, f"{place}.messageExpression", optional=optional)
    except CompilationError as error:
        yield _wrong(rule, f"{place}.rule", str(error))
    if uses_old and uncorrelated:
        text = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelated}"
        yield invalid_value(f"{place}.rule", rule["rule"], text)
    elif not uses_old and "optionalOldSelf" in rule:
        text = "may not be set if oldSelf is not used in rule"
        yield invalid_value(f"{place}.optionalOldSelf", rule["optionalOldSelf"], text)


def _message_errors(rule: JsonObject, key: bytes, place: str, *, optional: bool) -> Iterator[FieldError]:
    try:
        found = _program(key, rule["messageExpression"], optional).type
    except CompilationError as error:
        yield _wrong(rule, place, f"messageExpression {error}")
        return
    if found.name != "string":
        yield _wrong(rule, place, "messageExpression must evaluate to a string")


def _wrong(rule: JsonObject, place: str, text: str) -> FieldError:
    # The rule is shown in the form that the real server has inside.
    shown = {
        "Rule": rule.get("rule", ""),
        "Message": rule.get("message", ""),
        "MessageExpression": rule.get("messageExpression", ""),
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath", ""),
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }
    return FieldError(place, "FieldValueInvalid", f"Invalid value: {msgspec.json.encode(shown).decode()}: {text}")


def _type_of(schema: JsonObject, root: bool) -> Type:
    found = schema_type(schema, root=root)
    return found if found is not None else Type("dyn")


# Objects


def check_rules(obj: Any, old: Any, schema: JsonObject, *, path: str = "") -> list[FieldError]:
    """The rules that ``obj`` at ``path`` breaks; ``old`` is what it replaces, or MISSING."""
    return list(_check(obj, old, schema, path, root=not path, unchanged=False))


def _check(
    value: Any, old: Any, schema: JsonObject, path: str, *, root: bool = False, unchanged: bool
) -> Iterator[FieldError]:
    """``unchanged``: whether what encloses ``value`` is as it was, so that only transitions are judged."""
    if value is None:
        return
    unchanged = unchanged if old is MISSING else value == old
    rules = list_at(schema, _RULES)
    if rules:
        root = root or bool(schema.get("x-kubernetes-embedded-resource"))
        after = _to_cel(value, schema, root=root)
        before = MISSING if old is MISSING or old is None else _to_cel(old, schema, root=root)
        case = _Case(value, after, before, schema, unchanged)
        for position, rule in enumerate(rules):
            yield from _evaluate(rule, _programs(_key(schema, root))[position], case, path)
    if is_map(value):
        yield from _check_fields(value, old, schema, path, unchanged=unchanged)
    elif is_list(value):
        items = schema.get("items")
        before_by_key = items_by_key(old, schema)
        for position, item in enumerate(value) if is_map(items) else ():
            former = before_by_key.get(key_of(item, schema), MISSING)
            yield from _check(item, former, map_at(schema, "items"), f"{path}[{position}]", unchanged=unchanged)


def _check_fields(
    value: JsonObject, old: Any, schema: JsonObject, path: str, *, unchanged: bool
) -> Iterator[FieldError]:
    properties, additional = map_at(schema, "properties"), schema.get("additionalProperties")
    for name, content in value.items():
        if name in properties:
            place, inner = f"{path}.{name}" if path else name, properties[name]
        elif is_map(additional):
            place, inner = f"{path}[{name}]", additional
        else:
            continue
        yield from _check(content, child(old, name), inner, place, unchanged=unchanged)


@dataclass(frozen=True, slots=True)
class _Case:
    """What a rule is evaluated on: the value in JSON, and as CEL sees it now and before (or MISSING)."""

    value: Any
    after: Any
    before: Any
    schema: JsonObject
    unchanged: bool

    def run(self, program: Program) -> Any:
        """The value of an expression. Raises EvaluationError."""
        present = self.before is not MISSING
        # Where there is nothing before, nothing looks at it.
        old = self.before if present else None
        return program.run({"self": self.after, "oldSelf": old, "hasOldSelf": present})


@dataclass(frozen=True, slots=True)
class _Compiled:
    rule: Program
    message: Program | None


def _key(schema: JsonObject, root: bool) -> bytes:
    return msgspec.json.encode((root, schema))


@lru_cache(maxsize=4096)
def _program(key: bytes, expression: str, optional_old: bool) -> Program:
    """The program of an expression in a schema, which ``key`` encodes. Tests install the same schemas all the time.

    Raises as ``compile_rule``.
    """
    root, schema = msgspec.json.decode(key)
    return compile_rule(expression, _type_of(schema, root), optional_old=optional_old)


@lru_cache(maxsize=4096)
def _programs(key: bytes) -> list[_Compiled]:
    """The compiled rules of a schema, which ``key`` encodes."""
    _, schema = msgspec.json.decode(key)
    found: list[_Compiled] = []
    for rule in schema[_RULES]:
        optional = bool(rule.get("optionalOldSelf"))
        message = rule.get("messageExpression")
        program = _program(key, rule["rule"], optional)
        found.append(_Compiled(program, _program(key, message, optional) if message else None))
    return found


def _evaluate(rule: JsonObject, compiled: _Compiled, case: _Case, path: str) -> Iterator[FieldError]:
    transition = compiled.rule.uses_old
    # A transition rule needs something to compare with; what did not change is not judged again (KEP-4008).
    if transition and case.before is MISSING and not rule.get("optionalOldSelf"):
        return
    try:
        outcome = case.run(compiled.rule)
    except EvaluationError as error:
        subject = (rule.get("message") or rule["rule"]).strip()
        kind = case.schema.get("type", "")
        told = f"{error} evaluating rule: {subject}"
        if str(error).startswith("no such overload"):
            takes = "call arguments did not match a supported operator, function or macro signature"
            told = f"'{error}': {takes} for rule: {subject}"
        text = f'Invalid value: "{kind}": {told}'
        yield FieldError(path or "<nil>", "FieldValueInvalid", text)
        return
    if outcome is not True and (transition or not case.unchanged):
        yield _broken(rule, _place(rule, case.schema, path), case, _message(rule, compiled, case))


def _place(rule: JsonObject, schema: JsonObject, path: str) -> str:
    if not rule.get("fieldPath"):
        return path or "<nil>"
    try:
        found = find_place(rule["fieldPath"], schema).path
    except PathError:
        return path or "<nil>"
    return f"{path}.{found}" if path else found


def _message(rule: JsonObject, compiled: _Compiled, case: _Case) -> str:
    if compiled.message is not None:
        try:
            found = str(case.run(compiled.message)).strip()
        except EvaluationError:
            found = ""
        if found and "\n" not in found and len(found.encode()) <= _LONGEST_MESSAGE:
            return found
    return rule.get("message", "").strip() or f"failed rule: {rule['rule'].strip()}"


def _broken(rule: JsonObject, path: str, case: _Case, message: str) -> FieldError:
    reason = rule.get("reason") or "FieldValueInvalid"
    # Objects and lists are not shown, scalars are.
    subject = "" if case.schema.get("type") in ("object", "array") else f": {shown_value(case.value)}"
    texts = {
        "FieldValueForbidden": f"Forbidden: {message}",
        "FieldValueRequired": f"Required value: {message}",
        "FieldValueDuplicate": f"Duplicate value{subject}",
    }
    return FieldError(path, reason, texts.get(reason, f"Invalid value{subject}: {message}"))


# Values as CEL sees them


def _to_cel(value: Any, schema: JsonObject, *, root: bool = False) -> Any:
    """``value`` as CEL sees it: names escaped, numbers in their types, times normalized, metadata only named."""
    if is_map(value):
        return _object_to_cel(value, schema, whole=root or bool(schema.get("x-kubernetes-embedded-resource")))
    if is_list(value):
        items = map_at(schema, "items")
        return [_to_cel(v, items) for v in value]
    if schema.get("type") == "number" and type(value) is int:
        return float(value)
    if schema.get("type") == "integer" and type(value) is float:
        return int(value)
    if schema.get("type") == "string" and isinstance(value, str):
        return _text_to_cel(value, schema.get("format", ""))
    return value


def _text_to_cel(value: str, form: str) -> Any:
    match form:
        case "byte":
            return base64.b64decode(value)
        case "date":
            return f"{value}T00:00:00Z"
        case "date-time":
            moment = datetime.fromisoformat(value.upper())
            return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case "duration":
            return f"{_seconds(value):.9f}s"
        case _:
            return value


def _seconds(text: str) -> float:
    total = sum(float(n) * _SECONDS[_unit(unit.lower())] for n, unit in _DURATION.findall(text))
    return -total if text.startswith("-") else total


def _unit(unit: str) -> str:
    return unit if unit in _SECONDS else next((u for name, u in _UNITS.items() if unit.startswith(name)), "ns")


def _object_to_cel(value: JsonObject, schema: JsonObject, *, whole: bool) -> JsonObject:
    properties, additional = map_at(schema, "properties"), schema.get("additionalProperties")
    result: JsonObject = {}
    for name, content in value.items():
        if whole and name in ("apiVersion", "kind"):
            result[name] = content
        elif whole and name == "metadata":
            result[name] = {k: content[k] for k in ("name", "generateName") if k in content}
        elif name in properties:
            inner: JsonObject = properties[name]
            # A null counts as an absent field.
            if content is not None and (spelled := escaped(name)):
                result[spelled] = _to_cel(content, inner)
        elif is_map(additional):
            result[name] = _to_cel(content, additional)
    return result
