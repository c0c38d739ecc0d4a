"""The store and its indexes agree, whatever happens to the objects."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from framework_support.buoy import Buoy, buoy
from steersman.cache import Store
from steersman.meta import ObjectKey

Action = tuple[str, int, bool]
actions = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.booleans()), max_size=30)


def depths(obj: Buoy) -> list[str]:
    # Twice the same value, and none at all for 0: an index function may do both.
    return [str(obj.spec.depth)] * obj.spec.depth


@given(actions)
def test_indexes_follow_the_objects(history: list[Action]) -> None:
    store: Store[Buoy] = Store()
    store.add_index("depth", depths)
    model: dict[str, int] = {}
    for name, depth, remove in history:
        if remove:
            removed = store.remove(ObjectKey("sea", name))
            assert (removed.spec.depth if removed else None) == model.pop(name, None)
        else:
            former = store.put(buoy(name, depth=depth))
            assert (former.spec.depth if former else None) == model.get(name)
            model[name] = depth
        assert {o.metadata.name: o.spec.depth for o in store} == model
        for wanted in range(4):
            expected = {n for n, d in model.items() if d == wanted and d > 0}
            assert {o.metadata.name for o in store.by_index("depth", str(wanted))} == expected


def test_an_index_takes_in_what_is_there() -> None:
    store: Store[Buoy] = Store()
    store.put(buoy("a", depth=2))
    store.add_index("depth", depths)
    assert [o.metadata.name for o in store.by_index("depth", "2")] == ["a"]


def test_an_object_that_cannot_be_indexed_is_held_all_the_same() -> None:
    def inverse(obj: Buoy) -> list[str]:
        return [str(12 // obj.spec.depth)]

    store: Store[Buoy] = Store()
    with capture_logs() as lines:
        store.put(buoy("early", depth=0))
        store.add_index("inverse", inverse)
        for depth in (3, 0, 4):
            store.put(buoy("a", depth=depth))
        assert [o.metadata.name for o in store.by_index("inverse", "3")] == ["a"]
        assert store.by_index("inverse", "4") == ()
        assert store.remove(ObjectKey("sea", "early"))
    assert len(store) == 1
    assert {(line["event"], line["index"]) for line in lines} == {("an index function failed", "inverse")}
    assert {line["object"] for line in lines} == {"sea/early", "sea/a"}


def test_what_is_found_comes_in_the_order_of_arrival() -> None:
    store: Store[Buoy] = Store()
    store.add_index("all", lambda _: ("x",))
    names = [f"buoy-{n}" for n in range(50)]
    for name in names:
        store.put(buoy(name))
    assert [o.metadata.name for o in store.by_index("all", "x")] == names


def test_indexes_are_named_once_and_known() -> None:
    store: Store[Buoy] = Store()
    store.add_index("depth", depths)
    with pytest.raises(ValueError, match="'depth' exists"):
        store.add_index("depth", depths)
    with pytest.raises(KeyError):
        store.by_index("height", "1")


def test_objects_may_come_and_go_while_somebody_reads() -> None:
    store: Store[Buoy] = Store()
    for name in "abc":
        store.put(buoy(name))
    for obj in store:
        store.remove(obj.key)
    assert len(store) == 0
    assert store.get(ObjectKey("sea", "a")) is None
