"""What we take for an apply that changes nothing changes nothing on the real API server."""

from __future__ import annotations

import pytest

from framework_support.apply_configurations import NAMESPACE, everything
from framework_support.buoy import Buoy, BuoyApply, BuoySpecApply, BuoyStatus
from framework_support.definitions import define
from steersman.client import Client, connect
from steersman.client.documents import owned_document, status_document
from steersman.client.managed_fields import apply_would_change
from steersman.crd import definition
from steersman.meta import ObjectMetaApply
from steersman_testing.envtest import Envtest

MANAGER = "unchanged"


@pytest.mark.parametrize("name", everything())
async def test_the_same_again(envtest: Envtest, name: str) -> None:
    async with connect(envtest.config) as transport:
        client = Client(transport, field_manager=MANAGER)
        await define(client, Buoy, definition(Buoy))
        config = everything()[name]
        applied = await client.apply(config)
        assert apply_would_change(owned_document(config), applied, MANAGER) == (name == "a stateful set")
        again = await client.apply(config)
        assert again.metadata.resource_version == applied.metadata.resource_version


async def test_a_status_with_empty_lists(envtest: Envtest) -> None:
    async with connect(envtest.config) as transport:
        client = Client(transport, field_manager=MANAGER)
        await define(client, Buoy, definition(Buoy))
        metadata = ObjectMetaApply(name="described", namespace=NAMESPACE)
        buoy = await client.apply(BuoyApply(metadata=metadata, spec=BuoySpecApply(depth=1)))
        status = BuoyStatus(depth=0, note="")
        described = await client.apply_status(buoy, status)
        assert not apply_would_change(status_document(described, status), described, MANAGER, "status")
