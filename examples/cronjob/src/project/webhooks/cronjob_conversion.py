# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""Conversion between the versions of CronJob. The hub is v1."""

from __future__ import annotations

from steersman.webhook import Conversion

from project.api.v1.cronjob import CronJob
from project.webhooks.cronjob_conversion_v2 import SPOKE as V2

# +steersman:scaffold:imports

CRONJOBS = Conversion(
    CronJob,
    V2,
    # +steersman:scaffold:spokes
)
