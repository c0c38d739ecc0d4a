"""Each marker sets its keyword, wherever it is used."""

from __future__ import annotations

from datetime import date, timedelta
from enum import IntEnum
from typing import Annotated, Any, NewType
from uuid import UUID

import msgspec
import pytest

from framework_support.crd_twins import TWINS, v1
from steersman.api.apiextensions_v1 import JSONSchemaProps
from steersman.meta import (
    Duration,
    Field,
    FrozenDict,
    FrozenStruct,
    ObjectMeta,
    Rule,
    decode,
    discriminated,
    encode,
    schema,
)
from steersman.webhook import ConversionWebhook
from steersman_manifests.crd import definition, schema_of, violations

Name = NewType("Name", str)


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Part(FrozenStruct):
    """A part."""

    size: Annotated[int, Field(ge=1)] = 1


class Node(FrozenStruct):
    children: tuple[Annotated[Node, Field(preserve_unknown=True)], ...] = ()


class Tree(FrozenStruct):
    left: Annotated[Tree, Field(preserve_unknown=True)] | None = None


@schema(rules=[Rule(rule="true", message="base")])
class Base(FrozenStruct):
    """A base."""


@schema(
    rules=[Rule(rule="true", message="own")], min_properties=1, max_properties=3, title="T", external_docs="https://x"
)
class Many(Base):
    """Many things."""

    day: date | None = None
    id: UUID | None = None
    name: Name = Name("a")
    level: Level = Level.LOW
    wait: Duration = Duration("90s")
    ratio: int | float = 1
    raw: msgspec.Raw = msgspec.Raw()
    docs: Annotated[str, Field(external_docs="https://y", example="e", title="t")] = ""
    part: Part = Part()
    parts: tuple[Part, ...] = (Part(), Part(size=2))
    empty: Annotated[FrozenDict[str, str], Field(default=FrozenDict())] = FrozenDict()
    filled: Annotated[bool, Field(default=None)] = True
    tree: Tree | None = None
    schema_: Annotated[JSONSchemaProps, Field(preserve_unknown=True)] | None = msgspec.field(
        default=None, name="schema"
    )
    namespace: Annotated[str | None, Field(immutable=True)] = None
    node: Node | None = None
    given: Annotated[str, Field(default="x")]


SCHEMA: dict[str, Any] = schema_of(Many)
INT64 = {"type": "integer", "format": "int64"}
PART = {"type": "object", "description": "A part.", "properties": {"size": {**INT64, "minimum": 1, "default": 1}}}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("day", {"type": "string", "format": "date"}),
        ("id", {"type": "string", "format": "uuid"}),
        ("name", {"type": "string", "default": "a"}),
        ("level", {**INT64, "enum": [1, 2], "default": 1}),
        ("ratio", {"type": "number", "default": 1}),
        ("raw", {"x-kubernetes-preserve-unknown-fields": True}),
        ("docs", {"type": "string", "title": "t", "example": "e", "externalDocs": {"url": "https://y"}}),
        ("part", {**PART, "default": {}}),
        ("parts", {"type": "array", "items": PART, "default": [{}, {"size": 2}]}),
        ("empty", {"type": "object", "additionalProperties": {"type": "string"}, "default": {}}),
        ("filled", {"type": "boolean"}),
        ("schema", {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        (
            "node",
            {
                "type": "object",
                "properties": {
                    "children": {
                        "type": "array",
                        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    }
                },
            },
        ),
        ("given", {"type": "string", "default": "x"}),
    ],
)
def test_schema_of_marked_field_has_keywords(name: str, expected: dict[str, Any]) -> None:
    assert SCHEMA["properties"][name] == expected


def test_schema_of_marked_struct_has_keywords() -> None:
    assert (SCHEMA["minProperties"], SCHEMA["maxProperties"], SCHEMA["title"]) == (1, 3, "T")
    assert SCHEMA["externalDocs"] == {"url": "https://x"}
    assert "required" not in SCHEMA
    rules = [(r["rule"], r["message"].split(",")[0]) for r in SCHEMA["x-kubernetes-validations"]]
    assert rules == [
        ("true", "base"),
        ("true", "own"),
        ("has(self.__namespace__) == has(oldSelf.__namespace__)", "namespace is immutable"),
    ]


def test_discriminator_values_may_share_a_field() -> None:
    rule = discriminated("type", A="one", B="one", C="namespace")
    assert rule.rule == "(self.type in ['A', 'B']) == has(self.one) && (self.type == 'C') == has(self.__namespace__)"
    assert rule.message == "of one and namespace, set the one that type names, and no other"


def test_recursive_type_preserves_unknown_fields() -> None:
    tree = SCHEMA["properties"]["tree"]
    assert tree["properties"]["left"] == {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("90s", 90),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("-2m", -120),
        ("100ms", 0.1),
        ("1us", 1e-6),
        (".5s", 0.5),
    ],
)
def test_duration_parses_text(text: str, seconds: float) -> None:
    duration = Duration(text)
    assert duration.seconds == seconds
    assert duration.timedelta == timedelta(seconds=seconds)
    assert str(duration) == text
    assert decode(encode(Many(given="", wait=duration)), Many).wait == duration
    assert violations(Many(given="", wait=duration)) == ()


@pytest.mark.parametrize("text", ["", "1", "1d", "s", "1 s", "PT1S", "1h-1m", "--1s"])
def test_duration_invalid_text_raises(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: write numbers with units"):
        Duration(text)


@pytest.mark.parametrize(("delta", "text"), [(timedelta(minutes=2), "120s"), (timedelta(seconds=-1.25), "-1.25s")])
def test_duration_of_timedelta_has_text(delta: timedelta, text: str) -> None:
    assert str(Duration(delta)) == text
    assert Duration(delta).timedelta == delta
    assert Duration("2m") < Duration("3m")


def test_violations_reports_schema_errors() -> None:
    spec = v1.TaskSpec(schedule="short", cluster_ip="nowhere")
    task = v1.Task(metadata=ObjectMeta(name="a"), spec=spec)
    assert violations(task) == (
        ".spec.schedule must be at least 9 characters long, but is 5",
        ".spec.clusterIP must have the format ipv4, but is 'nowhere'",
    )
    assert violations(v1.Rack(name="a", slots=50)) == (".slots must be at most 48, but is 50",)


def test_definition_has_conversion_webhook() -> None:

    webhook = ConversionWebhook(service=("ns", "name"), ca_bundle=b"pem")
    found = definition(*TWINS["versioneds"], conversion=webhook)["spec"]["conversion"]
    assert found == {
        "strategy": "Webhook",
        "webhook": {
            "clientConfig": {
                "service": {"namespace": "ns", "name": "name", "path": "/convert", "port": 443},
                "caBundle": "cGVt",
            },
            "conversionReviewVersions": ["v1"],
        },
    }
    assert "conversion" not in definition(v1.Versioned)["spec"]


def test_v1beta1_crd_hoists_common_parts() -> None:

    one = definition(v1.Workload, api_version="v1beta1")
    assert one["apiVersion"] == "apiextensions.k8s.io/v1beta1"
    spec = one["spec"]
    assert spec["versions"] == [{"name": "v1", "served": True, "storage": True}]
    assert (spec["version"], spec["preserveUnknownFields"]) == ("v1", False)
    assert spec["additionalPrinterColumns"][0]["JSONPath"] == ".status.replicas"
    assert spec["subresources"]["scale"]["specReplicasPath"] == ".spec.replicas"
    assert "x-kubernetes-validations" not in str(spec["validation"])
    several = definition(*TWINS["versioneds"], api_version="v1beta1")["spec"]
    assert "validation" not in several
    assert all("schema" in v for v in several["versions"])
    assert several["subresources"] == {"status": {}}
