"""Test of Prometheus on the in-memory API server, in virtual time."""

from __future__ import annotations

import asyncio

from steersman import Client, Manager, ObjectKey, ObjectMeta, is_true
from steersman_testing import InMemoryApiServer, virtual_time

from monitoring_operator.api.v1.prometheus import Prometheus, PrometheusSpec
from monitoring_operator.main import setup

SAMPLE = ObjectKey("default", "sample")


@virtual_time
async def test_prometheus_becomes_ready(apiserver: InMemoryApiServer) -> None:
    manager = Manager(apiserver, runtime=apiserver.runtime)
    setup(manager)
    running = asyncio.create_task(manager.run())
    user = Client(apiserver, field_manager="user")
    metadata = ObjectMeta(name=SAMPLE.name, namespace=SAMPLE.namespace)

    await user.create(Prometheus(metadata=metadata, spec=PrometheusSpec(foo="bar")))
    await asyncio.sleep(60)

    found = await user.get(Prometheus, SAMPLE)
    assert found.status is not None
    assert is_true(found.status.conditions, "Ready")
    assert found.status.observed_generation == found.metadata.generation
    manager.stop()
    await running
