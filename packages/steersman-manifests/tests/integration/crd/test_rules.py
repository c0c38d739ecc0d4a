"""The real API server accepts the same rules as ``definition``."""

from __future__ import annotations

import pytest

from framework_support.rule_table import MESSAGE, ROWS, Row, kind_with
from steersman.api.apiextensions_v1 import CustomResourceDefinition
from steersman.client import Client, connect
from steersman.errors import Invalid
from steersman.meta import unstructured
from steersman_manifests.crd import definition
from steersman_testing.envtest import Envtest

Definition = unstructured(CustomResourceDefinition.api_resource)


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_definition_checks_rules_as_apiserver(envtest: Envtest, row: Row) -> None:
    # Install a valid rule first. An update then replaces it by the tested rule.
    manifest = definition(
        kind_with(row._replace(rule="self == self", message_expression="", optional_old_self=False))
    )
    spec = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    (rule,) = (spec["properties"][row.field] if row.field else spec)["x-kubernetes-validations"]
    rule |= {"rule": row.rule, "message": MESSAGE}
    if row.message_expression:
        rule["messageExpression"] = row.message_expression
    if row.optional_old_self:
        rule["optionalOldSelf"] = True
    async with connect(envtest.config) as transport:
        client = Client(transport, field_manager="tests")
        if not row.refused:
            await client.create(Definition.of(manifest), dry_run=True, field_validation="Strict")
            return
        with pytest.raises(Invalid, match=r"x-kubernetes-validations|compilation failed|must evaluate"):
            await client.create(Definition.of(manifest), dry_run=True, field_validation="Strict")
