"""Invalid declarations raise ``SchemaError`` with a remedy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pytest

from steersman.api.apiextensions_v1 import JSONSchemaProps
from steersman.api.authentication_v1 import TokenReviewSpec
from steersman.errors import ConfigurationError
from steersman.meta import (
    Field,
    FrozenDict,
    FrozenStruct,
    ObjectMeta,
    PrinterColumn,
    Quantity,
    Resource,
    Rule,
    Scale,
    Spec,
    Status,
    discriminated,
    exactly_one_of,
    resource,
    schema,
)
from steersman.meta.frozen import FrozenStructMeta
from steersman.webhook import ConversionWebhook
from steersman_manifests.crd import SchemaError, definition, schema_of

TEXT: Any = "text"
BAD: Any = "Bad"
SAME = Rule(rule="self == oldSelf", message="it stays")


class Item(FrozenStruct):
    """Something in a list."""

    name: str
    zone: str | None = None
    note: Annotated[str | None, Field(nullable=True)] = None
    parts: tuple[str, ...] = ()


class Empty(Enum):
    pass


class Level(Enum):
    LOW = "low"


class Tree(FrozenStruct):
    left: Tree | None = None


class Node(FrozenStruct):
    children: Annotated[tuple[Node, ...] | None, Field(preserve_unknown=True)] = None


class ItemOfFixed(FrozenStruct):
    name: Annotated[str, Field(immutable=True)]


def struct(hint: Any, default: Any = msgspec.NODEFAULT, *rules: Rule) -> type[FrozenStruct]:
    """A struct ``Bad`` with one field ``value``."""
    namespace: dict[str, Any] = {"__annotations__": {"value": hint}, "__module__": __name__}
    if default is not msgspec.NODEFAULT:
        namespace["value"] = default
    made: Any = FrozenStructMeta("Bad", (FrozenStruct,), namespace)
    return schema(rules=rules)(made)


def marked(hint: Any, **markers: Any) -> Any:
    return Annotated[hint, Field(**markers)]


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        (marked(str, ge=0), "ge is for integers and numbers and int | str, but the type is strings: remove it"),
        (marked(int, max_length=3), "max_length is for strings and int | str, but the type is integers"),
        (marked(int, pattern="^a$"), "pattern is for strings"),
        (marked(str, min_items=1), "min_items is for lists, but the type is strings"),
        (marked(tuple[str, ...], max_properties=1), "max_properties is for maps and structs, but the type is lists"),
        (marked(tuple[str, ...], min_length=1), "min_length is for strings"),
        (marked(str, list_type="set"), "list_type is for lists"),
        (marked(tuple[str, ...], map_type="atomic"), "map_type is for maps and structs"),
        (marked(str, preserve_unknown=True), "preserve_unknown is for maps and structs"),
        (marked(str, embedded_resource=True), "embedded_resource is for maps and structs"),
        (marked(Quantity, ge=0), "ge does not compare quantities: write a rule"),
        (marked(Any, ge=0), "ge is for integers"),
        (marked(int, ge=1, gt=1), "ge and gt declare the same bound twice"),
        (marked(int, le=1, lt=1), "le and lt declare the same bound twice"),
        (marked(int, ge=5, le=1), "minimum 5 is more than maximum 1: no value is valid"),
        (marked(str, min_length=5, max_length=1), "minLength 5 is more than maxLength 1"),
        (marked(str, max_length=-1), "maxLength is -1: it cannot be negative"),
        (marked(int, multiple_of=0), "multiple_of is 0: it must be more than 0"),
        (
            marked(str, pattern="a(?=b)"),
            "the pattern is not valid in RE2, .*invalid or unsupported Perl",
        ),
        (marked(str, pattern="a{2000}"), "invalid repeat count"),
        (marked(str, pattern="("), r"missing closing \)"),
        (marked(str, format="colour"), "the API server does not check the format 'colour' of strings"),
        (marked(int, format="uuid"), "the API server does not check the format 'uuid' of integers"),
        (marked(str, nullable=True), r"nullable keeps an explicit null, .*: write X \| None"),
        (marked(tuple[Item, ...], list_type="map"), 'list_type="map" needs list_map_keys'),
        (marked(tuple[Item, ...], list_map_keys=("nme",)), "list_map_keys names nme, but the items have name, zone"),
        (marked(tuple[Item, ...], list_map_keys=("zone",)), "zone, which may be absent: make it required, or"),
        (marked(tuple[Item, ...], list_map_keys=("note",)), "note, which is nullable"),
        (marked(tuple[Item, ...], list_map_keys=("parts",)), "parts, which is not a scalar"),
        (marked(tuple[Item, ...], list_map_keys=("name", "name")), "name, name name a field twice"),
        (marked(tuple[Item, ...], list_map_keys=("name",), list_type="set"), 'but list_type is "set": keep one'),
        (marked(tuple[str, ...], list_map_keys=("name",)), 'the items are not structs: use list_type="set"'),
        (marked(tuple[Item, ...], list_type="set"), r'put @schema\(map_type="atomic"\) above the struct'),
        (marked(str, rules=(Rule(rule=" ", message="no"),)), "a rule is empty"),
        (marked(str, rules=(Rule(rule="true", message=" "),)), "the rule 'true' needs a message of one line"),
        (marked(str, rules=(Rule(rule="true", message="a\nb"),)), "needs a message of one line"),
        (marked(str, rules=(Rule(rule="true", message="a", reason=BAD),)), "has the reason 'Bad': it is one of"),
        (marked(str, rules=(Rule(rule="true", message="a", optional_old_self=True),)), "does not mention oldSelf"),
        (marked(Item, rules=(Rule(rule="true", message="a", field_path=".nme"),)), "'.nme', which does not exist"),
        (
            marked(Item, rules=(Rule(rule="true", message="a", field_path="name"),)),
            "is not a path: start it with a dot",
        ),
        (tuple[marked(str, rules=(SAME,)), ...], "items of a list that is not a map have no old value"),
        (tuple[ItemOfFixed, ...], r"ItemOfFixed\.name: the rule 'self == oldSelf' compares with oldSelf"),
        (tuple[marked(str, default="a"), ...], "an item cannot have a default"),
        (FrozenDict[str, marked(str, immutable=True)], "a value cannot be immutable: write a rule"),
        (FrozenDict[int, str], r"the keys of a map are strings: write FrozenDict\[str, X\]"),
        (FrozenDict, r"a map is written FrozenDict\[str, X\]"),
        (dict[str, str], r"a map is written FrozenDict\[str, X\]"),
        (list[str], r"a list is written tuple\[X, \.\.\.\]"),
        (frozenset[str], 'a set is written .*list_type="set"'),
        (timedelta, "a duration is written steersman.meta.Duration"),
        (Item | ItemOfFixed, r"@schema\(rules=\[exactly_one_of\(…\)\]\)"),
        (marked(Literal["a", "b"] | None, nullable=True), "an enum rejects null, also if nullable: remove nullable"),
        (marked(Level | None, nullable=True), "an enum rejects null"),
        (Literal["a", None], r"an enum has only strings or only integers"),
        (Literal[True], "an enum has only strings or only integers"),
        (Empty, "an enum without members accepts no value"),
        (complex, "has no structural schema: use scalars"),
        (Annotated[int, msgspec.Meta(ge=0)], "msgspec.Meta would reject stored objects of an older schema"),
        (Tree, r"Tree\.left: Tree contains itself, which no structural schema can express: keep the inner one"),
        (Node, r"Node\.children: Node contains itself, .*: keep the inner one unchecked"),
        (JSONSchemaProps, r"JSONSchemaProps contains itself.*Annotated\[JSONSchemaProps, Field\(preserve_unknown"),
        (TokenReviewSpec, "Kubernetes publishes no schema of TokenReviewSpec: write a struct"),
    ],
)
def test_schema_of_invalid_field_raises(hint: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=rf"^Bad\.value: .*{message}" if "^" not in message else message):
        schema_of(struct(hint))


@pytest.mark.parametrize(
    ("hint", "default", "message"),
    [
        (marked(int, ge=1), 0, "the default 0 is invalid: the value must be at least 1, but is 0"),
        (marked(int, gt=1), 1, "must be greater than 1, but is 1"),
        (marked(int, lt=1), 1, "must be less than 1, but is 1"),
        (marked(int, multiple_of=5), 3, "must be a multiple of 5, but is 3"),
        (marked(int, format="int32"), 2**31, "must fit 32 bits"),
        (marked(str, max_length=2), "abc", "must be at most 2 characters long, but is 3"),
        (marked(str, pattern="^a+$"), "b", r"must match \^a\+\$, but is 'b'"),
        (marked(str, format="ipv4"), "b", "must have the format ipv4, but is 'b'"),
        (marked(str, min_length=1, default=""), "x", "must be at least 1 characters long, but is 0"),
        (Literal["a", "b"], "c", "must be one of 'a', 'b', but is 'c'"),
        (str, 5, "must be of type string, but is 5"),
        (marked(tuple[str, ...], list_type="set"), ("a", "a"), r"\[1\] is a duplicate: a"),
        (
            marked(tuple[Item, ...], list_map_keys=("name",)),
            (Item(name="a"), Item(name="a")),
            r"\[1\] is a duplicate",
        ),
        (marked(tuple[str, ...], max_items=1), ("a", "b"), "must be at most 1 items long, but is 2"),
        (marked(FrozenDict[str, int], max_properties=1), FrozenDict({"a": 1, "b": 2}), "at most 1 fields, but is 2"),
        (Item, FrozenDict({"zone": "b"}), r"\.name is required"),
        (FrozenDict[str, str], FrozenDict({"a": 1}), r"\.a must be of type string, but is 1"),
    ],
)
def test_schema_of_invalid_default_raises(hint: Any, default: Any, message: str) -> None:
    with pytest.raises(
        SchemaError, match=rf"^Bad\.value: the default .* is invalid: .*{message}|^Bad\.value: {message}"
    ):
        schema_of(struct(hint, default))


@pytest.mark.parametrize(
    ("hint", "rule", "message"),
    [
        (
            str | None,
            exactly_one_of("value", "other"),
            r"Bad: a rule names the field other, but the struct has value",
        ),
        (str, exactly_one_of("value", "value"), "Bad: value, value: name two different fields or more"),
        (str, discriminated("value", A="value"), "Bad: a rule checks that value is set, but it always is"),
        (
            str | None,
            discriminated("value", A="value"),
            "Bad: a rule reads value, which may be absent: make it required",
        ),
        (
            str | None,
            discriminated("kind", A="value"),
            "Bad: a rule names the field kind, but the struct has value",
        ),
    ],
)
def test_union_rule_with_unknown_field_raises(hint: Any, rule: Rule, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        schema_of(struct(hint, msgspec.NODEFAULT if hint is str else None, rule))


def test_union_rule_with_required_field_raises() -> None:
    @schema(rules=[exactly_one_of("a", "b")])
    class Both(FrozenStruct):
        a: str = "x"
        b: str | None = None

    with pytest.raises(
        SchemaError, match=r"Both: a rule checks that a is set, but it always is: declare it as X \| None"
    ):
        schema_of(Both)


class ShipSpec(Spec):
    sails: int = 3
    name: str = "a"
    crew: tuple[str, ...] = ()
    cargo: FrozenDict[str, str] = FrozenDict()


class ShipStatus(Status):
    sails: int | None = None
    selector: str | None = None


def webapp(**options: Any) -> type[Resource[Any, Any]]:
    class WebApp(Resource[ShipSpec, ShipStatus]):
        """A webapp."""

    given: dict[str, Any] = {"group": "shop.example.com", "version": "v1", **options}
    return resource(**given)(WebApp)


SCALE = (".spec.sails", ".status.sails")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"columns": [PrinterColumn("A", ".spec.sail")]},
            "the column 'A' has the path '.spec.sail', which does not exist",
        ),
        ({"columns": [PrinterColumn("A", "spec.sails")]}, "is not a path: start it with a dot"),
        ({"columns": [PrinterColumn("A", ".spec.crew.name")]}, r"\.spec\.crew is a list, which is entered by \[0\]"),
        ({"columns": [PrinterColumn("A", ".spec.sails[0]")]}, r"enters \.spec\.sails, which is not a list"),
        ({"columns": [PrinterColumn("A", ".metadata.nam")]}, "does not have the field nam"),
        (
            {"columns": [PrinterColumn("A", ".spec.name", "integer")]},
            "has the type integer, but .spec.name is of type str",
        ),
        (
            {"columns": [PrinterColumn("A", ".spec.name", TEXT)]},
            "has the type 'text': it is one of string, integer",
        ),
        ({"columns": [PrinterColumn("A", ".spec.name", format="x")]}, "has the format 'x': it is one of int32"),
        (
            {"columns": [PrinterColumn("A", ".spec.name"), PrinterColumn("a", ".spec.name")]},
            "'a' needs a unique name",
        ),
        (
            {"scale": Scale(".spec.sail", SCALE[1])},
            "specReplicasPath has the path '.spec.sail', which does not exist",
        ),
        ({"scale": Scale(".status.sails", SCALE[1])}, r"is '\.status\.sails': it must start with \.spec\."),
        ({"scale": Scale(".spec.name", SCALE[1])}, "has the type string: it must be integer"),
        ({"scale": Scale(*SCALE, ".status.sails")}, "has the type integer: it must be string"),
        ({"scale": Scale(".spec.crew[0]", SCALE[1])}, "enters a list, which is not possible here"),
        (
            {"selectable_fields": [".spec.nam"]},
            "the selectable field '.spec.nam' has the path '.spec.nam', which does",
        ),
        (
            {"selectable_fields": [".spec.cargo"]},
            "is of type object: only string, boolean, integer are selectable",
        ),
        ({"selectable_fields": [".metadata.name"]}, "is metadata: remove it"),
        ({"selectable_fields": [".spec.name"] * 2}, "is declared twice: remove one"),
        ({"selectable_fields": [".spec['name']"]}, "has brackets: write fields as .name"),
        ({"selectable_fields": [f".spec.{i}" for i in range(9)]}, "9 selectable fields: a kind has at most 8"),
        ({"short_names": ["a", "a"]}, "the short name 'a' is declared twice: remove one"),
        ({"short_names": ["webapp"]}, "the short name 'webapp' is already a name of the kind"),
        ({"short_names": ["A"]}, "the short name 'A' is not a valid name: write at most 63 lower-case letters"),
        ({"categories": ["all", "all"]}, "the category 'all' is declared twice"),
        ({"plural": "Ships"}, "the plural 'Ships' is not a valid name"),
        ({"version": "1"}, "the version '1' is not a valid name"),
        ({"group": "orders"}, "the group 'orders' is not a domain name"),
        (
            {"group": "orders.k8s.io"},
            "belongs to the Kubernetes community: use a domain of your own, or set the annotation",
        ),
        ({"list_kind": "WebApp"}, "kind and list_kind are both 'WebApp'"),
        ({"storage": False}, "no version of WebApp is stored"),
        ({"served": False}, r"WebApp \(v1\) is stored but not served"),
        (
            {"rules": [Rule(rule="true", message="a", field_path=".spec.sail")]},
            "WebApp: the rule 'true' has the field_path",
        ),
    ],
)
def test_definition_of_invalid_kind_raises(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message) as caught:
        definition(webapp(**options))
    assert "WebApp" in str(caught.value)


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ([], "no kind is given"),
        (
            [webapp(), webapp(version="v2")],
            r"WebApp \(v1\) and WebApp \(v2\) are both stored: set storage=False for all but one",
        ),
        ([webapp(), webapp(storage=False)], "WebApp has the version v1 2 times"),
        (
            [webapp(), webapp(version="v2", group="air.example.com")],
            "versions of one kind need the same; call definition once per kind",
        ),
        ([webapp(), webapp(version="v2", namespaced=False, storage=False)], "the namespaced True, .* False"),
        (
            [webapp(), webapp(version="v2", short_names=["s"], storage=False)],
            r"have different short_names, \(\) and \('s',\)",
        ),
    ],
)
def test_definition_of_invalid_versions_raises(kinds: Sequence[type[Resource[Any, Any]]], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        definition(*kinds)


@pytest.mark.parametrize(
    ("webhook", "message"),
    [
        (ConversionWebhook(), "either service"),
        (ConversionWebhook(service=("a", "b"), url="https://x"), "either service"),
        (ConversionWebhook(url="http://x"), "must start with https://"),
        (ConversionWebhook(url="https://x", review_versions=()), "needs at least one version"),
    ],
)
def test_definition_of_invalid_webhook_raises(webhook: ConversionWebhook, message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        definition(webapp(), webapp(version="v2", storage=False), conversion=webhook)
    with pytest.raises(SchemaError, match="has one version, which needs no conversion"):
        definition(webapp(), conversion=webhook)


def test_template_metadata_schema_is_allowed() -> None:
    found = schema_of(struct(ObjectMeta | None, None))["properties"]["value"]
    assert set(found["properties"]) == {"annotations", "finalizers", "labels", "name", "namespace"}
