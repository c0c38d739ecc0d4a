"""Whole values of a schema, for property tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from steersman_testing.apiserver.values import JsonObject, is_map, list_at, map_at
from steersman_testing.transitions.values import Values

_FEW = 3


def documents(schema: JsonObject) -> st.SearchStrategy[Any]:
    """Values that ``schema`` allows, the simplest first; its rules are not looked at.

    At the bounds, and wherever a pattern or a format limits what there can be, they are those of ``Values``.
    """
    known = st.sampled_from([v.value for v in Values().good(schema)])
    options = list_at(schema, "enum"), list_at(schema, "anyOf"), list_at(schema, "oneOf")
    if any(options) or schema.get("x-kubernetes-int-or-string"):
        return known
    match schema.get("type"):
        case "integer" if "multipleOf" not in schema:
            return st.one_of(known, st.integers(schema.get("minimum", 0), schema.get("maximum", 2**31 - 1)))
        case "string" if "pattern" not in schema and "format" not in schema:
            return st.one_of(known, _texts(schema))
        case "array":
            return _arrays(schema)
        case "object" if map_at(schema, "properties"):
            return _objects(schema)
        case "object" if is_map(schema.get("additionalProperties")):
            return st.dictionaries(st.sampled_from("abc"), documents(schema["additionalProperties"]), max_size=_FEW)
        case _:
            return known


def _texts(schema: JsonObject) -> st.SearchStrategy[str]:
    shortest = schema.get("minLength", 0)
    longest = max(shortest, min(schema.get("maxLength", 20), 20))
    # What travels in YAML and JSON without a second thought; people write more than that.
    letters = st.characters(codec="utf-8", exclude_categories=("Cs", "Cc"))
    return st.text(letters, min_size=shortest, max_size=longest)


def _arrays(schema: JsonObject) -> st.SearchStrategy[list[Any]]:
    items = documents(map_at(schema, "items"))
    least = schema.get("minItems", 0)
    most = max(least, min(schema.get("maxItems", _FEW), _FEW))
    keys = list_at(schema, "x-kubernetes-list-map-keys")
    if keys:
        return st.lists(
            items, min_size=least, max_size=most, unique_by=lambda item: tuple(repr(item.get(k)) for k in keys)
        )
    if schema.get("x-kubernetes-list-type") == "set" or schema.get("uniqueItems"):
        return st.lists(items, min_size=least, max_size=most, unique_by=repr)
    return st.lists(items, min_size=least, max_size=most)


def _objects(schema: JsonObject) -> st.SearchStrategy[JsonObject]:
    required = {n for n in list_at(schema, "required") if "default" not in map_at(schema, "properties").get(n, {})}
    properties = {n: documents(p) for n, p in map_at(schema, "properties").items()}
    always = {n: s for n, s in properties.items() if n in required}
    sometimes = {n: s for n, s in properties.items() if n not in required}
    return st.fixed_dictionaries(always, optional=sometimes)
