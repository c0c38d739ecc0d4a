"""Decoding of JSON: strict types, tolerant like Go, deeply immutable."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from framework_support.widget import Widget, WidgetStatus
from steersman.api.core_v1 import ResourceRequirements, Volume
from steersman.meta import (
    FrozenDict,
    FrozenStruct,
    Object,
    ObjectMeta,
    OwnerReference,
    Quantity,
    decode,
    decode_builtins,
    encode,
    to_builtins,
)


class Part(FrozenStruct):
    size_in_bytes: int = 0
    cluster_ip: str = msgspec.field(default="", name="clusterIP")


class Everything(FrozenStruct):
    text: str = ""
    parts: tuple[Part, ...] = ()
    limits: FrozenDict[str, Quantity] = FrozenDict()
    secrets: FrozenDict[str, bytes] = FrozenDict()
    nested: FrozenDict[str, Part] = FrozenDict()
    open: FrozenDict[str, Any] = FrozenDict()
    moment: datetime | None = None


def test_encode_uses_camel_case_and_declared_names() -> None:
    part = Part(size_in_bytes=3, cluster_ip="10.0.0.1")
    assert encode(part) == b'{"sizeInBytes":3,"clusterIP":"10.0.0.1"}'
    assert decode(encode(part), Part) == part


def test_unknown_fields_are_dropped() -> None:
    assert decode(b'{"sizeInBytes":1,"fromTheFuture":{"a":[1]}}', Part) == Part(size_in_bytes=1)


def test_encode_omits_defaults() -> None:
    assert to_builtins(Part()) == {}
    assert to_builtins(ObjectMeta(name="x", labels=FrozenDict({"a": "b"}))) == {"name": "x", "labels": {"a": "b"}}
    assert to_builtins(ObjectMeta(finalizers=("a", "b"))) == {"finalizers": ["a", "b"]}


def test_nil_maps_and_times_are_read_as_empty() -> None:
    found = decode(b'{"limits":null,"open":null,"moment":null}', Everything)
    assert found == Everything()
    assert isinstance(found.limits, FrozenDict)


def test_values_of_maps_are_typed() -> None:
    found = decode(
        b'{"limits":{"cpu":"500m"},"secrets":{"key":"aGk="},"nested":{"a":{"sizeInBytes":2}}}',
        Everything,
    )
    assert found.limits["cpu"] == Quantity("0.5")
    assert found.secrets["key"] == b"hi"
    assert found.nested["a"] == Part(size_in_bytes=2)
    assert decode(encode(found), Everything) == found


@pytest.mark.parametrize(
    ("document", "path"),
    [
        (b'{"text":5}', "$.text"),
        (b'{"parts":[{"sizeInBytes":"x"}]}', "$.parts[0].sizeInBytes"),
        (b'{"limits":{"cpu":"much"}}', "$.limits"),
        (b'{"limits":{"cpu":"1e9999999999999999999"},"text":1}', "$.text"),
        (b'{"limits":7}', "$.limits"),
        (b'{"moment":"yesterday"}', "$.moment"),
    ],
)
def test_errors_name_the_path(document: bytes, path: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        decode(document, Everything)
    assert path in str(caught.value)


def test_decode_invalid_json_raises() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(b"<html>", Everything)


def test_times_travel_in_utc() -> None:
    moment = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert encode(Everything(moment=moment)) == b'{"moment":"2030-01-02T03:04:05Z"}'
    assert decode(b'{"moment":"2030-01-02T03:04:05Z"}', Everything).moment == moment


def test_decode_builtins_equals_decode() -> None:
    document = {"text": "x", "limits": {"cpu": "1"}, "open": {"a": [1, {"b": None}]}}
    assert decode_builtins(document, Everything) == decode(encode(document), Everything)


def test_shared_objects_cannot_be_changed() -> None:
    found = decode(b'{"text":"x","parts":[{}],"limits":{"cpu":"1"},"open":{"a":[1,{"b":2}]}}', Everything)
    victim: Any = found
    with pytest.raises(AttributeError):
        victim.text = "y"
    with pytest.raises(TypeError):
        victim.parts[0] = Part()
    for change in (
        lambda: victim.limits.__setitem__("cpu", Quantity("2")),
        lambda: victim.limits.update(memory=Quantity("1")),
        lambda: victim.limits.pop("cpu"),
        lambda: victim.limits.clear(),
        lambda: victim.limits.setdefault("x", Quantity("1")),
        lambda: victim.limits.__ior__({"x": Quantity("1")}),
        lambda: victim.open["a"][1].__setitem__("b", 3),
        lambda: victim.limits.__delitem__("cpu"),
    ):
        with pytest.raises(TypeError, match="immutable"):
            change()
    with pytest.raises(AttributeError):
        victim.limits["cpu"].value = 7
    with pytest.raises(TypeError):
        victim.open["a"][0] = 2


def test_frozen_dict_can_be_merged_and_hashed() -> None:
    labels = FrozenDict({"a": "1"})
    merged = {**labels, "b": "2"}
    assert merged == {"a": "1", "b": "2"}
    assert labels == {"a": "1"}
    assert hash(FrozenDict({"a": 1, "b": 2})) == hash(FrozenDict({"b": 2, "a": 1}))


def pickle_round_trip(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


COPIERS: list[Callable[[Any], Any]] = [copy.copy, copy.deepcopy, pickle_round_trip]


@pytest.mark.parametrize("copied", COPIERS)
def test_objects_can_be_copied_and_pickled(copied: Callable[[Any], Any]) -> None:
    labels = FrozenDict({"a": FrozenDict({"b": 1})})
    found = copied(labels)
    assert found == labels
    assert isinstance(found, FrozenDict) and isinstance(found["a"], FrozenDict)


def test_controller_reference_is_found() -> None:
    def owner(name: str, controller: bool | None) -> OwnerReference:
        return OwnerReference(api_version="v1", kind="X", name=name, uid=name, controller=controller)

    obj = Object(metadata=ObjectMeta(owner_references=(owner("a", None), owner("b", True), owner("c", False))))
    assert obj.controller_reference is not None
    assert obj.controller_reference.name == "b"
    assert Object().controller_reference is None


def test_quantities_within_custom_resources_may_be_numbers() -> None:
    # The API server converts numbers to strings only in built-in kinds.
    source = decode(b'{"name":"a","emptyDir":{"sizeLimit":1}}', Volume).empty_dir
    assert source is not None
    assert source.size_limit == 1
    assert decode(b'{"limits":{"cpu":1}}', ResourceRequirements).limits == {"cpu": 1}


def test_null_status_decodes_as_absent() -> None:
    document = b'{"metadata":{"name":"a","labels":null},"spec":{"depth":1},"status":null}'
    assert decode(document, Widget).status == WidgetStatus()
    with pytest.raises(msgspec.ValidationError, match="spec"):
        decode(b'{"metadata":{"name":"a"},"spec":null}', Widget)


class BrokenType(FrozenStruct):
    part: Missing | None = None  # noqa: F821  # pyright: ignore[reportUndefinedVariable, reportUnknownVariableType]


def test_decode_to_malformed_type_raises_its_error() -> None:
    # As a ValidationError, it would count as an error of each object, and all would be skipped.
    with pytest.raises(NameError):
        decode(b"{}", BrokenType)
