"""Python types to structural schemas."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
import pytest

from steersman.meta import Field, FrozenDict, FrozenStruct, Quantity, Rule, Spec, Status
from steersman_manifests.crd import SchemaError, schema_of


class Backup(FrozenStruct):
    """Destination of backups."""

    bucket: str
    keep_days: Annotated[int, Field(ge=1, le=365)] = 7


class Base(Spec):
    """Fields that several kinds share."""

    paused: bool = False
    """Pause all
    changes."""


class ServerSpec(Base):
    """Desired state of the server.

    With a second paragraph.
    """

    image: Annotated[str, Field(min_length=1, max_length=64, pattern="^[a-z/]+$")]
    """The image to run."""
    replicas: Annotated[int, Field(ge=0, le=9)] = 0
    ratio: Annotated[float, Field(ge=0.5)] = 0.5
    mode: Literal["fast", "safe"] = "safe"
    size: Quantity = Quantity("1Gi")
    port: int | str = 80
    comment: str = ""
    owner: str | None = None
    nick: Annotated[str, Field(max_length=3)] | None = None
    backup: Backup | None = None
    backups: Annotated[tuple[Backup, ...], Field(list_map_keys=("bucket",), min_items=1, max_items=3)] = ()
    tags: tuple[str, ...] = ()
    limits: FrozenDict[str, Quantity] = FrozenDict()
    key: bytes = b""
    start: datetime | None = None
    extra: Any = None
    free: Annotated[FrozenDict[str, Any], Field(preserve_unknown=True)] = FrozenDict()
    engine: Annotated[str, Field(description="From the marker.", format="hostname")] = "postgresql"
    """From the docstring."""
    fixed: Annotated[str, Field(rules=(Rule(rule="self == oldSelf", message="fixed cannot change"),))] = "x"
    cluster_ip: str = msgspec.field(default="", name="clusterIP")


PROPERTIES: dict[str, Any] = schema_of(ServerSpec)["properties"]


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        (
            "paused",
            {"type": "boolean", "default": False, "description": "Pause all\nchanges."},
        ),
        (
            "image",
            {
                "type": "string",
                "minLength": 1,
                "maxLength": 64,
                "pattern": "^[a-z/]+$",
                "description": "The image to run.",
            },
        ),
        ("replicas", {"type": "integer", "format": "int64", "minimum": 0, "maximum": 9, "default": 0}),
        ("ratio", {"type": "number", "minimum": 0.5, "default": 0.5}),
        ("mode", {"type": "string", "enum": ["fast", "safe"], "default": "safe"}),
        (
            "port",
            {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True, "default": 80},
        ),
        ("comment", {"type": "string"}),
        ("owner", {"type": "string"}),
        ("nick", {"type": "string", "maxLength": 3}),
        ("tags", {"type": "array", "items": {"type": "string"}}),
        ("key", {"type": "string", "format": "byte"}),
        ("start", {"type": "string", "format": "date-time"}),
        ("extra", {"x-kubernetes-preserve-unknown-fields": True}),
        ("clusterIP", {"type": "string"}),
    ],
)
def test_schema_of_field_has_type(name: str, schema: dict[str, Any]) -> None:
    assert PROPERTIES[name] == schema


def test_struct_schema_has_properties_and_docstring() -> None:
    assert PROPERTIES["backup"] == {
        "type": "object",
        "description": "Destination of backups.",
        "properties": {
            "bucket": {"type": "string"},
            "keepDays": {"type": "integer", "format": "int64", "minimum": 1, "maximum": 365, "default": 7},
        },
        "required": ["bucket"],
    }


def test_schema_of_list_with_keys_is_list_map() -> None:
    schema = PROPERTIES["backups"]
    assert schema["x-kubernetes-list-type"] == "map"
    assert schema["x-kubernetes-list-map-keys"] == ["bucket"]
    assert (schema["minItems"], schema["maxItems"]) == (1, 3)
    assert schema["items"]["required"] == ["bucket"]


def test_schema_of_quantity_is_int_or_string() -> None:
    schema = PROPERTIES["size"]
    assert schema["x-kubernetes-int-or-string"] is True
    assert schema["default"] == "1Gi"
    assert "Ki" not in schema["pattern"] and "[KMGTPE]i" in schema["pattern"]
    assert PROPERTIES["limits"]["additionalProperties"]["x-kubernetes-int-or-string"] is True


def test_open_map_preserves_unknown_fields() -> None:
    schema = PROPERTIES["free"]
    assert schema["type"] == "object"
    assert schema["x-kubernetes-preserve-unknown-fields"] is True


def test_schema_of_annotated_type_has_keywords() -> None:
    assert PROPERTIES["engine"]["format"] == "hostname"
    assert PROPERTIES["engine"]["default"] == "postgresql"
    assert PROPERTIES["fixed"]["x-kubernetes-validations"] == [
        {"rule": "self == oldSelf", "message": "fixed cannot change", "reason": "FieldValueInvalid"}
    ]


@pytest.mark.requirement("programming/validation")
def test_schema_requires_fields_without_default() -> None:
    schema = schema_of(ServerSpec)
    assert schema["required"] == ["image"]
    assert schema["description"] == "Desired state of the server.\n\nWith a second paragraph."


def test_schema_of_conditions_is_list_map_by_type() -> None:
    conditions = schema_of(Status)["properties"]["conditions"]
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    assert conditions["items"]["required"] == ["reason", "status", "type"]
    assert conditions["items"]["properties"]["status"]["enum"] == ["True", "False", "Unknown"]


class BadMember(FrozenStruct):
    items: list[str] = []  # noqa: RUF012


class BadOuter(FrozenStruct):
    member: BadMember = BadMember()


class BadUnion(FrozenStruct):
    value: int | bytes = 0


class BadLiteral(FrozenStruct):
    value: Literal[1, "a"] = 1


class BadTuple(FrozenStruct):
    pair: tuple[int, int] = (1, 2)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (BadMember, r"BadMember\.items: .*list\[str\].* has no structural schema"),
        (BadOuter, r"BadOuter\.member: BadMember\.items: "),
        (BadUnion, r"BadUnion\.value: structural schemas support only the unions"),
        (BadLiteral, r"BadLiteral\.value: an enum has only strings or only integers"),
        (BadTuple, r"BadTuple\.pair: a list is written tuple\[X, \.\.\.\]"),
    ],
)
def test_schema_error_names_class_and_field(kind: type[FrozenStruct], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        schema_of(kind)
