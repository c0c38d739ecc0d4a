"""Test of the conversion between the versions of CronJob."""

from __future__ import annotations

from steersman_testing.conversions import assert_round_trips

from project.webhooks.cronjob_conversion import CRONJOBS


def test_cronjob_conversion_round_trips() -> None:
    assert_round_trips(CRONJOBS)
