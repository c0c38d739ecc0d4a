"""Definitions whose rules cost too much are refused as they are made, with the bounds that are missing."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from steersman.crd import SchemaError, definition
from steersman.meta import Field, FrozenStruct, Resource, Rule, Spec, Status, resource, schema


def _kind(spec: type[Spec]) -> Any:
    @resource(group="costs.example.com", version="v1", plural="costlies")
    class Costly(Resource[spec, Status]):  # pyright: ignore[reportInvalidTypeArguments]
        pass

    return Costly


def _refusal(spec: type[Spec]) -> str:
    with pytest.raises(SchemaError) as caught:
        definition(_kind(spec))
    return str(caught.value)


class Part(FrozenStruct):
    """A part."""

    name: Annotated[str, Field(rules=(Rule(rule="self.contains('abc')", message="no"),))] = "abc"


class PartsSpec(Spec):
    parts: tuple[Part, ...] = ()


class ShortPart(FrozenStruct):
    """A part whose name has an end."""

    name: Annotated[str, Field(max_length=2000, rules=(Rule(rule="self.contains('abc')", message="no"),))] = "abc"


class BoundedSpec(Spec):
    parts: Annotated[tuple[ShortPart, ...], Field(max_items=2000)] = ()


MANY = tuple(Rule(rule=f"self.all(x, x != 'a{n}' && x.size() > 1)", message="no") for n in range(99))
DEAR = "self.replace('', self).trim()"


class ManySpec(Spec):
    items: Annotated[tuple[Annotated[str, Field(max_length=9)], ...], Field(max_items=500_000, rules=MANY)] = ()


class ToldSpec(Spec):
    text: Annotated[str, Field(rules=(Rule(rule="self != ''", message="no", message_expression=DEAR),))] = "a"


@schema(rules=(Rule(rule="self.items.all(x, self.items.exists_one(y, x == y))", message="twice"),))
class WideSpec(Spec):
    items: Annotated[tuple[int, ...], Field(max_items=100_000)] = ()


def test_the_error_tells_the_rule_the_place_and_the_bounds() -> None:
    assert _refusal(PartsSpec) == (
        "Costly: the rule \"self.contains('abc')\" on .spec.parts[*].name may cost more than 100 times what the API "
        "server lets one cost: set, for example, max_items=2000 on .spec.parts, max_length=2000 on "
        ".spec.parts[*].name"
    )


def test_what_the_error_says_helps() -> None:
    definition(_kind(BoundedSpec))


def test_a_bound_that_is_too_wide_is_named() -> None:
    assert "set, for example, max_items=1000 on .spec.items" in _refusal(WideSpec)


def test_rules_that_fit_one_by_one_may_be_too_many() -> None:
    told = _refusal(ManySpec)
    assert told.startswith("Costly: the rules together may cost ")
    assert "on .spec.items" in told
    assert "max_items=" in told


def test_a_message_may_cost_too_much() -> None:
    assert f"the message {DEAR!r} on .spec.text may cost" in _refusal(ToldSpec)
