"""Objects and defaults are held to CEL rules without a server."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from steersman.meta import Field, FrozenDict, FrozenStruct, ObjectMeta, Resource, Rule, Spec, Status, resource, schema
from steersman_manifests.crd import SchemaError, definition, schema_of, violations

GROWS = Rule(rule="self >= oldSelf", message="never shrinks")
SMALL = Rule(rule="self < 10", message="is small")


@schema(rules=(Rule(rule="self.low <= self.high", message="low is above high", field_path=".low"),))
class Range(FrozenStruct):
    low: int = 1
    high: int = 5


class ShelfSpec(Spec):
    size: Annotated[int, Field(ge=0, rules=(GROWS,))] = 1
    range: Range = Range()
    texts: Annotated[
        tuple[Annotated[str, Field(max_length=9, rules=(Rule(rule="self != 'b'", message="is b"),))], ...],
        Field(max_items=9),
    ] = ()
    counts: Annotated[FrozenDict[str, Annotated[int, Field(rules=(SMALL,))]], Field(max_properties=9)] = FrozenDict()


@resource(
    group="judged.example.com",
    version="v1",
    plural="shelves",
    rules=(Rule(rule="self.metadata.name != 'x' || self.spec.size > 1", message="x is large"),),
)
class Shelf(Resource[ShelfSpec, Status]):
    """A shelf."""


def _shelf(name: str = "a", **fields: Any) -> Shelf:
    return Shelf(metadata=ObjectMeta(name=name), spec=ShelfSpec(**fields))


def test_violations_of_valid_object_is_empty() -> None:
    assert violations(_shelf()) == ()
    assert violations(_shelf(size=3), _shelf(size=2)) == ()


@pytest.mark.parametrize(
    ("shelf", "message"),
    [
        (_shelf(range=Range(low=7)), ".spec.range.low: low is above high"),
        (_shelf(texts=("a", "b")), ".spec.texts[1]: is b"),
        (_shelf(counts=FrozenDict({"k": 10})), ".spec.counts[k]: is small"),
        (_shelf("x"), "the value: x is large"),
    ],
)
def test_violations_have_path_and_message(shelf: Shelf, message: str) -> None:
    assert violations(shelf) == (message,)


def test_violations_transition_rules_use_old_object() -> None:
    assert violations(_shelf(size=1), _shelf(size=2)) == (".spec.size: never shrinks",)
    assert violations(ShelfSpec(size=1), ShelfSpec(size=2)) == (".size: never shrinks",)


def test_violations_existing_ones_are_ratcheted() -> None:
    before = _shelf(texts=("b",), size=1)
    assert violations(_shelf(texts=("b",), size=2), before) == ()
    assert violations(_shelf(texts=("b", "a"), size=2), before) == (".spec.texts[0]: is b",)


def test_violations_of_invalid_object_skip_rules() -> None:
    assert violations(_shelf(size=-1, texts=("b",))) == (".spec.size must be at least 0, but is -1",)


class BrokenDefaultSpec(Spec):
    count: Annotated[int, Field(rules=(SMALL,))] = 12


class ShrinkingSpec(Spec):
    count: Annotated[int, Field(rules=(Rule(rule="self > oldSelf", message="grows"),))] = 12


class BrokenPartSpec(Spec):
    range: Range = Range(low=9)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (BrokenDefaultSpec, "BrokenDefaultSpec.count: the default 12 is invalid: the value: is small"),
        # The API server asks whether a default may stay what it is.
        (ShrinkingSpec, "ShrinkingSpec.count: the default 12 is invalid: the value: grows"),
        (
            BrokenPartSpec,
            "BrokenPartSpec.range: the default {'low': 9, 'high': 5} is invalid: .low: low is above high",
        ),
    ],
)
def test_schema_default_that_violates_rule_raises(spec: type[Spec], message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        schema_of(spec)
    assert str(caught.value) == message


def test_schema_default_is_completed_for_rules() -> None:
    found = definition(Shelf)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert found["properties"]["range"]["default"] == {"low": 1, "high": 5}
