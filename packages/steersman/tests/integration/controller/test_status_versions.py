"""Status updates in a new API version, on the real API server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import pytest

from apiserver_cases.backends import RealBackend
from framework_support import status_versions
from steersman.client import Client, Transport, connect
from steersman_testing.envtest import Envtest


@pytest.fixture
async def transport(envtest: Envtest) -> AsyncGenerator[Transport]:
    async with connect(envtest.config) as transport, AsyncExitStack() as stack:
        client = Client(transport)
        hook = await RealBackend(envtest.config, stack).serve_webhook(status_versions.convert)
        definition = await client.create(status_versions.crd(hook))
        await status_versions.wait_until_served(transport)
        yield transport
        await client.delete(type(definition), definition.key)


async def test_first_status_update_on_the_real_server(transport: Transport) -> None:
    await status_versions.check_renamed_field_survives(transport)
    await status_versions.check_other_managers_keep_their_fields(transport)
