"""Whether rules may cost more than the real server lets them, when they are evaluated.

The engine does not tell what it did, so costs are bounded as they are for definitions, with the sizes of the object
at hand in place of those that the schema allows. Beyond that, nobody here knows what the real server says.

Source: ``pkg/apis/cel/config.go`` of ``k8s.io/apiserver``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from steersman.crd.costs import rule_costs
from steersman_cel.evaluation import RULES
from steersman_cel.types import LONGEST_KEY, REQUEST
from steersman_testing.apiserver.failures import refused_here
from steersman_testing.apiserver.schemas.keywords import Mentions
from steersman_testing.apiserver.values import JsonObject, is_list, is_map, map_at

_CALL = 1_000_000
_OBJECT = 10_000_000
_WITHIN = ("additionalProperties", "items")
_SMALL = 16
_TEXT: JsonObject = {"type": "string"}
_METADATA: JsonObject = {"type": "object", "properties": {"name": _TEXT, "generateName": _TEXT}}
_has_rules = Mentions(RULES)

Size = Callable[[int], int]
"""What a length counts as."""


def may_cost_too_much(schema: JsonObject) -> bool:
    """Whether objects of ``schema`` can exceed the budget at all."""
    return _exceeds(_with_long_keys(schema))


def _exceeds(schema: JsonObject) -> bool:
    return _encoded_exceeds(msgspec.json.encode(schema))


@lru_cache(maxsize=1024)
def _encoded_exceeds(schema: bytes) -> bool:
    costs = rule_costs(msgspec.json.decode(schema))
    return any(c.once > _CALL for c in costs) or sum(c.cost for c in costs) > _OBJECT


def check_budget(obj: JsonObject, old: Any, schema: JsonObject) -> None:
    """Refuses what the real server may refuse because its rules cost too much.

    Args:
        obj: a whole object.
        old: what it replaces, or MISSING.
        schema: of a kind with rules that may cost too much.

    Raises:
        ApiError: 501, they may.
    """
    whole, values = _with_names(schema), [v for v in (obj, old) if is_map(v)]
    # Objects change their sizes all the time, and to estimate takes long: first by sizes that many objects share.
    if all(_exceeds(_measured(whole, values, size)) for size in (_rounded, _exactly)):
        raise refused_here("CEL rules on an object so large that they may cost more than the real server allows")


def _with_names(schema: JsonObject) -> JsonObject:
    """``schema`` with the fields that rules see of every object, which it need not declare."""
    named = {"apiVersion": _TEXT, "kind": _TEXT, "metadata": _METADATA}
    return {**schema, "properties": {**map_at(schema, "properties"), **named}}


def _with_long_keys(schema: JsonObject) -> JsonObject:
    """``schema`` with the longest keys of maps that there can be."""
    found = {n: _with_long_keys(v) if n in _WITHIN and is_map(v) else v for n, v in schema.items()}
    if is_map(schema.get("additionalProperties")):
        found[LONGEST_KEY] = REQUEST
    if properties := map_at(schema, "properties"):
        found["properties"] = {n: _with_long_keys(s) for n, s in properties.items()}
    return found


def _exactly(length: int) -> int:
    return length


def _rounded(length: int) -> int:
    """The next number of three binary digits and zeros: what costs grow by is less than a quarter a factor."""
    if length <= _SMALL:
        return _SMALL
    step = 1 << ((length - 1).bit_length() - 3)
    return -(-length // step) * step


def _measured(schema: JsonObject, values: Sequence[Any], size: Size, *, ruled: bool = False) -> JsonObject:
    """``schema`` with bounds that ``size`` makes of what ``values`` need, as far as a rule can see them.

    Args:
        ruled: whether a rule stands further out.
    """
    ruled = ruled or RULES in schema

    def within(inner: JsonObject, values: Sequence[Any]) -> JsonObject:
        return _measured(inner, values, size, ruled=ruled) if ruled or _has_rules(inner) else inner

    kind = "text" if schema.get("x-kubernetes-int-or-string") else schema.get("type", "")
    found = dict(schema)
    if kind in ("string", "text"):
        longest = size(max((len(v) for v in values if isinstance(v, str)), default=1))
        # A character counts as four bytes, but for those of bytes.
        found["maxLength"] = longest if schema.get("format") == "byte" else (longest + 3) // 4
    elif kind == "array":
        lists = [v for v in values if is_list(v)]
        found["maxItems"] = size(max(map(len, lists), default=0))
        found["items"] = within(map_at(schema, "items"), [item for v in lists for item in v])
    elif kind == "object":
        maps = [v for v in values if is_map(v)]
        if is_map(additional := schema.get("additionalProperties")):
            found[LONGEST_KEY] = size(max((len(key) for v in maps for key in v), default=0))
            found["maxProperties"] = size(max(map(len, maps), default=0))
            found["additionalProperties"] = within(additional, [item for v in maps for item in v.values()])
        if properties := map_at(schema, "properties"):
            found["properties"] = {n: within(s, [v[n] for v in maps if n in v]) for n, s in properties.items()}
    return found
