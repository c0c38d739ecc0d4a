"""Structural schemas of custom resources: pruning, defaulting and validation.

Of formats, ``date-time``, ``byte``, ``uuid`` and ``duration`` are checked. CEL rules are in ``rules``.
Source: "Extend the Kubernetes API with CustomResourceDefinitions"; wording of ``kube-openapi``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from steersman.testing.apiserver.failures import FieldError, invalid_value, required, shown
from steersman.testing.apiserver.shapes import SchemaShape
from steersman.testing.apiserver.values import MISSING, JsonObject, child, clone, is_list, is_map, map_at

_ROOT_FIELDS = frozenset({"apiVersion", "kind", "metadata"})


def prune(value: Any, schema: JsonObject, path: str = "", *, root: bool = True) -> tuple[Any, list[str]]:
    """``value`` without what ``schema`` does not know and without nulls, and the paths of the unknown fields."""
    unknown: list[str] = []
    pruned = _prune(value, schema, path, unknown, root=root)
    return pruned, sorted(unknown)


def _prune(value: Any, schema: JsonObject, path: str, unknown: list[str], *, root: bool) -> Any:
    if is_list(value):
        items = schema.get("items")
        if not is_map(items):
            return clone(value)
        return [_prune(v, items, f"{path}[{i}]", unknown, root=False) for i, v in enumerate(value)]
    if not is_map(value):
        return value
    keep_all = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    exempt = _ROOT_FIELDS if root or schema.get("x-kubernetes-embedded-resource") else frozenset[str]()
    result: JsonObject = {}
    for name, content in value.items():
        inner = f"{path}.{name}" if path else name
        known = _property(schema, name)
        if name in exempt:
            result[name] = clone(content)
        elif is_map(known):
            if content is not None or known.get("nullable"):
                result[name] = _prune(content, known, inner, unknown, root=False)
        elif keep_all or known is True:
            result[name] = clone(content)
        else:
            unknown.append(inner)
    return result


def _property(schema: JsonObject, name: str) -> Any:
    """The schema of a field, True where anything may stand, None where the field is unknown."""
    found = child(schema.get("properties"), name)
    return schema.get("additionalProperties") if found is MISSING else found


def fill_defaults(value: Any, schema: JsonObject) -> None:
    """Puts the schema's defaults where fields are missing, in place."""
    if is_list(value):
        items = schema.get("items")
        if is_map(items):
            for item in value:
                fill_defaults(item, items)
        return
    if not is_map(value):
        return
    properties = schema.get("properties")
    if is_map(properties):
        for name, inner in properties.items():
            if name not in value and "default" in inner:
                value[name] = clone(inner["default"])
    for name, content in value.items():
        inner = _property(schema, name)
        if is_map(inner):
            fill_defaults(content, inner)


def validate(value: Any, old: Any, schema: JsonObject) -> list[FieldError]:
    """What ``schema`` forbids in the object ``value``. What is unchanged from ``old`` is let through (KEP-4008)."""
    return list(_validate(value, old, schema, "", root=True))


def validate_status(obj: JsonObject, old: JsonObject, schema: JsonObject) -> list[FieldError]:
    """As ``validate`` for a write to the status subresource: its texts name fields relative to the status."""
    inner = map_at(map_at(schema, "properties"), "status")
    found = _validate(child(obj, "status"), child(old, "status"), inner, "")
    return [e._replace(path=f"status.{e.path}" if e.path else "status") for e in found] if "status" in obj else []


def _validate(value: Any, old: Any, schema: JsonObject, path: str, *, root: bool = False) -> Iterator[FieldError]:
    if old is not MISSING and value == old and type(value) is type(old):
        return
    if value is None and schema.get("nullable"):
        return
    wrong = _type_error(value, schema, path)
    if wrong is not None:
        yield wrong
        return
    yield from _enumeration(value, schema, path)
    if isinstance(value, str):
        yield from _text(value, schema, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number(value, schema, path)
    elif is_list(value):
        yield from _array(value, old, schema, path)
    elif is_map(value):
        yield from _object(value, old, schema, path, root=root)
    yield from _combinations(value, schema, path)


_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "number": (int, float),
    "integer": (int,),
}


def _type_error(value: Any, schema: JsonObject, path: str) -> FieldError | None:
    if schema.get("x-kubernetes-int-or-string"):
        wanted, accepted = "integer,string", (int, str)
    elif schema.get("type") in _TYPES:
        wanted = schema["type"]
        accepted = _TYPES[wanted]
    else:
        return None
    if isinstance(value, accepted) and (bool in accepted or not isinstance(value, bool)):
        return None
    if wanted == "integer" and isinstance(value, float) and value.is_integer():
        return None
    found = _type_name(value)
    text = f'{path} in body must be of type {wanted}: "{found}"'
    return invalid_value(path, found, text, reason="FieldValueTypeInvalid")


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, float):
        return "number"
    return next(name for name, types in _TYPES.items() if type(value) in types and name != "number")


def _enumeration(value: Any, schema: JsonObject, path: str) -> Iterator[FieldError]:
    allowed = schema.get("enum")
    if is_list(allowed) and not any(value == a and type(value) is type(a) for a in allowed):
        listed = ", ".join(shown(a) for a in allowed)
        yield FieldError(
            path, "FieldValueNotSupported", f"Unsupported value: {shown(value)}: supported values: {listed}"
        )


def _text(value: str, schema: JsonObject, path: str) -> Iterator[FieldError]:
    longest, shortest, pattern = (schema.get(k) for k in ("maxLength", "minLength", "pattern"))
    if longest is not None and len(value) > longest:
        yield FieldError(path, "FieldValueTooLong", f"Too long: may not be more than {longest} bytes")
    if shortest is not None and len(value) < shortest:
        yield invalid_value(path, value, f"{path} in body should be at least {shortest} chars long")
    if pattern is not None and not _compiled(pattern).search(value):
        yield invalid_value(path, value, f"{path} in body should match '{pattern}'")
    form = schema.get("format")
    if form in _FORMATS and not _FORMATS[form].fullmatch(value):
        yield invalid_value(path, value, f"{path} in body must be of type {form}: {shown(value)}")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    # RE2 writes what Python's re spells differently: the end of the text, and named groups alike.
    return re.compile(pattern.replace(r"\z", r"\Z"))


_FORMATS = {
    "date-time": re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)"),
    "byte": re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"),
    "uuid": re.compile(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}"),
    "duration": re.compile(r"[+-]?(?:\d+(?:\.\d*)?(?:ns|us|µs|ms|s|m|h|d|w)\s*)+|0"),
}


def _number(value: float, schema: JsonObject, path: str) -> Iterator[FieldError]:
    least, most, step = (schema.get(k) for k in ("minimum", "maximum", "multipleOf"))
    if least is not None:
        exclusive = bool(schema.get("exclusiveMinimum"))
        if value < least or (exclusive and value == least):
            relation = "greater than" if exclusive else "greater than or equal to"
            yield invalid_value(path, value, f"{path} in body should be {relation} {least:g}")
    if most is not None:
        exclusive = bool(schema.get("exclusiveMaximum"))
        if value > most or (exclusive and value == most):
            relation = "less than" if exclusive else "less than or equal to"
            yield invalid_value(path, value, f"{path} in body should be {relation} {most:g}")
    if step is not None and value % step != 0:
        yield invalid_value(path, value, f"{path} in body should be a multiple of {step:g}")


def _array(value: list[Any], old: Any, schema: JsonObject, path: str) -> Iterator[FieldError]:
    yield from _count(len(value), schema, path, "Items", "items")
    yield from _duplicates(value, schema, path)
    items = schema.get("items")
    if not is_map(items):
        return
    before = _by_key(old, schema)
    for position, item in enumerate(value):
        yield from _validate(item, before.get(_key_of(item, schema), MISSING), items, f"{path}[{position}]")


def _by_key(old: Any, schema: JsonObject) -> dict[Any, Any]:
    if schema.get("x-kubernetes-list-type") != "map" or not is_list(old):
        return {}
    return {_key_of(item, schema): item for item in old}


def _key_of(item: Any, schema: JsonObject) -> Any:
    keys = SchemaShape(schema).keys
    return tuple(item.get(k.name, k.default) for k in keys) if is_map(item) and keys else None


def _duplicates(value: list[Any], schema: JsonObject, path: str) -> Iterator[FieldError]:
    relation = schema.get("x-kubernetes-list-type")
    if relation not in ("map", "set"):
        return
    seen: list[Any] = []
    for position, item in enumerate(value):
        identity = _key_of(item, schema) if relation == "map" else item
        if identity in seen:
            keys = SchemaShape(schema).keys
            named = {k.name: v for k, v in zip(keys, identity, strict=True)} if relation == "map" else item
            yield FieldError(f"{path}[{position}]", "FieldValueDuplicate", f"Duplicate value: {shown(named)}")
        seen.append(identity)


def _object(value: JsonObject, old: Any, schema: JsonObject, path: str, *, root: bool) -> Iterator[FieldError]:
    yield from _count(len(value), schema, path, "Properties", "properties")
    names: Iterable[str] = schema.get("required") or ()
    for name in names:
        if name not in value:
            yield required(f"{path}.{name}" if path else name)
    for name, content in value.items():
        inner = _property(schema, name)
        if is_map(inner) and not (root and name in _ROOT_FIELDS):
            yield from _validate(content, child(old, name), inner, f"{path}.{name}" if path else name)


def _count(length: int, schema: JsonObject, path: str, suffix: str, noun: str) -> Iterator[FieldError]:
    most, least = schema.get(f"max{suffix}"), schema.get(f"min{suffix}")
    if most is not None and length > most:
        yield FieldError(path, "FieldValueTooMany", f"Too many: {length}: must have at most {most} items")
    if least is not None and length < least:
        yield invalid_value(path, length, f"{path} in body should have at least {least} {noun}")


def _combinations(value: Any, schema: JsonObject, path: str) -> Iterator[FieldError]:
    def fits(option: JsonObject) -> bool:
        return not list(_validate(value, MISSING, option, path))

    for option in schema.get("allOf") or ():
        yield from _validate(value, MISSING, option, path)
    alternatives = schema.get("anyOf")
    if alternatives and not any(map(fits, alternatives)):
        yield invalid_value(path, value, f'"{path}" must validate at least one schema (anyOf)')
    exclusive = schema.get("oneOf")
    if exclusive and (count := sum(map(fits, exclusive))) != 1:
        found = "Found none valid" if count == 0 else f"Found {count} valid alternatives"
        yield invalid_value(path, value, f'"{path}" must validate one and only one schema (oneOf). {found}')
    negated = schema.get("not")
    if is_map(negated) and fits(negated):
        yield invalid_value(path, value, f'"{path}" must not validate the schema (not)')
