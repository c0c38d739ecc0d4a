"""Sets of transactions, against Python's own sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman_instance.gtids import GtidSet

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"
ORIGINS = (A, B, f"{A}:nightly")

transactions = st.frozensets(st.tuples(st.sampled_from(ORIGINS), st.integers(1, 30)), max_size=40)


def text(of: frozenset[tuple[str, int]]) -> str:
    """Each transaction by itself: neither joined nor in order."""
    return ",".join(f"{origin}:{number}" for origin, number in of)


def contents(of: GtidSet) -> frozenset[tuple[str, int]]:
    return frozenset((o, n) for o, spans in of.intervals.items() for a, b in spans for n in range(a, b + 1))


@given(transactions, transactions)
def test_gtid_set_operations_match_sets(one: frozenset[tuple[str, int]], other: frozenset[tuple[str, int]]) -> None:
    left, right = GtidSet.parse(text(one)), GtidSet.parse(text(other))
    assert contents(left) == one
    assert contents(left | right) == one | other
    assert contents(left - right) == one - other
    assert contents(left & right) == one & other
    assert (left >= right) == (one >= other)
    assert (bool(left), len(left)) == (bool(one), len(one))
    assert (left == right) == (one == other)
    assert GtidSet.parse(str(left)) == left


def test_gtid_set_format_matches_server() -> None:
    """In lines, with tags after the intervals of no tag."""
    told = f"{A}:1-5:11:13-14:nightly:1-3:7,\n{B}:1"
    assert str(GtidSet.parse(told)) == f"{A}:1-5:11:13-14,{A}:nightly:1-3:7,{B}:1"
    assert str(GtidSet.parse("")) == ""
    assert len(GtidSet.parse(told)) == 13


def test_up_to_includes_all_before() -> None:
    assert str(GtidSet.up_to(f"{A}:7")) == f"{A}:1-7"
    assert str(GtidSet.up_to(f"{A}:nightly:7")) == f"{A}:nightly:1-7"
    assert not GtidSet.up_to("")


@pytest.mark.parametrize("wrong", [f"{A}:5-1", f"{A}:0", f"{A}:1-x"])
def test_invalid_gtid_set_raises(wrong: str) -> None:
    with pytest.raises(ValueError):
        GtidSet.parse(wrong)
