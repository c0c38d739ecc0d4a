"""Conditions: the transition time moves on transitions only."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from steersman.api.core_v1 import PodCondition
from steersman.meta import Condition, find_condition, is_true, set_condition
from steersman.meta.condition import ConditionStatus

THEN = datetime(2030, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
LATER = THEN + timedelta(hours=1)


def ready(status: ConditionStatus = "True", reason: str = "AllGood", message: str = "") -> Condition:
    return Condition(type="Ready", status=status, reason=reason, message=message)


def test_a_new_condition_is_stamped_with_whole_seconds() -> None:
    (found,) = set_condition((), ready(), THEN)
    assert found.last_transition_time == THEN.replace(microsecond=0)


def test_the_same_status_keeps_the_time_and_takes_the_rest() -> None:
    before = set_condition((), ready(), THEN)
    (found,) = set_condition(before, ready(reason="Better", message="very good"), LATER)
    assert found.last_transition_time == THEN.replace(microsecond=0)
    assert (found.reason, found.message) == ("Better", "very good")


def test_setting_it_twice_changes_nothing() -> None:
    before = set_condition((), ready(), THEN)
    assert set_condition(before, ready(), LATER) == before


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_a_transition_moves_the_time(status: ConditionStatus) -> None:
    before = set_condition((), ready(), THEN)
    (found,) = set_condition(before, ready(status), LATER)
    assert found.last_transition_time == LATER.replace(microsecond=0)


def test_a_condition_that_never_had_a_time_gets_one() -> None:
    (found,) = set_condition((ready(),), ready(), LATER)
    assert found.last_transition_time == LATER.replace(microsecond=0)


def test_others_stay_where_they_are() -> None:
    other = Condition(type="Progressing", status="False", reason="Done")
    conditions = set_condition((*set_condition((), ready(), THEN), other), ready("False"), LATER)
    assert [c.type for c in conditions] == ["Ready", "Progressing"]
    assert find_condition(conditions, "Progressing") == other
    assert find_condition(conditions, "Missing") is None


def test_truth() -> None:
    assert is_true((ready(),), "Ready")
    assert not is_true((ready("Unknown"),), "Ready")
    assert not is_true((), "Ready")
    assert is_true((PodCondition(type="Ready", status="True"),), "Ready")
