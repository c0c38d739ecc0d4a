"""Who lags is told, and lets nobody read; and how far he is behind, in round numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from steersman_agent import condition, store
from steersman_agent.condition import Applying
from steersman_agent.decision import Member
from steersman_agent.group import Look
from steersman_agent.gtids import GtidSet

IDLE = Look(uuid="a", version="9.7.4", state="ONLINE", view="1:1", members=(), has=GtidSet(), queued=0, applied=5)


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock's last is what it shows."""
    shown = [100.0]
    monkeypatch.setattr(condition.time, "monotonic", lambda: shown[-1])
    return shown


def test_who_applies_nothing_of_what_waits_is_behind(seconds: list[float]) -> None:
    applying = Applying()
    applying.see(replace(IDLE, queued=3))
    seconds.append(131.0)
    assert "for 30 s none was applied" in applying.behind
    applying.see(replace(IDLE, queued=3, applied=6))
    assert not applying.behind, "it goes on"


def test_who_has_nothing_to_apply_is_not_behind(seconds: list[float]) -> None:
    applying = Applying()
    applying.see(IDLE)
    seconds.append(1000.0)
    applying.see(IDLE)
    assert not applying.behind
    applying.see(replace(IDLE, queued=1))
    assert not applying.behind, "it came just now"


def test_who_has_more_to_apply_than_it_may_is_behind_though_it_goes_on(seconds: list[float]) -> None:
    applying = Applying()
    for applied in range(3):
        applying.see(replace(IDLE, queued=250_000, applied=applied))
    assert applying.behind == "more than 100000 transactions wait to be applied"
    applying.see(None)
    assert not applying.behind, "one that does not run is not online either"


@pytest.mark.parametrize(("queued", "told"), [(0, 0), (99, 0), (100, 100), (4711, 1000)])
def test_what_waits_is_told_to_the_others_in_round_numbers(queued: int, told: int) -> None:
    applying = Applying()
    applying.see(replace(IDLE, queued=queued))
    words = store.member_words(Member(instance=1, state="Online"), queued=applying.queued)
    pod = {"metadata": {"labels": {store.INSTANCE_LABEL: "1"}, "annotations": {store.MEMBER: words}}}
    assert [m.queued for m in store.members([pod])] == [told]
