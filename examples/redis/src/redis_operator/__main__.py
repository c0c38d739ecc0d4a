"""Entry point of the operator: ``python -m redis_operator``."""

from steersman import run

run("redis_operator.main:setup", name="redis-operator", webhooks="redis_operator.main:WEBHOOKS")
