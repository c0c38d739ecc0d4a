# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""Entry point of the operator: ``python -m project``."""

from steersman import run

run("project.main:setup", name="project", webhooks="project.main:WEBHOOKS")
