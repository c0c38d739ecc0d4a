"""Conditions: the transition time moves on transitions only."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from steersman.api.core_v1 import PodCondition
from steersman.meta import Condition, condition_transitions, find_condition, is_true, set_condition
from steersman.meta.condition import ConditionStatus

NOW = datetime(2030, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


def ready_condition(status: ConditionStatus = "True", reason: str = "AllGood", message: str = "") -> Condition:
    return Condition(type="Ready", status=status, reason=reason, message=message)


def test_set_condition_new_has_timestamp_in_seconds() -> None:
    (found,) = set_condition((), ready_condition(), NOW)
    assert found.last_transition_time == NOW.replace(microsecond=0)


def test_set_condition_same_status_keeps_timestamp() -> None:
    before = set_condition((), ready_condition(), NOW)
    (found,) = set_condition(before, ready_condition(reason="Better", message="very good"), LATER)
    assert found.last_transition_time == NOW.replace(microsecond=0)
    assert (found.reason, found.message) == ("Better", "very good")


def test_set_condition_repeated_returns_equal_conditions() -> None:
    before = set_condition((), ready_condition(), NOW)
    assert set_condition(before, ready_condition(), LATER) == before


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_set_condition_transition_updates_time(status: ConditionStatus) -> None:
    before = set_condition((), ready_condition(), NOW)
    (found,) = set_condition(before, ready_condition(status), LATER)
    assert found.last_transition_time == LATER.replace(microsecond=0)


def test_set_condition_missing_timestamp_is_set() -> None:
    (found,) = set_condition((ready_condition(),), ready_condition(), LATER)
    assert found.last_transition_time == LATER.replace(microsecond=0)


def test_set_condition_keeps_other_conditions() -> None:
    other = Condition(type="Progressing", status="False", reason="Done")
    conditions = set_condition((*set_condition((), ready_condition(), NOW), other), ready_condition("False"), LATER)
    assert [c.type for c in conditions] == ["Ready", "Progressing"]
    assert find_condition(conditions, "Progressing") == other
    assert find_condition(conditions, "Missing") is None


def test_truth() -> None:
    assert is_true((ready_condition(),), "Ready")
    assert not is_true((ready_condition("Unknown"),), "Ready")
    assert not is_true((), "Ready")
    assert is_true((PodCondition(type="Ready", status="True"),), "Ready")


def test_condition_transitions_has_new_and_changed_ones() -> None:
    ready, valid = ready_condition(), Condition(type="Valid", status="True", reason="New")
    before = (ready, Condition(type="Old", status="True", reason="Old"))
    assert condition_transitions(before, (ready_condition(reason="Better", message="very good"),)) == ()
    assert condition_transitions(before, (ready, valid)) == (valid,)
    failed = ready_condition("False")
    assert condition_transitions(before, (failed, valid)) == (failed, valid)
