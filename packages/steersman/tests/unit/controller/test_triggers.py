"""Triggers name objects and fields, never values."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from framework_support.widget import Widget, widget
from steersman.api.core_v1 import Secret
from steersman.cache import InformerEvent
from steersman.controller import Trigger
from steersman.controller.triggers import MAX_FIELDS, REQUEUE, changed_fields, reason_of
from steersman.meta import ApiResource, FrozenDict, ManagedFieldsEntry, ObjectMeta, unstructured

a1, a2, a3 = (widget("a", version, depth=version) for version in (1, 2, 3))
other_a = widget("a", 4, uid="another")


def merge_events(*events: InformerEvent[Any]) -> Trigger:
    """All changes as one trigger."""
    trigger = Trigger("for", events[0])
    for change in events[1:]:
        merged = trigger.merge(Trigger("for", change))
        assert merged is not None
        trigger = merged
    return trigger


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (InformerEvent(None, a1), "created"),
        (InformerEvent(None, a1, is_initial_list=True), "initial"),
        (InformerEvent(a1, a2), "updated"),
        (InformerEvent(a1, None), "deleted"),
        (InformerEvent(a1, a1), "resync"),
        (InformerEvent(a1, widget("a", 1)), "resync"),
        (InformerEvent(a1, other_a), "recreated"),
    ],
)
def test_reasons(change: InformerEvent[Any], reason: str) -> None:
    assert reason_of(change) == Trigger("for", change).reason == reason


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([InformerEvent(a1, a2), InformerEvent(a2, a3)], "Widget orders/a updated (2 times): spec.depth"),
        ([InformerEvent(a1, a2), InformerEvent(a2, widget("a", 5, depth=1))], "Widget orders/a updated (2 times)"),
        ([InformerEvent(None, a1), InformerEvent(a1, a2)], "Widget orders/a created (2 times)"),
        ([InformerEvent(None, a1, is_initial_list=True), InformerEvent(a1, a2)], "Widget orders/a initial (2 times)"),
        ([InformerEvent(a1, a2), InformerEvent(a2, None)], "Widget orders/a deleted (2 times)"),
        (
            [InformerEvent(a1, None), InformerEvent(None, other_a)],
            "Widget orders/a recreated (2 times): metadata.uid",
        ),
        ([InformerEvent(None, a1), InformerEvent(a1, None)], "Widget orders/a deleted (2 times)"),
        ([InformerEvent(a1, a1), InformerEvent(a1, a2)], "Widget orders/a updated (2 times): spec.depth"),
    ],
)
def test_trigger_merges_changes_of_one_object(changes: list[InformerEvent[Any]], words: str) -> None:
    assert str(merge_events(*changes)) == words


@pytest.mark.parametrize(
    "other",
    [
        Trigger("owns", InformerEvent(a1, a2)),
        Trigger("for", InformerEvent(None, widget("b"))),
        Trigger("for", InformerEvent(None, widget("a", namespace="lake"))),
        Trigger("for", InformerEvent(None, Secret(metadata=ObjectMeta(name="a", namespace="orders")))),
        Trigger("for", None, "external"),
        REQUEUE,
    ],
)
def test_trigger_of_other_object_is_not_merged(other: Trigger) -> None:
    assert Trigger("for", InformerEvent(a1, a2)).merge(other) is None


def test_trigger_without_object_has_description() -> None:
    alarm = Trigger("alarms", None, "external")
    assert (str(alarm), alarm.kind, alarm.key, alarm.changed_fields) == ("external by alarms", None, None, ())
    both = alarm.merge(Trigger("alarms", None, "external"))
    assert both is not None
    assert both.to_builtins() == {"reason": "external", "origin": "alarms", "count": 2}
    assert str(Trigger("Conflict", None, "retry")) == "retry after Conflict"
    assert str(REQUEUE) == "requeue"


OWN = InformerEvent(a1, a2, from_own_write=True)
OTHER = InformerEvent(a1, a2)


@pytest.mark.parametrize(
    ("changes", "writer"),
    [
        ([OWN], "own"),
        ([OTHER], "other"),
        ([OWN, InformerEvent(a2, a3, from_own_write=True)], "own"),
        ([OWN, InformerEvent(a2, a3)], "both"),
        ([OTHER, InformerEvent(a2, a3, from_own_write=True)], "both"),
        ([InformerEvent(a1, a1), OWN], "own"),
        ([InformerEvent(None, a1, from_own_write=True)], None),
        ([InformerEvent(a1, None)], None),
    ],
)
def test_trigger_writer_of_updates(changes: list[InformerEvent[Any]], writer: str | None) -> None:
    trigger = merge_events(*changes)
    assert trigger.writer == trigger.to_builtins().get("writer") == writer


@pytest.mark.parametrize(
    ("fields", "writer"),
    [
        (b'{"f:spec":{"f:depth":{}}}', "own"),
        (b'{"f:spec":{}}', "own"),
        (b'{"f:spec":{"f:height":{}}}', "other"),
        (b'{"f:status":{"f:depth":{}}}', "other"),
    ],
)
def test_trigger_writer_follows_managed_fields(fields: bytes, writer: str) -> None:
    entry = ManagedFieldsEntry(manager="us", operation="Apply", fields_v1=msgspec.Raw(fields))
    new = msgspec.structs.replace(a2, metadata=msgspec.structs.replace(a2.metadata, managed_fields=(entry,)))
    assert Trigger("for", InformerEvent(a1, new)).writer == writer


def secret(version: int, labels: dict[str, str] | None = None, **data: bytes) -> Secret:
    metadata = ObjectMeta(
        name="s",
        resource_version=str(version),
        generation=version,
        labels=FrozenDict(labels or {}),
        finalizers=("f",),
    )
    return Secret(metadata=metadata, data=FrozenDict(data))


def test_fields_are_named_and_values_are_not() -> None:
    old = secret(1, {"app.example.com/name": "x"}, password=b"hunter2", user=b"x")
    new = secret(2, {"app.example.com/name": "y"}, password=b"swordfish", host=b"lake")
    fields = changed_fields(old, new)
    assert sorted(fields) == ["data.host", "data.password", "data.user", "metadata.labels[app.example.com/name]"]
    trigger = Trigger("watches", InformerEvent(old, new))
    shown = f"{trigger} {trigger!r} {trigger.to_builtins()}"
    assert "data.password" in shown
    assert not any(value in shown for value in ("hunter2", "swordfish", "lake"))


def test_changed_fields_ignores_bookkeeping_metadata() -> None:
    assert changed_fields(secret(1), secret(2)) == ()


def test_changed_fields_compares_lists_by_position() -> None:
    tank = unstructured(ApiResource("example.com", "v1", "Tank", "tanks"))

    def filled(*fish: dict[str, Any]) -> Any:
        return tank.of({"metadata": {"name": "t"}, "spec": {"fish": list(fish), "deep": {"er": 1}}})

    one, two = {"name": "one", "age": 1}, {"name": "two", "age": 2}
    assert changed_fields(filled(one, two), filled(one, two | {"age": 3})) == ("spec.fish[1].age",)
    assert changed_fields(filled(one), filled(one, two)) == ("spec.fish",)
    assert changed_fields(filled(one), filled(one)) == ()


def test_changed_fields_are_limited() -> None:
    many = {f"k{number:03}": b"x" for number in range(100)}
    fields = changed_fields(secret(1), secret(2, {}, **many))
    assert (len(fields), fields[-1]) == (MAX_FIELDS + 1, "…")


def test_another_type_is_another_object() -> None:
    assert changed_fields({"a": 1}, {"a": {"b": 1}}) == ("a",)
    assert changed_fields(1, 2) == (".",)
    assert isinstance(a1, Widget)
