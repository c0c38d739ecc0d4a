"""Quantities compare by value, and invalid input raises ValueError."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.meta import FrozenStruct, Quantity, decode, encode

SUFFIXES = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{s: Fraction(1000**e) for e, s in enumerate("kMGTPE", start=1)},
    **{f"{s}i": Fraction(1024**e) for e, s in enumerate("KMGTPE", start=1)},
}
MAX_VALUE = 2**63 - 1

numbers = st.decimals(min_value=-9999, max_value=9999, places=3, allow_nan=False, allow_infinity=False)
quantity_texts = st.tuples(numbers, st.sampled_from(sorted(SUFFIXES)))


def exact(number: Decimal, suffix: str) -> Fraction:
    return max(Fraction(-MAX_VALUE), min(Fraction(number) * SUFFIXES[suffix], Fraction(MAX_VALUE)))


@given(quantity_texts)
def test_quantity_value_is_exact(parts: tuple[Decimal, str]) -> None:
    number, suffix = parts
    assert Fraction(Quantity(f"{number}{suffix}").value) == exact(number, suffix)


@given(quantity_texts, quantity_texts)
def test_order_and_equality_are_those_of_the_values(one: tuple[Decimal, str], two: tuple[Decimal, str]) -> None:
    a, b = Quantity(f"{one[0]}{one[1]}"), Quantity(f"{two[0]}{two[1]}")
    assert (a < b) == (exact(*one) < exact(*two))
    assert (a == b) == (exact(*one) == exact(*two))
    if a == b:
        assert hash(a) == hash(b)


@given(quantity_texts)
def test_quantity_text_round_trips(parts: tuple[Decimal, str]) -> None:
    text = f"{parts[0]}{parts[1]}"
    assert str(Quantity(text)) == text
    assert Quantity(str(Quantity(text))) == Quantity(text)


@pytest.mark.parametrize(
    ("text", "amount"),
    [("1Gi", 2**30), ("1G", 10**9), ("1k", 1000), ("1e3", 1000), ("1E3", 1000), ("1E", 10**18), ("1Ei", 2**60)],
)
def test_units(text: str, amount: int) -> None:
    assert int(Quantity(text)) == amount


@pytest.mark.parametrize(("text", "amount"), [("1m", 1), ("1500m", 2), ("0", 0), ("0.1", 1), ("1n", 1)])
def test_quantity_int_rounds_up(text: str, amount: int) -> None:
    assert int(Quantity(text)) == amount


@pytest.mark.parametrize(
    "text", ["", "Gi", "1 Gi", "1Gi\n", "1K", "--1", "one", "nan", "inf", "\u0661", "1e", "1e1.5"]
)
def test_quantity_invalid_text_raises(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        Quantity(text)


@pytest.mark.parametrize("text", ["1e999999999999", "100Ei", "9" * 4000])
def test_hostile_amounts_are_capped_as_kubernetes_does(text: str) -> None:
    assert int(Quantity(text)) == MAX_VALUE
    assert int(Quantity(f"-{text}")) == -MAX_VALUE


def test_quantity_extreme_negative_exponent_is_zero() -> None:
    assert Quantity("0e-999999999999") == Quantity("0")
    assert Quantity("1e-999999999999") < Quantity("1n")


def test_quantity_decodes_numbers() -> None:
    class Volume(FrozenStruct):
        size: Quantity

    assert decode(b'{"size": 5}', Volume).size == Quantity("5")
    assert decode(b'{"size": "5Gi"}', Volume).size == Quantity("5Gi")
    assert encode(Volume(size=Quantity("5Gi"))) == b'{"size":"5Gi"}'


def test_quantity_repr_and_comparison_with_int() -> None:
    assert repr(Quantity("10Gi")) == "Quantity('10Gi')"
    assert Quantity("1") != 1
