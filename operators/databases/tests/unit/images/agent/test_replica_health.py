"""Who lags is told, and lets nobody read; and how far he is behind, in round numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from steersman_agent.group import group_config
from steersman_agent.group.decision import GroupMember
from steersman_agent.group.group_status import ServerStatus
from steersman_agent.server import replica_health
from steersman_agent.server.replica_health import ApplyQueue
from steersman_instance.gtids import GtidSet

IDLE = ServerStatus(
    uuid="a", version="9.7.4", state="ONLINE", view="1:1", members=(), executed=GtidSet(), apply_queue=0, applied=5
)


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock's last is what it shows."""
    shown = [100.0]
    monkeypatch.setattr(replica_health.time, "monotonic", lambda: shown[-1])
    return shown


def test_stalled_queue_is_behind(seconds: list[float]) -> None:
    applying = ApplyQueue()
    applying.update(replace(IDLE, apply_queue=3))
    seconds.append(131.0)
    assert "for 30 s none was applied" in applying.lag_reason
    applying.update(replace(IDLE, apply_queue=3, applied=6))
    assert not applying.lag_reason, "it goes on"


def test_empty_queue_is_not_behind(seconds: list[float]) -> None:
    applying = ApplyQueue()
    applying.update(IDLE)
    seconds.append(1000.0)
    applying.update(IDLE)
    assert not applying.lag_reason
    applying.update(replace(IDLE, apply_queue=1))
    assert not applying.lag_reason, "it came just now"


def test_oversized_queue_is_behind_while_applying(seconds: list[float]) -> None:
    applying = ApplyQueue()
    for applied in range(3):
        applying.update(replace(IDLE, apply_queue=250_000, applied=applied))
    assert applying.lag_reason == "more than 100000 transactions wait to be applied"
    applying.update(None)
    assert not applying.lag_reason, "one that does not run is not online either"


@pytest.mark.parametrize(("queued", "told"), [(0, 0), (99, 0), (100, 100), (4711, 1000)])
def test_queue_is_reported_in_powers_of_ten(queued: int, told: int) -> None:
    applying = ApplyQueue()
    applying.update(replace(IDLE, apply_queue=queued))
    words = group_config.member_annotation(GroupMember(instance=1, state="Online"), applyQueue=applying.queued)
    pod = {"metadata": {"labels": {group_config.INSTANCE_LABEL: "1"}, "annotations": {group_config.MEMBER: words}}}
    assert [m.queued for m in group_config.members([pod])] == [told]
