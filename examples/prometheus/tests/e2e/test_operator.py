"""End-to-end test of the deployed operator: ``make deploy IMG=…``."""

from __future__ import annotations

import asyncio

import pytest
from steersman import Client, ObjectKey, connect, load_config
from steersman.api.apps_v1 import Deployment
from steersman.errors import NotFound, SteersmanError

pytestmark = pytest.mark.e2e
OPERATOR = ObjectKey("monitoring-operator-system", "monitoring-operator")


async def test_operator_deployment_is_available() -> None:
    try:
        config = load_config()
    except SteersmanError as error:
        pytest.skip(f"no cluster: {error}")
    async with connect(config) as transport, asyncio.timeout(120):
        client = Client(transport)
        while True:
            try:
                status = (await client.get(Deployment, OPERATOR)).status
            except NotFound:
                pytest.skip("the operator is not deployed: make deploy IMG=…")
            if status.available_replicas:
                return
            await asyncio.sleep(1)
