"""Values that a schema allows, and values that break one of its constraints.

What is given here are candidates: rules, and constraints that hang together, are left to the API server, to which
each of them is put.

Source: "Extend the Kubernetes API with CustomResourceDefinitions", "Specifying a structural schema".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from steersman_cel.patterns import compiled
from steersman_testing.apiserver.values import JsonObject, is_list, is_map, list_at, map_at
from steersman_testing.transitions.patterns import matching

_LONGEST = 4096
_MOST_ITEMS = 32
_QUANTITIES = ("1", "1Gi", "2Gi", "1024Mi", "500m", "0")

_FORMATS: dict[str, tuple[str, ...]] = {
    "byte": ("YQ==", "YWJj", ""),
    "cidr": ("192.0.2.0/24", "2001:db8::/32"),
    "date": ("2030-01-01", "2028-02-29"),
    "date-time": ("2030-01-01T00:00:00Z", "2030-06-15T12:30:00.5+02:00"),
    "duration": ("1s", "1h30m", "0s"),
    "email": ("a@example.com", "b@example.com"),
    "hostname": ("a.example.com", "b.example.com"),
    "ipv4": ("192.0.2.1", "198.51.100.2"),
    "ipv6": ("2001:db8::1", "::1"),
    "mac": ("00:00:5e:00:53:01", "00:00:5e:00:53:02"),
    "uri": ("https://example.com/a", "https://example.com/b"),
    "uuid": ("00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"),
}


class Value(NamedTuple):
    """A candidate and what is special about it, such as ``maximum``; empty for nothing."""

    value: Any
    label: str = ""


@dataclass(frozen=True, slots=True)
class Values:
    """Candidates for the values of a schema, the same ones for the same seed.

    Args:
        seed: of strings that match patterns.
    """

    seed: int = 0

    def good(self, schema: JsonObject) -> list[Value]:
        """What ``schema`` should allow, different from each other, the simplest first."""
        found = list(self._good(schema))
        if "default" in schema:
            found.append(Value(schema["default"], "default"))
        if schema.get("nullable"):
            found.append(Value(None, "null"))
        return _distinct(found)

    def simplest(self, schema: JsonObject) -> Any:
        """One value: of an object the required fields alone."""
        return self.good(schema)[0].value

    def _good(self, schema: JsonObject) -> Iterator[Value]:
        options = [*list_at(schema, "anyOf"), *list_at(schema, "oneOf")]
        if list_at(schema, "enum"):
            yield from (Value(member, "member") for member in schema["enum"])
        elif schema.get("x-kubernetes-int-or-string"):
            yield from self._int_or_string(schema)
        elif options:
            rest = {k: v for k, v in schema.items() if k not in ("anyOf", "oneOf")}
            for option in options:
                yield from self._good(_merged(rest, option))
        else:
            yield from self._of_type(schema)

    def _of_type(self, schema: JsonObject) -> Iterator[Value]:
        match schema.get("type"):
            case "boolean":
                yield from (Value(True), Value(False))
            case "integer":
                yield from _integers(schema)
            case "number":
                yield from (*_integers(schema), *_fractions(schema))
            case "string":
                yield from self._strings(schema)
            case "array":
                yield from self._arrays(schema)
            case "object":
                yield from self._objects(schema)
            case _:
                yield from (Value({"a": "b"}), Value({}, "empty"))

    def _int_or_string(self, schema: JsonObject) -> Iterator[Value]:
        pattern = schema.get("pattern")
        if pattern is None:
            yield from (Value(v) for v in (1, "1", 2, "50%"))
            yield Value(0, "zero")
            return
        fitting = [q for q in _QUANTITIES if compiled(pattern).search(q)] or matching(pattern, self.seed)
        yield from (Value(q, "zero" if q == "0" else "") for q in fitting)
        yield Value(1, "as a number")

    def _strings(self, schema: JsonObject) -> Iterator[Value]:
        shortest, longest = schema.get("minLength", 0), schema.get("maxLength")
        pattern = schema.get("pattern")
        known = _FORMATS.get(schema.get("format", ""), ())
        if known:
            yield from (Value(text, "empty" if not text else "") for text in known)
            return
        if pattern is not None:
            yield from (Value(text) for text in matching(pattern, self.seed))
        for text in ("a", "b"):
            yield Value(text * max(shortest, 1), "shortest" if shortest > 1 else "")
        if shortest == 0:
            yield Value("", "empty")
        if longest is not None:
            yield Value("a" * min(longest, _LONGEST), "longest")

    def _arrays(self, schema: JsonObject) -> Iterator[Value]:
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        one, two = self._two_items(schema)
        filled = [one, *two] * max(1, least) if _may_repeat(schema) else [one, *two]
        start = max(1, least)
        yield Value(filled[:start])
        if two and (most is None or most >= 2):
            yield Value(filled[: max(2, least)], "two items")
            yield Value([*two, one], "reordered")
        if least == 0:
            yield Value([], "empty")
        if most is not None and 2 < most <= _MOST_ITEMS and _may_repeat(schema):
            yield Value([one] * most, "most items")

    def _two_items(self, schema: JsonObject) -> tuple[Any, list[Any]]:
        """An item, and another one that may stand beside it, if there is one."""
        items = map_at(schema, "items")
        good = self.good(items)
        keys = list_at(schema, "x-kubernetes-list-map-keys")
        if not keys:
            return good[0].value, [v.value for v in good[1:2]]
        first = good[0].value
        properties = map_at(items, "properties")
        for key in keys:
            other = [v.value for v in self.good(properties.get(key, {})) if v.value != first.get(key)]
            if other:
                return first, [{**first, key: other[0]}]
        return first, []

    def _objects(self, schema: JsonObject) -> Iterator[Value]:
        properties = map_at(schema, "properties")
        if not properties:
            yield from self._maps(schema)
            return
        required = list_at(schema, "required")
        least = {n: self.simplest(p) for n, p in properties.items() if n in required and "default" not in p}
        yield Value(least, "" if least else "empty")
        every = {n: self.simplest(p) for n, p in properties.items()}
        if every != least:
            yield Value(every, "every field")

    def _maps(self, schema: JsonObject) -> Iterator[Value]:
        inner = schema.get("additionalProperties")
        least = schema.get("minProperties", 0)
        values = [v.value for v in self.good(inner)] if is_map(inner) else ["a", "b"]
        names = "abcdefgh"
        for count in (max(1, least), max(2, least)):
            if count <= min(len(names), schema.get("maxProperties", len(names))):
                yield Value({n: values[i % len(values)] for i, n in enumerate(names[:count])})
        if len(values) > 1:
            yield Value(dict.fromkeys(names[: max(1, least)], values[1]), "other value")
        if least == 0:
            yield Value({}, "empty")

    # What breaks a constraint

    def bad(self, schema: JsonObject) -> list[Value]:
        """What ``schema`` should refuse: each constraint broken once, the others kept where that can be."""
        numbers, texts = _outside(schema), self._broken_texts(schema)
        return _distinct([*_of_wrong_type(schema), *numbers, *texts, *self._crowds(schema)])

    def _broken_texts(self, schema: JsonObject) -> Iterator[Value]:
        if schema.get("type") != "string" and not schema.get("x-kubernetes-int-or-string"):
            return
        shortest, longest, pattern = (schema.get(k) for k in ("minLength", "maxLength", "pattern"))
        if shortest:
            yield Value("a" * (shortest - 1), "too short")
        if longest is not None:
            yield Value("a" * (longest + 1), "too long")
        if pattern is not None:
            tries = [*(f"{v.value} !" for v in self._good(schema) if isinstance(v.value, str)), "", "!", "a b", "é"]
            yield from [Value(t, "against the pattern") for t in tries if not compiled(pattern).search(t)][:1]
        if schema.get("format") in _FORMATS:
            yield Value("not this format", "against the format")

    def _crowds(self, schema: JsonObject) -> Iterator[Value]:
        """Too many or too few items, and items that must not be there twice."""
        if schema.get("type") == "array":
            one, two = self._two_items(schema)
            least, most = schema.get("minItems", 0), schema.get("maxItems")
            if least:
                yield Value([one] * (least - 1), "too few items")
            if most is not None and most <= _MOST_ITEMS:
                yield Value([[one, *two][i % (1 + len(two))] for i in range(most + 1)], "too many items")
            if not _may_repeat(schema):
                yield Value([one, one], "an item twice")
        if schema.get("type") == "object" and schema.get("minProperties"):
            yield Value({}, "too few properties")


def _merged(schema: JsonObject, option: JsonObject) -> JsonObject:
    """``schema`` with the narrower validation of ``option`` put over it, fields included."""
    result = {**schema, **option}
    fields = {n: {**p, **map_at(option, "properties").get(n, {})} for n, p in map_at(schema, "properties").items()}
    if fields:
        result["properties"] = fields
        result["required"] = [*list_at(schema, "required"), *list_at(option, "required")]
    return result


def _bounds(schema: JsonObject) -> tuple[Any, Any]:
    """The smallest and largest number, or None; whole steps inside of exclusive ones."""
    step = schema.get("multipleOf", 1)
    least, most = schema.get("minimum"), schema.get("maximum")
    least = least + step if least is not None and schema.get("exclusiveMinimum") else least
    return least, most - step if most is not None and schema.get("exclusiveMaximum") else most


def _integers(schema: JsonObject) -> Iterator[Value]:
    least, most = (None if b is None else int(b) for b in _bounds(schema))
    step = int(schema.get("multipleOf", 1)) or 1
    lowest = -(-(least or 0) // step) * step

    def allowed(number: int) -> bool:
        return (least is None or number >= least) and (most is None or number <= most)

    ordinary = [lowest + step, lowest + 2 * step, lowest + 3 * step]
    yield from (Value(n) for n in ordinary if allowed(n))
    if allowed(0):
        yield Value(0, "zero")
    if least is not None:
        yield Value(lowest, "minimum")
    elif allowed(-step):
        yield Value(-step, "negative")
    if most is not None:
        yield Value(most // step * step, "maximum")
    else:
        bits = 31 if schema.get("format") == "int32" else 63
        yield Value((2**bits - 1) // step * step, "largest")


def _fractions(schema: JsonObject) -> Iterator[Value]:
    least, most = _bounds(schema)
    base = least if least is not None else 0
    if "multipleOf" not in schema and (most is None or base + 0.5 <= most):
        yield Value(base + 0.5, "fraction")


def _outside(schema: JsonObject) -> Iterator[Value]:
    if schema.get("type") not in ("integer", "number"):
        yield from _not_listed(schema)
        return
    step = schema.get("multipleOf", 1)
    least, most = _bounds(schema)
    if least is not None:
        yield Value(least - step, "below the minimum")
    if most is not None:
        yield Value(most + step, "above the maximum")
    if schema.get("multipleOf"):
        base = least if least is not None else 0
        yield Value(base + step / 2 if schema["type"] == "number" else int(base) + 1, "no multiple")
    yield from _not_listed(schema)


def _not_listed(schema: JsonObject) -> Iterator[Value]:
    allowed = list_at(schema, "enum")
    if not allowed:
        return
    if all(isinstance(m, str) for m in allowed):
        # What people get wrong first is the case.
        tries = [allowed[0].upper(), allowed[0].capitalize(), f"{allowed[0]}x"]
        yield from [Value(t, "no member") for t in tries if t not in allowed][:1]
    else:
        yield Value(max(m for m in allowed if isinstance(m, int | float)) + 1, "no member")


def _of_wrong_type(schema: JsonObject) -> Iterator[Value]:
    if schema.get("x-kubernetes-int-or-string"):
        yield Value(True, "wrong type")
        return
    wrong: dict[str, tuple[Any, ...]] = {
        "string": (7,),
        "integer": ("1", 1.5),
        "number": ("1",),
        "boolean": ("true",),
        "array": ("a",),
        "object": ("a",),
    }
    yield from (Value(v, "wrong type") for v in wrong.get(schema.get("type", ""), ()))


def _may_repeat(schema: JsonObject) -> bool:
    kind = schema.get("x-kubernetes-list-type", "atomic")
    return kind == "atomic" and not schema.get("uniqueItems")


def _distinct(values: Iterable[Value]) -> list[Value]:
    """``values`` without repetitions: ``1`` and ``True`` differ, and so do ``1`` and ``1.0``."""
    found: dict[str, Value] = {}
    for value in values:
        known = found.setdefault(_identity(value.value), value)
        if not known.label and value.label:
            found[_identity(value.value)] = value
    return list(found.values())


def _identity(value: Any) -> str:
    if is_map(value):
        return repr({k: _identity(v) for k, v in sorted(value.items())})
    return repr([_identity(v) for v in value]) if is_list(value) else f"{type(value).__name__} {value!r}"
