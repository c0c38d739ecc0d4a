"""End-to-end test of Prometheus. It needs a deployed operator: ``make deploy IMG=…``."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from steersman import Client, ObjectKey, ObjectMeta, connect, is_true, load_config
from steersman.api.apps_v1 import Deployment
from steersman.errors import NotFound, SteersmanError

from monitoring_operator.api.v1.prometheus import Prometheus, PrometheusSpec

pytestmark = pytest.mark.e2e
OPERATOR = ObjectKey("monitoring-operator-system", "monitoring-operator")


async def test_prometheus_becomes_ready() -> None:
    try:
        config = load_config()
    except SteersmanError as error:
        pytest.skip(f"no cluster: {error}")
    async with connect(config) as transport, asyncio.timeout(120):
        client = Client(transport)
        try:
            await client.get(Deployment, OPERATOR)
        except NotFound:
            pytest.skip("the operator is not deployed: make deploy IMG=…")
        key = ObjectKey("default", f"e2e-{uuid.uuid4().hex[:8]}")
        metadata = ObjectMeta(name=key.name, namespace=key.namespace)
        await client.create(Prometheus(metadata=metadata, spec=PrometheusSpec(foo="bar")))
        try:
            while True:
                status = (await client.get(Prometheus, key)).status
                if status is not None and is_true(status.conditions, "Ready"):
                    return
                await asyncio.sleep(1)
        finally:
            await client.delete(Prometheus, key)
