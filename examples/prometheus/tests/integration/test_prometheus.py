"""Test of Prometheus on a real API server, with the operator's role."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import yaml
from steersman import Client, Manager, ObjectKey, ObjectMeta, connect, is_true
from steersman_testing.envtest import Envtest

from monitoring_operator.api.v1.prometheus import Prometheus, PrometheusSpec, PrometheusStatus
from monitoring_operator.main import setup

ROLE: dict[str, Any] = yaml.safe_load((Path(__file__).parents[2] / "config/rbac/role.yaml").read_text())


async def test_prometheus_becomes_ready_with_operator_role(envtest: Envtest, envtest_namespace: str) -> None:
    operator = envtest.user("operator", roles=[ROLE])
    async with connect(operator.config) as transport, envtest.client() as user:
        manager = Manager(transport)
        setup(manager)
        running = asyncio.create_task(manager.run())
        sample = ObjectKey(envtest_namespace, "sample")
        metadata = ObjectMeta(name=sample.name, namespace=sample.namespace)
        await user.create(Prometheus(metadata=metadata, spec=PrometheusSpec(foo="bar")))
        status = await wait_for_status(user, sample)
        assert is_true(status.conditions, "Ready")
        manager.stop()
        await running


async def wait_for_status(client: Client, key: ObjectKey) -> PrometheusStatus:
    """Return the first status that the operator writes."""
    async with asyncio.timeout(30):
        while (status := (await client.get(Prometheus, key)).status) is None:
            await asyncio.sleep(0.05)
    return status
