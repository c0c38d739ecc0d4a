"""Compilation of CEL expressions in ``definition``."""

from __future__ import annotations

from typing import Any

import pytest

from framework_support.rule_table import ROWS, Row, kind_with
from steersman.meta import Resource, Rule, Spec, Status, resource
from steersman_manifests.crd import SchemaError, definition


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_definition_rejects_rules_the_server_rejects(row: Row) -> None:
    kind = kind_with(row)
    if row.refused:
        with pytest.raises(SchemaError, match=r"the (rule|message) "):
            definition(kind)
    else:
        definition(kind)


def test_rule_error_quotes_path_and_server_message() -> None:
    with pytest.raises(SchemaError) as caught:
        definition(kind_with(Row("self.cuont >= 0")))
    assert str(caught.value) == (
        "Ruled: RuledSpec: the rule 'self.cuont >= 0' does not compile for this type: "
        "ERROR: <input>:1:5: undefined field 'cuont'"
    )


def test_rule_on_kind_may_read_name_only() -> None:
    def ruled(expression: str) -> Any:
        @resource(group="rules.example.com", version="v1", rules=[Rule(rule=expression, message="no")])
        class Ruled(Resource[Spec, Status]):
            pass

        return Ruled

    definition(ruled("self.metadata.name != 'a'"))
    with pytest.raises(SchemaError, match="undefined field 'labels'"):
        definition(ruled("self.metadata.labels.size() == 0"))
