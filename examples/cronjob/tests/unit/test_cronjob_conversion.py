"""Nothing is lost between the versions of CronJob."""

from __future__ import annotations

from steersman_testing.conversions import assert_round_trips

from project.webhooks.cronjob_conversion import CRONJOBS


def test_cronjobs_round_trip_between_versions() -> None:
    assert_round_trips(CRONJOBS)
