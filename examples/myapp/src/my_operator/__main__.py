# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""Entry point of the operator: ``python -m my_operator``."""

from steersman import run

run("my_operator.main:setup", name="my-operator", webhooks="my_operator.main:WEBHOOKS")
