"""Hypothesis strategies for whole documents of a schema."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from steersman_testing.apiserver.values import JsonObject, get_array, get_object, is_map
from steersman_testing.transitions.value_generator import ValueGenerator

_MAX_ITEMS = 3


def document_strategy(schema: JsonObject) -> st.SearchStrategy[Any]:
    """Strategy for values that ``schema`` allows.

    CEL rules are not considered. Boundary values, patterns and formats use the candidates of ``ValueGenerator``.
    """
    known = st.sampled_from([v.value for v in ValueGenerator().valid(schema)])
    options = get_array(schema, "enum"), get_array(schema, "anyOf"), get_array(schema, "oneOf")
    if any(options) or schema.get("x-kubernetes-int-or-string"):
        return known
    match schema.get("type"):
        case "integer" if "multipleOf" not in schema:
            return st.one_of(known, st.integers(schema.get("minimum", 0), schema.get("maximum", 2**31 - 1)))
        case "string" if "pattern" not in schema and "format" not in schema:
            return st.one_of(known, _string_strategy(schema))
        case "array":
            return _array_strategy(schema)
        case "object" if get_object(schema, "properties"):
            return _object_strategy(schema)
        case "object" if is_map(schema.get("additionalProperties")):
            return st.dictionaries(
                st.sampled_from("abc"), document_strategy(schema["additionalProperties"]), max_size=_MAX_ITEMS
            )
        case _:
            return known


def _string_strategy(schema: JsonObject) -> st.SearchStrategy[str]:
    min_length = schema.get("minLength", 0)
    max_length = max(min_length, min(schema.get("maxLength", 20), 20))
    # Without surrogates and control characters, which YAML and JSON do not transport unchanged.
    letters = st.characters(codec="utf-8", exclude_categories=("Cs", "Cc"))
    return st.text(letters, min_size=min_length, max_size=max_length)


def _array_strategy(schema: JsonObject) -> st.SearchStrategy[list[Any]]:
    items = document_strategy(get_object(schema, "items"))
    min_items = schema.get("minItems", 0)
    max_items = max(min_items, min(schema.get("maxItems", _MAX_ITEMS), _MAX_ITEMS))
    keys = get_array(schema, "x-kubernetes-list-map-keys")
    if keys:
        return st.lists(
            items,
            min_size=min_items,
            max_size=max_items,
            unique_by=lambda item: tuple(repr(item.get(k)) for k in keys),
        )
    if schema.get("x-kubernetes-list-type") == "set" or schema.get("uniqueItems"):
        return st.lists(items, min_size=min_items, max_size=max_items, unique_by=repr)
    return st.lists(items, min_size=min_items, max_size=max_items)


def _object_strategy(schema: JsonObject) -> st.SearchStrategy[JsonObject]:
    required = {
        n for n in get_array(schema, "required") if "default" not in get_object(schema, "properties").get(n, {})
    }
    properties = {n: document_strategy(p) for n, p in get_object(schema, "properties").items()}
    always = {n: s for n, s in properties.items() if n in required}
    sometimes = {n: s for n, s in properties.items() if n not in required}
    return st.fixed_dictionaries(always, optional=sometimes)
