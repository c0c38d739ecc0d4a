"""Nothing is lost between the versions of CronJob."""

from __future__ import annotations

from steersman_testing.conversions import assert_round_trips

from project.webhooks.cronjob_conversion import CRONJOBS


def test_nothing_is_lost() -> None:
    assert_round_trips(CRONJOBS)
