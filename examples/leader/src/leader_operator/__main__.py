"""Entry point of the operator: ``python -m leader_operator``."""

from steersman import run

run("leader_operator.main:setup", name="leader-operator", webhooks="leader_operator.main:WEBHOOKS")
