"""CEL rules and whether the API server accepts them.

Unit tests and tests on the real API server use the same table.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, NamedTuple

from steersman.meta import Field, FrozenDict, FrozenStruct, Quantity, Resource, Rule, Spec, Status, resource, schema
from steersman.meta.frozen import FrozenStructMeta

MESSAGE = "it does not hold"


class Row(NamedTuple):
    """A rule on the spec or on one of its fields."""

    rule: str
    refused: bool = False
    field: str = ""
    message_expression: str = ""
    optional_old_self: bool = False


ROWS = (
    Row("self.count >= 0"),
    Row("self.count >=", refused=True),
    Row("self.count >= '0'", refused=True),
    Row("self.missing == 1", refused=True),
    Row("has(self.missing)", refused=True),
    Row("self.count", refused=True),
    Row("self.count + 1", refused=True),
    Row("unknown == 1", refused=True),
    Row("size(self.name) > 0"),
    Row("self.name.size() > 0"),
    Row("self.name.length() > 0", refused=True),
    Row("self.name.startsWith(1)", refused=True),
    Row("self.name.matches('[a-z]+')"),
    Row("self.name.matches('[a-z')", refused=True),
    Row("self.names.all(n, n.size() < 9)"),
    Row("self.names.all(n, n < 9)", refused=True),
    Row("self.names.exists(n)", refused=True),
    Row("self.labels['a'] == 'b'"),
    Row("self.labels[1] == 'b'", refused=True),
    Row("self.labels.all(k, k != '')"),
    Row("self.since < timestamp('2026-01-01T00:00:00Z')"),
    Row("self.since < '2026-01-01T00:00:00Z'", refused=True),
    Row("quantity(string(self.size)).isGreaterThan(quantity('1Gi'))"),
    Row("self.size > 1"),
    Row("self.size.isGreaterThan(quantity('1Gi'))"),
    Row("self.part.__namespace__ == 'a'"),
    Row("self.part.namespace == 'a'"),
    Row("self.count >= oldSelf.count"),
    Row("oldSelf.orValue(self).count <= self.count", optional_old_self=True),
    Row("oldSelf.orValue(self).count <= self.count", refused=True),
    Row("self > 0", field="count"),
    Row("self.count > 1", refused=True, field="count"),
    Row("self.metadata.name == 'a'", refused=True),
    Row("self.count > 0", message_expression="'it is ' + self.name"),
    Row("self.count > 0", refused=True, message_expression="self.count"),
    Row("self.count > 0", refused=True, message_expression="'it is ' + self.count"),
)


class Part(FrozenStruct):
    """A nested object."""

    namespace: Annotated[str, Field(max_length=9)] = "a"


def kind_with(row: Row) -> type[Resource[Any, Any]]:
    """Create a kind with the rule of ``row``."""
    rule = Rule(
        rule=row.rule,
        message=MESSAGE,
        message_expression=row.message_expression,
        optional_old_self=row.optional_old_self,
    )
    on_count = (rule,) if row.field == "count" else ()
    on_spec = () if row.field else (rule,)

    class RuledBase(Spec):
        name: Annotated[str, Field(max_length=9)] = "a"
        names: Annotated[tuple[Annotated[str, Field(max_length=9)], ...], Field(max_items=9)] = ("a",)
        labels: Annotated[FrozenDict[str, Annotated[str, Field(max_length=9)]], Field(max_properties=9)] = FrozenDict(
            {"a": "b"}
        )
        since: datetime | None = None
        size: Quantity = Quantity("2Gi")
        part: Part = Part()

    # String annotations could not refer to local variables.
    fields = {"__module__": __name__, "__annotations__": {"count": Annotated[int, Field(rules=on_count)]}, "count": 1}
    made: Any = FrozenStructMeta("RuledSpec", (RuledBase,), fields)
    spec: Any = schema(rules=on_spec)(made)

    @resource(group="rules.example.com", version="v1", plural="ruleds")
    class Ruled(Resource[spec, Status]):
        pass

    return Ruled
