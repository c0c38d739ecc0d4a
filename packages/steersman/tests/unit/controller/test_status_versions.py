"""Status updates of an operator that changes its API version."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from framework_support import status_versions
from steersman.client import Client, Transport
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time

WEBHOOK_URL = "https://conversion.example.com/convert"


@pytest.mark.parametrize(
    "check", [status_versions.check_renamed_field_survives, status_versions.check_other_managers_keep_their_fields]
)
@virtual_time
async def test_first_status_update_in_a_new_version(check: Callable[[Transport], Awaitable[None]]) -> None:
    server = InMemoryApiServer(virtual_runtime())
    server.serve_webhook(WEBHOOK_URL, status_versions.convert)
    await Client(server).create(status_versions.crd({"url": WEBHOOK_URL}))
    await status_versions.wait_until_served(server)
    await check(server)
