"""Entry point of the operator: ``python -m monitoring_operator``."""

from steersman import run

run("monitoring_operator.main:setup", name="monitoring-operator", webhooks="monitoring_operator.main:WEBHOOKS")
