"""The store and its indexes agree after every change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from framework_support.widget import Widget, widget
from steersman.cache import IndexedStore
from steersman.meta import ObjectKey

Action = tuple[str, int, bool]
actions = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.booleans()), max_size=30)


def depths(obj: Widget) -> list[str]:
    # An index function may return duplicates, or nothing (for 0).
    return [str(obj.spec.depth)] * obj.spec.depth


@given(actions)
def test_indexes_follow_objects(history: list[Action]) -> None:
    store: IndexedStore[Widget] = IndexedStore()
    store.add_index("depth", depths)
    model: dict[str, int] = {}
    for name, depth, remove in history:
        if remove:
            removed = store.remove(ObjectKey("orders", name))
            assert (removed.spec.depth if removed else None) == model.pop(name, None)
        else:
            former = store.put(widget(name, depth=depth))
            assert (former.spec.depth if former else None) == model.get(name)
            model[name] = depth
        assert {o.metadata.name: o.spec.depth for o in store} == model
        for wanted in range(4):
            expected = {n for n, d in model.items() if d == wanted and d > 0}
            assert {o.metadata.name for o in store.by_index("depth", str(wanted))} == expected


def test_index_added_later_covers_stored_objects() -> None:
    store: IndexedStore[Widget] = IndexedStore()
    store.put(widget("a", depth=2))
    store.add_index("depth", depths)
    assert [o.metadata.name for o in store.by_index("depth", "2")] == ["a"]


def test_failing_index_function_keeps_object() -> None:
    def inverse(obj: Widget) -> list[str]:
        return [str(12 // obj.spec.depth)]

    store: IndexedStore[Widget] = IndexedStore()
    with capture_logs() as lines:
        store.put(widget("early", depth=0))
        store.add_index("inverse", inverse)
        for depth in (3, 0, 4):
            store.put(widget("a", depth=depth))
        assert [o.metadata.name for o in store.by_index("inverse", "3")] == ["a"]
        assert store.by_index("inverse", "4") == ()
        assert store.remove(ObjectKey("orders", "early"))
    assert len(store) == 1
    assert {(line["event"], line["index"]) for line in lines} == {("index function failed", "inverse")}
    assert {line["object"] for line in lines} == {"orders/early", "orders/a"}


def test_by_index_returns_objects_in_insertion_order() -> None:
    store: IndexedStore[Widget] = IndexedStore()
    store.add_index("all", lambda _: ("x",))
    names = [f"widget-{n}" for n in range(50)]
    for name in names:
        store.put(widget(name))
    assert [o.metadata.name for o in store.by_index("all", "x")] == names


def test_namespace_index_follows_objects() -> None:
    store: IndexedStore[Widget] = IndexedStore()
    store.put(widget("a"))
    assert [o.metadata.name for o in store.by_index("namespace", "orders")] == ["a"]
    store.put(widget("b"))
    store.remove(ObjectKey("orders", "a"))
    assert [o.metadata.name for o in store.by_index("namespace", "orders")] == ["b"]
    assert store.by_index("namespace", "other") == ()


def test_index_function_runs_once_for_each_put() -> None:
    calls: list[int] = []

    def depth(obj: Widget) -> tuple[str]:
        calls.append(obj.spec.depth)
        return (str(obj.spec.depth),)

    store: IndexedStore[Widget] = IndexedStore()
    store.add_index("depth", depth)
    for number in (1, 2):
        store.put(widget("a", number, depth=number))
    store.remove(ObjectKey("orders", "a"))
    assert calls == [1, 2]
    assert store.by_index("depth", "2") == ()


def test_duplicate_or_unknown_index_raises() -> None:
    store: IndexedStore[Widget] = IndexedStore()
    store.add_index("depth", depths)
    with pytest.raises(ValueError, match="'depth' exists"):
        store.add_index("depth", depths)
    with pytest.raises(KeyError):
        store.by_index("height", "1")


def test_store_can_change_during_iteration() -> None:
    store: IndexedStore[Widget] = IndexedStore()
    for name in "abc":
        store.put(widget(name))
    for obj in store:
        store.remove(obj.key)
    assert len(store) == 0
    assert store.get(ObjectKey("orders", "a")) is None
