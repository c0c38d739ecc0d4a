"""Cost limits of CEL rules."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from steersman.meta import Field, FrozenStruct, Resource, Rule, Spec, Status, resource, schema
from steersman_manifests.crd import SchemaError, definition


def _kind(spec: type[Spec]) -> Any:
    @resource(group="costs.example.com", version="v1", plural="costlies")
    class Costly(Resource[spec, Status]):  # pyright: ignore[reportInvalidTypeArguments]
        pass

    return Costly


def _schema_error(spec: type[Spec]) -> str:
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
EXPENSIVE = "self.replace('', self).trim()"


class ManySpec(Spec):
    items: Annotated[tuple[Annotated[str, Field(max_length=9)], ...], Field(max_items=500_000, rules=MANY)] = ()


class MessageSpec(Spec):
    text: Annotated[str, Field(rules=(Rule(rule="self != ''", message="no", message_expression=EXPENSIVE),))] = "a"


@schema(rules=(Rule(rule="self.items.all(x, self.items.exists_one(y, x == y))", message="twice"),))
class WideSpec(Spec):
    items: Annotated[tuple[int, ...], Field(max_items=100_000)] = ()


def test_cost_error_names_rule_path_and_bounds() -> None:
    assert _schema_error(PartsSpec) == (
        "Costly: the rule \"self.contains('abc')\" on .spec.parts[*].name may cost more than 100 times the API "
        "server's limit for one expression: set, for example, max_items=2000 on .spec.parts, max_length=2000 on "
        ".spec.parts[*].name"
    )


def test_cost_error_remedy_is_sufficient() -> None:
    definition(_kind(BoundedSpec))


def test_cost_error_names_bound_that_is_too_wide() -> None:
    assert "set, for example, max_items=1000 on .spec.items" in _schema_error(WideSpec)


def test_cost_of_all_rules_exceeds_limit_raises() -> None:
    told = _schema_error(ManySpec)
    assert told.startswith("Costly: the rules together may cost ")
    assert "on .spec.items" in told
    assert "max_items=" in told


def test_cost_of_message_exceeds_limit_raises() -> None:
    assert f"the message {EXPENSIVE!r} on .spec.text may cost" in _schema_error(MessageSpec)
