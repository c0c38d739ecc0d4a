"""Generator of valid and invalid values of a schema.

The values are candidates: the API server checks them against CEL rules and combined constraints.

Source: "Extend the Kubernetes API with CustomResourceDefinitions", "Specifying a structural schema".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from steersman_cel.patterns import compile_pattern
from steersman_testing.apiserver.values import JsonObject, get_array, get_object, is_list, is_map
from steersman_testing.transitions.pattern_strings import strings_matching

_MAX_STRING_LENGTH = 4096
_MOST_ITEMS = 32
_QUANTITY_EXAMPLES = ("1", "1Gi", "2Gi", "1024Mi", "500m", "0")

_FORMAT_EXAMPLES: dict[str, tuple[str, ...]] = {
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


class CandidateValue(NamedTuple):
    """A value and its label, such as ``maximum``. The label may be empty."""

    value: Any
    label: str = ""


@dataclass(frozen=True, slots=True)
class ValueGenerator:
    """Candidate values of a schema, deterministic by seed.

    Args:
        seed: seed of strings that match patterns.
    """

    seed: int = 0

    def valid(self, schema: JsonObject) -> list[CandidateValue]:
        """Values that ``schema`` should allow, without duplicates, the simplest first."""
        found = list(self._valid(schema))
        if "default" in schema:
            found.append(CandidateValue(schema["default"], "default"))
        if schema.get("nullable"):
            found.append(CandidateValue(None, "null"))
        return _distinct(found)

    def simplest(self, schema: JsonObject) -> Any:
        """The simplest value. For an object it has only the required fields."""
        return self.valid(schema)[0].value

    def _valid(self, schema: JsonObject) -> Iterator[CandidateValue]:
        options = [*get_array(schema, "anyOf"), *get_array(schema, "oneOf")]
        if get_array(schema, "enum"):
            yield from (CandidateValue(member, "member") for member in schema["enum"])
        elif schema.get("x-kubernetes-int-or-string"):
            yield from self._int_or_string(schema)
        elif options:
            rest = {k: v for k, v in schema.items() if k not in ("anyOf", "oneOf")}
            for option in options:
                yield from self._valid(_merged(rest, option))
        else:
            yield from self._of_type(schema)

    def _of_type(self, schema: JsonObject) -> Iterator[CandidateValue]:
        match schema.get("type"):
            case "boolean":
                yield from (CandidateValue(True), CandidateValue(False))
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
                yield from (CandidateValue({"a": "b"}), CandidateValue({}, "empty"))

    def _int_or_string(self, schema: JsonObject) -> Iterator[CandidateValue]:
        pattern = schema.get("pattern")
        if pattern is None:
            yield from (CandidateValue(v) for v in (1, "1", 2, "50%"))
            yield CandidateValue(0, "zero")
            return
        fitting = [q for q in _QUANTITY_EXAMPLES if compile_pattern(pattern).search(q)] or strings_matching(
            pattern, self.seed
        )
        yield from (CandidateValue(q, "zero" if q == "0" else "") for q in fitting)
        yield CandidateValue(1, "as a number")

    def _strings(self, schema: JsonObject) -> Iterator[CandidateValue]:
        min_length, max_length = schema.get("minLength", 0), schema.get("maxLength")
        pattern = schema.get("pattern")
        known = _FORMAT_EXAMPLES.get(schema.get("format", ""), ())
        if known:
            yield from (CandidateValue(text, "empty" if not text else "") for text in known)
            return
        if pattern is not None:
            yield from (CandidateValue(text) for text in strings_matching(pattern, self.seed))
        for text in ("a", "b"):
            yield CandidateValue(text * max(min_length, 1), "shortest" if min_length > 1 else "")
        if min_length == 0:
            yield CandidateValue("", "empty")
        if max_length is not None:
            yield CandidateValue("a" * min(max_length, _MAX_STRING_LENGTH), "longest")

    def _arrays(self, schema: JsonObject) -> Iterator[CandidateValue]:
        min_items, max_items = schema.get("minItems", 0), schema.get("maxItems")
        one, two = self._distinct_items(schema)
        filled = [one, *two] * max(1, min_items) if _allows_duplicates(schema) else [one, *two]
        start = max(1, min_items)
        yield CandidateValue(filled[:start])
        if two and (max_items is None or max_items >= 2):
            yield CandidateValue(filled[: max(2, min_items)], "two items")
            yield CandidateValue([*two, one], "reordered")
        if min_items == 0:
            yield CandidateValue([], "empty")
        if max_items is not None and 2 < max_items <= _MOST_ITEMS and _allows_duplicates(schema):
            yield CandidateValue([one] * max_items, "most items")

    def _distinct_items(self, schema: JsonObject) -> tuple[Any, list[Any]]:
        """An item, and another one with a different key, if possible."""
        items = get_object(schema, "items")
        good = self.valid(items)
        keys = get_array(schema, "x-kubernetes-list-map-keys")
        if not keys:
            return good[0].value, [v.value for v in good[1:2]]
        first = good[0].value
        properties = get_object(items, "properties")
        for key in keys:
            other = [v.value for v in self.valid(properties.get(key, {})) if v.value != first.get(key)]
            if other:
                return first, [{**first, key: other[0]}]
        return first, []

    def _objects(self, schema: JsonObject) -> Iterator[CandidateValue]:
        properties = get_object(schema, "properties")
        if not properties:
            yield from self._maps(schema)
            return
        required = get_array(schema, "required")
        least = {n: self.simplest(p) for n, p in properties.items() if n in required and "default" not in p}
        yield CandidateValue(least, "" if least else "empty")
        every = {n: self.simplest(p) for n, p in properties.items()}
        if every != least:
            yield CandidateValue(every, "every field")

    def _maps(self, schema: JsonObject) -> Iterator[CandidateValue]:
        inner = schema.get("additionalProperties")
        least = schema.get("minProperties", 0)
        values = [v.value for v in self.valid(inner)] if is_map(inner) else ["a", "b"]
        names = "abcdefgh"
        for count in (max(1, least), max(2, least)):
            if count <= min(len(names), schema.get("maxProperties", len(names))):
                yield CandidateValue({n: values[i % len(values)] for i, n in enumerate(names[:count])})
        if len(values) > 1:
            yield CandidateValue(dict.fromkeys(names[: max(1, least)], values[1]), "other value")
        if least == 0:
            yield CandidateValue({}, "empty")

    # Invalid values

    def invalid(self, schema: JsonObject) -> list[CandidateValue]:
        """Values that ``schema`` should reject, each violating one constraint."""
        numbers, texts = _out_of_range(schema), self._invalid_strings(schema)
        return _distinct([*_of_wrong_type(schema), *numbers, *texts, *self._invalid_item_counts(schema)])

    def _invalid_strings(self, schema: JsonObject) -> Iterator[CandidateValue]:
        if schema.get("type") != "string" and not schema.get("x-kubernetes-int-or-string"):
            return
        min_length, max_length, pattern = (schema.get(k) for k in ("minLength", "maxLength", "pattern"))
        if min_length:
            yield CandidateValue("a" * (min_length - 1), "too short")
        if max_length is not None:
            yield CandidateValue("a" * (max_length + 1), "too long")
        if pattern is not None:
            tries = [*(f"{v.value} !" for v in self._valid(schema) if isinstance(v.value, str)), "", "!", "a b", "é"]
            yield from [
                CandidateValue(t, "against the pattern") for t in tries if not compile_pattern(pattern).search(t)
            ][:1]
        if schema.get("format") in _FORMAT_EXAMPLES:
            yield CandidateValue("not this format", "against the format")

    def _invalid_item_counts(self, schema: JsonObject) -> Iterator[CandidateValue]:
        """Lists with too many, too few or duplicate items."""
        if schema.get("type") == "array":
            one, two = self._distinct_items(schema)
            min_items, max_items = schema.get("minItems", 0), schema.get("maxItems")
            if min_items:
                yield CandidateValue([one] * (min_items - 1), "too few items")
            if max_items is not None and max_items <= _MOST_ITEMS:
                yield CandidateValue(
                    [[one, *two][i % (1 + len(two))] for i in range(max_items + 1)], "too many items"
                )
            if not _allows_duplicates(schema):
                yield CandidateValue([one, one], "an item twice")
        if schema.get("type") == "object" and schema.get("minProperties"):
            yield CandidateValue({}, "too few properties")


def _merged(schema: JsonObject, option: JsonObject) -> JsonObject:
    """Merge the narrower validation of ``option`` into ``schema``, including properties."""
    result = {**schema, **option}
    fields = {
        n: {**p, **get_object(option, "properties").get(n, {})} for n, p in get_object(schema, "properties").items()
    }
    if fields:
        result["properties"] = fields
        result["required"] = [*get_array(schema, "required"), *get_array(option, "required")]
    return result


def _bounds(schema: JsonObject) -> tuple[Any, Any]:
    """Smallest and largest number, or None. Exclusive bounds are moved by one step."""
    step = schema.get("multipleOf", 1)
    minimum, maximum = schema.get("minimum"), schema.get("maximum")
    minimum = minimum + step if minimum is not None and schema.get("exclusiveMinimum") else minimum
    return minimum, maximum - step if maximum is not None and schema.get("exclusiveMaximum") else maximum


def _integers(schema: JsonObject) -> Iterator[CandidateValue]:
    minimum, maximum = (None if b is None else int(b) for b in _bounds(schema))
    step = int(schema.get("multipleOf", 1)) or 1
    lowest = -(-(minimum or 0) // step) * step

    def allowed(number: int) -> bool:
        return (minimum is None or number >= minimum) and (maximum is None or number <= maximum)

    ordinary = [lowest + step, lowest + 2 * step, lowest + 3 * step]
    yield from (CandidateValue(n) for n in ordinary if allowed(n))
    if allowed(0):
        yield CandidateValue(0, "zero")
    if minimum is not None:
        yield CandidateValue(lowest, "minimum")
    elif allowed(-step):
        yield CandidateValue(-step, "negative")
    if maximum is not None:
        yield CandidateValue(maximum // step * step, "maximum")
    else:
        bits = 31 if schema.get("format") == "int32" else 63
        yield CandidateValue((2**bits - 1) // step * step, "largest")


def _fractions(schema: JsonObject) -> Iterator[CandidateValue]:
    minimum, maximum = _bounds(schema)
    base = minimum if minimum is not None else 0
    if "multipleOf" not in schema and (maximum is None or base + 0.5 <= maximum):
        yield CandidateValue(base + 0.5, "fraction")


def _out_of_range(schema: JsonObject) -> Iterator[CandidateValue]:
    if schema.get("type") not in ("integer", "number"):
        yield from _not_in_enum(schema)
        return
    step = schema.get("multipleOf", 1)
    minimum, maximum = _bounds(schema)
    if minimum is not None:
        yield CandidateValue(minimum - step, "below the minimum")
    if maximum is not None:
        yield CandidateValue(maximum + step, "above the maximum")
    if schema.get("multipleOf"):
        base = minimum if minimum is not None else 0
        yield CandidateValue(base + step / 2 if schema["type"] == "number" else int(base) + 1, "no multiple")
    yield from _not_in_enum(schema)


def _not_in_enum(schema: JsonObject) -> Iterator[CandidateValue]:
    allowed = get_array(schema, "enum")
    if not allowed:
        return
    if all(isinstance(m, str) for m in allowed):
        # The most frequent mistake is upper or lower case.
        tries = [allowed[0].upper(), allowed[0].capitalize(), f"{allowed[0]}x"]
        yield from [CandidateValue(t, "no member") for t in tries if t not in allowed][:1]
    else:
        yield CandidateValue(max(m for m in allowed if isinstance(m, int | float)) + 1, "no member")


def _of_wrong_type(schema: JsonObject) -> Iterator[CandidateValue]:
    if schema.get("x-kubernetes-int-or-string"):
        yield CandidateValue(True, "wrong type")
        return
    wrong: dict[str, tuple[Any, ...]] = {
        "string": (7,),
        "integer": ("1", 1.5),
        "number": ("1",),
        "boolean": ("true",),
        "array": ("a",),
        "object": ("a",),
    }
    yield from (CandidateValue(v, "wrong type") for v in wrong.get(schema.get("type", ""), ()))


def _allows_duplicates(schema: JsonObject) -> bool:
    kind = schema.get("x-kubernetes-list-type", "atomic")
    return kind == "atomic" and not schema.get("uniqueItems")


def _distinct(values: Iterable[CandidateValue]) -> list[CandidateValue]:
    """Remove duplicates. ``1`` and ``True`` differ, as do ``1`` and ``1.0``."""
    found: dict[str, CandidateValue] = {}
    for value in values:
        known = found.setdefault(_identity(value.value), value)
        if not known.label and value.label:
            found[_identity(value.value)] = value
    return list(found.values())


def _identity(value: Any) -> str:
    if is_map(value):
        return repr({k: _identity(v) for k, v in sorted(value.items())})
    return repr([_identity(v) for v in value]) if is_list(value) else f"{type(value).__name__} {value!r}"
