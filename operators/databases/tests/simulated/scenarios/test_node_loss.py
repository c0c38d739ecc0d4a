"""Rules of promotion after the loss of a primary, in all orders of events: docs/decisions/0055."""

from __future__ import annotations

import pytest

from database_support.simulation.node_loss import Rule, explore


def test_promotion_after_expiry_loses_only_cancelled_commits() -> None:
    found, states = explore(Rule.EXPIRY)
    assert set(found) == {"lost cancelled commit"}
    assert states > 10_000


def test_early_release_with_record_has_stale_reads() -> None:
    """No confirmed commit is lost, but the previous primary still responds to its clients."""
    found, states = explore(Rule.COORDINATED)
    assert set(found) == {"lost cancelled commit", "late cancelled commit", "stale read"}
    assert states > 10_000
    assert "the record is fixed" in found["stale read"]


@pytest.mark.parametrize(
    ("rule", "cause"),
    [
        (Rule.CANDIDATE, "2 receives"),  # the other standby confirms
        (Rule.UNCONFIRMED, "1 crashes"),  # with the only copy
        (Rule.UNCOORDINATED, "stop waiting for standbys"),
    ],
)
def test_early_release_by_weaker_rules_loses_commits(rule: Rule, cause: str) -> None:
    found, _ = explore(rule, "lost commit")
    assert cause in found["lost commit"] and "acknowledge" in found["lost commit"]
