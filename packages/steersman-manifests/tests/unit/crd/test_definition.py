"""``definition``: the CustomResourceDefinition of a class."""

from __future__ import annotations

from typing import Any

import pytest

from steersman.meta import PrinterColumn, Resource, Rule, Scale, Spec, Status, resource
from steersman_manifests.crd import SchemaError, definition


class WebAppSpec(Spec):
    """Desired state."""

    sails: int = 3


class WebAppStatus(Status):
    """Observed state."""

    sails: int | None = None
    selector: str | None = None


@resource(
    group="shop.example.com",
    version="v1alpha1",
    short_names=["sh"],
    categories=["all"],
    columns=[PrinterColumn("Sails", ".status.sails", "integer", "How many.", priority=1)],
    scale=Scale(".spec.sails", ".status.sails", ".status.selector"),
    rules=[Rule(rule="self.metadata.name != 'titanic'", message="choose another name", field_path=".metadata.name")],
)
class WebApp(Resource[WebAppSpec, WebAppStatus]):
    """A webapp.

    It serves.
    """


@resource(group="shop.example.com", version="v1", namespaced=False)
class Ocean(Resource[WebAppSpec, WebAppStatus]):
    """An ocean."""


WEBAPP: dict[str, Any] = definition(WebApp)
VERSION: dict[str, Any] = WEBAPP["spec"]["versions"][0]


def test_definition_has_names_and_scope() -> None:
    assert WEBAPP["metadata"]["name"] == "webapps.shop.example.com"
    assert WEBAPP["spec"]["names"] == {
        "kind": "WebApp",
        "listKind": "WebAppList",
        "plural": "webapps",
        "singular": "webapp",
        "shortNames": ["sh"],
        "categories": ["all"],
    }
    assert WEBAPP["spec"]["scope"] == "Namespaced"
    assert definition(Ocean)["spec"]["scope"] == "Cluster"
    assert "shortNames" not in definition(Ocean)["spec"]["names"]


@pytest.mark.requirement("design/status", "programming/status-subresource")
def test_definition_has_subresources() -> None:
    assert VERSION["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.sails",
            "statusReplicasPath": ".status.sails",
            "labelSelectorPath": ".status.selector",
        },
    }
    assert definition(Ocean)["spec"]["versions"][0]["subresources"] == {"status": {}}


def test_definition_columns_end_with_age() -> None:
    sails, age = VERSION["additionalPrinterColumns"]
    assert sails == {
        "name": "Sails",
        "type": "integer",
        "jsonPath": ".status.sails",
        "description": "How many.",
        "priority": 1,
    }
    assert age == {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def test_definition_schema_has_docstring_and_rules() -> None:
    schema = VERSION["schema"]["openAPIV3Schema"]
    assert schema["description"] == "A webapp.\n\nIt serves."
    assert schema["required"] == ["spec"]
    assert schema["properties"]["spec"]["description"] == "Desired state."
    assert set(schema["properties"]["status"]["properties"]) == {
        "conditions",
        "observedGeneration",
        "sails",
        "selector",
    }
    assert schema["x-kubernetes-validations"] == [
        {
            "rule": "self.metadata.name != 'titanic'",
            "message": "choose another name",
            "reason": "FieldValueInvalid",
            "fieldPath": ".metadata.name",
        }
    ]


class Undeclared(Resource[WebAppSpec, WebAppStatus]):
    """Lacks the decorator."""


class Submarine(WebApp):
    """Inherits the decorator's work, which is another kind's."""


@pytest.mark.parametrize("kind", [Undeclared, Submarine])
def test_definition_of_undeclared_kind_raises(kind: type[Resource[Any, Any]]) -> None:
    with pytest.raises(SchemaError, match=rf"{kind.__name__} is not declared: put @resource"):
        definition(kind)
