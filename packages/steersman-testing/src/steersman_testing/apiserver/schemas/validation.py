"""Validation of values against a schema, in order and wording of kube-openapi.

Errors of ``anyOf`` and ``oneOf`` are those of the alternative with the most matches. So each check counts its
matches. Source: ``pkg/validation/validate`` of ``k8s.io/kube-openapi``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from steersman_cel.formats import has_format, known_format
from steersman_cel.numbers import format_go_float
from steersman_cel.patterns import compile_pattern
from steersman_cel.validation import items_by_key, list_item_key
from steersman_testing.apiserver.failures import InvalidFieldError, format_value
from steersman_testing.apiserver.values import (
    MISSING,
    JsonObject,
    get_array,
    get_field,
    get_object,
    is_list,
    is_map,
    json_equal,
    type_of,
)

_NO_FIELD = "<nil>"
_INT64 = range(-(2**63), 2**63)
_INT32 = range(-(2**31), 2**31)
_COMBINATORS = frozenset({"anyOf", "oneOf", "allOf", "not"})
_MAX_FLOAT32 = 3.4028235677973366e38


@dataclass(slots=True)
class ValidationResult:
    """Errors of a check and its number of matches."""

    errors: list[InvalidFieldError] = field(default_factory=list[InvalidFieldError])
    match_count: int = 0

    def add(self, *errors: InvalidFieldError) -> None:
        """Add errors without duplicates."""
        if errors:
            self.errors += [e for e in dict.fromkeys(errors) if e not in self.errors]

    def merge(self, other: ValidationResult) -> None:
        """Add the result of another check."""
        if other.errors:
            self.add(*other.errors)
        self.match_count += other.match_count


def _error(path: str, value: Any, text: str, reason: str = "FieldValueInvalid") -> InvalidFieldError:
    return InvalidFieldError(
        path.lstrip(".") or _NO_FIELD, reason, f"Invalid value: {format_schema_value(value)}: {text}"
    )


def format_schema_value(value: Any) -> str:
    """Format a value as Go: numbers by ``%v``, maps sorted by key."""
    if isinstance(value, float):
        return format_go_float(value)
    return msgspec.json.encode(value, order="sorted").decode()


def _type_name(value: Any) -> str:
    names = {type(None): "null", bool: "boolean", str: "string", int: "integer", float: "number", list: "array"}
    return names.get(type_of(value), "object")


def check_value(
    value: Any, old: Any, schema: JsonObject, path: str, *, ignore_equal_root: bool = False
) -> ValidationResult:
    """Validate ``value`` at ``path``. A value that equals ``old`` passes.

    Args:
        old: the previous value, or MISSING.
        ignore_equal_root: whether ``value`` itself is validated even if it equals ``old``.
    """
    result = ValidationResult()
    if not ignore_equal_root and old is not MISSING and json_equal(value, old):
        return result
    if type(value) is int and value not in _INT64:
        # Go decodes such integers as floats.
        value = float(value)
    format_name = known_format(schema)
    if value is None:
        result.merge(_check_type(value, schema, format_name, path))
        result.merge(_check_enumeration(value, schema, path))
        return result
    if schema.get("type") or format_name or schema.get("x-kubernetes-int-or-string"):
        result.merge(_check_type(value, schema, format_name, path))
        result.match_count += 1
    result.merge(_check_combinations(value, old, schema, path))
    result.match_count += 1
    if isinstance(value, str):
        _check_string(result, value, schema, format_name, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        result.merge(_check_number(value, schema, format_name, path))
        result.match_count += 1
    elif is_list(value):
        result.merge(_check_list(value, old, schema, path))
        result.match_count += 1
    result.merge(_check_enumeration(value, schema, path))
    result.match_count += 1
    if is_map(value):
        result.merge(_check_object(value, old, schema, path))
        result.match_count += 1
    result.match_count += 1
    return result


def _check_type(value: Any, schema: JsonObject, format_name: str, path: str) -> ValidationResult:
    is_int_or_string = bool(schema.get("x-kubernetes-int-or-string"))
    expected: list[str] = ["integer", "string"] if is_int_or_string else [t for t in [schema.get("type")] if t]
    found, kind = ValidationResult(match_count=1), _type_name(value)
    if value is None:
        if expected and not schema.get("nullable"):
            found = ValidationResult([_type_error(path, ",".join(expected), "null")])
        return found
    number = (kind == "number" and value.is_integer() and abs(value) < 2**53 and "integer" in expected) or (
        kind == "integer" and "number" in expected
    )
    if format_name and kind not in ("string", "array") and kind not in expected and not number:
        go_type = {"integer": "int64", "number": "float64"}.get(kind, "")
        return ValidationResult([_type_error(path, format_name, go_type)])
    # The format decides about strings and lists unless a number is expected.
    format_decides = bool(format_name) and kind in ("string", "array") and not {"integer", "number"} & set(expected)
    if expected and not format_decides and kind not in expected and not number:
        return ValidationResult([_type_error(path, ",".join(expected), kind)])
    return found


def _type_error(path: str, expected: str, kind: str) -> InvalidFieldError:
    return _error(path, kind, f'{path} in body must be of type {expected}: "{kind}"', "FieldValueTypeInvalid")


def _check_enumeration(value: Any, schema: JsonObject, path: str) -> ValidationResult:
    allowed = get_array(schema, "enum")
    if not allowed or any(a is not None and _enum_value_equals(value, a) for a in allowed):
        return ValidationResult()
    listed = ", ".join(f'"{a}"' if isinstance(a, str) else format_value(format_schema_value(a)) for a in allowed)
    text = f"Unsupported value: {format_schema_value(value)}: supported values: {listed}"
    return ValidationResult([InvalidFieldError(path.lstrip(".") or _NO_FIELD, "FieldValueNotSupported", text)])


def _enum_value_equals(value: Any, allowed: Any) -> bool:
    numbers = isinstance(value, int | float) and isinstance(allowed, int | float)
    if numbers and bool not in (type(value), type(allowed)):
        return value == allowed
    return json_equal(value, allowed)


def _check_string(result: ValidationResult, value: str, schema: JsonObject, format_name: str, path: str) -> None:
    errors = list(_string_errors(value, schema, path))[:1]
    result.merge(ValidationResult(errors))
    result.match_count += 1
    if format_name:
        if not has_format(value, format_name):
            text = f"{path} in body must be of type {format_name}: {format_value(value)}"
            result.add(_error(path, value, text, "FieldValueTypeInvalid"))
        result.match_count += 1


def _string_errors(value: str, schema: JsonObject, path: str) -> Iterator[InvalidFieldError]:
    max_length, min_length, pattern = (schema.get(k) for k in ("maxLength", "minLength", "pattern"))
    if max_length is not None and len(value) > max_length:
        text = f"Too long: may not be more than {max_length} {'byte' if max_length == 1 else 'bytes'}"
        yield InvalidFieldError(path.lstrip(".") or _NO_FIELD, "FieldValueTooLong", text)
    if min_length is not None and len(value) < min_length:
        yield _error(path, value, f"{path} in body should be at least {min_length} chars long")
    if pattern and not compile_pattern(pattern).search(value):
        yield _error(path, value, f"{path} in body should match '{pattern}'")


def _check_number(value: float, schema: JsonObject, format_name: str, path: str) -> ValidationResult:
    kind = "" if schema.get("x-kubernetes-int-or-string") else schema.get("type", "")
    result = ValidationResult(match_count=1)
    result.add(*_range_errors(value, kind, format_name, "Checked", path))
    is_integer = isinstance(value, int)
    minimum, maximum, multiple_of = (schema.get(k) for k in ("minimum", "maximum", "multipleOf"))
    if multiple_of is not None:
        result.add(*_range_errors(multiple_of, kind, format_name, "MultipleOf", path))
        divisor = int(multiple_of) if is_integer else multiple_of
        if divisor <= 0:
            text = f"factor MultipleOf declared for {path} must be positive: {format_go_float(divisor)}"
            result.add(_error(path, divisor, text))
        elif value % divisor if is_integer else not _is_multiple(value, divisor):
            result.add(_error(path, value, f"{path} in body should be a multiple of {format_go_float(divisor)}"))
    if minimum is not None:
        result.add(*_range_errors(minimum, kind, format_name, "Minimum boundary", path))
        bound, exclusive = int(minimum) if is_integer else minimum, bool(schema.get("exclusiveMinimum"))
        if value < bound or (exclusive and value == bound):
            relation = "greater than" if exclusive else "greater than or equal to"
            result.add(_error(path, value, f"{path} in body should be {relation} {format_go_float(bound)}"))
    if maximum is not None:
        result.add(*_range_errors(maximum, kind, format_name, "Maximum boundary", path))
        bound, exclusive = int(maximum) if is_integer else maximum, bool(schema.get("exclusiveMaximum"))
        if value > bound or (exclusive and value == bound):
            relation = "less than" if exclusive else "less than or equal to"
            result.add(_error(path, value, f"{path} in body should be {relation} {format_go_float(bound)}"))
    return result


def _is_multiple(value: float, step: float) -> bool:
    quotient = 1 / step * value if step < 1 else value / step
    return abs(quotient - round(quotient)) < 1e-9 * max(1.0, abs(quotient))


def _range_errors(value: float, kind: str, format_name: str, subject: str, path: str) -> Iterator[InvalidFieldError]:
    """Yield an error if a number does not fit its type.

    The real server names no field here.
    """
    if kind == "integer":
        in_range = float(value).is_integer() and int(value) in (_INT32 if format_name == "int32" else _INT64)
    else:
        in_range = format_name != "float" or abs(value) < _MAX_FLOAT32
    if not in_range:
        format_text = f"with format {format_name}" if format_name else "(default format)"
        text = f"{subject} value must be of type {kind or ''} {format_text} in {path}"
        yield InvalidFieldError(_NO_FIELD, "FieldValueInvalid", f'Invalid value: "": {text}')


def _check_list(value: list[Any], old: Any, schema: JsonObject, path: str) -> ValidationResult:
    result = ValidationResult(match_count=1)
    items = schema.get("items")
    if is_map(items):
        before = items_by_key(old, schema)
        for position, item in enumerate(value):
            previous = before.get(list_item_key(item, schema), MISSING)
            result.merge(check_value(item, previous, items, f"{path}[{position}]"))
    result.add(*_count_errors(len(value), schema, path, "Items", "items"))
    return result


def _count_errors(length: int, schema: JsonObject, path: str, suffix: str, noun: str) -> Iterator[InvalidFieldError]:
    maximum, minimum = schema.get(f"max{suffix}"), schema.get(f"min{suffix}")
    if minimum is not None and length < minimum:
        yield _error(path, length, f"{path} in body should have at least {minimum} {noun}")
    if maximum is not None and length > maximum:
        text = f"Too many: {length}: must have at most {maximum} {'item' if maximum == 1 else 'items'}"
        yield InvalidFieldError(path.lstrip(".") or _NO_FIELD, "FieldValueTooMany", text)


def _check_object(value: JsonObject, old: Any, schema: JsonObject, path: str) -> ValidationResult:
    result = ValidationResult()
    result.add(*_count_errors(len(value), schema, path, "Properties", "properties"))
    properties, additional = get_object(schema, "properties"), schema.get("additionalProperties")
    for name, content in value.items():
        if name in properties:
            # Conversion changes the apiVersion before the comparison, so it never equals the old one.
            previous = MISSING if not path and name in ("apiVersion", "kind") else get_field(old, name)
            result.merge(check_value(content, previous, properties[name], f"{path}.{name}" if path else name))
        elif is_map(additional):
            result.merge(check_value(content, get_field(old, name), additional, f"{path}.{name}"))
        elif additional is False:
            result.add(_error(path, name, f"{path}.{name} in body is a forbidden property"))
    for name in get_array(schema, "required"):
        if name not in value:
            result.add(InvalidFieldError(f"{path}.{name}".lstrip("."), "FieldValueRequired", "Required value"))
    return result


def _check_combinations(value: Any, old: Any, schema: JsonObject, path: str) -> ValidationResult:
    combined = ValidationResult()
    if _COMBINATORS.isdisjoint(schema):
        combined.match_count += 1
        return combined
    if anyof := get_array(schema, "anyOf"):
        _check_any_of(combined, [_validate_nested(value, old, s, path) for s in anyof], path)
    if oneof := get_array(schema, "oneOf"):
        _check_one_of(combined, [_validate_nested(value, old, s, path) for s in oneof], path)
    if allof := get_array(schema, "allOf"):
        results = [_validate_nested(value, old, s, path) for s in allof]
        for result in results:
            combined.merge(result)
        valid = sum(not r.errors for r in results)
        if valid != len(results):
            suffix = "" if valid else ". None validated"
            combined.add(_combinator_error(path, f"must validate all the schemas (allOf){suffix}"))
    negated = schema.get("not")
    if is_map(negated) and not _validate_nested(value, old, negated, path).errors:
        combined.add(_combinator_error(path, "must not validate the schema (not)"))
    combined.match_count += 1
    return combined


def _validate_nested(value: Any, old: Any, schema: JsonObject, path: str) -> ValidationResult:
    # Validate the value itself again. Unchanged values within it pass.
    return check_value(value, old, schema, path, ignore_equal_root=True)


def _best_match(results: list[ValidationResult]) -> ValidationResult | None:
    return max(results, key=lambda r: r.match_count, default=None)


def _check_any_of(result: ValidationResult, results: list[ValidationResult], path: str) -> None:
    first = next((r for r in results if not r.errors), None)
    if first is None:
        result.add(_combinator_error(path, "must validate at least one schema (anyOf)"))
        first = _best_match(results)
    if first is not None:
        result.merge(first)


def _check_one_of(result: ValidationResult, results: list[ValidationResult], path: str) -> None:
    valid = [r for r in results if not r.errors]
    if len(valid) == 1:
        result.merge(valid[0])
        return
    summary = f"Found {len(valid)} valid alternatives" if valid else "Found none valid"
    result.add(_combinator_error(path, f"must validate one and only one schema (oneOf). {summary}"))
    if not valid and (best := _best_match(results)) is not None:
        result.merge(best)


def _combinator_error(path: str, text: str) -> InvalidFieldError:
    # The real server reports these errors without field and value.
    return InvalidFieldError(_NO_FIELD, "FieldValueInvalid", f'Invalid value: "": "{path}" {text}')
