"""Values held to a schema. Source: ``pkg/validation/validate`` of ``k8s.io/kube-openapi``, its order and wording.

Errors within ``anyOf`` and ``oneOf`` are told from the alternative that matches in the most respects, so each check
counts how much it found in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from steersman.meta.formats import has_format, known_format
from steersman_cel.evaluation import items_by_key, key_of
from steersman_cel.numbers import number_text
from steersman_cel.patterns import compiled
from steersman_testing.apiserver.failures import FieldError, shown
from steersman_testing.apiserver.values import (
    MISSING,
    JsonObject,
    child,
    is_list,
    is_map,
    list_at,
    map_at,
    same,
    type_of,
)

_NOWHERE = "<nil>"
_INT64 = range(-(2**63), 2**63)
_INT32 = range(-(2**31), 2**31)
_COMBINING = frozenset({"anyOf", "oneOf", "allOf", "not"})
_LARGEST_FLOAT = 3.4028235677973366e38


@dataclass(slots=True)
class Found:
    """What a check found: errors, and how many respects were looked at without an early end."""

    errors: list[FieldError] = field(default_factory=list[FieldError])
    count: int = 0

    def add(self, *errors: FieldError) -> None:
        """Adds errors, each but once."""
        if errors:
            self.errors += [e for e in dict.fromkeys(errors) if e not in self.errors]

    def merge(self, other: Found) -> None:
        """Takes over what another check found."""
        if other.errors:
            self.add(*other.errors)
        self.count += other.count


def _error(path: str, value: Any, text: str, reason: str = "FieldValueInvalid") -> FieldError:
    return FieldError(path.lstrip(".") or _NOWHERE, reason, f"Invalid value: {shown_value(value)}: {text}")


def shown_value(value: Any) -> str:
    """A value as Go prints it in an error: numbers by ``%v``, maps by key."""
    if isinstance(value, float):
        return number_text(value)
    return msgspec.json.encode(value, order="sorted").decode()


def _type_name(value: Any) -> str:
    names = {type(None): "null", bool: "boolean", str: "string", int: "integer", float: "number", list: "array"}
    return names.get(type_of(value), "object")


def check(value: Any, old: Any, schema: JsonObject, path: str, *, fresh: bool = False) -> Found:
    """Holds ``value`` at ``path`` to ``schema``; what equals ``old`` (or MISSING) passes.

    Args:
        fresh: whether ``value`` itself does not pass where it equals ``old``, only what is within it.
    """
    found = Found()
    if not fresh and old is not MISSING and same(value, old):
        return found
    if type(value) is int and value not in _INT64:
        # So does Go read it.
        value = float(value)
    form = known_format(schema)
    if value is None:
        found.merge(_check_type(value, schema, form, path))
        found.merge(_check_enumeration(value, schema, path))
        return found
    if schema.get("type") or form or schema.get("x-kubernetes-int-or-string"):
        found.merge(_check_type(value, schema, form, path))
        found.count += 1
    found.merge(_check_combinations(value, old, schema, path))
    found.count += 1
    if isinstance(value, str):
        _check_text(found, value, schema, form, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found.merge(_check_number(value, schema, form, path))
        found.count += 1
    elif is_list(value):
        found.merge(_check_list(value, old, schema, path))
        found.count += 1
    found.merge(_check_enumeration(value, schema, path))
    found.count += 1
    if is_map(value):
        found.merge(_check_object(value, old, schema, path))
        found.count += 1
    found.count += 1
    return found


def _check_type(value: Any, schema: JsonObject, form: str, path: str) -> Found:
    either = bool(schema.get("x-kubernetes-int-or-string"))
    wanted: list[str] = ["integer", "string"] if either else [t for t in [schema.get("type")] if t]
    found, kind = Found(count=1), _type_name(value)
    if value is None:
        if wanted and not schema.get("nullable"):
            found = Found([_wrong_type(path, ",".join(wanted), "null")])
        return found
    number = (kind == "number" and value.is_integer() and abs(value) < 2**53 and "integer" in wanted) or (
        kind == "integer" and "number" in wanted
    )
    if form and kind not in ("string", "array") and kind not in wanted and not number:
        native = {"integer": "int64", "number": "float64"}.get(kind, "")
        return Found([_wrong_type(path, form, native)])
    # Of what is no number, the format decides.
    decided = bool(form) and kind in ("string", "array") and not {"integer", "number"} & set(wanted)
    if wanted and not decided and kind not in wanted and not number:
        return Found([_wrong_type(path, ",".join(wanted), kind)])
    return found


def _wrong_type(path: str, wanted: str, kind: str) -> FieldError:
    return _error(path, kind, f'{path} in body must be of type {wanted}: "{kind}"', "FieldValueTypeInvalid")


def _check_enumeration(value: Any, schema: JsonObject, path: str) -> Found:
    allowed = list_at(schema, "enum")
    if not allowed or any(a is not None and _convertible(value, a) for a in allowed):
        return Found()
    listed = ", ".join(f'"{a}"' if isinstance(a, str) else shown(shown_value(a)) for a in allowed)
    text = f"Unsupported value: {shown_value(value)}: supported values: {listed}"
    return Found([FieldError(path.lstrip(".") or _NOWHERE, "FieldValueNotSupported", text)])


def _convertible(value: Any, allowed: Any) -> bool:
    numbers = isinstance(value, int | float) and isinstance(allowed, int | float)
    if numbers and bool not in (type(value), type(allowed)):
        return value == allowed
    return same(value, allowed)


def _check_text(found: Found, value: str, schema: JsonObject, form: str, path: str) -> None:
    errors = list(_text_errors(value, schema, path))[:1]
    found.merge(Found(errors))
    found.count += 1
    if form:
        if not has_format(value, form):
            text = f"{path} in body must be of type {form}: {shown(value)}"
            found.add(_error(path, value, text, "FieldValueTypeInvalid"))
        found.count += 1


def _text_errors(value: str, schema: JsonObject, path: str) -> Iterator[FieldError]:
    longest, shortest, pattern = (schema.get(k) for k in ("maxLength", "minLength", "pattern"))
    if longest is not None and len(value) > longest:
        text = f"Too long: may not be more than {longest} {'byte' if longest == 1 else 'bytes'}"
        yield FieldError(path.lstrip(".") or _NOWHERE, "FieldValueTooLong", text)
    if shortest is not None and len(value) < shortest:
        yield _error(path, value, f"{path} in body should be at least {shortest} chars long")
    if pattern and not compiled(pattern).search(value):
        yield _error(path, value, f"{path} in body should match '{pattern}'")


def _check_number(value: float, schema: JsonObject, form: str, path: str) -> Found:
    kind = "" if schema.get("x-kubernetes-int-or-string") else schema.get("type", "")
    found = Found(count=1)
    found.add(*_range_errors(value, kind, form, "Checked", path))
    whole = isinstance(value, int)
    least, most, step = (schema.get(k) for k in ("minimum", "maximum", "multipleOf"))
    if step is not None:
        found.add(*_range_errors(step, kind, form, "MultipleOf", path))
        divisor = int(step) if whole else step
        if divisor <= 0:
            text = f"factor MultipleOf declared for {path} must be positive: {number_text(divisor)}"
            found.add(_error(path, divisor, text))
        elif value % divisor if whole else not _is_multiple(value, divisor):
            found.add(_error(path, value, f"{path} in body should be a multiple of {number_text(divisor)}"))
    if least is not None:
        found.add(*_range_errors(least, kind, form, "Minimum boundary", path))
        bound, exclusive = int(least) if whole else least, bool(schema.get("exclusiveMinimum"))
        if value < bound or (exclusive and value == bound):
            relation = "greater than" if exclusive else "greater than or equal to"
            found.add(_error(path, value, f"{path} in body should be {relation} {number_text(bound)}"))
    if most is not None:
        found.add(*_range_errors(most, kind, form, "Maximum boundary", path))
        bound, exclusive = int(most) if whole else most, bool(schema.get("exclusiveMaximum"))
        if value > bound or (exclusive and value == bound):
            relation = "less than" if exclusive else "less than or equal to"
            found.add(_error(path, value, f"{path} in body should be {relation} {number_text(bound)}"))
    return found


def _is_multiple(value: float, step: float) -> bool:
    quotient = 1 / step * value if step < 1 else value / step
    return abs(quotient - round(quotient)) < 1e-9 * max(1.0, abs(quotient))


def _range_errors(value: float, kind: str, form: str, subject: str, path: str) -> Iterator[FieldError]:
    """Whether the number fits its type. The real server names no field here."""
    if kind == "integer":
        fits = float(value).is_integer() and int(value) in (_INT32 if form == "int32" else _INT64)
    else:
        fits = form != "float" or abs(value) < _LARGEST_FLOAT
    if not fits:
        told = f"with format {form}" if form else "(default format)"
        text = f"{subject} value must be of type {kind or ''} {told} in {path}"
        yield FieldError(_NOWHERE, "FieldValueInvalid", f'Invalid value: "": {text}')


def _check_list(value: list[Any], old: Any, schema: JsonObject, path: str) -> Found:
    found = Found(count=1)
    items = schema.get("items")
    if is_map(items):
        before = items_by_key(old, schema)
        for position, item in enumerate(value):
            former = before.get(key_of(item, schema), MISSING)
            found.merge(check(item, former, items, f"{path}[{position}]"))
    found.add(*_count_errors(len(value), schema, path, "Items", "items"))
    return found


def _count_errors(length: int, schema: JsonObject, path: str, suffix: str, noun: str) -> Iterator[FieldError]:
    most, least = schema.get(f"max{suffix}"), schema.get(f"min{suffix}")
    if least is not None and length < least:
        yield _error(path, length, f"{path} in body should have at least {least} {noun}")
    if most is not None and length > most:
        text = f"Too many: {length}: must have at most {most} {'item' if most == 1 else 'items'}"
        yield FieldError(path.lstrip(".") or _NOWHERE, "FieldValueTooMany", text)


def _check_object(value: JsonObject, old: Any, schema: JsonObject, path: str) -> Found:
    found = Found()
    found.add(*_count_errors(len(value), schema, path, "Properties", "properties"))
    properties, additional = map_at(schema, "properties"), schema.get("additionalProperties")
    for name, content in value.items():
        if name in properties:
            # What the version says is converted before anybody looks, so it is never the same.
            former = MISSING if not path and name in ("apiVersion", "kind") else child(old, name)
            found.merge(check(content, former, properties[name], f"{path}.{name}" if path else name))
        elif is_map(additional):
            found.merge(check(content, child(old, name), additional, f"{path}.{name}"))
        elif additional is False:
            found.add(_error(path, name, f"{path}.{name} in body is a forbidden property"))
    for name in list_at(schema, "required"):
        if name not in value:
            found.add(FieldError(f"{path}.{name}".lstrip("."), "FieldValueRequired", "Required value"))
    return found


def _check_combinations(value: Any, old: Any, schema: JsonObject, path: str) -> Found:
    found = Found()
    if _COMBINING.isdisjoint(schema):
        found.count += 1
        return found
    if anyof := list_at(schema, "anyOf"):
        _check_any(found, [_nested(value, old, s, path) for s in anyof], path)
    if oneof := list_at(schema, "oneOf"):
        _check_one(found, [_nested(value, old, s, path) for s in oneof], path)
    if allof := list_at(schema, "allOf"):
        results = [_nested(value, old, s, path) for s in allof]
        for result in results:
            found.merge(result)
        valid = sum(not r.errors for r in results)
        if valid != len(results):
            none = "" if valid else ". None validated"
            found.add(_combination(path, f"must validate all the schemas (allOf){none}"))
    negated = schema.get("not")
    if is_map(negated) and not _nested(value, old, negated, path).errors:
        found.add(_combination(path, "must not validate the schema (not)"))
    found.count += 1
    return found


def _nested(value: Any, old: Any, schema: JsonObject, path: str) -> Found:
    # The value itself is looked at anew; what is unchanged within it passes.
    return check(value, old, schema, path, fresh=True)


def _best(results: list[Found]) -> Found | None:
    return max(results, key=lambda r: r.count, default=None)


def _check_any(found: Found, results: list[Found], path: str) -> None:
    first = next((r for r in results if not r.errors), None)
    if first is None:
        found.add(_combination(path, "must validate at least one schema (anyOf)"))
        first = _best(results)
    if first is not None:
        found.merge(first)


def _check_one(found: Found, results: list[Found], path: str) -> None:
    valid = [r for r in results if not r.errors]
    if len(valid) == 1:
        found.merge(valid[0])
        return
    told = f"Found {len(valid)} valid alternatives" if valid else "Found none valid"
    found.add(_combination(path, f"must validate one and only one schema (oneOf). {told}"))
    if not valid and (best := _best(results)) is not None:
        found.merge(best)


def _combination(path: str, text: str) -> FieldError:
    # These are no errors of a field to the real server: the field and the value are left out.
    return FieldError(_NOWHERE, "FieldValueInvalid", f'Invalid value: "": "{path}" {text}')
