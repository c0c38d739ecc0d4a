"""Why a reconcile runs, in words: objects and fields, never values."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from framework_support.buoy import Buoy, buoy
from steersman.api.core_v1 import Secret
from steersman.cache import Change
from steersman.controller import Trigger
from steersman.controller.triggers import MOST_FIELDS, REQUEUE, changed_fields, reason_of
from steersman.meta import ApiResource, FrozenDict, ObjectMeta, unstructured

a1, a2, a3 = (buoy("a", version, depth=version) for version in (1, 2, 3))
other_a = buoy("a", 4, uid="another")


def told(*changes: Change[Any]) -> Trigger:
    """All changes as one trigger."""
    trigger = Trigger("for", changes[0])
    for change in changes[1:]:
        merged = trigger.absorb(Trigger("for", change))
        assert merged is not None
        trigger = merged
    return trigger


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (Change(None, a1), "created"),
        (Change(None, a1, initial=True), "initial"),
        (Change(a1, a2), "updated"),
        (Change(a1, None), "deleted"),
        (Change(a1, a1), "resync"),
        (Change(a1, buoy("a", 1)), "resync"),
        (Change(a1, other_a), "recreated"),
    ],
)
def test_reasons(change: Change[Any], reason: str) -> None:
    assert reason_of(change) == Trigger("for", change).reason == reason


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([Change(a1, a2), Change(a2, a3)], "Buoy sea/a updated (2 times): spec.depth"),
        ([Change(a1, a2), Change(a2, buoy("a", 5, depth=1))], "Buoy sea/a updated (2 times)"),
        ([Change(None, a1), Change(a1, a2)], "Buoy sea/a created (2 times)"),
        ([Change(None, a1, initial=True), Change(a1, a2)], "Buoy sea/a initial (2 times)"),
        ([Change(a1, a2), Change(a2, None)], "Buoy sea/a deleted (2 times)"),
        ([Change(a1, None), Change(None, other_a)], "Buoy sea/a recreated (2 times): metadata.uid"),
        ([Change(None, a1), Change(a1, None)], "Buoy sea/a deleted (2 times)"),
        ([Change(a1, a1), Change(a1, a2)], "Buoy sea/a updated (2 times): spec.depth"),
    ],
)
def test_several_changes_of_an_object_are_one_from_the_oldest_to_the_newest(
    changes: list[Change[Any]], words: str
) -> None:
    assert str(told(*changes)) == words


@pytest.mark.parametrize(
    "other",
    [
        Trigger("owns", Change(a1, a2)),
        Trigger("for", Change(None, buoy("b"))),
        Trigger("for", Change(None, buoy("a", namespace="lake"))),
        Trigger("for", Change(None, Secret(metadata=ObjectMeta(name="a", namespace="sea")))),
        Trigger("for", None, "external"),
        REQUEUE,
    ],
)
def test_different_things_stay_apart(other: Trigger) -> None:
    assert Trigger("for", Change(a1, a2)).absorb(other) is None


def test_what_is_no_change_of_an_object() -> None:
    alarm = Trigger("alarms", None, "external")
    assert (str(alarm), alarm.kind, alarm.key, alarm.changed_fields) == ("external by alarms", None, None, ())
    both = alarm.absorb(Trigger("alarms", None, "external"))
    assert both is not None
    assert both.to_builtins() == {"reason": "external", "origin": "alarms", "count": 2}
    assert str(Trigger("Conflict", None, "retry")) == "retry after Conflict"
    assert str(REQUEUE) == "requeue"


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
    trigger = Trigger("watches", Change(old, new))
    shown = f"{trigger} {trigger!r} {trigger.to_builtins()}"
    assert "data.password" in shown
    assert not any(value in shown for value in ("hunter2", "swordfish", "lake"))


def test_bookkeeping_is_no_change() -> None:
    assert changed_fields(secret(1), secret(2)) == ()


def test_lists_by_position_or_as_a_whole() -> None:
    tank = unstructured(ApiResource("example.com", "v1", "Tank", "tanks"))

    def filled(*fish: dict[str, Any]) -> Any:
        return tank.of({"metadata": {"name": "t"}, "spec": {"fish": list(fish), "deep": {"er": 1}}})

    one, two = {"name": "one", "age": 1}, {"name": "two", "age": 2}
    assert changed_fields(filled(one, two), filled(one, two | {"age": 3})) == ("spec.fish[1].age",)
    assert changed_fields(filled(one), filled(one, two)) == ("spec.fish",)
    assert changed_fields(filled(one), filled(one)) == ()


def test_there_is_an_end_to_fields() -> None:
    many = {f"k{number:03}": b"x" for number in range(100)}
    fields = changed_fields(secret(1), secret(2, {}, **many))
    assert (len(fields), fields[-1]) == (MOST_FIELDS + 1, "…")


def test_another_type_is_another_object() -> None:
    assert changed_fields(a1, msgspec.structs.replace(a1, status=None)) == ()
    assert changed_fields({"a": 1}, {"a": {"b": 1}}) == ("a",)
    assert changed_fields(1, 2) == (".",)
    assert isinstance(a1, Buoy)
